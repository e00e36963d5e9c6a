"""`tenure schedule list`: every job, when it fires next, and how it stands. Only reads, and asks nobody.

What is shown as now is this host's clock against the store's: for people, and nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec
from rich.table import Table

from tenure.cli.numbers import Whole
from tenure.cli.queue_look import AS_JSON
from tenure.cli.running import run_until_stopped
from tenure.cli.schedule_place import now_ms, open_schedule, read_on, scheduled, unread
from tenure.cli.schedule_text import NEVER, lasting, local, style_of, utc, utc_beside, when, word_of, zone_name
from tenure.cli.text import console_for_output, fitting_table, marked, show_json
from tenure.errors import ConfigError
from tenure.ledger import LedgerState
from tenure.observe.ledgers import why_nobody
from tenure.observe.printable import printable
from tenure.plugins.scheduler import JobView, OccurrenceRecord
from tenure.plugins.scheduler.clerk import MAX_JOBS
from tenure.plugins.scheduler.looking import job_of, machine_of, record_of, stats_of
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.timetable import jitter_of, timetable_of

OVERDUE_MS = 60_000
"""What has not been decided on so long after its time waits for somebody."""
OVERDUE = "overdue"
UNKNOWN = "unknown code"
_TOLD = 5


class Listed(msgspec.Struct, frozen=True):
    """A job, and how it stands."""

    view: JobView
    state: str
    """`ready`, `running`, `waiting`, `paused`, `disabled`, `over`, `overdue`, `unknown code` or `unclear`; two of them
    where a job that does not fire is still at work."""
    overdue_ms: int | None
    """The first of its times that should have been decided on long ago."""

    def flat(self) -> dict[str, Any]:
        view = self.view
        shown = {name: getattr(view, name) for name in view.__struct_fields__ if name != "definition"}
        return {
            **shown,
            "state": self.state,
            "next_utc": None if view.next_ms is None else utc(view.next_ms, exact=True),
            "next_local": None if view.next_ms is None else local(view.next_ms, view.timezone, exact=True),
            "overdue_ms": self.overdue_ms,
            "definition": view.definition,
        }


class Listing(msgspec.Struct, frozen=True):
    name: str
    jobs: list[Listed]
    total: int
    paused: bool
    inbox: int
    now_ms: int
    why_nobody: str
    """Where something is overdue: why nobody decides."""


@click.command("list", short_help="List the jobs, and when each fires next.")
@scheduled
@click.option("--limit", type=Whole(1, MAX_JOBS), default=1000, show_default=True, help="At most so many jobs.")
@AS_JSON
def list_jobs(url: str, name: str, limit: int, as_json: bool) -> int:
    """List the jobs of a schedule at URL: when each fires next, what became of its last occurrence, how it stands.

    Only reads. The next time is without jitter, in the job's own time zone and in UTC.

    \b
    ready         waits for its next time
    running       is at work; `waiting`: for an earlier run to end, or to be tried again
    paused        by `pause`; `disabled`: by its definition
    over          will not fire any more
    overdue       should have fired: nobody leads this schedule
    unknown code  should have fired: whoever leads does not have its code

    Exit code 0: here they are, if any; 1: there is no such schedule; 2: it could not be told.
    """
    found = run_until_stopped(_list(url, name, limit))
    if as_json:
        show_json(
            {
                "schedule": found.name,
                "paused": found.paused,
                "inbox": found.inbox,
                "total": found.total,
                "jobs": [each.flat() for each in found.jobs],
            }
        )
        return 0
    if found.jobs:
        console = console_for_output()
        console.print(fitting_table(console, [lambda: _wide(found), lambda: _narrow(found)]))
    else:
        click.echo(printable(f"the schedule {name!r} has no jobs"))
    _tell_what_is_odd(found)
    return 0


async def _list(url: str, name: str, limit: int) -> Listing:
    async with open_schedule(url, name) as store:
        state = unread()
        machine = await read_on(store, state)
        now = now_ms(state)
        jobs = [_listed(state, id, now) for id in sorted(machine.jobs)[:limit]]
        inbox = (await stats_of(store, state)).inbox
    why = await why_nobody(url, state) if any(each.state == OVERDUE for each in jobs) else ""
    return Listing(name, jobs, len(machine.jobs), machine.paused, inbox, now, why)


def _listed(state: LedgerState, id: str, now: int) -> Listed:
    machine = machine_of(state)
    known = machine.jobs[id]
    view = msgspec.structs.replace(job_of(state, id, now), last=_newest(machine, id))
    overdue: int | None = None
    if machine.is_active(known):
        try:
            first = timetable_of(known.job, known.anchor_ms).next_after(known.decided_ms)
        except ConfigError:
            first = None
        if first is not None and first + jitter_of(known.job, first) + OVERDUE_MS < now:
            overdue = first
    return Listed(view, _standing(view, overdue, state.time_ms), overdue)


def _newest(machine: ScheduleMachine, id: str) -> OccurrenceRecord | None:
    """Of its occurrences and of its runs by hand."""
    number = max((*machine.open_of.get(id, ()), *machine.history_of.get(id, ())), default=0)
    found = machine.open.get(number) or machine.history.get(number)
    return record_of(found) if found is not None else None


def _standing(view: JobView, overdue: int | None, decided_ms: int) -> str:
    """`decided_ms`: when anything was decided last, on whichever job."""
    if not view.enabled:
        state = "disabled"
    elif view.paused:
        state = "paused"
    elif overdue is not None:  # who is at work decides, also that it has no time for more
        return UNKNOWN if overdue + OVERDUE_MS < decided_ms else OVERDUE
    elif view.next_ms is None:
        state = "unclear" if view.note else "over"
    else:
        state = "ready"
    if not view.running and not view.waiting:
        return state
    word, count = ("running", view.running) if view.running else ("waiting", view.waiting)
    counted = word if count == 1 else f"{word} ({count})"
    return counted if state in ("ready", "over") else f"{state}, {counted}"


def _style(state: str) -> str:
    if "running" in state:
        return "green"
    if state in (OVERDUE, UNKNOWN, "unclear"):
        return "red"
    return "yellow" if "paused" in state or "waiting" in state else "dim" if state != "ready" else ""


def _styled(text: str, style: str) -> str:
    return f"[{style}]{marked(text)}[/]" if style else marked(text)


def _last(view: JobView, now: int) -> tuple[str, str]:
    """What became of the last occurrence, and how long ago that was."""
    last = view.last
    if last is None:
        return "", ""
    at_ms = last.finished_ms or last.started_ms or last.decided_ms
    return word_of(last), f"{lasting(now - at_ms)} ago"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=column not in ("job", "when"), overflow="fold")
    return table


def _wide(found: Listing) -> Table:
    table = _table("job", "when", "next", "UTC", "in", "last", "state")
    for each in found.jobs:
        view = each.view
        schedule = view.definition.schedule
        next_ms = view.next_ms
        word, ago = _last(view, found.now_ms)
        table.add_row(
            f"[bold]{marked(view.id)}[/]",
            marked(" ".join(filter(None, (when(schedule), zone_name(schedule))))),
            NEVER if next_ms is None else local(next_ms, view.timezone),
            "" if next_ms is None else utc_beside(next_ms, view.timezone),
            "" if next_ms is None else lasting(next_ms - found.now_ms),
            f"{_styled(word, style_of(word))} [dim]{ago}[/]",
            _styled(each.state, _style(each.state)),
        )
    return table


def _narrow(found: Listing) -> Table:
    """Two lines for each."""
    table = _table("job", "next", "last", "state")
    for each in found.jobs:
        view = each.view
        schedule = view.definition.schedule
        next_ms = view.next_ms
        word, ago = _last(view, found.now_ms)
        beside = "" if next_ms is None else utc_beside(next_ms, view.timezone)
        soon = "" if next_ms is None else f"in {lasting(next_ms - found.now_ms)}"
        zone = zone_name(schedule)
        table.add_row(
            f"[bold]{marked(view.id)}[/]\n[dim]{marked(' '.join(filter(None, (when(schedule), zone))))}[/]",
            NEVER
            if next_ms is None
            else f"{local(next_ms, view.timezone)}\n[dim]{', '.join(filter(None, (beside, soon)))}[/]",
            f"{_styled(word, style_of(word))}\n[dim]{ago}[/]" if word else "",
            _styled(each.state, _style(each.state)),
        )
    return table


def _named(jobs: Sequence[Listed]) -> str:
    names = ", ".join(repr(each.view.id) for each in jobs[:_TOLD])
    others = len(jobs) - _TOLD
    return f"{names} and {others:,} more" if others > 0 else names


def _tell_what_is_odd(found: Listing) -> None:
    notes = []
    if found.paused:
        notes.append("everything is paused: `tenure schedule resume --all` goes on")
    overdue = [each for each in found.jobs if each.state == OVERDUE]
    if overdue:
        notes.append(f"no decision on {_named(overdue)}, which should have fired: {found.why_nobody}")
    unknown = [each for each in found.jobs if each.state == UNKNOWN]
    if unknown:
        why = "whoever leads does not have the code, or the time zone"
        notes.append(f"no decision on {_named(unknown)}, which should have fired: {why}")
    notes += [f"{each.view.id!r}: {each.view.note}" for each in found.jobs if each.state == "unclear"][:_TOLD]
    if found.inbox:
        what = "object lies" if found.inbox == 1 else "objects lie"
        notes.append(f"{found.inbox:,} {what} in the inbox, with what was asked for and no leader has read yet")
    if found.total > len(found.jobs):
        notes.append(f"there are {found.total:,} jobs: see --limit")
    for note in notes:
        click.echo(printable(f"tenure: {note}"), err=True)

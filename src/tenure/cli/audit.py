"""`tenure audit`: is the history of leaders whole?"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tenure.cli.durations import short_time
from tenure.cli.place import open_namespace, placed
from tenure.cli.running import run_until_stopped
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.audit import Audit, OnProgress, TermEnd, TermSeen, audit
from tenure.store import Access

_SHOWN = 20
_STRIP_CELLS = 72
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "bright_red", "bright_green", "bright_cyan")
_TOLD_EVERY = 1000
_ENDED = {
    TermEnd.HOLDS: "holds the lease",
    TermEnd.RELEASED: "released",
    TermEnd.REPLACED: "replaced",
    TermEnd.DAMAGED: "lease damaged, then rebuilt",
    TermEnd.NEVER_LED: "never led: its winner did not get as far",
    TermEnd.UNKNOWN: "",
}


@click.command(name="audit", short_help="Check the record of every leadership ever granted.")
@placed
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def audit_command(url: str, namespace: str, as_json: bool) -> int:
    """Check the record of every leadership that was ever granted at URL: one leader per epoch, no number missing, and a
    lease that fits it.

    Only reads. Exit code 0: all is right; 1: something is not, and is named; 2: it could not be told.
    """
    with _progress() as progress:
        result = run_until_stopped(_audit(url, namespace, progress))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
    else:
        show(result, Console(highlight=False))
    if not result.founded:
        click.echo(f"tenure: there is no namespace {namespace!r} at this URL: check both names", err=True)
        return 2
    return 0 if result.ok else 1


async def _audit(url: str, namespace: str, progress: OnProgress) -> Audit:
    async with open_namespace(url, namespace, Access.READ_ONLY) as store:
        return await audit(store, namespace, SYSTEM_CLOCK, progress=progress)


@contextlib.contextmanager
def _progress() -> Iterator[OnProgress]:
    """A count on a terminal, a line for every thousand records elsewhere; always on standard error."""
    if not sys.stderr.isatty():
        told = [0]

        def line(records: int) -> None:
            if records - told[0] >= _TOLD_EVERY:
                told[0] = records
                click.echo(f"{records} terms read", err=True)

        yield line
        return
    with Console(stderr=True).status("reading the history") as status:
        yield lambda records: status.update(f"reading the history: {records} terms")


def show(result: Audit, console: Console) -> None:
    """Print the result for a person."""
    if not result.founded:
        return
    if result.timeline:
        shown = result.timeline[-_SHOWN:]
        colours = _colours(shown)
        if (strip := _strip(shown, colours)) is not None:
            console.print(strip, soft_wrap=True)
        table = Table("epoch", "leader", "elected at", "held for about", "ended")
        for term in shown:
            held = "" if term.held_seconds is None else _about(term.held_seconds)
            leader = Text(term.leader or "?", colours.get(term.leader or "", ""))
            table.add_row(str(term.epoch), leader, escape(short_time(term.elected_at)), held, _note(term))
        console.print(table)
        console.print("[dim]times are by the clocks of the leaders, which nobody compared[/]")
        if result.terms > len(shown):
            console.print(f"[dim]the newest {len(shown)} of {result.terms} terms (--json shows more)[/]")
    for finding in result.findings:
        console.print(f"[red]{finding.kind.value}[/] {escape(finding.key)}: {escape(finding.detail)}", soft_wrap=True)
    if result.findings_left_out:
        console.print(f"[red]and {result.findings_left_out} more findings[/]")
    if result.ok:
        console.print(f"[bold green]right[/]: {_count(result.terms)} on record, one leader each, no number missing")
    else:
        console.print(
            "[bold red]not right[/]: somebody other than tenure has written to the objects above, or removed some. "
            "Epochs stay safe: a lease that does not fit is set aside, and rebuilt above the history. Find out who "
            "writes there; if you need the history, restore those objects from a backup, or from their older versions.",
            soft_wrap=True,
        )


def _colours(terms: Sequence[TermSeen]) -> dict[str, str]:
    leaders = dict.fromkeys(term.leader for term in terms if term.leader)
    return {leader: _COLOURS[index % len(_COLOURS)] for index, leader in enumerate(leaders)}


def _strip(terms: Sequence[TermSeen], colours: dict[str, str]) -> Text | None:
    """Who led, from left to right, as long as they did; a gap of one cell between two terms."""
    held = [term for term in terms if term.held_seconds is not None]
    total = sum(term.held_seconds or 0.0 for term in held)
    if len(held) < 2 or total <= 0:
        return None
    room = max(len(held), _STRIP_CELLS - 2 * len(held))
    strip = Text()
    for term in held:
        strip.append("█" * max(1, round((term.held_seconds or 0.0) / total * room)), colours.get(term.leader or "", ""))
        strip.append(" ")
    return strip


def _note(term: TermSeen) -> str:
    return "; ".join(
        note for note in (_ENDED[term.ended], "began with a rebuilt lease" if term.after_damage else "") if note
    )


def _about(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _count(terms: int) -> str:
    return "1 term" if terms == 1 else f"{terms} terms"

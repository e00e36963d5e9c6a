"""`tenure schedule history`: what became of occurrences, newest first. Only reads, and asks nobody."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console

from tenure.cli.numbers import Whole
from tenure.cli.queue_look import AS_JSON
from tenure.cli.queue_place import QueueCommand
from tenure.cli.running import run_until_stopped
from tenure.cli.schedule_place import ensure_known, open_schedule, read_on, scheduled, unread
from tenure.cli.schedule_text import WORDS, Line, chosen_by, lasting, show_lines, style_of, utc, word_of
from tenure.cli.text import console_for_output, show_json
from tenure.observe.printable import printable
from tenure.plugins.scheduler import OccurrenceRecord
from tenure.plugins.scheduler.looking import history_of
from tenure.plugins.scheduler.state import MAX_RECORDS


@click.command(cls=QueueCommand, short_help="Tell what became of occurrences, newest first.")
@scheduled
@click.argument("job", required=False)
@click.option("--limit", type=Whole(1, MAX_RECORDS), default=20, show_default=True, help="At most so many.")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice(WORDS),
    multiple=True,
    metavar="WORD",
    help=f"Only these; may be repeated: {', '.join(WORDS)}.",
)
@AS_JSON
def history(url: str, job: str | None, name: str, limit: int, outcomes: tuple[str, ...], as_json: bool) -> int:
    """Tell what became of the occurrences of JOB, or of all jobs, of the schedule at URL, newest first. Only reads.

    A job keeps as many records as its definition says (100), also for a while after it was removed. Occurrences in a
    row that did not fire for the same reason are one record.

    Exit code 0: here they are, if any; 1: there is no such job, or schedule; 2: it could not be told.
    """
    records = run_until_stopped(_history(url, name, job, limit, outcomes))
    if as_json:
        show_json({"schedule": name, "job": job, "records": records})
    elif not records:
        click.echo(printable(f"nothing {'of that kind ' if outcomes else ''}is on record of {job or name!r}"))
    else:
        _show_records(console_for_output(), records, with_job=job is None)
    return 0


async def _history(url: str, name: str, id: str | None, limit: int, outcomes: Sequence[str]) -> list[OccurrenceRecord]:
    async with open_schedule(url, name) as store:
        state = unread()
        machine = await read_on(store, state)
    if id is not None:
        ensure_known(id, {**machine.jobs, **machine.history_of, **machine.open_of}, name)
    if not outcomes:
        return history_of(state, id, limit)
    found = history_of(state, id, MAX_RECORDS + len(machine.open))
    return [record for record in found if chosen_by(record, outcomes)][:limit]


def _show_records(console: Console, records: Sequence[OccurrenceRecord], *, with_job: bool) -> None:
    header = ("scheduled", "job", "outcome", "late", "took", "attempts", "on")
    if not with_job:
        header = ("scheduled", "", *header[2:])
    lines = []
    for each in records:
        began, ended = each.started_ms, each.finished_ms
        word = word_of(each)
        lines.append(
            Line(
                (
                    utc(each.scheduled_ms),
                    each.job if with_job else "",
                    word,
                    lasting(began - each.scheduled_ms) if began and not each.manual and each.attempts == 1 else "",
                    lasting(ended - began) if began and ended else "",
                    str(each.attempts) if each.attempts > 1 else "",
                    each.worker if console.width >= 100 else "",
                ),
                _note(each),
                {2: style_of(word), 6: "dim"},
            )
        )
    show_lines(console, header, lines, right=(3, 4, 5))


def _note(record: OccurrenceRecord) -> str:
    notes = []
    if record.manual:
        notes.append("by hand")
    if record.count > 1:
        notes.append(f"{record.count:,} in a row, until {utc(record.to_ms)}")
    if record.interruptions:
        times = "once" if record.interruptions == 1 else f"{record.interruptions:,} times"
        notes.append(f"cut short {times}")
    if record.retry_ms:
        notes.append(f"tried again at {utc(record.retry_ms)}")
    if record.error:
        notes.append(record.error)
    return "; ".join(notes)

"""`tenure audit`: is the history of leaders whole?"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence

import click
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tenure.cli.durations import short_time
from tenure.cli.place import open_namespace, placed
from tenure.cli.running import run_until_stopped
from tenure.cli.text import console_for_output, marked, show_json
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.audit import Audit, OnProgress, TermEnd, TermSeen, audit
from tenure.errors import ConfigError
from tenure.observe.printable import printable
from tenure.store import Access

_SHOWN = 20
_STRIP_CELLS = 72
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "bright_red", "bright_green", "bright_cyan")
_TOLD_EVERY = 1000
_NARROWEST_NOTE = 12
_LEAST_IMPORTANT = ("held for about", "elected at")
"""What a narrow terminal does without, in this order."""
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
    if not result.founded:
        raise ConfigError(f"there is no namespace {namespace!r} at this URL: check both names")
    if as_json:
        show_json(result)
    else:
        show(result, console_for_output())
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
    if result.timeline:
        shown = result.timeline[-_SHOWN:]
        colours = _colours(shown)
        if console.is_terminal and (strip := _strip(shown, colours)) is not None:
            console.print("[dim]who led, and for how long:[/] ", strip, soft_wrap=True)
        table, left_out = _table(shown, colours, console)
        console.print(table)
        if left_out:
            console.print(f"[dim]a wider terminal has room for: {', '.join(left_out)}[/]")
        console.print("[dim]times are by the clocks of the leaders, which nobody compared[/]")
        if result.terms > len(shown):
            console.print(f"[dim]the newest {len(shown)} of {result.terms} terms (--json shows more)[/]")
    for finding in result.findings:
        console.print(f"[red]{finding.kind.value}[/] {marked(finding.key)}: {marked(finding.detail)}", soft_wrap=True)
    if result.findings_left_out:
        console.print(f"[red]and {result.findings_left_out} more findings[/]")
    if result.ok and not result.terms:
        console.print("[bold green]right[/]: nobody has led here yet, and nothing shows that anybody did")
    elif result.ok:
        console.print(f"[bold green]right[/]: {_count(result.terms)} on record, one leader each, no number missing")
    else:
        console.print(
            "[bold red]not right[/]: somebody other than tenure has written to the objects above, or removed some. "
            "Epochs stay safe: a lease that does not fit is set aside, and rebuilt above the history. Find out who "
            "writes there; if you need the history, restore those objects from a backup, or from their older versions.",
            soft_wrap=True,
        )


def _table(terms: Sequence[TermSeen], colours: dict[str, str], console: Console) -> tuple[Table, tuple[str, ...]]:
    """As many columns as there is room for without cutting any, and the names of those left out."""
    for dropped in range(len(_LEAST_IMPORTANT) + 1):
        left_out = _LEAST_IMPORTANT[:dropped]
        table = _table_without(left_out, terms, colours, whole=True)
        if sum(column.min_width or 0 for column in table.columns) + 3 * len(table.columns) + 1 <= console.width:
            return table, left_out
    return _table_without(left_out, terms, colours, whole=False), left_out


def _table_without(
    left_out: Sequence[str], terms: Sequence[TermSeen], colours: dict[str, str], *, whole: bool
) -> Table:
    """`whole`: names and times stay on one line; else they are folded where they must be."""
    cells: dict[str, list[Text]] = {
        "epoch": [Text(str(term.epoch)) for term in terms],
        "leader": [Text(printable(term.leader or "?"), colours.get(term.leader or "", "")) for term in terms],
        "elected at": [Text(printable(short_time(term.elected_at))) for term in terms],
        "held for about": [Text("" if term.held_seconds is None else _about(term.held_seconds)) for term in terms],
    }
    shown = {name: column for name, column in cells.items() if name not in left_out}
    notes = [Text(_note(term)) for term in terms]
    columns = [
        Column(name, no_wrap=True, min_width=max(len(name), _widest(column)))
        if whole
        else Column(name, overflow="fold")
        for name, column in shown.items()
    ]
    least = min(_NARROWEST_NOTE, _widest(notes)) if whole else None
    table = Table(*columns, Column("ended", min_width=least, overflow="fold"))
    for row in zip(*shown.values(), notes, strict=True):
        table.add_row(*row)
    return table


def _widest(column: Sequence[Text]) -> int:
    return max(cell.cell_len for cell in column)


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

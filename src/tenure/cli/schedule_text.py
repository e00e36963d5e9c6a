"""Times, outcomes and lines of a schedule, as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tenure.errors import ConfigError
from tenure.observe.printable import printable
from tenure.plugins.scheduler import OccurrenceRecord, Outcome, State
from tenure.plugins.scheduler.job import At, Cron, Every, Schedule
from tenure.plugins.scheduler.schedule import zone_of

NEVER = "–"
WORDS = tuple(dict.fromkeys([*(each.value for each in State), *(each.value for each in Outcome)]))
"""By which occurrences are told and chosen: what was decided on one or, of one that fired, how far it has come."""
_BAD = frozenset({Outcome.FAILED.value, Outcome.INTERRUPTED.value, State.CUT_SHORT.value})
_POOR = frozenset(
    {Outcome.MISSED_WINDOW.value, Outcome.SKIPPED_OVERLAP.value, Outcome.COALESCED.value, State.BACKING_OFF.value}
)
_GAP = "  "
_INDENT = "    "
_DAY = 86_400


# Times


def utc(at_ms: int, *, exact: bool = False) -> str:
    """`2026-03-29 01:00Z`; seconds where there are some. `exact`: milliseconds too. What is no time stays a number."""
    return _stamp(at_ms, UTC, exact)


def local(at_ms: int, timezone: str, *, exact: bool = False) -> str:
    """`2026-03-29 03:00 +02:00`."""
    try:
        return _stamp(at_ms, zone_of(timezone), exact)
    except ConfigError:
        return utc(at_ms, exact=exact)  # the zone of another machine


def utc_beside(at_ms: int, timezone: str, *, exact: bool = False) -> str:
    """`01:00Z`, and with its date where that is another day; empty where local time is UTC."""
    there, here = local(at_ms, timezone, exact=exact), utc(at_ms, exact=exact)
    if there == here:
        return ""
    return here[11:] if there[:10] == here[:10] else here


def _stamp(at_ms: int, zone: tzinfo, exact: bool) -> str:
    try:
        when = datetime.fromtimestamp(at_ms // 1000, zone)
    except (ValueError, OverflowError, OSError):
        return str(at_ms)
    fraction = f".{at_ms % 1000:03d}" if exact and at_ms % 1000 else ""
    seconds = f":{when:%S}" if when.second or fraction else ""
    offset = "Z" if zone is UTC or str(zone) == "UTC" else f" {when.isoformat()[19:]}"
    return f"{when:%Y-%m-%d %H:%M}{seconds}{fraction}{offset}"


def lasting(ms: int) -> str:
    """About how long: `350 ms`, `1.5 s`, `14 min`, `2 h 10 min`, `3 d 4 h`, `2 y 30 d`."""
    if ms < 1000:
        return f"{max(0, ms)} ms"
    seconds = ms // 1000
    if seconds < 10 and ms % 1000 >= 50:
        return f"{ms / 1000:.1f} s"
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    for large, name, small, rest_name, most in (
        (3600, "h", 60, "min", 48),
        (_DAY, "d", 3600, "h", 10),
        (_DAY, "d", _DAY, "d", 730),
        (365 * _DAY, "y", _DAY, "d", 10**9),
    ):
        if seconds < most * large:
            rest = seconds % large // small
            return f"{seconds // large:,} {name}" + (f" {rest} {rest_name}" if rest else "")
    return f"{seconds // (365 * _DAY):,} y"


def _period(ms: int) -> str:
    """Exactly: `125 s`, `2 min`, `1 h`."""
    for unit, name in ((_DAY * 1000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms % unit == 0:
            return f"{ms // unit:,} {name}"
    return f"{ms / 1000:,.15g} s"


def when(schedule: Schedule) -> str:
    """`0 3 * * *`, `every 15 min`, `at 2030-01-01 00:00Z`."""
    match schedule:
        case Cron(text):
            return text
        case Every(period_ms):
            return f"every {_period(period_ms)}"
        case At(at_ms):
            return f"at {utc(at_ms)}"


def zone_name(schedule: Schedule) -> str:
    """Empty where it is UTC, or does not matter."""
    return schedule.timezone if isinstance(schedule, Cron) and schedule.timezone != "UTC" else ""


# Outcomes


def word_of(record: OccurrenceRecord) -> str:
    """`done`, `running`, `failed`, `missed-window` …: one word for what became of it."""
    return record.state if record.outcome == Outcome.FIRED.value else record.outcome


def chosen_by(record: OccurrenceRecord, words: Sequence[str]) -> bool:
    return not words or word_of(record) in words or record.outcome in words


def style_of(word: str) -> str:
    return "red" if word in _BAD else "yellow" if word in _POOR else "green" if word == State.RUNNING.value else ""


# Lines


class Line(msgspec.Struct, frozen=True):
    """Some cells, and what is to be said of them on lines of its own below."""

    cells: Sequence[str]
    note: str = ""
    styles: dict[int, str] = {}


def show_lines(console: Console, header: Sequence[str], lines: Sequence[Line], right: Sequence[int] = ()) -> None:
    """Columns that are as wide as what is in them. Everything is made printable here. `right`: columns of numbers."""
    header = [printable(title) for title in header]
    rows = [[printable(cell) for cell in line.cells] for line in lines]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    shown = [at for at, column in enumerate(columns) if any(column[1:])]  # a column with nothing in it says nothing
    head = _GAP.join(_padded(header[at], widths[at], at in right) for at in shown).rstrip()
    console.print(Text(head, style="dim", no_wrap=False, overflow="fold"))
    for line, row in zip(lines, rows, strict=True):
        text = Text(overflow="fold")
        for at in shown:
            text.append(_padded(row[at], widths[at], at in right), style=line.styles.get(at, ""))
            text.append(_GAP)
        text.rstrip()
        console.print(text)
        if line.note:
            note = Text(printable(line.note), style="dim")
            for part in note.wrap(console, max(20, console.width - len(_INDENT)), overflow="fold"):
                part.rstrip()
                console.print(Text.assemble(_INDENT, part), soft_wrap=True)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks

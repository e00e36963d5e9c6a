"""Times and outcomes of a schedule as people read them."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from tenure import at, cron, every
from tenure.cli.schedule_text import Line, lasting, local, show_lines, utc, utc_beside, when, zone_name
from tenure.plugins.scheduler.job import Schedule

SPRING = int(datetime(2026, 3, 29, 1, 0, tzinfo=UTC).timestamp() * 1000)
_HOUR, _DAY = 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (-5, "0 ms"),
        (350, "350 ms"),
        (1500, "1.5 s"),
        (9_000, "9 s"),
        (119_900, "119 s"),
        (120_000, "2 min"),
        (2 * _HOUR - 1, "119 min"),
        (2 * _HOUR + 600_000, "2 h 10 min"),
        (3 * _DAY + 4 * _HOUR, "3 d 4 h"),
        (40 * _DAY + 4 * _HOUR, "40 d"),
        (800 * _DAY, "2 y 70 d"),
        (7000 * 365 * _DAY, "7,000 y"),
    ],
)
def test_how_long(ms: int, told: str) -> None:
    assert lasting(ms) == told


def test_the_same_instant_in_two_places() -> None:
    assert (utc(SPRING), local(SPRING, "Europe/Berlin")) == ("2026-03-29 01:00Z", "2026-03-29 03:00 +02:00")
    assert utc_beside(SPRING, "Europe/Berlin") == "01:00Z"
    assert utc_beside(SPRING, "America/New_York") == "2026-03-29 01:00Z"  # it is the evening before, there
    assert (utc_beside(SPRING, "UTC"), local(SPRING, "Not/Known")) == ("", "2026-03-29 01:00Z")
    assert (utc(SPRING + 7001), utc(SPRING + 7001, exact=True)) == ("2026-03-29 01:00:07Z", "2026-03-29 01:00:07.001Z")
    assert utc(2**60) == str(2**60)


@pytest.mark.parametrize(
    ("schedule", "told", "zone"),
    [
        (cron("0 3 * * *", timezone="Europe/Berlin"), "0 3 * * *", "Europe/Berlin"),
        (cron("@daily"), "@daily", ""),
        (every(125), "every 125 s", ""),
        (every(1.5), "every 1.5 s", ""),
        (every(7200), "every 2 h", ""),
        (every(3 * 86400), "every 3 d", ""),
        (at(datetime(2036, 1, 1, tzinfo=UTC)), "at 2036-01-01 00:00Z", ""),
    ],
)
def test_when(schedule: Schedule, told: str, zone: str) -> None:
    assert (when(schedule), zone_name(schedule)) == (told, zone)


def test_columns_notes_and_what_is_not_for_a_terminal() -> None:
    console = Console(width=40, file=io.StringIO())
    lines = [
        Line(("a\x1b[2J", "", "7"), "\x07 " + "a note that is longer than the terminal is wide"),
        Line(("日本語", "", "12345")),
    ]
    show_lines(console, ("name", "nothing", "count"), lines, right=(2,))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue().splitlines()
    assert shown[0] == "name      count"
    assert shown[1] == r"a\x1b[2J      7"
    assert shown[2].startswith(r"    \x07 a note")
    assert shown[-1] == "日本語    12345"
    assert max(map(len, shown)) <= 40

"""What sets the counters of one seed apart from another's: settings, and bounds that are met within minutes.

In production an hour lasts an hour, and a page has thousands of rows. Here both are small for as long as a seed runs:
pages are sealed, written and put together while everything goes wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import tzinfo
from typing import Any

from tenure.entropy import Random
from tenure.plugins.counters import (
    annals,
    applying,
    clerk,
    leading,
    looking,
    pages,
    rounds,
    state,
)
from tenure.plugins.counters.records import Moment
from tenure.plugins.counters.settings import Retention
from tenure.testing.machine import EPOCH_SECONDS

HOUR, DAY, MONTH = 8_000, 24_000, 72_000
"""Milliseconds, by the calendar of seeds whose time flies."""
AGE = 2_000
"""After so many of these (26 for hours, 32 for days) what was filed is put together by that calendar."""
_NEXT_HOUR = 1_700_002_800
_NEXT_MONTH = 1_701_388_800


class CountersKind:
    """A stream of its own: nothing else of a seed depends on it."""

    def __init__(self, seed: int) -> None:
        random = Random(f"{seed}/counters kind")
        self.conditional_delete = random.random() < 0.5
        self.interval = random.choice([0.3, 1.0, 5.0])
        self.fold_interval = random.choice([0.2, 0.5, 1.0])
        self.at_once = random.choice([1, 3, 32])
        self.offered = random.choice([1, 2, 3, 32])
        self.remembered = random.choice([1, 10_000])
        self.seal_rows = random.choice([3, 6, 20_000])
        self.chunk_rows = random.choice([1, 2, 5_000])
        self.many_pages = random.choice([3, 16])
        self.max_waiting = random.choice([3, 100_000])
        self.calendar = random.choice(["flies", "turns", "turns", "stands"])
        """Time flies; or a month, or only an hour, ends in the middle of the run; or nothing of that."""
        self.turns_to = random.choice([_NEXT_HOUR, _NEXT_MONTH])
        self.turns_at = random.uniform(60, 240)
        self.months = random.choice([1, 24])
        self.timezone = "UTC" if self.calendar == "turns" else random.choice(["UTC", "Asia/Kolkata", "Europe/Berlin"])

    @property
    def clock_offset(self) -> float | None:
        """Of the store, so that time turns when it should; `None`: any."""
        return self.turns_to - EPOCH_SECONDS - self.turns_at if self.calendar == "turns" else None

    @property
    def retention(self) -> Retention:
        return Retention(hours=2, days=3, months=self.months)

    @property
    def keeps_all_months(self) -> bool:
        """Are roll-ups by month complete at the end?"""
        month_ends = self.calendar == "flies" or (self.calendar == "turns" and self.turns_to == _NEXT_MONTH)
        return self.months > 1 or not month_ends

    @contextlib.contextmanager
    def bounds(self) -> Iterator[None]:
        """The bounds of this kind, for as long as the body runs."""
        chosen: list[tuple[Any, str, Any]] = [
            (state, "MAX_OFFERED", self.offered),
            (applying, "MAX_REMEMBERED", self.remembered),
            (clerk, "SEAL_ROWS", self.seal_rows),
            (pages, "CHUNK_ROWS", self.chunk_rows),
            (pages, "MANY_PAGES", self.many_pages),
            (leading, "MAX_WAITING", self.max_waiting),
            (annals, "LOOK", 5.0),
            (rounds, "RETRY", 1.0),
            (rounds, "LONGEST_RETRY", 8.0),
        ]
        if self.calendar == "flies":
            chosen += [(module, "moment_of", _moment_of) for module in (clerk, annals, looking)]
            chosen += [(looking, "week_of", _week_of), (pages, "HOUR_MS", AGE), (pages, "DAY_MS", AGE)]
        before = [(module, name, getattr(module, name)) for module, name, _ in chosen]
        try:
            for module, name, value in chosen:
                setattr(module, name, value)
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)


def _moment_of(ms: int, zone: tzinfo) -> Moment:
    return Moment(ms - ms % HOUR, ms - ms % DAY, ms - ms % MONTH)


def _week_of(day_ms: int, zone: tzinfo) -> int:
    return day_ms - day_ms % (2 * DAY)

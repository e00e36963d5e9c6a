"""Times of day as a page shows them: for people, and nothing is decided by them."""

from __future__ import annotations

from datetime import UTC, datetime

from tenure.clock import Clock, Reading


def wall_ms(now: Reading) -> int:
    return now.wall_ns // 1_000_000


def now_ms(clock: Clock) -> int:
    return wall_ms(clock.read())


def ms_of(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def parsed_ms(text: str) -> int | None:
    """`None` for what is no time of day: it was written by whoever can write to the bucket."""
    try:
        found = datetime.fromisoformat(text)
        return ms_of(found if found.tzinfo is not None else found.replace(tzinfo=UTC))
    except (ValueError, OverflowError, OSError):
        return None

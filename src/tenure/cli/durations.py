"""Durations as people write them: `500ms`, `30s`, `2m`, `1h`; and times as they read them."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_SHOWN = 60
_FORM = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float | None:
    """Seconds; `None` if it is no duration. A bare number is none: nobody can tell seconds from milliseconds."""
    found = _FORM.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _SECONDS[found[2]]


def between(shortest: float, longest: float) -> Callable[[str], float]:
    """The type of an option: `click.option("--timeout", type=between(0.1, 3600))` gives seconds."""

    def duration(text: str) -> float:
        seconds = parse_duration(text)
        if seconds is None:
            raise click.BadParameter(
                f"{text[:_MAX_SHOWN]!r} is no duration: give a number and its unit, such as 500ms, 30s or 2m"
            )
        if not shortest <= seconds <= longest:
            raise click.BadParameter(f"{text[:_MAX_SHOWN]} is not between {shortest:g}s and {longest:g}s")
        return seconds

    return duration


def short_time(at: str) -> str:
    """A time of day without milliseconds: `2026-05-01 12:00:00Z`. What is none of ours stays as it is."""
    return f"{at[:10]} {at[11:19]}Z" if len(at) > 19 and at[10] == "T" and at.endswith("+00:00") else at

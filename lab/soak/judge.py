"""Did it grow? Pure: series of samples and limits go in, rows with a verdict come out.

What a fleet holds goes up and down all the time, and a mean or a last value says little. What was judged is cut into
windows, and of each the least is taken. Growth is the median of all slopes between two of them (Theil and Sen), times
the length of what was judged: a quarter of the windows may be as wild as they like. What is judged begins after a
warm-up, in which pools fill and caches are made.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

Series = Sequence[tuple[float, float]]
"""(seconds, value), in order."""
_WINDOWS = 14
"""What is judged is cut into so many, and the least of each counts: whoever leads for a while holds more, and a log
grows until it is trimmed. What leaks is missing from no window's least."""
_FEWEST = 8
"""Samples below which nothing can be said."""


class Limit(msgspec.Struct, frozen=True):
    """By how much something may have grown at the end of what was judged: the larger of the three."""

    least: float
    """In its own unit, however long it took."""
    an_hour: float = 0.0
    """In its own unit."""
    share: float = 0.0
    """Of its median."""

    def of(self, seconds: float, median: float) -> float:
        return max(self.least, self.an_hour * seconds / 3600, self.share * median)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    who: str
    what: str
    samples: int
    minutes: float
    first: float
    """The median of the first tenth of what was judged, and ..."""
    last: float
    growth: float
    """By the median slope between the windows, over what was judged."""
    limit: float
    enough: bool
    """There were samples to judge."""

    @property
    def is_flat(self) -> bool:
        return self.enough and self.growth <= self.limit


def slope(series: Series) -> float:
    """The median of the slopes between any two: per second."""
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(series)
        for later in series[index + 1 :]
        if later[0] > earlier[0]
    ]
    return statistics.median(slopes) if slopes else 0.0


def condensed(series: Series, windows: int = _WINDOWS) -> list[tuple[float, float]]:
    """The least of each of `windows` pieces of equal length in time, at its middle."""
    if len(series) <= windows:
        return list(series)
    begin, length = series[0][0], (series[-1][0] - series[0][0]) / windows
    pieces: dict[int, list[float]] = {}
    for at, value in series:
        pieces.setdefault(min(windows - 1, int((at - begin) / length)), []).append(value)
    return [(begin + (number + 0.5) * length, min(piece)) for number, piece in sorted(pieces.items())]


def judge(who: str, what: str, series: Series, limit: Limit, *, after: float) -> Row:
    """`after`: the second at which the warm-up is over."""
    judged = [(at, value) for at, value in series if at >= after]
    if len(judged) < _FEWEST:
        return Row(
            who=who,
            what=what,
            samples=len(judged),
            minutes=0.0,
            first=0.0,
            last=0.0,
            growth=0.0,
            limit=0.0,
            enough=False,
        )
    seconds = judged[-1][0] - judged[0][0]
    values = [value for _, value in judged]
    tenth = max(1, len(values) // 10)
    return Row(
        who=who,
        what=what,
        samples=len(judged),
        minutes=round(seconds / 60, 1),
        first=statistics.median(values[:tenth]),
        last=statistics.median(values[-tenth:]),
        growth=slope(condensed(judged)) * seconds,
        limit=limit.of(seconds, statistics.median(values)),
        enough=True,
    )


def judge_all(
    everything: Mapping[tuple[str, str], Series], limits: Mapping[str, Limit], *, after: float
) -> tuple[Row, ...]:
    """`everything`: by (who, what); what has no limit of its own has that of the part before its first slash."""
    return tuple(
        judge(who, what, series, limits[what if what in limits else what.partition("/")[0]], after=after)
        for (who, what), series in sorted(everything.items())
    )


def table(rows: Sequence[Row]) -> list[str]:
    """For people. All that grew, and all else."""
    wide = max((len(row.what) for row in rows), default=4)
    lines = [f"{'who':6} {'what':{wide}} {'minutes':>7} {'first':>12} {'last':>12} {'growth':>12} {'limit':>12}"]
    for row in rows:
        verdict = "" if row.is_flat else "  GREW" if row.enough else "  TOO FEW SAMPLES"
        lines.append(
            f"{row.who:6} {row.what:{wide}} {row.minutes:7.1f} {row.first:12,.0f} {row.last:12,.0f} "
            f"{row.growth:+12,.1f} {row.limit:12,.1f}{verdict}"
        )
    return lines

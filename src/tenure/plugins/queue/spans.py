"""Pieces of segments, and the runs that they cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from tenure.plugins.queue.records import Run


def by_segment(pieces: Iterable[tuple[str, int, int]]) -> dict[str, list[tuple[int, int]]]:
    """In order; nothing twice, whatever a report says."""
    found: dict[str, list[tuple[int, int]]] = {}
    for segment, low, high in sorted(pieces):
        spans = found.setdefault(segment, [])
        low = max(low, spans[-1][1]) if spans else low
        if low < high:
            spans.append((low, high))
    return found


def split(run: Run, spans_of: dict[str, list[tuple[int, int]]]) -> tuple[list[Run], list[Run]]:
    """A run as the pieces of it that are meant, and the rest."""
    spans = spans_of.get(run.segment)
    if not spans:
        return [], [run]
    found: list[Run] = []
    rest: list[Run] = []
    at = run.low
    for place in range(max(0, bisect_right(spans, (run.low, run.low)) - 1), len(spans)):
        low, high = max(spans[place][0], run.low), min(spans[place][1], run.high)
        if spans[place][0] >= run.high:
            break
        if low >= high:
            continue
        if at < low:
            rest.append(run.part(at, low))
        found.append(run.part(low, high))
        at = high
    if not found:
        return [], [run]
    if at < run.high:
        rest.append(run.part(at, run.high))
    return found, rest

"""A line of a chart: bounded, with its newest points as they are and its older ones thinned."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.dashboard.bounds import MAX_POINTS
from tenure.dashboard.sections import Point


class Points:
    def __init__(self, most: int = MAX_POINTS) -> None:
        assert most >= 4
        self._most = most
        self._points: list[Point] = []

    def add(self, at_ms: int, values: Iterable[float | None]) -> None:
        """Values are seconds, and kept as milliseconds."""
        self._points.append((at_ms, *(None if value is None else round(value * 1000, 3) for value in values)))
        if len(self._points) > self._most:
            half = len(self._points) // 2
            self._points = self._points[:half:2] + self._points[half:]

    @property
    def all(self) -> list[Point]:
        return self._points

    def clear(self) -> None:
        self._points = []

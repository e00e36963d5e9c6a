"""Keeps labels bounded: the first so many values of each stay, and all that come after are together `other`."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from tenure.errors import ConfigError
from tenure.telemetry.catalogue import CAPPED, OTHER, Buckets, Family, Merge, Sample

MAX_VALUES = 200
MOST_VALUES = 10_000


class Limits:
    """Who was admitted once stays so: a series does not come and go with the order of a dictionary."""

    def __init__(self, max_values: int = MAX_VALUES) -> None:
        if isinstance(max_values, bool) or not isinstance(max_values, int) or not 1 <= max_values <= MOST_VALUES:
            raise ConfigError(f"max_values is {max_values!r}: give a whole number from 1 to {MOST_VALUES:,}")
        self._max_values = max_values
        self._admitted: dict[str, set[str]] = {label: set() for label in CAPPED}
        self._lock = threading.Lock()

    def apply(self, samples: Iterable[Sample]) -> list[Sample]:
        """The same, with labels bounded; those that have become alike are one."""
        found: dict[tuple[str, tuple[str, ...]], Sample] = {}
        with self._lock:
            for sample in samples:
                labels = tuple(map(self._value, sample.family.labels, sample.labels))
                key = (sample.family.name, labels)
                known = found.get(key)
                value = sample.value if known is None else merged(sample.family, known.value, sample.value)
                found[key] = Sample(sample.family, labels, value)
        return list(found.values())

    def _value(self, label: str, value: str) -> str:
        admitted = self._admitted.get(label)
        if admitted is None or value in admitted:
            return value
        if len(admitted) >= self._max_values:
            return OTHER
        admitted.add(value)
        return value


def merged(family: Family, one: float | Buckets, other: float | Buckets) -> float | Buckets:
    if isinstance(one, Buckets) or isinstance(other, Buckets):
        assert isinstance(one, Buckets)
        assert isinstance(other, Buckets)
        together = zip(one.cumulative, other.cumulative, strict=True)
        return Buckets(tuple((bound, count + more) for (bound, count), (_, more) in together), one.sum + other.sum)
    if family.merge is Merge.MAX:
        return max(one, other)
    return min(one, other) if family.merge is Merge.MIN else one + other

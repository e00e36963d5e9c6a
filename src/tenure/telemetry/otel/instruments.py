"""Every metric of the catalogue as an observable instrument: it is asked for when the program's reader wants it.

Names follow OpenTelemetry: `tenure_queue_oldest_message_age_seconds` is `tenure.queue.oldest_message_age`, in `s`.
There are no observable histograms, so each is three counters: `.bucket` (by `le`, cumulative), `.sum` and `.count`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from tenure.clock import Reading
from tenure.telemetry.catalogue import CATALOGUE, Buckets, Family, Kind, Sample
from tenure.telemetry.sampling import Sampler

SAME_LOOK = 0.25
"""Seconds: instruments are asked one after the other, and all of them tell of one look."""
_UNITS = (("_timestamp_seconds", "_timestamp", "s"), ("_seconds", "", "s"), ("_bytes", "", "By"), ("_usd", "", "USD"))


def otel_name(family: Family) -> tuple[str, str]:
    """Name and unit."""
    name, unit = family.name.removesuffix("_total"), "1"
    for suffix, instead, known in _UNITS:
        if name.endswith(suffix):
            name, unit = name.removesuffix(suffix) + instead, known
            break
    package, _, rest = name.partition("_")
    part, _, last = rest.partition("_")
    return ".".join(filter(None, (package, part, last))), unit


class Instruments:
    def __init__(self, meter: Meter, sampler: Sampler, attributes: Mapping[str, str]) -> None:
        self._sampler = sampler
        self._attributes = attributes
        self._lock = threading.Lock()
        self._looked: Reading | None = None
        self._found: dict[str, list[Sample]] = {}
        self._closed = False
        for family in CATALOGUE:
            name, unit = otel_name(family)
            if family.kind is Kind.GAUGE:
                meter.create_observable_gauge(name, [self._plain(family)], unit, family.help)
            elif family.kind is Kind.COUNTER:
                meter.create_observable_counter(name, [self._plain(family)], unit, family.help)
            else:
                for part, of in (("bucket", "1"), ("sum", unit), ("count", "1")):
                    meter.create_observable_counter(f"{name}.{part}", [self._part(family, part)], of, family.help)

    def close(self) -> None:
        self._closed = True

    def _plain(self, family: Family) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for sample in self._samples(family):
                assert not isinstance(sample.value, Buckets)
                yield Observation(sample.value, self._labelled(sample))

        return observe

    def _part(self, family: Family, part: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for sample in self._samples(family):
                assert isinstance(sample.value, Buckets)
                labels = self._labelled(sample)
                if part == "sum":
                    yield Observation(sample.value.sum, labels)
                elif part == "count":
                    yield Observation(sample.value.cumulative[-1][1], labels)
                else:
                    for bound, count in sample.value.cumulative:
                        yield Observation(count, {**labels, "le": bound})

        return observe

    def _labelled(self, sample: Sample) -> dict[str, str]:
        return {**self._attributes, **dict(zip(sample.family.labels, sample.labels, strict=True))}

    def _samples(self, family: Family) -> list[Sample]:
        if self._closed:
            return []
        with self._lock:
            now = self._sampler.database.clock.read()
            if self._looked is None or not 0 <= now.leader_elapsed(self._looked) < SAME_LOOK:
                found: dict[str, list[Sample]] = defaultdict(list)
                for sample in self._sampler.sample():
                    found[sample.family.name].append(sample)
                self._found, self._looked = found, now
            return self._found.get(family.name, [])

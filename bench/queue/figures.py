"""What was measured, as it goes into the table and into the file of results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.queue.marks import Marks
from tenure.store.providers import PRICES

KEPT_SAMPLES = 1000


class Throughput:
    """One run: from the first call to enqueue until the last handler has returned."""

    def __init__(self, marks: Marks, first: int, count: int, began: float, produced: float) -> None:
        times = sorted(marks.times[first : first + count])
        self.count = count
        self.seconds = times[-1] - began
        self.producing = produced - began
        middle = times[count // 2]
        self.halves = (count / 2 / (middle - began), count / 2 / max(1e-9, times[-1] - middle))
        self.again = marks.again(first, count)
        self.cpu = 0.0
        """Of producer and workers."""
        self.server_cpu = 0.0
        self.requests: dict[str, int] = {}

    @property
    def per_second(self) -> float:
        return self.count / self.seconds

    def as_json(self) -> dict[str, Any]:
        return {
            "messages": self.count,
            "seconds": round(self.seconds, 3),
            "per_second": round(self.per_second, 1),
            "producing_seconds": round(self.producing, 3),
            "per_second_of_halves": [round(rate, 1) for rate in self.halves],
            "handled_again": self.again,
            "cpu_us_per_message": round(self.cpu / self.count * 1e6, 2),
            "server_cpu_us_per_message": round(self.server_cpu / self.count * 1e6, 2),
            **requests_json(self.requests, self.count),
        }


def requests_json(requests: dict[str, int], messages: int) -> dict[str, Any]:
    """Of what is not S3, its own commands per message are all that can be said."""
    if not requests:
        return {}
    total = sum(requests.values())
    found: dict[str, Any] = {"requests": requests, "requests_per_message": round(total / messages, 5)}
    if "commands" not in requests:
        found["usd_per_million"] = round(usd(requests) / messages * 1e6, 4)
    return found


def usd(requests: dict[str, int]) -> float:
    """At the list prices of S3 Standard, whatever store they went to."""
    return sum(PRICES["s3"].of(verb) * count for verb, count in requests.items())


def difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {verb: count - before.get(verb, 0) for verb, count in after.items() if count - before.get(verb, 0)}


def latencies_ms(marks: Marks, first: int, count: int) -> list[float]:
    pairs = zip(marks.times[first : first + count], marks.sent[first : first + count], strict=True)
    return sorted((handled - sent) * 1000 for handled, sent in pairs)


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latency_json(rate: float, samples: list[float], lag: float) -> dict[str, Any]:
    """Of more samples than are kept, those at even ranks are."""
    step = max(1, len(samples) // KEPT_SAMPLES)
    return {
        "per_second": rate,
        "messages": len(samples),
        "p50_ms": round(percentile(samples, 0.5), 2),
        "p99_ms": round(percentile(samples, 0.99), 2),
        "producer_behind_s": round(lag, 3),
        "samples_ms": [round(sample, 2) for sample in samples[::step]],
    }


def middle(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run whose rate is the median."""
    wanted = median(run["per_second"] for run in runs)
    return min(runs, key=lambda run: abs(run["per_second"] - wanted))

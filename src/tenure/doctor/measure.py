"""Latencies, the store's clock, and the timings that follow from them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from tenure.clock import Clock
from tenure.doctor.report import ClockOffset, Latency, Timings
from tenure.store import Applied, Store

T = TypeVar("T")
_UNIX_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Stopwatch:
    """Seconds of each request, by verb."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds: dict[str, list[float]] = {}

    async def time(self, verb: str, request: Awaitable[T]) -> T:
        started = self._clock.read()
        result = await request
        self.seconds.setdefault(verb, []).append(self._clock.read().leader_elapsed(started))
        return result

    def latencies(self) -> dict[str, Latency]:
        return {verb: summarise(seconds) for verb, seconds in self.seconds.items()}


def summarise(seconds: Sequence[float]) -> Latency:
    """Nearest-rank percentiles in milliseconds."""
    ranked = sorted(seconds)

    def at(share: float) -> float:
        return round(ranked[max(0, math.ceil(share * len(ranked)) - 1)] * 1000, 3)

    return Latency(p50=at(0.50), p99=at(0.99), samples=len(ranked))


async def measure_latency(
    store: Store, folder: str, body: bytes, samples: int, pause: float, clock: Clock
) -> dict[str, Latency]:
    """Time each verb `samples` times, on keys below `folder`, which it removes."""
    watch = Stopwatch(clock)
    for number in range(samples):
        key = f"{folder}{number:04d}"
        created = await watch.time("create", store.create(key, body))
        await watch.time("get", store.get(key))
        if isinstance(created, Applied):
            await clock.sleep(pause)
            await watch.time("replace", store.replace(key, body + b"\n", created.version))
        await watch.time("list", _count(store, folder))
    await clock.sleep(pause)
    for number in range(samples):
        await watch.time("delete", store.delete(f"{folder}{number:04d}"))
    return watch.latencies()


async def measure_clock(store: Store, key: str, body: bytes, clock: Clock) -> ClockOffset | None:
    """The store's time minus ours, from the listing of an object that we just wrote."""
    folder = key.rpartition("/")[0] + "/"
    before = clock.read().wall_ns
    await store.put(key, body)
    after = clock.read().wall_ns
    modified = [entry.modified async for entry in store.list(folder) if entry.key == key]
    if not modified:
        return None
    ours = _UNIX_EPOCH + timedelta(microseconds=(before + after) // 2000)
    uncertainty = (after - before) / 2e9
    offset = (modified[0] - ours).total_seconds()
    if modified[0].microsecond == 0:  # most stores round listings down to a second
        offset, uncertainty = offset + 0.5, uncertainty + 0.5
    return ClockOffset(round(offset, 2) + 0.0, round(uncertainty, 3))  # + 0.0: no one wants to read -0.0


def recommend(latency_ms: Mapping[str, Latency], provider: str) -> Timings | None:
    """A lease that a slow minute of this store does not cost."""
    slowest = max((latency_ms[verb].p99 for verb in ("get", "replace") if verb in latency_ms), default=None)
    if slowest is None:
        return None
    seconds = slowest / 1000
    heartbeat = next((step for step in (1.0, 2.0, 5.0, 10.0, 30.0) if step >= 10 * seconds), 60.0)
    why = f"a heartbeat leaves room for ten requests as slow as the slowest percent ({slowest:.0f} ms)"
    if provider == "gs" and heartbeat < 2:
        heartbeat, why = 2.0, "Google Cloud Storage takes about one write a second for one object"
    return Timings(
        request_timeout_seconds=round(min(5.0, max(0.5, heartbeat * 0.9)), 2),
        heartbeat_interval_seconds=heartbeat,
        lease_timeout_seconds=heartbeat * 3,
        why=why,
    )


async def _count(store: Store, folder: str) -> int:
    return len([entry async for entry in store.list(folder)])

"""What a process knows of a queue by itself, at no cost: for telemetry."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenure.plugins.queue.records import Totals
from tenure.plugins.queue.state import QueueMachine


class QueueLed(msgspec.Struct, frozen=True, kw_only=True):
    """The whole queue, as its leader has decided on it."""

    ready: int
    delayed: int
    in_flight: int
    dead: int
    paused: bool
    workers: int
    oldest_age: float | None
    """Seconds for which the first in the queue has waited; `None`: nothing waits, or the time is not known yet."""
    enqueue_rate: float
    done_rate: float
    totals: Totals


class QueueGlance(msgspec.Struct, frozen=True, kw_only=True):
    led: QueueLed | None
    """`None`: this process does not lead."""
    worker: Mapping[str, int] | None
    """What the handler of this process has done so far: `done`, `failed`, `back`, `late`, …; `None`: it has none."""
    holding: int
    """Messages that this process has in hand."""
    idle_requests_per_hour: float


def led(machine: QueueMachine, now_ms: int | None) -> QueueLed:
    oldest = machine.oldest_ms()
    enqueue_rate, done_rate = machine.rates(now_ms) if now_ms is not None else (0.0, 0.0)
    return QueueLed(
        ready=machine.ready_count,
        delayed=machine.delayed_count,
        in_flight=machine.in_flight_count,
        dead=len(machine.dead),
        paused=machine.paused,
        workers=len(machine.workers),
        oldest_age=None if oldest is None or now_ms is None else max(0.0, (now_ms - oldest) / 1000),
        enqueue_rate=enqueue_rate,
        done_rate=done_rate,
        totals=msgspec.structs.replace(machine.totals),
    )

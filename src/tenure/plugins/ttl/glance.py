"""What a process knows of a TTL by itself, at no cost: for telemetry."""

from __future__ import annotations

import msgspec

from tenure.plugins.ttl.records import Counts
from tenure.plugins.ttl.state import TTLMachine


class TTLGlance(msgspec.Struct, frozen=True, kw_only=True):
    """As the leader has written it down."""

    totals: Counts
    cleanups: int
    calling: int
    """Callbacks that were begun, and have not succeeded yet."""
    asked: int
    last_ms: int | None
    """When a cleanup last did something, on the store's clock ..."""
    last_seconds: float
    """... and how long it took."""


def glance_of(machine: TTLMachine) -> TTLGlance:
    last = machine.cleanups[-1] if machine.cleanups else None
    return TTLGlance(
        totals=msgspec.structs.replace(machine.totals),
        cleanups=machine.runs,
        calling=len(machine.trials),
        asked=len(machine.asked),
        last_ms=last.at_ms if last is not None else None,
        last_seconds=last.seconds if last is not None else 0.0,
    )

"""What a process knows of counters by itself, at no cost: for telemetry."""

from __future__ import annotations

from itertools import islice

import msgspec

from tenure.plugins.counters.state import CountersMachine, Totals

_LOOKED_AT = 1000
"""Records that wait in the order in which they began to, but for those to which more came meanwhile: among the first
ones is the oldest, or nearly."""


class CountersGlance(msgspec.Struct, frozen=True, kw_only=True):
    """All counters of a resource, as the leader has folded them."""

    pending: int
    """Records with amounts that are folded, and not known to be in them ..."""
    lag: float
    """... and seconds since the oldest of these were folded."""
    pages: int
    totals: Totals


def glance_of(machine: CountersMachine, now_ms: int | None) -> CountersGlance:
    since = min((waiting.since_ms for waiting in islice(machine.waiting.values(), _LOOKED_AT)), default=None)
    now = machine.time_ms if now_ms is None else max(now_ms, machine.time_ms)
    return CountersGlance(
        pending=len(machine.waiting),
        lag=0.0 if since is None else max(0, now - since) / 1000,
        pages=len(machine.pages),
        totals=msgspec.structs.replace(machine.totals),
    )

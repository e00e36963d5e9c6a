"""Leases, rules and readings to try the election on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from tenure.clock import Reading
from tenure.election.decide import MandateEnd, Rules
from tenure.election.records import State

_NS = 1_000_000_000

RULES = Rules(
    lease=15.0,
    leads_for=10.0,
    drift=0.01,
    margin=0.1,
    longest_lease=60.0,
    takeover_delay=1.0,
    renew_retry=1.0,
    min_mandate=60.0,
    max_mandate=300.0,
    mandate_end=MandateEnd.RENEW,
    drain_timeout=10.0,
)
LAPSE = 15.0 * 1.01 + 0.1
"""After so long a follower may take a lease of 15 s."""
DAMAGE_LAPSE = 60.0 * 1.01 + 0.1


def rules(**changes: Any) -> Rules:
    return msgspec.structs.replace(RULES, **changes)


def at(seconds: float, *, wall_ahead: float = 0.0) -> Reading:
    """A reading of a perfect clock; `wall_ahead`: somebody has set the wall clock forward by so much."""
    ns = round(seconds * _NS)
    return Reading(ns, ns, ns, 1_700_000_000 * _NS + ns + round(wall_ahead * _NS))


def held(by: str = "ada", uid: str | None = None, **changes: Any) -> State:
    """A lease that somebody holds. Its first write is also its last."""
    fields: dict[str, Any] = {
        "write_id": "w1",
        "leader_id": by,
        "uid": uid or f"{by}-1",
        "epoch": 7,
        "grant_id": "g7",
        "leader_write_id": "w1",
        "lease_duration_ms": 15_000,
        "renewals": 3,
    }
    return State(**fields | changes)


def released(successor: str | None = None, **changes: Any) -> State:
    return msgspec.structs.replace(
        held(), leader_id=None, uid=None, previous_leader="ada", successor=successor, **changes
    )


def numbered(prefix: str) -> Callable[[], str]:
    """Ids that say who drew them, and in which order."""
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers)}"

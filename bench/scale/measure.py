"""One size of fleet: how it starts, what it spends in ten minutes, how it replaces a leader that crashed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.scale.fleet import Fleet, calm, shared_lists
from bench.scale.plan import Plan
from tenure.testing.world import World

_SETTLE = 15.0
_AFTERWARDS = 8.0
"""Seconds after an election in which the last of the others notices that the lease it watched has lapsed."""


def measure(size: int, plan: Plan, tell: Callable[[str], None]) -> dict[str, Any]:
    began = time.process_time()
    is_warm = size >= plan.warm_from
    with calm(), shared_lists(), World(plan.seed) as world:
        fleet = Fleet(world, size, plan)
        found: dict[str, Any] = {"workers": size, "start": "warm" if is_warm else "cold"}
        if is_warm:
            fleet.start_warm()
        else:
            found["cold_start"] = _cold_start(fleet)
        tell(f"{size:,} workers, settled after {world.now:.0f} simulated s, {time.process_time() - began:.0f} s of CPU")
        world.run_until(world.now + _SETTLE)
        found["steady"] = _steady(fleet, plan.seconds)
        tell(f"{size:,} workers: {found['steady']['requests_each']:.4f} requests a worker and heartbeat")
        found["failovers"] = [
            _failover(fleet, is_last=number + 1 == plan.failovers[size], is_huge=is_warm)
            for number in range(plan.failovers[size])
        ]
        tell(f"{size:,} workers: replaced after {[each['seconds'] for each in found['failovers']]} s")
        if world.errors:
            raise RuntimeError(f"the simulation went wrong: {world.errors[0]}")
        found |= {"simulated_seconds": round(world.now, 1), "callbacks": world.callbacks}
    found["cpu_seconds"] = round(time.process_time() - began, 1)
    return found


def _cold_start(fleet: Fleet) -> dict[str, Any]:
    fleet.reset()
    seconds = fleet.start_cold()
    found = {"seconds": round(seconds, 2), "requests": fleet.requests, "peak_requests_per_second": fleet.peak}
    return {**found, "known_after_seconds": round(seconds + fleet.until_known(), 1)}


def _steady(fleet: Fleet, seconds: float) -> dict[str, Any]:
    fleet.reset()
    fleet.world.run_until(fleet.world.now + seconds)
    leader = fleet.leader()
    if leader is None:
        raise RuntimeError("nobody leads, and nothing went wrong")
    return steady_json(
        size=fleet.size,
        seconds=seconds,
        beats=fleet.beats,
        verbs=dict(fleet.verbs),
        sent=dict(fleet.bucket.sent),
        received=dict(fleet.bucket.received),
        writes=dict(fleet.writes),
        peak=fleet.peak,
    )


def steady_json(
    *,
    size: int,
    seconds: float,
    beats: int,
    verbs: dict[str, int],
    sent: dict[str, int],
    received: dict[str, int],
    writes: dict[str, int],
    peak: int,
) -> dict[str, Any]:
    """`beats`: heartbeats of all workers; `writes`: by key, of those that several may write."""
    requests, moved = sum(verbs.values()), sum(sent.values()) + sum(received.values())
    return {
        "seconds": seconds,
        "heartbeats": beats,
        "seconds_per_heartbeat": round(size * seconds / beats, 4),
        "requests": dict(sorted(verbs.items())),
        "requests_each": round(requests / beats, 5),
        "requests_each_by_verb": {verb: round(count / beats, 5) for verb, count in sorted(verbs.items())},
        "requests_per_second": round(requests / seconds, 2),
        "peak_requests_per_second": peak,
        "bytes_sent": dict(sorted(sent.items())),
        "bytes_received": dict(sorted(received.items())),
        "bytes_each": round(moved / beats, 2),
        "busiest_key": max(writes, key=lambda key: writes[key], default=""),
        "busiest_key_writes_per_second": round(max(writes.values(), default=0) / seconds, 4),
    }


def _failover(fleet: Fleet, *, is_last: bool, is_huge: bool) -> dict[str, Any]:
    """The leader crashes at a moment of chance."""
    world = fleet.world
    world.run_until(world.now + world.random.uniform(0.0, 12.0))
    before = fleet.leader()
    if before is None:
        raise RuntimeError("nobody leads, and nothing went wrong")
    fleet.reset()
    crashed = world.now
    before.crash()
    _, elected = fleet.until_led(by_other_than=before.name)
    found: dict[str, Any] = {"seconds": round(elected - crashed, 2)}
    until = "elected"
    if not is_huge:
        world.run_until(world.now + _AFTERWARDS)
        until = f"{_AFTERWARDS:g} s later"
    usual = fleet.beats * 2
    found |= {
        "requests": fleet.requests,
        "requests_counted_until": until,
        "requests_beyond_heartbeats": max(0, fleet.requests - usual),
        "peak_requests_per_second": fleet.peak,
        "verbs": dict(sorted(fleet.verbs.items())),
    }
    if not is_last:
        before.start()
        found["known_after_seconds"] = round(fleet.until_known(), 1)
        world.run_until(world.now + 2 * _SETTLE)
    return found

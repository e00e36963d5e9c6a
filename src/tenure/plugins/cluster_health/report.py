"""How a cluster is, judged from what one node knows. Pure.

- unhealthy: nobody leads for longer than a failover takes, this node's lease is not held, or the store does not answer:
  leader-only work stands still.
- degraded: it goes on, and somebody should look: a failover is under way, a slow store, an open circuit breaker, a
  child that keeps crashing.
- healthy: neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

import msgspec

from tenure.coordinator.breaker import BreakerState
from tenure.coordinator.given import check_count, check_number
from tenure.plugins.supervisor.child import ChildState, ChildStatus
from tenure.store.outcome import NeverABool
from tenure.store.url import redact

Status: TypeAlias = Literal["healthy", "degraded", "unhealthy"]
MAX_NODES_SHOWN = 1000
MAX_CHILDREN_SHOWN = 100
MAX_ERROR_CHARACTERS = 300


class Thresholds(msgspec.Struct, frozen=True):
    """When to say what."""

    slow_store: float = 1.0
    """Heartbeats of which one in twenty takes over this many heartbeat intervals mean a slow store."""
    crashes: int = 3
    """A child that failed so often within `crash_window` keeps crashing."""
    crash_window: float = 300.0
    stale_after: float = 3.0
    """A look at the store that is older than this many check intervals counts as none."""

    def __post_init__(self) -> None:
        check_number("slow_store", self.slow_store, least=0.001, most=1000.0)
        check_count("crashes", self.crashes, least=1, most=1_000_000)
        check_number("crash_window", self.crash_window, least=0.1, most=30 * 24 * 3600.0)
        check_number("stale_after", self.stale_after, least=0.1, most=1_000_000.0)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one node knows at one instant. Durations are seconds."""

    node: str
    namespace: str | None = None
    """`None` under static assignment, where nobody is elected."""
    role: Literal["leader", "follower"] = "follower"
    running: bool = True
    """Does this node's coordinator run?"""
    leader: str | None = None
    leaderless_for: float = math.inf
    """Since this node knows that nobody leads; of no meaning while somebody does."""
    failover: float = 0.0
    """How long one usually takes at most."""
    epoch: int = 0
    lease_held: bool | None = None
    """Of the term that this node leads under; `None`: it does not lead."""
    nodes: tuple[str, ...] = ()
    store_latency: float | None = None
    """Of the last look at the store; `None`: it gave no answer."""
    store_error: str | None = None
    looked_ago: float | None = None
    """Since the last look ended; `None`: there was none yet."""
    check_interval: float = 10.0
    heartbeat_p95: float = 0.0
    heartbeat_interval: float = 5.0
    new_contention: int = 0
    """Heartbeats that took too long since the last check."""
    breaker: BreakerState = "closed"
    children: tuple[ChildStatus, ...] = ()
    recent_failures: Mapping[str, int] = {}
    """Of each child, within `crash_window`."""
    checked_at: str = ""


class ChildHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    state: str
    failures: int
    last_error: str | None = None


class HealthReport(msgspec.Struct, NeverABool, frozen=True, kw_only=True, rename="camel"):
    """What a health endpoint shows. Without secrets."""

    instead: ClassVar[str] = "not true or false: its `status` is 'healthy', 'degraded' or 'unhealthy'"

    status: Status
    reasons: tuple[str, ...]
    """Sentences; none if it is healthy."""
    node: str
    role: Literal["leader", "follower"]
    namespace: str | None
    leader: str | None
    epoch: int
    nodes_up: int
    nodes: tuple[str, ...]
    """At most 1000 of them."""
    store_latency_ms: float | None
    heartbeat_p95_ms: float
    breaker: BreakerState
    children: tuple[ChildHealth, ...] = ()
    checked_at: str = ""


def judge(observation: Observation, thresholds: Thresholds | None = None) -> HealthReport:
    """The report on what was observed."""
    limits = thresholds if thresholds is not None else Thresholds()
    grave, slight = _grave(observation, limits), _slight(observation, limits)
    status: Status = "unhealthy" if grave else "degraded" if slight else "healthy"
    latency = observation.store_latency
    return HealthReport(
        status=status,
        reasons=tuple(map(_shown, (*grave, *slight))),
        node=observation.node,
        role=observation.role,
        namespace=observation.namespace,
        leader=observation.leader,
        epoch=observation.epoch,
        nodes_up=len(observation.nodes),
        nodes=observation.nodes[:MAX_NODES_SHOWN],
        store_latency_ms=None if latency is None else round(latency * 1000, 1),
        heartbeat_p95_ms=round(observation.heartbeat_p95 * 1000, 1),
        breaker=observation.breaker,
        children=tuple(
            ChildHealth(
                name=child.name,
                state=child.state.value,
                failures=child.failures,
                last_error=None if child.last_error is None else _shown(child.last_error),
            )
            for child in observation.children[:MAX_CHILDREN_SHOWN]
        ),
        checked_at=observation.checked_at,
    )


def _grave(seen: Observation, limits: Thresholds) -> list[str]:
    reasons = []
    if not seen.running:
        reasons.append("The coordinator of this node does not run.")
    elif seen.lease_held is False:
        reasons.append("This node's lease is not held any more.")
    elif seen.leader is None and not _is_failing_over(seen):
        reasons.append("Nobody leads.")
    if seen.looked_ago is None:
        if seen.store_error is not None:
            reasons.append(f"The store does not answer: {seen.store_error}.")
        else:
            reasons.append("The store was not looked at yet.")
    elif seen.looked_ago > limits.stale_after * seen.check_interval:
        reasons.append(f"The store has not answered for {seen.looked_ago:.0f} s.")
    elif seen.store_latency is None:
        reasons.append(f"The store does not answer: {seen.store_error or 'no reason is known'}.")
    return reasons


def _is_failing_over(seen: Observation) -> bool:
    return seen.leader is None and seen.leaderless_for < seen.failover


def _slight(seen: Observation, limits: Thresholds) -> list[str]:
    reasons = []
    if _is_failing_over(seen):
        reasons.append(
            f"Nobody leads for {seen.leaderless_for:.0f} s now; a failover usually takes {seen.failover:.0f} s at most."
        )
    if seen.heartbeat_p95 > limits.slow_store * seen.heartbeat_interval:
        reasons.append(
            f"The store is slow: one heartbeat in twenty takes over {seen.heartbeat_p95:.1f} s, and the interval is "
            f"{seen.heartbeat_interval:g} s."
        )
    if seen.new_contention:
        plural = "s" if seen.new_contention > 1 else ""
        reasons.append(
            f"The store is slow: {seen.new_contention} heartbeat{plural} took too long since the last check."
        )
    if seen.breaker != "closed":
        reasons.append(f"The circuit breaker is {seen.breaker}: the store failed several times in a row.")
    for child in seen.children:
        failures = seen.recent_failures.get(child.name, 0)
        if child.state is ChildState.FAILED:
            reasons.append(f"Child {child.name!r} failed too often, and is not started again in this term.")
        elif child.state is ChildState.OVERRAN:
            reasons.append(f"Child {child.name!r} was told to stop, and has not.")
        elif failures >= limits.crashes:
            reasons.append(f"Child {child.name!r} keeps crashing: {failures} times within {limits.crash_window:g} s.")
    return reasons


def _shown(text: str) -> str:
    cut = redact(text)
    return cut if len(cut) <= MAX_ERROR_CHARACTERS else cut[:MAX_ERROR_CHARACTERS] + "…"

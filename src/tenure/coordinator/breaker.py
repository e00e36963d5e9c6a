"""Leaves a failing store alone for a while. Pure: the time is handed in.

    closed ── failure_threshold failures in a row ──▶ open ── reset_timeout ──▶ half-open ── success ──▶ closed
                                                        ◀──────── failure ────────┘

A failure is a heartbeat in which the store gave no usable answer. A rejected condition is an answer. What may pass an
open breaker (the lease watch, the renewals of a leader whose lease is still valid) is for the caller to decide; only
what `allows` let through, or what happens while it is half-open, can close it.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from tenure.clock import Reading
from tenure.coordinator.config import CircuitBreakerConfig
from tenure.store.outcome import NeverABool

BreakerState: TypeAlias = Literal["closed", "open", "half-open"]


class CircuitBreakerStatus(msgspec.Struct, NeverABool, frozen=True):
    """What `get_circuit_breaker_status()` gives."""

    instead: ClassVar[str] = "not true or false: compare its `state`"

    state: BreakerState
    failure_count: int
    """Failures since the last success."""
    failure_threshold: int
    reset_timeout: float
    trips: int
    """How often it has opened, re-opening included."""


class CircuitBreaker:
    """Before a heartbeat: `if breaker.allows(now): breaker.begin(now)`. After it: `succeeded(now)` or `failed(now)`."""

    def __init__(self, config: CircuitBreakerConfig) -> None:
        self._config = config
        self._state: BreakerState = "closed"
        self._failures = 0
        self._trips = 0
        self._opened_at: Reading | None = None
        self._attempts = 0
        self._attempted_at: Reading | None = None

    def allows(self, now: Reading) -> bool:
        """May a heartbeat begin now?"""
        self._let_time_pass(now)
        if self._state == "half-open":
            return self._attempts < self._config.half_open_max_attempts
        return self._state == "closed"

    def begin(self, now: Reading) -> None:
        """A heartbeat begins. While half-open it uses up one of the attempts."""
        self._let_time_pass(now)
        if self._state == "half-open":
            self._attempts += 1
            self._attempted_at = now

    def succeeded(self, now: Reading) -> None:
        """The store answered. Closes a half-open breaker; while open it means nothing, since reads may work alone."""
        self._let_time_pass(now)
        if self._state != "open":
            self._state = "closed"
            self._failures = 0

    def failed(self, now: Reading) -> bool:
        """The store gave no usable answer. True: the breaker has opened just now, or re-opened."""
        self._let_time_pass(now)
        self._failures += 1
        if self._state == "open":
            return False  # what was allowed to pass has failed: that does not prolong the wait
        if self._state == "closed" and self._failures < self._config.failure_threshold:
            return False
        self._state = "open"
        self._opened_at = now
        self._trips += 1
        return True

    def status(self) -> CircuitBreakerStatus:
        """The state as of the last call of another method: an open breaker becomes half-open when it is next asked."""
        return CircuitBreakerStatus(
            state=self._state,
            failure_count=self._failures,
            failure_threshold=self._config.failure_threshold,
            reset_timeout=self._config.reset_timeout,
            trips=self._trips,
        )

    def _let_time_pass(self, now: Reading) -> None:
        if self._state == "open" and self._has_waited(self._opened_at, now):
            self._state = "half-open"
            self._attempts = 0
        elif self._state == "half-open" and self._attempts and self._has_waited(self._attempted_at, now):
            self._attempts = 0  # an attempt that was cancelled never reports: it must not keep the breaker half-open

    def _has_waited(self, since: Reading | None, now: Reading) -> bool:
        return since is not None and now.follower_elapsed(since) >= self._config.reset_timeout

"""What a coordinator counts about itself, in a fixed amount of memory however long it runs."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec

from tenure.coordinator.breaker import BreakerState, CircuitBreakerStatus

ENOUGH_HEARTBEATS = 10
"""With fewer, percentiles would say more about chance than about the store."""
ELECTION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds, each included; what is longer counts as `+Inf`."""
HEARTBEAT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Likewise, of heartbeats."""
_BUCKET_LABELS = (*(f"{bound:g}" for bound in ELECTION_BUCKETS), "+Inf")
_HEARTBEAT_LABELS = (*(f"{bound:g}" for bound in HEARTBEAT_BUCKETS), "+Inf")
_MAX_ERROR_CHARACTERS = 500


class CoordinatorMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the counters. Durations are seconds; times are seconds since 1970 on this host's wall clock."""

    heartbeat_count: int
    election_count: int
    election_duration: float
    """Of the last election won here, from when this process found the lease free until it led; 0 before the first."""
    election_duration_histogram: Mapping[str, int]
    """Elections by duration. Each key is the upper bound of its bucket in seconds; counts are not cumulative."""
    leader_changes: int
    worker_registrations: int
    worker_timeouts: int
    start_time: float
    last_heartbeat_time: float | None
    epoch_drift_events: int
    contention_events: int
    circuit_breaker_trips: int
    circuit_breaker_state: BreakerState
    heartbeat_latency_p50: float
    """Percentiles are of the last `metrics_buffer_size` heartbeats; 0 while there are too few: see `latency_note`."""
    heartbeat_latency_p95: float
    heartbeat_latency_p99: float
    latency_note: str | None
    """Why the percentiles are 0, or None if they can be relied on."""
    store_errors: int
    """Times that the store gave no usable answer."""
    last_error: str | None
    election_duration_sum: float = 0.0
    """Of all elections: with the histogram, what a scraper takes means and rates from."""
    heartbeat_duration_histogram: Mapping[str, int] = {}
    """Of all heartbeats since the start, as `election_duration_histogram` ..."""
    heartbeat_duration_sum: float = 0.0
    """... and how long they took together."""


class Latencies(msgspec.Struct, frozen=True):
    """Of heartbeats, in seconds. Percentiles are `None` while there are too few."""

    last: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Metrics:
    """Counts, on any thread; `snapshot` may be taken on any other."""

    def __init__(self, buffer_size: int, start_time: float) -> None:
        # A signal handler may call `get_metrics()` while the code that it interrupted is inside.
        self._lock = threading.RLock()
        self._latencies = array("d", bytes(8 * buffer_size))  # a ring: heartbeat n is at n modulo its length
        self._elections_by_bucket = array("Q", bytes(8 * len(_BUCKET_LABELS)))
        self._election_seconds = 0.0
        self._heartbeats_by_bucket = array("Q", bytes(8 * len(_HEARTBEAT_LABELS)))
        self._heartbeat_seconds = 0.0
        self._start_time = start_time
        self._last_heartbeat_time: float | None = None
        self._heartbeats = 0
        self._elections = 0
        self._election_duration = 0.0
        self._leader_changes = 0
        self._worker_registrations = 0
        self._worker_timeouts = 0
        self._epoch_drift_events = 0
        self._store_errors = 0
        self._last_error: str | None = None

    def heartbeat(self, latency: float, wall: float) -> None:
        """A heartbeat was completed at `wall` after `latency` seconds."""
        with self._lock:
            self._latencies[self._heartbeats % len(self._latencies)] = latency
            self._heartbeats += 1
            self._heartbeats_by_bucket[bisect_left(HEARTBEAT_BUCKETS, latency)] += 1
            self._heartbeat_seconds += latency
            self._last_heartbeat_time = wall

    def election(self, duration: float) -> None:
        """An election that this worker took part in ended after `duration` seconds."""
        with self._lock:
            self._elections += 1
            self._election_duration = duration
            self._election_seconds += duration
            self._elections_by_bucket[bisect_left(ELECTION_BUCKETS, duration)] += 1

    def leader_changed(self) -> None:
        with self._lock:
            self._leader_changes += 1

    def worker_registered(self, workers: int = 1) -> None:
        with self._lock:
            self._worker_registrations += workers

    def worker_timed_out(self, workers: int = 1) -> None:
        with self._lock:
            self._worker_timeouts += workers

    def epoch_drift(self, tasks: int = 1) -> None:
        """Tasks of a former leader were refused."""
        with self._lock:
            self._epoch_drift_events += tasks

    def store_failed(self, error: str) -> None:
        """The store gave no usable answer."""
        with self._lock:
            self._store_errors += 1
            self._last_error = error[:_MAX_ERROR_CHARACTERS]

    @property
    def store_errors(self) -> int:
        return self._store_errors

    def latencies(self) -> Latencies:
        with self._lock:
            if not self._heartbeats:
                return Latencies()
            last = self._latencies[(self._heartbeats - 1) % len(self._latencies)]
            if self._heartbeats < ENOUGH_HEARTBEATS:
                return Latencies(last)
            ordered = sorted(self._latencies[: self._heartbeats])
            return Latencies(last, *(_percentile(ordered, each) for each in (50, 95, 99)))

    def snapshot(self, *, breaker: CircuitBreakerStatus, contention_events: int) -> CoordinatorMetrics:
        """Everything as of now; what the breaker and the contention detector count is theirs to say."""
        with self._lock:
            latencies = sorted(self._latencies[: self._heartbeats])
            has_enough = self._heartbeats >= ENOUGH_HEARTBEATS
            p50, p95, p99 = (_percentile(latencies, each) if has_enough else 0.0 for each in (50, 95, 99))
            return CoordinatorMetrics(
                heartbeat_count=self._heartbeats,
                election_count=self._elections,
                election_duration=self._election_duration,
                election_duration_histogram=dict(zip(_BUCKET_LABELS, self._elections_by_bucket, strict=True)),
                leader_changes=self._leader_changes,
                worker_registrations=self._worker_registrations,
                worker_timeouts=self._worker_timeouts,
                start_time=self._start_time,
                last_heartbeat_time=self._last_heartbeat_time,
                epoch_drift_events=self._epoch_drift_events,
                contention_events=contention_events,
                circuit_breaker_trips=breaker.trips,
                circuit_breaker_state=breaker.state,
                heartbeat_latency_p50=p50,
                heartbeat_latency_p95=p95,
                heartbeat_latency_p99=p99,
                latency_note=None if has_enough else _too_few(self._heartbeats),
                store_errors=self._store_errors,
                last_error=self._last_error,
                election_duration_sum=self._election_seconds,
                heartbeat_duration_histogram=dict(zip(_HEARTBEAT_LABELS, self._heartbeats_by_bucket, strict=True)),
                heartbeat_duration_sum=self._heartbeat_seconds,
            )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Nearest rank: the smallest value that at least `percent` of all values do not exceed."""
    rank = -(-percent * len(ordered) // 100)
    return ordered[rank - 1]


def _too_few(heartbeats: int) -> str:
    return f"insufficient data: {heartbeats} of the {ENOUGH_HEARTBEATS} heartbeats that percentiles need"

"""Counters and percentiles, in memory that does not grow."""

from __future__ import annotations

import math
import threading
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.coordinator.breaker import CircuitBreakerStatus
from tenure.coordinator.metrics import CoordinatorMetrics, Metrics

BREAKER = CircuitBreakerStatus(state="half-open", failure_count=1, failure_threshold=5, reset_timeout=30.0, trips=4)


def look(metrics: Metrics) -> CoordinatorMetrics:
    return metrics.snapshot(breaker=BREAKER, contention_events=6)


@pytest.mark.req("MT-1")
def test_every_counter_is_given() -> None:
    metrics = Metrics(100, start_time=1000.0)
    metrics.heartbeat(0.1, 1001.0)
    metrics.heartbeat(0.1, 1002.0)
    metrics.election(0.3)
    metrics.election(0.2)
    metrics.leader_changed()
    metrics.worker_registered()
    metrics.worker_registered(2)
    metrics.worker_timed_out(3)
    metrics.epoch_drift()
    metrics.store_failed("no answer")
    now = look(metrics)
    assert now.heartbeat_count == 2
    assert now.election_count == 2
    assert now.election_duration == 0.2
    assert now.leader_changes == 1
    assert now.worker_registrations == 3
    assert now.worker_timeouts == 3
    assert now.start_time == 1000.0
    assert now.last_heartbeat_time == 1002.0
    assert now.epoch_drift_events == 1
    assert now.contention_events == 6
    assert now.circuit_breaker_trips == 4
    assert now.circuit_breaker_state == "half-open"
    assert (now.store_errors, now.last_error) == (1, "no answer")


@pytest.mark.req("MT-1")
def test_at_the_start_everything_is_zero() -> None:
    now = look(Metrics(100, start_time=1000.0))
    assert (now.heartbeat_count, now.election_count, now.leader_changes, now.store_errors) == (0, 0, 0, 0)
    assert (now.last_heartbeat_time, now.last_error) == (None, None)
    assert now.election_duration == 0.0


@pytest.mark.req("MT-2")
def test_percentiles_of_a_hundred_heartbeats() -> None:
    metrics = Metrics(100, start_time=0.0)
    for milliseconds in range(100, 0, -1):
        metrics.heartbeat(milliseconds / 1000, 0.0)
    now = look(metrics)
    assert now.heartbeat_latency_p50 == 0.050
    assert now.heartbeat_latency_p95 == 0.095
    assert now.heartbeat_latency_p99 == 0.099
    assert now.latency_note is None


@pytest.mark.req("MT-2")
def test_only_the_last_heartbeats_count() -> None:
    metrics = Metrics(100, start_time=0.0)
    metrics.heartbeat(60.0, 0.0)
    metrics.heartbeat(60.0, 0.0)
    for _ in range(98):
        metrics.heartbeat(0.1, 0.0)
    assert look(metrics).heartbeat_latency_p99 == 60.0
    metrics.heartbeat(0.1, 0.0)
    metrics.heartbeat(0.1, 0.0)
    now = look(metrics)
    assert now.heartbeat_latency_p99 == 0.1
    assert now.heartbeat_count == 102


@pytest.mark.req("MT-2")
@given(st.lists(st.floats(0, 100), min_size=10, max_size=60), st.integers(10, 40))
def test_percentiles_are_nearest_ranks_of_the_newest(latencies: list[float], size: int) -> None:
    metrics = Metrics(size, start_time=0.0)
    for latency in latencies:
        metrics.heartbeat(latency, 0.0)
    now = look(metrics)
    kept = latencies[-size:]
    for percent, given_value in (
        (50, now.heartbeat_latency_p50),
        (95, now.heartbeat_latency_p95),
        (99, now.heartbeat_latency_p99),
    ):
        needed = math.ceil(len(kept) * percent / 100)
        assert given_value in kept
        assert sum(value <= given_value for value in kept) >= needed
        assert sum(value < given_value for value in kept) < needed


@pytest.mark.req("MT-3")
def test_under_ten_heartbeats_there_is_a_note_and_no_number() -> None:
    metrics = Metrics(100, start_time=0.0)
    assert "insufficient data" in (look(metrics).latency_note or "")
    for _ in range(9):
        metrics.heartbeat(1.0, 0.0)
    now = look(metrics)
    assert (now.heartbeat_latency_p50, now.heartbeat_latency_p95, now.heartbeat_latency_p99) == (0, 0, 0)
    assert now.latency_note == "insufficient data: 9 of the 10 heartbeats that percentiles need"
    metrics.heartbeat(1.0, 0.0)
    now = look(metrics)
    assert now.heartbeat_latency_p99 == 1.0
    assert now.latency_note is None


@pytest.mark.req("MT-4")
def test_elections_are_sorted_into_buckets() -> None:
    metrics = Metrics(100, start_time=0.0)
    for duration in (0.0, 0.05, 0.051, 0.9, 1.0, 59.0, 61.0, 1e9):
        metrics.election(duration)
    assert look(metrics).election_duration_histogram == {
        "0.05": 2,
        "0.1": 1,
        "0.25": 0,
        "0.5": 0,
        "1": 2,
        "2.5": 0,
        "5": 0,
        "10": 0,
        "30": 0,
        "60": 1,
        "+Inf": 2,
    }


@pytest.mark.req("MT-5")
def test_memory_does_not_grow() -> None:
    metrics = Metrics(100, start_time=0.0)

    def live(times: int) -> None:
        for number in range(times):
            metrics.heartbeat(number * 0.001, float(number))
            metrics.election(number * 0.1)
            metrics.leader_changed()
            metrics.worker_registered()
            metrics.store_failed(f"error {number} " + "x" * 10_000)

    live(1_000)
    tracemalloc.start()
    try:
        live(1_000)
        before, _ = tracemalloc.get_traced_memory()
        live(20_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2_000
    assert len(look(metrics).last_error or "") <= 500


def test_a_snapshot_does_not_change_afterwards() -> None:
    metrics = Metrics(100, start_time=0.0)
    metrics.election(0.01)
    before = look(metrics)
    metrics.election(0.01)
    assert before.election_count == 1
    assert before.election_duration_histogram["0.05"] == 1
    with pytest.raises(AttributeError):
        before.election_count = 7  # type: ignore[misc]


def test_snapshots_from_another_thread_agree_with_themselves() -> None:
    metrics = Metrics(10, start_time=0.0)
    done = threading.Event()
    torn: list[CoordinatorMetrics] = []

    def watch() -> None:
        while not done.is_set():
            now = look(metrics)
            if sum(now.election_duration_histogram.values()) != now.election_count:
                torn.append(now)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(2_000):
        metrics.election(number / 100)
        metrics.heartbeat(0.1, 0.0)
    done.set()
    watcher.join()
    assert torn == []


@pytest.mark.req("MT-4", "MT-6")
def test_histograms_have_the_sums_that_a_scraper_needs() -> None:
    metrics = Metrics(2, start_time=0.0)
    for latency in (0.005, 0.006, 0.3, 31.0):
        metrics.heartbeat(latency, 1.0)
    metrics.election(0.2)
    metrics.election(0.4)
    now = look(metrics)
    assert now.election_duration_sum == pytest.approx(0.6)
    assert now.heartbeat_duration_sum == pytest.approx(31.311)
    assert sum(now.heartbeat_duration_histogram.values()) == now.heartbeat_count == 4
    counted = {bound: count for bound, count in now.heartbeat_duration_histogram.items() if count}
    assert counted == {"0.005": 1, "0.01": 1, "0.5": 1, "+Inf": 1}

"""What the coordinators and the store of a process have counted, as samples. From any thread, without a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenure import __version__
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.errors import TenureError
from tenure.telemetry import catalogue as its
from tenure.telemetry.catalogue import Buckets, Family, Sample

BREAKER_STATES = ("closed", "open", "half-open")


def coordinator_samples(coordinator: GlobalCoordinatorService) -> Iterator[Sample]:
    """Raises `ForkedProcess` in a child of the process that it was made in."""
    now = coordinator.get_metrics()
    lead = coordinator.lead
    remaining = lead.remaining() if lead is not None else 0.0
    namespace = (coordinator.namespace,)
    plain: tuple[tuple[Family, float | None], ...] = (
        (its.RUNNING, coordinator.running),
        (its.IS_LEADER, remaining > 0),
        (its.LEADER_SEEN, coordinator.leader_seen is not None),
        (its.EPOCH, coordinator.get_epoch()),
        (its.LEASE_REMAINING, remaining),
        (its.WORKERS, coordinator.workers_seen),
        (its.START_TIME, now.start_time),
        (its.HEARTBEATS, now.heartbeat_count),
        (its.HEARTBEAT_LAST, now.last_heartbeat_time),
        (its.HEARTBEAT_LATENCY_KNOWN, now.latency_note is None),
        (its.ELECTIONS, now.election_count),
        (its.ELECTION_LAST, now.election_duration),
        (its.LEADER_CHANGES, now.leader_changes),
        (its.WORKER_REGISTRATIONS, now.worker_registrations),
        (its.WORKER_TIMEOUTS, now.worker_timeouts),
        (its.EPOCH_DRIFT, now.epoch_drift_events),
        (its.CONTENTION, now.contention_events),
        (its.BREAKER_TRIPS, now.circuit_breaker_trips),
        (its.STORE_ERRORS, now.store_errors),
    )
    for family, value in plain:
        if value is not None:
            yield Sample(family, namespace, float(value))
    for quantile, seconds in (
        ("0.5", now.heartbeat_latency_p50),
        ("0.95", now.heartbeat_latency_p95),
        ("0.99", now.heartbeat_latency_p99),
    ):
        yield Sample(its.HEARTBEAT_LATENCY, (*namespace, quantile), seconds)
    for state in BREAKER_STATES:
        yield Sample(its.BREAKER_STATE, (*namespace, state), float(state == now.circuit_breaker_state))
    heartbeats = buckets_of(now.heartbeat_duration_histogram, now.heartbeat_duration_sum)
    yield Sample(its.HEARTBEAT_DURATION, namespace, heartbeats)
    elections = buckets_of(now.election_duration_histogram, now.election_duration_sum)
    yield Sample(its.ELECTION_DURATION, namespace, elections)


def buckets_of(counts: Mapping[str, int], sum: float) -> Buckets:
    """Metrics count each bucket by itself, and scrapers everything up to its bound."""
    cumulative: list[tuple[str, int]] = []
    so_far = 0
    for bound, count in counts.items():
        so_far += count
        cumulative.append((bound if bound == "+Inf" else str(float(bound)), so_far))
    return Buckets(tuple(cumulative), sum)


def store_samples(database: Database) -> Iterator[Sample]:
    """Of a database that is not connected there is nothing to tell."""
    try:
        usage, provider = database.usage(), database.store.info.provider
    except TenureError:
        return
    yield Sample(its.BUILD_INFO, (__version__, provider), 1.0)
    for verb, outcomes in usage.requests.items():
        for outcome, count in outcomes.items():
            yield Sample(its.STORE_REQUESTS, (verb, outcome), float(count))
    yield Sample(its.STORE_SENT, (), float(usage.bytes_sent))
    yield Sample(its.STORE_RECEIVED, (), float(usage.bytes_received))
    yield Sample(its.STORE_COST, (), usage.usd)
    locks = database.locks
    yield Sample(its.LOCKS_HELD, (), float(locks.held))
    yield Sample(its.LOCKS_WAITING, (), float(locks.waiting))

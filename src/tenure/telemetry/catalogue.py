"""Every metric that there is, once, for Prometheus, OpenTelemetry and the table in docs/telemetry.md.

Labels are bounded: namespaces and plugins have the names that the program gives them, and the rest come from lists in
the code. No worker, message, key, record or job is ever a label.
"""

from __future__ import annotations

import enum

import msgspec


class Kind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(enum.Enum):
    """How those beyond the limit of label values become one, called `other`."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


class Family(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Merge = Merge.SUM


class Buckets(msgspec.Struct, frozen=True):
    """A histogram: how many were at most so long, for each bound, and how long all were together."""

    cumulative: tuple[tuple[str, int], ...]
    sum: float


class Sample(msgspec.Struct, frozen=True):
    family: Family
    labels: tuple[str, ...]
    value: float | Buckets


_ALL: list[Family] = []


def _family(name: str, kind: Kind, help: str, labels: tuple[str, ...], merge: Merge) -> Family:
    made = Family(name, kind, help, labels, merge)
    _ALL.append(made)
    return made


def _counter(name: str, help: str, *labels: str) -> Family:
    return _family(f"{name}_total", Kind.COUNTER, help, labels, Merge.SUM)


def _gauge(name: str, help: str, *labels: str, merge: Merge = Merge.SUM) -> Family:
    return _family(name, Kind.GAUGE, help, labels, merge)


def _histogram(name: str, help: str, *labels: str) -> Family:
    return _family(name, Kind.HISTOGRAM, help, labels, Merge.SUM)


MAX, MIN = Merge.MAX, Merge.MIN
N = "namespace"

# This process
BUILD_INFO = _gauge("tenure_build_info", "Always 1; the version of tenure and the kind of store.", "version", "store")
PLUGINS_READ_AGE = _gauge(
    "tenure_plugins_read_age_seconds",
    "Seconds since plugins were last read on their event loop: 0, unless that stands still.",
    merge=MAX,
)
TELEMETRY_ERRORS = _counter("tenure_telemetry_errors", "Plugins that could not be read for a scrape.", "plugin")

# Coordinators
RUNNING = _gauge("tenure_coordinator_running", "1 while this process takes part in the namespace.", N)
IS_LEADER = _gauge("tenure_is_leader", "1 while this process leads the namespace.", N)
LEADER_SEEN = _gauge("tenure_leader_seen", "1 if there was a leader when this process last looked at the lease.", N)
EPOCH = _gauge("tenure_epoch", "The highest epoch that this process has seen.", N, merge=MAX)
LEASE_REMAINING = _gauge(
    "tenure_lease_remaining_seconds",
    "Seconds for which this process leads even if no renewal gets through any more; 0 if it does not lead.",
    N,
    merge=MIN,
)
WORKERS = _gauge("tenure_workers", "Active workers, as last observed; 0 in election-only mode.", N)
START_TIME = _gauge(
    "tenure_start_time_seconds", "When the coordinator was made, in seconds since 1970 (`start_time`).", N, merge=MIN
)
HEARTBEATS = _counter("tenure_heartbeats", "Heartbeats (`heartbeat_count`).", N)
HEARTBEAT_LAST = _gauge(
    "tenure_last_heartbeat_timestamp_seconds",
    "When the last heartbeat ended, in seconds since 1970 (`last_heartbeat_time`); absent before the first.",
    N,
    merge=MIN,
)
HEARTBEAT_DURATION = _histogram("tenure_heartbeat_duration_seconds", "How long heartbeats took, since the start.", N)
HEARTBEAT_LATENCY = _gauge(
    "tenure_heartbeat_latency_seconds",
    "Percentiles of the last heartbeats (`heartbeat_latency_p50`, `_p95`, `_p99`); 0 while there are fewer than ten.",
    N,
    "quantile",
    merge=MAX,
)
HEARTBEAT_LATENCY_KNOWN = _gauge(
    "tenure_heartbeat_latency_known",
    "1 once there were enough heartbeats for the percentiles (`latency_note` is empty).",
    N,
    merge=MIN,
)
ELECTIONS = _counter("tenure_elections", "Elections that this process won (`election_count`).", N)
ELECTION_DURATION = _histogram(
    "tenure_election_duration_seconds",
    "How long these took, from the free lease to its leader (`election_duration_histogram`).",
    N,
)
ELECTION_LAST = _gauge(
    "tenure_last_election_duration_seconds",
    "How long the last one took (`election_duration`); 0 before the first.",
    N,
    merge=MAX,
)
LEADER_CHANGES = _counter("tenure_leader_changes", "New leaders that this process has seen (`leader_changes`).", N)
WORKER_REGISTRATIONS = _counter("tenure_worker_registrations", "Registrations (`worker_registrations`).", N)
WORKER_TIMEOUTS = _counter(
    "tenure_worker_timeouts", "Workers that fell silent while this process led (`worker_timeouts`).", N
)
EPOCH_DRIFT = _counter("tenure_epoch_drift_events", "Tasks of former leaders refused (`epoch_drift_events`).", N)
CONTENTION = _counter("tenure_contention_events", "Heartbeats that took far too long (`contention_events`).", N)
BREAKER_TRIPS = _counter("tenure_circuit_breaker_trips", "Times that it opened (`circuit_breaker_trips`).", N)
BREAKER_STATE = _gauge(
    "tenure_circuit_breaker_state",
    "1 for the state that it is in: closed, open or half-open (`circuit_breaker_state`).",
    N,
    "state",
)
STORE_ERRORS = _counter(
    "tenure_coordinator_store_errors", "Times that the store gave the coordinator no usable answer.", N
)

# Store
STORE_REQUESTS = _counter("tenure_store_requests", "Requests to the store.", "verb", "outcome")
STORE_SENT = _counter("tenure_store_sent_bytes", "Bytes of bodies that were written.")
STORE_RECEIVED = _counter("tenure_store_received_bytes", "Bytes of bodies that were read.")
STORE_COST = _counter("tenure_store_cost_usd", "What the requests cost at public prices, in USD.")
LOCKS_HELD = _gauge("tenure_locks_held", "Locks that this process holds.")
LOCKS_WAITING = _gauge("tenure_locks_waiting", "Tasks of this process that wait for a lock.")

# Ledgers: what queues, schedules, counters and TTLs have in common
_L = (N, "plugin", "name")
HOOK_FAILURES = _counter("tenure_plugin_hook_failures", "Calls of a plugin's hooks that raised.", *_L)
LEDGER_LEADING = _gauge("tenure_ledger_leading", "1 while this process decides on the ledger, and has caught up.", *_L)
LEDGER_HALTED = _gauge("tenure_ledger_halted", "1 while its leader, this process, cannot go on.", *_L)
LEDGER_TICK_AGE = _gauge(
    "tenure_ledger_tick_age_seconds", "Leader only: seconds since its last tick that succeeded.", *_L, merge=MAX
)
LEDGER_WAITING = _gauge("tenure_ledger_waiting_calls", "Calls of this process that are not sent yet.", *_L)
LEDGER_BATCHES = _counter("tenure_ledger_batches", "Inbox objects that this process has written.", *_L)
LEDGER_IDLE = _gauge(
    "tenure_ledger_idle_requests_per_hour",
    "What this process spends on looking for work that is not there; `idle_budget` bounds it.",
    *_L,
)

# Queues
_Q = (N, "queue")
QUEUE_MESSAGES = _gauge("tenure_queue_messages", "Leader only: ready, delayed, in_flight and dead.", *_Q, "state")
QUEUE_OLDEST = _gauge(
    "tenure_queue_oldest_message_age_seconds",
    "Leader only: for how long the first in the queue has waited; 0 if nothing waits.",
    *_Q,
    merge=MAX,
)
QUEUE_PAUSED = _gauge("tenure_queue_paused", "Leader only: 1 while it is paused.", *_Q)
QUEUE_WORKERS = _gauge("tenure_queue_workers", "Leader only: processes that handle its messages.", *_Q)
QUEUE_ENQUEUE_RATE = _gauge(
    "tenure_queue_enqueued_per_second", "Leader only: messages over about the last minute.", *_Q
)
QUEUE_DONE_RATE = _gauge("tenure_queue_done_per_second", "Leader only: likewise, of those that were finished.", *_Q)
QUEUE_ENQUEUED = _counter("tenure_queue_enqueued", "Leader only: messages since the queue exists.", *_Q)
QUEUE_DONE = _counter("tenure_queue_done", "Leader only: messages that were finished.", *_Q)
QUEUE_FAILED = _counter("tenure_queue_failed", "Leader only: deliveries that failed.", *_Q)
QUEUE_LAPSED = _counter("tenure_queue_lapsed", "Leader only: deliveries of which nothing was heard in time.", *_Q)
QUEUE_DIED = _counter("tenure_queue_dead_letters", "Leader only: messages that became dead letters.", *_Q)
QUEUE_DUPLICATES = _counter("tenure_queue_duplicates", "Leader only: messages dropped by their `dedup_key`.", *_Q)
QUEUE_PURGED = _counter("tenure_queue_purged", "Leader only: messages that somebody purged.", *_Q)
QUEUE_HANDLED = _counter(
    "tenure_queue_handled", "Messages of this process: done, failed, back (not begun) or interrupted.", *_Q, "outcome"
)
QUEUE_WORKER = _counter(
    "tenure_queue_worker_events",
    "Of this process: tickets, reports, reports_lost, late (reports), resyncs, store_errors.",
    *_Q,
    "event",
)
QUEUE_IN_HAND = _gauge("tenure_queue_in_hand_messages", "Messages that this process has in hand.", *_Q)

# Schedules
_S = (N, "schedule")
SCHEDULE_JOBS = _gauge("tenure_schedule_jobs", "Leader only: jobs.", *_S)
SCHEDULE_PAUSED = _gauge("tenure_schedule_paused", "Leader only: 1 while everything is paused.", *_S)
SCHEDULE_RUNS = _gauge("tenure_schedule_runs", "Leader only: running, waiting and backing_off.", *_S, "state")
SCHEDULE_OVERDUE = _gauge(
    "tenure_schedule_overdue_seconds", "Leader only: by how much what is due next is late.", *_S, merge=MAX
)
SCHEDULE_NEXT = _gauge(
    "tenure_schedule_next_fire_seconds",
    "Leader only: seconds until something is due next; absent if nothing is.",
    *_S,
    merge=MIN,
)
SCHEDULE_FIRED = _counter("tenure_schedule_fired", "Leader only: occurrences that fired.", *_S)
SCHEDULE_ENDED = _counter("tenure_schedule_ended", "Leader only: succeeded, failed, interrupted.", *_S, "outcome")
SCHEDULE_PASSED = _counter(
    "tenure_schedule_passed_over",
    "Leader only: occurrences that did not fire: overlap, missed_window, coalesced.",
    *_S,
    "reason",
)
SCHEDULE_RETRIES = _counter("tenure_schedule_retries", "Leader only: runs that were tried again.", *_S)
SCHEDULE_INTERRUPTIONS = _counter("tenure_schedule_interruptions", "Leader only: runs that were cut short.", *_S)
SCHEDULE_MANUAL = _counter("tenure_schedule_manual", "Leader only: runs that somebody asked for.", *_S)
SCHEDULE_LEFT = _gauge(
    "tenure_schedule_runs_left_behind", "Leader only: runs of this term that were told to end and did not.", *_S
)

# TTLs
_R = (N, "resource")
TTL_EVENTS = _counter(
    "tenure_ttl_events",
    "Leader only: expired, deleted, soft_deleted, archived, called, failed_calls, given_up, moved, dropped, damaged, "
    "errors.",
    *_R,
    "event",
)
TTL_CLEANUPS = _counter("tenure_ttl_cleanups", "Leader only: cleanups that did something.", *_R)
TTL_CALLING = _gauge("tenure_ttl_open_callbacks", "Leader only: callbacks that have not succeeded yet.", *_R)
TTL_ASKED = _gauge("tenure_ttl_cleanups_asked", "Leader only: cleanups that were asked for, and have not ended.", *_R)
TTL_LAST = _gauge(
    "tenure_ttl_last_cleanup_timestamp_seconds",
    "Leader only: when a cleanup last did something, by the store's clock; absent before the first.",
    *_R,
    merge=MIN,
)
TTL_SECONDS = _gauge("tenure_ttl_last_cleanup_seconds", "Leader only: how long it took.", *_R, merge=MAX)

# Counters
COUNTERS_PENDING = _gauge(
    "tenure_counters_pending_records", "Leader only: records with amounts that are not known to be in them.", *_R
)
COUNTERS_LAG = _gauge(
    "tenure_counters_lag_seconds", "Leader only: for how long the oldest of these have waited.", *_R, merge=MAX
)
COUNTERS_PAGES = _gauge("tenure_counters_pages", "Leader only: pages of history.", *_R)
COUNTERS_CALLS = _counter("tenure_counters_calls", "Leader only: calls that were counted.", *_R)
COUNTERS_APPLIED = _counter("tenure_counters_applied", "Leader only: writes of records.", *_R)
COUNTERS_DUPLICATES = _counter("tenure_counters_duplicates", "Leader only: calls with an `op_id` seen before.", *_R)

# Supervisors
_V = (N, "supervisor")
CHILDREN = _gauge("tenure_supervisor_children", "Children on this node, by state.", *_V, "state")
CHILD_RUNNING = _gauge("tenure_supervisor_child_running", "1 while the child runs on this node.", *_V, "child")
CHILD_STARTS = _gauge("tenure_supervisor_child_starts", "Its starts in this term, on this node.", *_V, "child")
CHILD_FAILURES = _gauge("tenure_supervisor_child_failures", "Its failures in this term, on this node.", *_V, "child")

CATALOGUE: tuple[Family, ...] = tuple(_ALL)

CAPPED = frozenset({"namespace", "plugin", "name", "queue", "schedule", "resource", "supervisor", "child"})
"""Labels whose values come from the program: each has at most so many as the sampler allows."""
OTHER = "other"

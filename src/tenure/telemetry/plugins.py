"""What the plugins of a process know by themselves, as samples. Read on their loop, and without a request.

Plugins are told apart by their kind (`slug`), so that none is imported that the program does not use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from tenure.telemetry import catalogue as its
from tenure.telemetry.catalogue import Family, Sample

if TYPE_CHECKING:
    from tenure.plugins.counters import EventualConsistencyPlugin
    from tenure.plugins.queue import S3QueuePlugin
    from tenure.plugins.scheduler import SchedulerPlugin
    from tenure.plugins.supervisor import CoordinatorCandidate
    from tenure.plugins.ttl import TTLPlugin

HANDLED = ("done", "failed", "back", "interrupted")
WORKER_EVENTS = ("tickets", "reports", "reports_lost", "late", "resyncs", "store_errors")
TTL_EVENTS = (
    *("expired", "deleted", "soft_deleted", "archived", "called", "failed_calls"),
    *("given_up", "moved", "dropped", "damaged", "errors"),
)
CHILD_STATES = (
    *("waiting", "starting", "running", "backing-off", "completed"),
    *("failed", "stopping", "stopped", "overran"),
)


def plugin_samples(plugin: Any) -> Iterator[Sample]:
    """Of any plugin that a database has; of one that is not known here, what all have in common."""
    failures = getattr(plugin, "hook_failures", None)
    if isinstance(failures, int):
        yield Sample(its.HOOK_FAILURES, (plugin.namespace, plugin.slug, plugin.name), float(failures))
    if callable(getattr(plugin, "ledger_glance", None)):
        yield from _ledger(plugin)
    kind = _KINDS.get(plugin.slug)
    if kind is not None:
        yield from kind(plugin)


def _ledger(plugin: Any) -> Iterator[Sample]:
    glance = plugin.ledger_glance()
    labels = (plugin.namespace, plugin.slug, plugin.name)
    yield from _all(
        labels,
        (its.LEDGER_LEADING, glance.leading if glance.takes_part else None),
        (its.LEDGER_HALTED, glance.halted if glance.takes_part else None),
        (its.LEDGER_TICK_AGE, glance.tick_age),
        (its.LEDGER_WAITING, glance.waiting),
        (its.LEDGER_BATCHES, glance.batches),
        (its.LEDGER_IDLE, getattr(plugin, "idle_requests_per_hour", None)),
    )


def _queue(plugin: S3QueuePlugin) -> Iterator[Sample]:
    glance = plugin.glance()
    labels = (plugin.namespace, plugin.name)
    if glance.worker is not None:
        for outcome in HANDLED:
            yield Sample(its.QUEUE_HANDLED, (*labels, outcome), float(glance.worker.get(outcome, 0)))
        for event in WORKER_EVENTS:
            yield Sample(its.QUEUE_WORKER, (*labels, event), float(glance.worker.get(event, 0)))
        yield Sample(its.QUEUE_IN_HAND, labels, float(glance.holding))
    led = glance.led
    if led is None:
        return
    states = (("ready", led.ready), ("delayed", led.delayed), ("in_flight", led.in_flight), ("dead", led.dead))
    for state, count in states:
        yield Sample(its.QUEUE_MESSAGES, (*labels, state), float(count))
    yield from _all(
        labels,
        (its.QUEUE_OLDEST, led.oldest_age if led.oldest_age is not None else 0.0),
        (its.QUEUE_PAUSED, led.paused),
        (its.QUEUE_WORKERS, led.workers),
        (its.QUEUE_ENQUEUE_RATE, led.enqueue_rate),
        (its.QUEUE_DONE_RATE, led.done_rate),
        (its.QUEUE_ENQUEUED, led.totals.enqueued),
        (its.QUEUE_DONE, led.totals.done),
        (its.QUEUE_FAILED, led.totals.failed),
        (its.QUEUE_LAPSED, led.totals.lapsed),
        (its.QUEUE_DIED, led.totals.died),
        (its.QUEUE_DUPLICATES, led.totals.duplicates),
        (its.QUEUE_PURGED, led.totals.purged),
    )


def _schedule(plugin: SchedulerPlugin) -> Iterator[Sample]:
    glance = plugin.glance()
    if glance is None:
        return
    labels, totals = (plugin.namespace, plugin.name), glance.totals
    runs = (("running", glance.running), ("waiting", glance.waiting), ("backing_off", glance.backing_off))
    for state, count in runs:
        yield Sample(its.SCHEDULE_RUNS, (*labels, state), float(count))
    ended = (("succeeded", totals.succeeded), ("failed", totals.failed), ("interrupted", totals.interrupted))
    for outcome, count in ended:
        yield Sample(its.SCHEDULE_ENDED, (*labels, outcome), float(count))
    passed = (
        ("overlap", totals.skipped_overlap),
        ("missed_window", totals.missed_window),
        ("coalesced", totals.coalesced),
    )
    for reason, count in passed:
        yield Sample(its.SCHEDULE_PASSED, (*labels, reason), float(count))
    yield from _all(
        labels,
        (its.SCHEDULE_JOBS, glance.jobs),
        (its.SCHEDULE_PAUSED, glance.paused),
        (its.SCHEDULE_OVERDUE, glance.overdue),
        (its.SCHEDULE_NEXT, glance.next_in),
        (its.SCHEDULE_FIRED, totals.fired),
        (its.SCHEDULE_RETRIES, totals.retries),
        (its.SCHEDULE_INTERRUPTIONS, totals.interruptions),
        (its.SCHEDULE_MANUAL, totals.manual),
        (its.SCHEDULE_LEFT, glance.left_behind),
    )


def _ttl(plugin: TTLPlugin) -> Iterator[Sample]:
    glance = plugin.glance()
    if glance is None:
        return
    labels = (plugin.namespace, plugin.name)
    for event in TTL_EVENTS:
        yield Sample(its.TTL_EVENTS, (*labels, event), float(getattr(glance.totals, event)))
    yield from _all(
        labels,
        (its.TTL_CLEANUPS, glance.cleanups),
        (its.TTL_CALLING, glance.calling),
        (its.TTL_ASKED, glance.asked),
        (its.TTL_LAST, None if glance.last_ms is None else glance.last_ms / 1000),
        (its.TTL_SECONDS, glance.last_seconds),
    )


def _counters(plugin: EventualConsistencyPlugin) -> Iterator[Sample]:
    glance = plugin.glance()
    if glance is None:
        return
    yield from _all(
        (plugin.namespace, plugin.name),
        (its.COUNTERS_PENDING, glance.pending),
        (its.COUNTERS_LAG, glance.lag),
        (its.COUNTERS_PAGES, glance.pages),
        (its.COUNTERS_CALLS, glance.totals.calls),
        (its.COUNTERS_APPLIED, glance.totals.applied),
        (its.COUNTERS_DUPLICATES, glance.totals.duplicates),
    )


def _supervisor(plugin: CoordinatorCandidate) -> Iterator[Sample]:
    labels = (plugin.namespace, plugin.supervisor.name)
    statuses = plugin.supervisor.status()
    states = Counter(status.state.value for status in statuses)
    for state in CHILD_STATES:
        yield Sample(its.CHILDREN, (*labels, state), float(states[state]))
    for status in statuses:
        child = (*labels, status.name)
        yield Sample(its.CHILD_RUNNING, child, float(status.state.value == "running"))
        yield Sample(its.CHILD_STARTS, child, float(status.starts))
        yield Sample(its.CHILD_FAILURES, child, float(status.failures))


def _all(labels: tuple[str, ...], *values: tuple[Family, float | None]) -> Iterator[Sample]:
    for family, value in values:
        if value is not None:
            yield Sample(family, labels, float(value))


_KINDS = cast(
    "dict[str, Callable[[Any], Iterator[Sample]]]",
    {
        "s3-queue": _queue,
        "scheduler": _schedule,
        "ttl": _ttl,
        "eventual-consistency": _counters,
        "coordinator-candidate": _supervisor,
    },
)

"""What the dashboard sees of the fleet, for Prometheus. Labels are names of queues, schedules and counters, which are
as many as are looked at, and the leader's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as Source

from tenure._version import __version__
from tenure.dashboard.collector import Collector
from tenure.dashboard.sections import Children, Counters, Latency, Lease, Queues, Schedules, Usage, Workers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_QUEUE_STATES = ("ready", "delayed", "in_flight", "dead")


class FleetMetrics(Source):
    """Reads the board when it is scraped."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterator[Metric]:
        yield _gauge("build_info", "The version of the dashboard.", [((__version__,), 1.0)], ("version",))
        yield _gauge("store_up", "1: the store answered the last look.", [((), float(self._collector.trouble is None))])
        for name in ("lease", "workers", "latency", "usage", "queues", "schedules", "counters", "children"):
            section = self._collector.board.section(name)
            match section:
                case Lease():
                    yield from _lease(section)
                case Workers():
                    yield from _workers(section)
                case Latency():
                    yield from _latency(section)
                case Usage():
                    yield from _usage(section)
                case Queues():
                    yield from _queues(section)
                case Schedules():
                    yield from _schedules(section)
                case Counters():
                    yield from _counters(section)
                case Children():
                    yield from _children(section)


def exposition(collector: Collector) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetMetrics(collector))
    return generate_latest(registry)


Rows = Iterable[tuple[tuple[str, ...], float | None]]


def _gauge(name: str, about: str, rows: Rows, labels: tuple[str, ...] = ()) -> Metric:
    family = GaugeMetricFamily(f"tenure_fleet_{name}", about, labels=labels)
    for values, number in rows:
        if number is not None:
            family.add_metric(values, float(number))
    return family


def _lease(lease: Lease) -> Iterator[Metric]:
    yield _gauge("epoch", "Of the lease.", [((), lease.epoch)])
    leads = lease.phase == "leading"
    yield _gauge("has_leader", "1: somebody holds a lease that has not lapsed.", [((), float(leads))])
    leader: Rows = [((lease.leader,), 1.0)] if leads and lease.leader is not None else []
    yield _gauge("leader_info", "Who leads.", leader, ("leader",))
    yield _gauge("lease_seconds", "How long a lease lasts.", [((), lease.lease_seconds)])
    since = None if lease.last_renewal_ms is None else lease.last_renewal_ms / 1000
    yield _gauge("lease_renewed_timestamp_seconds", "When a renewal was last seen.", [((), since)])


def _workers(workers: Workers) -> Iterator[Metric]:
    counts: Rows = [
        (("active",), workers.active),
        (("silent",), workers.silent),
        (("unhealthy",), workers.unhealthy),
        (("unreadable",), workers.unreadable),
        (("left_out",), workers.left_out),
    ]
    yield _gauge(
        "workers", "Records of workers, by what they say; the unhealthy are active or silent too.", counts, ("state",)
    )


def _latency(latency: Latency) -> Iterator[Metric]:
    newest = latency.leader[-1] if latency.leader else (None,) * 5
    rows: Rows = [
        ((quantile,), None if value is None else value / 1000)
        for quantile, value in zip(("0.5", "0.95", "0.99"), newest[2:], strict=False)
    ]
    yield _gauge("leader_heartbeat_seconds", "How long the leader's heartbeats take, as it says.", rows, ("quantile",))
    look = latency.store[-1][1] if latency.store else None
    yield _gauge(
        "look_seconds", "How long the last look at the lease took.", [((), None if look is None else look / 1000)]
    )


def _usage(usage: Usage) -> Iterator[Metric]:
    yield _gauge("requests_per_hour", "Of all workers, from those that were asked.", [((), usage.requests_per_hour)])
    yield _gauge("usd_per_day", "The same at public prices.", [((), usage.usd_per_day)])
    family = CounterMetricFamily(
        "tenure_fleet_dashboard_requests", "Requests of the dashboard itself to the store.", labels=("verb",)
    )
    for verb, count in usage.dashboard.by_verb.items():
        family.add_metric((verb,), float(count))
    yield family


def _queues(queues: Queues) -> Iterator[Metric]:
    rows = queues.rows
    yield _gauge("queues", "That there are.", [((), queues.total)])
    messages: Rows = [((row.name, state), getattr(row, state)) for row in rows for state in _QUEUE_STATES]
    yield _gauge("queue_messages", "By queue and state.", messages, ("queue", "state"))
    yield _gauge(
        "queue_inbox_objects", "That no leader has read.", [((row.name,), row.inbox) for row in rows], ("queue",)
    )
    oldest: Rows = [((row.name,), row.oldest_age_seconds) for row in rows]
    yield _gauge("queue_oldest_seconds", "For how long the first has waited.", oldest, ("queue",))
    yield _gauge(
        "queue_paused", "1: it hands out nothing.", [((row.name,), float(row.paused)) for row in rows], ("queue",)
    )
    unreadable: Rows = [((row.name,), float(row.problem is not None)) for row in rows]
    yield _gauge("queue_unreadable", "1: it could not be read at the last look.", unreadable, ("queue",))


def _schedules(schedules: Schedules) -> Iterator[Metric]:
    rows = schedules.schedules
    yield _gauge("schedule_jobs", "That it has.", [((row.name,), row.jobs) for row in rows], ("schedule",))
    yield _gauge("schedule_running", "Runs under way.", [((row.name,), row.running) for row in rows], ("schedule",))
    paused: Rows = [((row.name,), float(row.paused)) for row in rows]
    yield _gauge("schedule_paused", "1: nothing of it fires.", paused, ("schedule",))
    bad: dict[str, int] = {row.name: 0 for row in rows}
    for job in schedules.rows:
        if job.last is not None and job.last.outcome in ("failed", "interrupted", "missed-window"):
            bad[job.schedule] = bad.get(job.schedule, 0) + 1
    failed: Rows = [((name,), count) for name, count in bad.items()]
    yield _gauge("schedule_jobs_failed", "Jobs whose last occurrence failed or was missed.", failed, ("schedule",))


def _counters(counters: Counters) -> Iterator[Metric]:
    rows = counters.rows
    lag: Rows = [((row.name,), row.lag_seconds) for row in rows]
    yield _gauge(
        "counters_lag_seconds", "Since the oldest call was folded that is in no record yet.", lag, ("counters",)
    )
    pending: Rows = [((row.name,), row.pending) for row in rows]
    yield _gauge("counters_pending_calls", "Folded, and not known to be in their records.", pending, ("counters",))


def _children(children: Children) -> Iterator[Metric]:
    counts: dict[tuple[str, ...], float | None] = {}
    for row in children.rows:
        key = (row.supervisor, row.state)
        counts[key] = (counts.get(key) or 0.0) + 1.0
    yield _gauge("children", "Supervised, by state.", counts.items(), ("supervisor", "state"))

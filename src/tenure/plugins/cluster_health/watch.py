"""Watches the cluster from one node: who comes and goes, and whether all is well.

Guarantee: `node:down` is told only of a node that was up here and that a fresh listing does not show. The nodes found
at the start are the baseline, and nothing is told of them.

Not guaranteed: that every visit is noticed. A node that comes and goes between two looks was not there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import ClassVar, Self

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.coordinator.events import EventBus, Handler, LeaderChanged, Subscription, WorkersUpdated
from tenure.coordinator.given import check_instance, shown
from tenure.coordinator.lead import Lead
from tenure.coordinator.seldom import Seldom
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.election.records import time_of_day
from tenure.errors import ConfigError, NotFound, StoreError, TenureError
from tenure.plugins.cluster_health.report import HealthReport, Observation, Status, Thresholds, judge
from tenure.plugins.supervisor.child import ChildStatus, Context
from tenure.store import Store

_log = logging.getLogger("tenure.health")
_PROBE = "plugin=health/probe"
"""Never written: that there is no such key is an answer too."""
_MAX_REMEMBERED_CHECKS = 1000


class NodeUp(msgspec.Struct, frozen=True):
    name: ClassVar[str] = "node:up"
    node: str
    time: float
    """Seconds since 1970 on this host's wall clock."""
    nodes: tuple[str, ...]
    """Who is up now."""


class NodeDown(msgspec.Struct, frozen=True):
    name: ClassVar[str] = "node:down"
    node: str
    time: float
    nodes: tuple[str, ...]


class HealthChanged(msgspec.Struct, frozen=True):
    name: ClassVar[str] = "health:changed"
    previous: Status | None
    """`None`: this is the first check."""
    report: HealthReport


EVENT_NAMES = (NodeUp.name, NodeDown.name, HealthChanged.name)


class ClusterHealth:
    """On the leader, as a child: `Child("health", ClusterHealth())`. On any node, for its endpoint:

    health = ClusterHealth.observe(coordinator)
    await health.start()
    status, headers, body = health.response()
    """

    def __init__(self, check_interval: float = 10.0, *, thresholds: Thresholds | None = None) -> None:
        if isinstance(check_interval, bool) or not isinstance(check_interval, int | float):
            raise ConfigError(f"check_interval is {check_interval!r}: give seconds")
        if not 0.1 <= check_interval <= 3600:
            raise ConfigError(f"check_interval is {shown(check_interval)}: give seconds, at least 0.1 and at most 3600")
        if thresholds is not None:
            check_instance("thresholds", thresholds, Thresholds)
        self._interval = float(check_interval)
        self._thresholds = thresholds if thresholds is not None else Thresholds()
        self._bus = EventBus(logger=_log, more_names=EVENT_NAMES)
        self._coordinator: GlobalCoordinatorService | None = None
        self._context: Context | None = None
        self._clock: Clock = SYSTEM_CLOCK
        self._node = ""
        self._task: asyncio.Task[None] | None = None
        self._subscriptions: list[Subscription] = []
        self._forget()

    def _forget(self) -> None:
        self._nodes: frozenset[str] | None = None
        self._leaderless: Reading | None = None
        self._latency: float | None = None
        self._error: str | None = None
        self._looked: Reading | None = None
        self._contention: int | None = None
        self._new_contention = 0
        self._failures: deque[tuple[Reading, dict[str, int]]] = deque(maxlen=_MAX_REMEMBERED_CHECKS)
        self._status: Status | None = None
        self._checked_at = ""
        self._changes = asyncio.Event()

    @classmethod
    def observe(
        cls,
        coordinator: GlobalCoordinatorService,
        check_interval: float = 10.0,
        *,
        thresholds: Thresholds | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """For a node that need not lead: `start()` it without a context."""
        if not isinstance(getattr(coordinator, "worker_id", None), str):
            raise ConfigError(f"coordinator is {shown(coordinator)}: give what get_global_coordinator() gave")
        health = cls(check_interval, thresholds=thresholds)
        health._coordinator = coordinator
        health._node = coordinator.worker_id
        health._clock = clock
        return health

    # Life

    async def start(self, context: Context | None = None) -> None:
        if self._task is not None and not self._task.done():
            raise TenureError("this ClusterHealth is running already: stop() it first")
        if context is not None:
            self._context = context
            self._coordinator = context.coordinator
            self._node = context.node
            self._clock = context.clock
        elif not self._node:
            raise ConfigError("start() needs a context, or a ClusterHealth made by ClusterHealth.observe(coordinator)")
        self._forget()
        self._seldom = Seldom(_log)
        if self._coordinator is not None:
            self._subscriptions = [
                self._coordinator.on(WorkersUpdated.name, lambda _: self._changes.set()),
                self._coordinator.on(LeaderChanged.name, self._leader_changed),
            ]
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def wait(self) -> None:
        """Returns when it was stopped; raises what ended it."""
        task = self._task
        if task is not None:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        self._subscriptions = []
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.warning("the health check had ended: %s", error)

    # Asking

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)`: `node:up`, `node:down` or `health:changed`."""
        return self._bus.on(name, handler)

    def off(self, name: str, handler: Handler) -> bool:
        return self._bus.off(name, handler)

    def healthy(self) -> bool:
        """Neither unhealthy nor degraded."""
        return self.report().status == "healthy"

    def report(self) -> HealthReport:
        """As of now: leadership, breaker and children at this instant, the store as of the last look at it."""
        return judge(self._observe(), self._thresholds)

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Status code, headers and body for a health endpoint: 503 if unhealthy, otherwise 200. Makes no request."""
        report = self.report()
        headers = {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}
        return (503 if report.status == "unhealthy" else 200), headers, msgspec.json.encode(report)

    # Inside

    async def _run(self) -> None:
        due: Reading | None = None
        while True:
            if due is None or self._clock.read().leader_elapsed(due) >= self._interval:
                due = self._clock.read()
                await self._check()
            self._changes.clear()
            try:
                await self._compare_nodes()
            except StoreError as error:
                # The next check asks again.
                self._seldom.warning(self._clock.read(), "who is up is not known: %s", error)
            left = max(0.0, self._interval - self._clock.read().leader_elapsed(due))
            await self._until_change(left)

    async def _until_change(self, seconds: float) -> None:
        """On the clock that was handed in, and awake at once when the list of workers changes."""
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(self._clock.sleep(seconds)), loop.create_task(self._changes.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)

    async def _check(self) -> None:
        began = self._clock.read()
        try:
            await self._look_at_store()
        except StoreError as error:
            self._latency, self._error = None, str(error)
            self._looked = self._clock.read()
        else:
            self._looked = self._clock.read()
            self._latency, self._error = self._looked.leader_elapsed(began), None
        if self._coordinator is not None:
            contention = self._coordinator.get_metrics().contention_events
            self._new_contention = 0 if self._contention is None else contention - self._contention
            self._contention = contention
        now = self._clock.read()
        self._failures.append((now, {child.name: child.failures for child in self._children()}))
        while len(self._failures) > 1 and now.leader_elapsed(self._failures[1][0]) >= self._thresholds.crash_window:
            self._failures.popleft()
        self._checked_at = time_of_day(now.wall_ns)
        report = self.report()
        if report.status != self._status:
            previous, self._status = self._status, report.status
            _log.log(
                logging.INFO if report.status == "healthy" else logging.WARNING,
                "the cluster is %s. %s",
                report.status,
                " ".join(report.reasons),
            )
            self._bus.emit(HealthChanged(previous, report))

    async def _look_at_store(self) -> None:
        """One small read."""
        if self._coordinator is not None:
            await self._coordinator.get_leader(fresh=True)
            return
        assert self._context is not None
        store: Store = self._context.database.store
        try:
            await store.get(_PROBE)
        except NotFound:
            pass

    async def _compare_nodes(self) -> None:
        coordinator = self._coordinator
        if coordinator is None or not coordinator.config.membership:
            return
        if self._nodes is None:
            # Read fresh: the list that this node had as a follower may be as old as the former leader.
            self._nodes = frozenset(await coordinator.get_active_workers(fresh=True))
            return
        listed = frozenset(await coordinator.get_active_workers())
        missing = self._nodes - listed
        if missing:
            # The coordinator's list may be older than what we have seen since: only a fresh one says that it is gone.
            missing -= frozenset(await coordinator.get_active_workers(fresh=True))
        for node in sorted(listed - self._nodes):
            self._nodes |= {node}
            self._tell(NodeUp(node, self._wall(), tuple(sorted(self._nodes))))
        for node in sorted(missing):
            self._nodes -= {node}
            self._tell(NodeDown(node, self._wall(), tuple(sorted(self._nodes))))

    def _tell(self, event: NodeUp | NodeDown) -> None:
        _log.info("%s: %s (%d are up)", event.name, event.node, len(event.nodes))
        self._bus.emit(event)

    def _observe(self) -> Observation:
        coordinator, lead = self._coordinator, self._lead()
        now = self._clock.read()
        looked = None if self._looked is None else now.leader_elapsed(self._looked)
        facts = {
            "node": self._node,
            "check_interval": self._interval,
            "store_latency": self._latency,
            "store_error": self._error,
            "looked_ago": looked,
            "children": self._children(),
            "recent_failures": self._recent_failures(),
            "checked_at": self._checked_at,
        }
        if coordinator is None:
            return Observation(leader=self._node, role="leader", nodes=(self._node,), **facts)  # type: ignore[arg-type]
        metrics = coordinator.get_metrics()
        leading = coordinator.is_leader()
        leader = self._node if leading else coordinator.leader_seen
        return Observation(
            namespace=coordinator.namespace,
            role="leader" if leading else "follower",
            running=coordinator.running,
            leader=leader,
            leaderless_for=self._leaderless_for(leader, now),
            failover=coordinator.config.usual_failover(),
            epoch=lead.epoch if lead is not None else coordinator.get_epoch(),
            lease_held=None if lead is None else lead.is_current(),
            nodes=tuple(sorted(self._nodes or ())),
            heartbeat_p95=metrics.heartbeat_latency_p95,
            heartbeat_interval=coordinator.config.heartbeat_interval,
            new_contention=self._new_contention,
            breaker=metrics.circuit_breaker_state,
            **facts,  # type: ignore[arg-type]
        )

    def _lead(self) -> Lead | None:
        """The term that this was started under, if it runs on the leader."""
        return self._context.lead if self._context is not None else None

    def _children(self) -> tuple[ChildStatus, ...]:
        return self._context.children() if self._context is not None else ()

    def _recent_failures(self) -> dict[str, int]:
        before = self._failures[0][1] if self._failures else {}
        return {child.name: child.failures - before.get(child.name, 0) for child in self._children()}

    def _leaderless_for(self, leader: str | None, now: Reading) -> float:
        if leader is not None:
            self._leaderless = None
            return 0.0
        self._leaderless = self._leaderless or now
        return now.leader_elapsed(self._leaderless)

    def _leader_changed(self, event: LeaderChanged) -> None:
        self._leaderless_for(event.new_leader, self._clock.read())

    def _wall(self) -> float:
        return self._clock.read().wall_ns / 1e9

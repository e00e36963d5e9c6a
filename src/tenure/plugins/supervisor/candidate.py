"""Stands for election, and has the leader run the children.

    children = [Child("mailer", send_mails), Child("sync", Command("rsync", "-a", "in/", "out/"))]
    await db.use_plugin(CoordinatorCandidate(children))

Every node does this; one of them runs the children. If it dies, another does within seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from tenure.coordinator.config import CircuitBreakerConfig, CoordinatorConfig, check_config, seconds
from tenure.coordinator.events import (
    CoordinatorDemoted,
    CoordinatorPromoted,
    EventBus,
    EventStream,
    Handler,
    LeaderChanged,
    NamedEvent,
    Subscription,
    Tap,
)
from tenure.coordinator.fenced import Fence
from tenure.coordinator.hooks import HookOverrun
from tenure.coordinator.layout import namespace_store
from tenure.coordinator.lead import Lead
from tenure.coordinator.reading import read_epoch
from tenure.coordinator.seldom import Seldom
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.errors import ConfigError, CoordinationError, StoreError
from tenure.plugins.supervisor import environment
from tenure.plugins.supervisor.child import Child
from tenure.plugins.supervisor.restarts import RestartPolicy
from tenure.plugins.supervisor.static import StaticPost
from tenure.plugins.supervisor.status import SupervisorStatus, read_status
from tenure.plugins.supervisor.supervisor import Assignment, CoordinatorSupervisor
from tenure.plugins.supervisor.telemetry import (
    TELEMETRY_NAMES,
    BecameLeader,
    ChildGivenUp,
    ElectionCheck,
    LeaderDown,
    LostLeadership,
    TwoStaticCoordinators,
)

_log = logging.getLogger("tenure.candidate")

NAMESPACE = "coordinator"
_EVENTS_KEPT = 256


def candidate_config(*, eligible: bool = True, takeover_delay: float = 1.0, **changes: Any) -> CoordinatorConfig:
    """The timing of candidates: a crashed leader is replaced within 10 s, one that leaves within 5 s."""
    settings: dict[str, Any] = {
        "lease_timeout": 6.0,
        "heartbeat_interval": 2.0,
        "heartbeat_jitter": 0.2,
        # A renewal that is lost, and one more try, fit in before the leader gives up; then its children have a second
        # and a half to end. A watchdog ends programs a quarter of the lease before its end: the leader comes first.
        "request_timeout": 1.0,
        "renew_deadline": 4.4,
        "worker_timeout": 8.0,
        "startup_jitter_max": 0.5,
        "standby_watch_interval": 1.0,
        "takeover_delay": takeover_delay,
        "eligible": eligible,
        "circuit_breaker": CircuitBreakerConfig(reset_timeout=5.0),
    }
    return CoordinatorConfig(**(settings | changes))


class CoordinatorCandidate:
    """A node that runs the children when it leads. Give it to `Database.use_plugin`, or `attach` and `start` it.

    What is not given is taken from the environment: `COORDINATOR_ELIGIBLE`, `COORDINATOR_ELECTION_INTERVAL` and
    `COORDINATOR_TAKEOVER_DELAY` (milliseconds). An ineligible node is a member that never stands.

    `coordinator_election_enabled=False`: nobody is elected, and the node with `cluster_coordinator=True` runs the
    children; a second one is reported.
    """

    slug = "coordinator-candidate"

    def __init__(
        self,
        children: Sequence[Child] | CoordinatorSupervisor = (),
        *,
        namespace: str = NAMESPACE,
        eligible: bool | None = None,
        election_interval: float | timedelta | None = None,
        takeover_delay: float | timedelta | None = None,
        restarts: RestartPolicy | None = None,
        hook_overrun: HookOverrun | str = HookOverrun.REPORT,
        coordinator_election_enabled: bool = True,
        cluster_coordinator: bool = False,
        config: CoordinatorConfig | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        if isinstance(children, CoordinatorSupervisor):
            self.supervisor = children
            if restarts is not None:
                raise ConfigError("restarts is given beside a supervisor, which has its own: give it there")
        elif isinstance(children, Sequence):
            self.supervisor = CoordinatorSupervisor(children, name=namespace, restarts=restarts)
        else:
            raise ConfigError(f"children is {children!r}: give a list of Child, or a CoordinatorSupervisor")
        for name, given in (
            ("coordinator_election_enabled", coordinator_election_enabled),
            ("cluster_coordinator", cluster_coordinator),
            ("eligible", eligible),
        ):
            if not isinstance(given, bool) and not (name == "eligible" and given is None):
                raise ConfigError(f"{name} is {given!r}: it must be True or False")
        try:
            self._hook_overrun = HookOverrun(hook_overrun)
        except ValueError:
            raise ConfigError(f"hook_overrun is {hook_overrun!r}: it must be 'report' or 'exit'") from None
        self._seldom = Seldom(_log)
        self.namespace = namespace
        self.election_enabled = coordinator_election_enabled
        self.cluster_coordinator = cluster_coordinator
        if cluster_coordinator and coordinator_election_enabled:
            raise ConfigError(
                "cluster_coordinator is True, and coordinator_election_enabled too: a node is either told to run the "
                "children or elected to; set one of them to False"
            )
        check_config(config)
        base = config if config is not None else candidate_config()
        self.eligible = environment.flag(environ, environment.ELIGIBLE, base.eligible) if eligible is None else eligible
        self.election_interval = (
            environment.milliseconds(environ, environment.ELECTION_INTERVAL, 5.0)
            if election_interval is None
            else seconds("election_interval", election_interval)
        )
        delay = (
            environment.milliseconds(environ, environment.TAKEOVER_DELAY, base.takeover_delay, zero=True)
            if takeover_delay is None
            else seconds("takeover_delay", takeover_delay, zero=True)
        )
        self.config = base.replace(eligible=self.eligible, takeover_delay=delay)
        self.name = namespace
        self._bus = EventBus(_EVENTS_KEPT, _log, names=TELEMETRY_NAMES)
        self._database: Database | None = None
        self._coordinator: GlobalCoordinatorService | None = None
        self._tap: Tap | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()
        self._told_tasks = False
        self._leaving = False
        self.supervisor.gave_up = self._child_given_up

    def __repr__(self) -> str:
        return f"<CoordinatorCandidate {self.namespace!r}>"

    # Life

    def attach(self, host: Database, name: str) -> None:
        """Belong to the database `host`. Called by `Database.use_plugin`."""
        if self._database is not None and self._database is not host:
            raise ConfigError(f"{self!r} belongs to {self._database!r} already: make one for each database")
        self._database, self.name = host, name

    async def start(self) -> None:
        """Stand for election, or take the post that was assigned. A second call changes nothing."""
        database = self._attached()
        async with self._starting:
            if self._leaving:
                await self._leave()  # a stop that was not waited for
            if self._tasks or self._coordinator is not None:
                return
            if self.election_enabled:
                coordinator = await database.get_global_coordinator(self.namespace, config=self.config)
                self._tap = coordinator.tap(self._heard, repr(self))
                self._coordinator = coordinator
                coordinator.subscribe(self, hook_overrun=self._hook_overrun)
                try:
                    await coordinator.start_for_subscribers()
                except BaseException:
                    await self._leave()
                    raise
                self._spawn(self._check_elections())
            elif self.cluster_coordinator:
                self._spawn(self._serve_statically(database))

    async def stop(self) -> None:
        """Stop the children, if they run here, and stand no more."""
        self._leaving = True
        async with self._starting:
            await self._leave()

    async def _leave(self) -> None:
        """May be cut short, and is then gone on with by the next `stop()` or `start()`."""
        if not self._told_tasks:
            self._told_tasks = True
            for task in self._tasks:
                task.cancel()
        coordinator = self._coordinator
        if coordinator is not None:
            await coordinator.withdraw(self)
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks, self._told_tasks = [], False
        if self._tap is not None:
            self._tap.end()
        self._coordinator = self._tap = None
        self._leaving = False

    # What is known

    @property
    def coordinator(self) -> GlobalCoordinatorService:
        if self._coordinator is None:
            why = "has not been started" if self.election_enabled else "was told to hold no elections"
            raise CoordinationError(f"{self!r} {why}: it has no coordinator")
        return self._coordinator

    @property
    def node(self) -> str:
        return self._coordinator.worker_id if self._coordinator is not None else self._attached().worker_id

    def is_leader(self) -> bool:
        """Does this node lead, at this instant? Without elections: is it the one that was told to?"""
        if not self.election_enabled:
            return self.cluster_coordinator and any(not task.done() for task in self._tasks)
        return self._coordinator is not None and self._coordinator.is_leader()

    async def current_leader(self) -> str | None:
        """Who leads, as last observed."""
        if not self.election_enabled:
            return self.node if self.is_leader() else None
        return await self.coordinator.get_leader()

    async def children(self) -> SupervisorStatus | None:
        """How the children are, as their leader last wrote it down: the same on every node."""
        return await read_status(self._attached().store, self.supervisor.name)

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)` for each of this name, such as `tenure.coordinator.became_leader`; "*" for all."""
        return self._bus.on(name, handler)

    def events(self, *names: str) -> EventStream:
        return self._bus.events(*names)

    # What the coordinator tells

    async def on_become_coordinator(self, lead: Lead) -> None:
        """Runs the children for one term."""
        coordinator, database = self.coordinator, self._attached()
        try:
            number = lead.epoch + await self._patiently(self._post(database).base, lead.is_current)
            assignment = Assignment(
                database=database,
                node=coordinator.worker_id,
                number=number,
                fence=Fence(lead.namespace, number),
                lead=lead,
                coordinator=coordinator,
            )
            await self.supervisor.run(assignment, stop_within=coordinator.config.drain_timeout)
        except Exception:
            # A leader without its children keeps others from running them.
            _log.exception("a defect of tenure: the children of %r were not run", self.namespace)
            self._spawn(coordinator.leave("children-not-run"))

    def on_stop_being_coordinator(self) -> None:
        """The children have ended: `run` returned before this was called."""

    def _heard(self, event: NamedEvent) -> None:
        """On the coordinator's thread, as it happens."""
        now, node = self._now(), self.node
        if isinstance(event, CoordinatorPromoted):
            self._bus.emit(BecameLeader(now, node, event.epoch))
        elif isinstance(event, CoordinatorDemoted):
            self._bus.emit(LostLeadership(now, node, event.epoch, event.reason))
        elif isinstance(event, LeaderChanged) and event.previous_leader not in (None, event.new_leader, node):
            self._bus.emit(LeaderDown(now, node, str(event.previous_leader)))

    def _child_given_up(self, child: Child) -> None:
        self._bus.emit(ChildGivenUp(self._now(), self.node, child.name))

    async def _check_elections(self) -> None:
        database = self._attached()
        while True:
            await database.clock.sleep(self.election_interval)
            leader = await self._coordinator.get_leader() if self._coordinator is not None else None
            self._bus.emit(ElectionCheck(self._now(), self.node, leader))

    # Without elections

    async def _serve_statically(self, database: Database) -> None:
        post = self._post(database)

        async def draw() -> int:
            base = await post.raised_base()  # first: whoever is elected from here on adds it as well
            return base + await read_epoch(namespace_store(database.store, self.namespace))

        number = await self._patiently(draw, lambda: True)
        fence = Fence(self.namespace, number)
        assignment = Assignment(database=database, node=self.node, number=number, fence=fence)
        watching = asyncio.get_running_loop().create_task(self._watch_for_others(post, database))
        try:
            await self.supervisor.run(assignment, stop_within=self.config.drain_timeout)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            await post.leave()

    def _post(self, database: Database) -> StaticPost:
        return StaticPost(
            database.store, self.supervisor.name, self.node, clock=database.clock, draw_id=database.draw_id
        )

    async def _patiently(self, ask: Callable[[], Awaitable[int]], may_go_on: Callable[[], bool]) -> int:
        """The store may be away for a moment."""
        while True:
            try:
                return await ask()
            except StoreError as error:
                if not may_go_on():
                    raise asyncio.CancelledError from error
                clock = self._attached().clock
                self._seldom.warning(clock.read(), "the children of %r wait for the store: %s", self.namespace, error)
                await clock.sleep(1.0)

    async def _watch_for_others(self, post: StaticPost, database: Database) -> None:
        known: tuple[str, ...] = ()
        while True:
            try:
                others = await post.look_around()
            except StoreError as error:
                _log.debug("other static coordinators could not be looked for: %s", error)
            else:
                if others and others != known:
                    _log.error(
                        "%s and %s were both told to be the coordinator of %r: their children run more than once; set "
                        "cluster_coordinator=False on all but one, or coordinator_election_enabled=True",
                        self.node,
                        ", ".join(others),
                        self.namespace,
                    )
                    self._bus.emit(TwoStaticCoordinators(self._now(), self.node, others))
                known = others
            await database.clock.sleep(self.election_interval)

    # Inside

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a defect of tenure in a task of %r", self, exc_info=error)

    def _now(self) -> float:
        return self._attached().clock.read().wall_ns / 1e9

    def _attached(self) -> Database:
        if self._database is None:
            raise ConfigError(f"{self!r} belongs to no database: `await db.use_plugin(candidate)` gives it to one")
        return self._database

"""One coordinator per namespace and process: leader, epoch, members, and whoever wants to be told of them.

Guarantee: while `is_leader()` is true here, it is false in every other process of the namespace (under the assumptions
of `tenure.election`). One heartbeat serves every subscriber of this process.

Assumption: `start()` was called, and the store is the one that the rest of the fleet uses.

Not guaranteed: that code which ignores cancellation has stopped when the lease passes on. It is reported, and fenced
writes (`lead.put`) protect what it writes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.agreement import Agreement, agree
from tenure.coordinator.breaker import CircuitBreaker, CircuitBreakerStatus
from tenure.coordinator.cold_start import ColdStartPlan
from tenure.coordinator.config import DAY, CoordinatorConfig, Hosting, check_config, seconds
from tenure.coordinator.engine import Engine, rules_of
from tenure.coordinator.events import (
    ConfigDiffers,
    EventBus,
    EventStream,
    Handler,
    LoopStalled,
    NamedEvent,
    Subscription,
    Tap,
)
from tenure.coordinator.given import check_flag, check_instance, shown
from tenure.coordinator.hooks import (
    SUBSCRIBER_HOOKS,
    HookFailure,
    HookOverrun,
    Seat,
    Subscriber,
    check_hooks,
    hook_failure,
)
from tenure.coordinator.layout import MAX_WORKER_ID_CHARACTERS, check_name, folder_of, namespace_store
from tenure.coordinator.lead import Lead
from tenure.coordinator.lease import Identity
from tenure.coordinator.lease_watch import LeaseWatch
from tenure.coordinator.loop_watch import LoopWatch
from tenure.coordinator.membership import StampedBeat
from tenure.coordinator.metrics import CoordinatorMetrics, Metrics
from tenure.coordinator.outside import Handover, ask_for_handover
from tenure.coordinator.reading import read_state, read_workers
from tenure.coordinator.runner import LoopRunner, Runner, ThreadRunner
from tenure.coordinator.scope import LeadershipScope, OnLoss
from tenure.coordinator.seldom import Seldom
from tenure.election.records import State
from tenure.entropy import NewId, Random, new_id
from tenure.errors import ConfigError, CoordinationError, ForkedProcess, RequestRefused, WorkerReplaced
from tenure.store import Store
from tenure.store.limited import TimeLimited
from tenure.store.metered import Usage

_log = logging.getLogger("tenure.coordinator")


class GlobalCoordinatorService:
    """The coordinator of one namespace in this process. Made by `Database.get_global_coordinator()`.

    Plain calls (`is_leader`, `get_epoch`, `get_metrics`, …) make no request and may come from any thread.
    """

    def __init__(
        self,
        store: Store,
        namespace: str = "default",
        config: CoordinatorConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        draw_id: NewId = new_id,
        exit_process: Callable[[int], None] = os._exit,
        usage: Callable[[], Usage] | None = None,
    ) -> None:
        """`usage` tells what this process asked of the store, for its line in the register; called on any thread."""
        folder_of(namespace)  # refuses a name that cannot be one
        check_config(config)
        self.config = config if config is not None else CoordinatorConfig()
        self.config.check_provider(store.info.provider)
        self.namespace = namespace
        self._store = store
        self._clock = clock
        self._random = random if random is not None else Random()
        self._draw_id = draw_id
        self._usage = usage
        started = clock.read()
        self.worker_id = self.config.worker_id or f"worker-{started.wall_ns // 1_000_000}-{draw_id()[:8]}"
        self._bus = EventBus(self.config.event_buffer_size, _log)
        self._metrics = Metrics(self.config.metrics_buffer_size, started.wall_ns / 1e9)
        self._lease_watch = LeaseWatch(rules_of(self.config, self.config.longest_lease_seconds))
        self._idle_breaker = CircuitBreaker(self.config.circuit_breaker)
        self._seats: list[Seat] = []
        self._former: list[Seat] = []
        """Of those who unsubscribed, and may still be winding up."""
        self._cold_start: ColdStartPlan | None = None
        self._exit_process = exit_process
        self._may_exit = False
        self._on_demand = False
        self._engine: Engine | None = None
        self._runner: Runner | None = None
        self._user_loop: asyncio.AbstractEventLoop | None = None
        self._over: Future[None] = Future()
        self._starting = asyncio.Lock()
        self._leaving: Runner | None = None
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<GlobalCoordinatorService {self.namespace!r} as {self.worker_id!r}>"

    # Who leads

    def is_leader(self, worker_id: str | None = None) -> bool:
        """Does this process lead, at this instant? A local comparison, with no request.

        With another worker's id: was it the leader when the lease was last looked at? That is advice, not a promise.
        """
        if os.getpid() != self._pid:
            return False
        if worker_id is not None and worker_id != self.worker_id:
            return self.leader_seen == worker_id
        return self.lead is not None

    @property
    def is_coordinator(self) -> bool:
        """The same as `is_leader()`."""
        return self.is_leader()

    @property
    def lead(self) -> Lead | None:
        """The leadership of this process, with epoch, time left and fenced writes; `None` if it does not lead."""
        engine = self._engine
        lead = engine.lead if engine is not None else None
        return lead if lead is not None and lead.is_current() else None

    @property
    def holds_lease(self) -> bool:
        """Is the lease still ours? True for a while after `is_leader()` turned false, in which hooks finish."""
        engine = self._engine
        lead = engine.lead if engine is not None else None
        return lead is not None and lead.holds()

    def get_epoch(self) -> int:
        """The highest epoch that this process has seen; 0 before the first."""
        self._check_process()
        return self._engine.epoch if self._engine is not None else 0

    async def get_leader(self, *, fresh: bool = False) -> str | None:
        """Who leads, as last observed; `fresh=True` reads the store.

        `None` also once a lease was watched for its length without a renewal, or if there was no answer for as long. A
        coordinator that does not run watches from one fresh look to the next, so its first may name a leader that died;
        `observed_age` says how old an answer is. This worker's own id means that `is_leader()` is true.
        """
        self._check_process()
        if check_flag("fresh", fresh):
            sent = self._clock.read()
            state = await read_state(self._scoped())
            if not isinstance(state, State):
                return None
            self._lease_watch.saw(state, self._clock.read(), sent)
        return self.leader_seen

    async def current_leader(self) -> str | None:
        """The same as `get_leader()`."""
        return await self.get_leader()

    async def get_active_workers(self, *, fresh: bool = False) -> list[str]:
        """Who is alive, as last observed; `fresh=True` lists the store. Empty in election-only mode."""
        self._check_process()
        if check_flag("fresh", fresh) and self.config.membership:
            # Who beats has a fresh record of its own in the listing, to judge the others by.
            gone = None if self.running else self._lease_watch.gone(self._clock.read(), self.config.worker_timeout)
            return await read_workers(self._scoped(), self.config.worker_timeout, but=gone)
        members = self._engine.members if self._engine is not None else ()
        over = self._over.done()  # until then it winds up, and is alive
        return sorted(member.worker_id for member in members if not over or member.worker_id != self.worker_id)

    @property
    def leader_seen(self) -> str | None:
        """The same as `get_leader()`, for plain code."""
        if self._engine is not None:
            return self._engine.leader
        seen = self._lease_watch.leader(self._clock.read())
        return None if seen == self.worker_id else seen

    @property
    def observed_age(self) -> float | None:
        """How old what `get_leader()` goes by is: seconds since the store last showed the lease, 0.0 while this process
        leads; `None`: it was not seen yet."""
        return 0.0 if self.is_leader() else self._lease_watch.age(self._clock.read())

    @property
    def workers_seen(self) -> int:
        """How many were alive, as last observed; 0 in election-only mode."""
        return len(self._engine.members) if self._engine is not None else 0

    @property
    def stamped_beat(self) -> StampedBeat | None:
        """For plugins: a heartbeat of this process and the store's time for it. Leaders have a new one each beat."""
        return self._engine.fleet.stamped_beat if self._engine is not None else None

    def get_metrics(self) -> CoordinatorMetrics:
        """What was counted since this coordinator was made."""
        self._check_process()
        contention = self._engine.contention.events if self._engine is not None else 0
        return self._metrics.snapshot(breaker=self.get_circuit_breaker_status(), contention_events=contention)

    def get_circuit_breaker_status(self) -> CircuitBreakerStatus:
        self._check_process()
        return (self._engine.breaker if self._engine is not None else self._idle_breaker).status()

    @property
    def running(self) -> bool:
        """Does this process take part in the namespace? If not, `replaced` says whether it could again."""
        return self._runner is not None

    @property
    def replaced(self) -> bool:
        """Has a newer process taken this worker id? Then this coordinator has stopped, and `start()` raises."""
        return self._engine is not None and self._engine.replaced is not None

    # Life

    async def start(self) -> None:
        """Join the fleet. Returns as soon as the heartbeat runs; use `leadership()` to wait until this process leads.

        Raises `ConfigConflict` if the namespace was founded with other rules, `StoreError` if it cannot be reached, and
        `WorkerReplaced` if a newer process has taken this worker id since an earlier start: it is not taken back.
        """
        await self._start(for_subscribers=False)

    async def start_for_subscribers(self) -> None:
        """For plugins: join the fleet, and leave it again when the last subscriber withdraws. Whoever leads without
        work to do keeps others from doing theirs. A `start()` by the user makes it stay."""
        await self._start(for_subscribers=True)

    async def agreement(self) -> Agreement:
        """What the namespace was founded with; this founds it, if nobody has. Raises as `start` does."""
        return await agree(self._scoped(), self.namespace, self.config, self._clock, self._draw_id)

    async def _start(self, *, for_subscribers: bool) -> None:
        self._check_process()
        async with self._starting:
            if self._runner is not None and self._user_loop is not None and self._user_loop.is_closed():
                # Started on a loop that is gone, and not stopped: that start leaves, as it would do by itself.
                self._leaving, self._runner = self._runner, None
                if self._engine is not None:
                    self._leaving.tell(self._engine.request_stop)
            if self._engine is not None and self._engine.replaced is not None:
                raise WorkerReplaced(
                    f"{self._engine.replaced}; start() does not take the id back: open a new Database for that, or "
                    "with another worker_id"
                )
            self._on_demand = for_subscribers and (self._on_demand or self._runner is None)
            if self._runner is not None:
                return
            if self._leaving is not None:
                await self._leaving.ended()  # a stop() that was given up on: two of us must not live at once
            agreement = await self.agreement()
            for field, ours, theirs in agreement.differences:
                _log.warning("%s is %s here, and %r was founded with %s", field, ours, self.namespace, theirs)
                self._bus.emit(ConfigDiffers(self.namespace, field, ours, theirs))
            self._user_loop = asyncio.get_running_loop()
            self._lease_watch = LeaseWatch(rules_of(self.config, agreement.longest_lease))
            engine = Engine(
                store=self._store,
                namespace=self.namespace,
                config=self.config,
                longest_lease=agreement.longest_lease,
                who=Identity(self.worker_id, self._draw_id()),  # each start is a process of its own to the protocol
                watch=self._lease_watch,
                clock=self._clock,
                random=self._random,
                draw_id=self._draw_id,
                bus=self._bus,
                metrics=self._metrics,
                usage=self._usage,
                run_health_check=self._run_health_check if self.config.health_check is not None else None,
                cold_start=self._cold_start,
                exit_process=self._exit_process,
            )
            engine.seats = list(self._seats)
            engine.remember(self.get_epoch())
            self._engine = engine
            self._over = Future()
            on_thread = self.config.hosting is Hosting.THREAD
            runner: Runner = ThreadRunner(f"tenure-{self.namespace}", _Release(self)) if on_thread else LoopRunner()
            over, loop = self._over, self._user_loop
            _services.add(self)
            busy = [seat for seat in (*self._seats, *self._former) if not seat.is_idle]
            runner.start(lambda: self._main(engine, runner, loop, over, busy))
            if not over.done():
                self._runner = runner  # only now: others may talk to it as soon as it is here

    async def stop(self) -> None:
        """Leave the fleet: wind up, release the lease, deregister. Bounded by `drain_timeout` and a few requests."""
        await self._stop()

    async def _stop(self, unless: Callable[[], bool] = lambda: False) -> None:
        self._check_process()
        async with self._starting:  # a start() that is under way is awaited, not overlooked
            if unless():
                return
            if self._runner is not None and self._engine is not None:
                self._leaving, self._runner = self._runner, None
                self._leaving.tell(self._engine.request_stop)
            leaving = self._leaving
        if leaving is None:
            return
        try:
            async with asyncio.timeout(self._patience()):
                await leaving.ended()
        except TimeoutError:
            _log.warning("stopping %r took too long: its lease is left to lapse", self.namespace)
            leaving.cancel()
            await leaving.ended()
        if self._leaving is leaving:
            self._leaving = None

    async def step_down(self) -> None:
        """Stop leading, once the hooks have returned, and let another take over. This worker stays in the fleet.

        Raises `RequestRefused` if this process does not lead.
        """
        await self._leave_to(None)

    async def transfer(self, to: str, *, force: bool = False, timeout: float = 30.0) -> Handover:
        """Hand leadership to the worker `to`, and wait until it leads.

        Works from any worker: the leader sees the request at its next renewal. Raises `RequestRefused` saying why not.
        """
        # Nobody at all would ask for an election, which is another call.
        return await self._ask(check_name("to", to, MAX_WORKER_ID_CHARACTERS), force, timeout)

    async def elect_again(self, *, timeout: float = 30.0) -> Handover:
        """Have the leader step down, whatever its mandate, and wait until an election was held. It may win again."""
        return await self._ask(None, True, timeout)

    async def _ask(self, to: str | None, force: bool, timeout: float) -> Handover:
        self._check_process()
        check_flag("force", force)
        timeout = seconds("timeout", timeout, zero=True, longest=DAY)
        return await ask_for_handover(
            self._scoped(),
            self.namespace,
            by=self.worker_id,
            to=to,
            force=force,
            timeout=timeout,
            clock=self._clock,
            draw_id=self._draw_id,
        )

    # Being told

    def subscribe(
        self,
        plugin: Subscriber,
        *,
        cold_start: ColdStartPlan | None = None,
        hook_overrun: HookOverrun = HookOverrun.REPORT,
        on_hook_failure: HookFailure = HookFailure.KEEP_LEADING,
    ) -> None:
        """Tell `plugin` when this process begins and stops leading, on the loop that is running now.

        Its hooks may take the `Lead`, or nothing. A `CoordinatorPlugin` may be given as well; `Database.use_plugin`
        does more for it: it calls `coordinator_work`, and sets `plugin.lead`.

        `cold_start`: take the first election of a new namespace slowly, if it has not begun. `hook_overrun`: what to do
        when its hooks are still running as the lease runs out. `on_hook_failure`: what to do when its
        `on_become_coordinator` raises.
        """
        self._check_process()
        check_hooks(plugin, SUBSCRIBER_HOOKS)
        if cold_start is not None:
            check_instance("cold_start", cold_start, ColdStartPlan)
        try:
            hook_overrun = HookOverrun(hook_overrun)
        except ValueError:
            raise ConfigError(f"hook_overrun is {shown(hook_overrun)}: it must be 'report' or 'exit'") from None
        on_hook_failure = hook_failure(on_hook_failure)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigError("subscribe() must be called where an event loop runs: the hooks run on it") from None
        if not self.config.membership:
            cold_start = None
        self._may_exit = self._may_exit or hook_overrun is HookOverrun.EXIT
        seat = self._seat_for(plugin, loop)
        seat.prepares = cold_start is not None
        seat.failed = self.give_way if on_hook_failure is HookFailure.STEP_DOWN else None
        if seat.is_idle or hook_overrun is HookOverrun.EXIT:
            seat.overrun = hook_overrun  # a promise is not taken back while what it was made for still runs
        self._seats.append(seat)
        if cold_start is not None:
            self._cold_start = cold_start if self._cold_start is None else self._cold_start.at_least(cold_start)
        if self._runner is not None and self._engine is not None:
            if cold_start is not None:
                self._runner.tell(self._engine.plan_cold_start, cold_start)
            self._runner.tell(self._engine.add_seat, seat)

    def unsubscribe(self, plugin: Subscriber) -> None:
        """Forget `plugin`; if this process leads, it is told that it stopped."""
        self._withdraw(plugin)

    async def withdraw(self, plugin: Subscriber) -> None:
        """`unsubscribe`, and wait until its hooks have returned; `drain_timeout` at most.

        What is asked for happens also if the wait is cancelled.
        """
        leaving, runner = self._withdraw(plugin), self._runner
        if self._on_demand and not self._has_subscribers():
            await self._stop(unless=self._has_subscribers)
        elif runner is None and self._leaving is not None:
            await asyncio.wait([asyncio.ensure_future(self._leaving.ended())], timeout=self._patience())
        elif leaving and runner is not None:
            loop = asyncio.get_running_loop()
            waiting = [loop.create_task(_all_done(leaving)), loop.create_task(runner.ended())]
            try:
                await asyncio.wait(waiting, timeout=self.config.drain_timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()

    def _withdraw(self, plugin: Subscriber) -> list[Future[None]]:
        """Ask for it, without waiting."""
        self._check_process()
        leaving: list[Future[None]] = []
        for seat in [seat for seat in self._seats if seat.subscriber is plugin]:
            self._seats.remove(seat)
            self._former = [*(former for former in self._former if not former.is_idle), seat]
            if self._runner is not None and self._engine is not None:
                leaving.append(Future())
                self._runner.tell(self._engine.remove_seat, seat, leaving[-1])
        if self._on_demand and not self._has_subscribers() and self._runner is not None and self._engine is not None:
            # As in stop(): whoever subscribes from here on is served by a new start, not by one that is ending.
            self._leaving, self._runner = self._runner, None
            self._leaving.tell(self._engine.request_stop)
        return leaving

    def _has_subscribers(self) -> bool:
        return any(not seat.is_gone for seat in self._seats)

    def _seat_for(self, plugin: Subscriber, loop: asyncio.AbstractEventLoop) -> Seat:
        """One that subscribes again while it still winds up keeps its seat: its calls stay in order."""
        for seat in self._former:
            if seat.is_for(plugin, loop):
                self._former.remove(seat)
                return seat
        return Seat(plugin, loop)

    def tap(self, take: Callable[[NamedEvent], None], consumer: str) -> Tap:
        """For plugins: `take` is called with every event where it happens. It must return at once."""
        return self._bus.tap(take, consumer)

    def emit(self, event: NamedEvent) -> None:
        """For plugins: hand an event to everybody who listens to this coordinator."""
        self._bus.emit(event)

    def count_epoch_drift(self, tasks: int = 1) -> None:
        """For plugins: so many tasks of a former leader were refused."""
        self._metrics.epoch_drift(tasks)

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)` for every event called `name`, on the loop that is running now."""
        self._check_process()
        return self._bus.on(name, handler)

    def off(self, name: str, handler: Handler) -> bool:
        return self._bus.off(name, handler)

    def events(self, *names: str) -> EventStream:
        """`async for event in coordinator.events("leader:changed"):`; a slow reader loses the oldest and is told."""
        self._check_process()
        return self._bus.events(*names)

    # Leading as a scope

    def leadership(self) -> LeadershipScope:
        """Wait until this process leads, run the body, and give leadership back at its end.

            async with coordinator.leadership() as lead:
                await work(lead.epoch)

        The body is cancelled when the lease can no longer be trusted; the scope then raises `LeadershipLost`.
        """
        self._check_started()
        self._on_demand = False  # the user has a use of their own for it
        return LeadershipScope(self)

    async def terms(self) -> AsyncIterator[Lead]:
        """One `Lead` after another, for as long as the loop goes on.

        async for lead in coordinator.terms():
            async with lead:        # cancelled, quietly, when this term ends; then comes the next one
                await work(lead.epoch)

        What stands after `async with lead:` still counts as work of that term. A body that ends by itself gives
        leadership back, and stands again.
        """
        self._check_started()
        self._on_demand = False
        while True:
            scope = LeadershipScope(self, OnLoss.SUPPRESS)
            lead = await scope.acquire()
            task = asyncio.current_task()
            lead.scopes[task] = scope
            try:
                yield lead
            finally:
                lead.scopes.pop(task, None)
                await scope.close()

    async def close(self) -> None:
        """Stop, and end every `events()`: this coordinator is not used again."""
        try:
            await self.stop()
        finally:
            self._bus.close()

    async def leave(self, reason: str) -> None:
        """Stop leading, if this process does, and return when it has."""
        runner, engine = self._runner, self._engine
        if runner is not None and engine is not None:
            try:
                await runner.ask(_leave(engine, reason, None))
            except RuntimeError:
                pass  # its thread has ended, and its leadership with it

    def give_way(self, lead: Lead) -> None:
        """For plugins: the work of this term cannot be done here. Step down, and let others first.

        Each time in a row it stands again later, up to 15 heartbeats. Called on the plugin's loop; does not wait.
        """
        if self._runner is not None and self._engine is not None:
            self._runner.tell(self._engine.give_way, lead)

    async def must_go_on(self) -> None:
        """Waits; raises `WorkerReplaced` or `CoordinationError` once this coordinator will not lead any more."""
        await asyncio.shield(asyncio.wrap_future(self._over))
        raise self._why_over()

    def _why_over(self) -> CoordinationError:
        engine = self._engine
        if engine is not None and engine.replaced is not None:
            return WorkerReplaced(str(engine.replaced))
        return CoordinationError(f"the coordinator of {self.namespace!r} has stopped: start() it again")

    # Inside

    async def _main(
        self,
        engine: Engine,
        runner: Runner,
        loop: asyncio.AbstractEventLoop,
        over: Future[None],
        busy: list[Seat],
    ) -> None:
        """Where the engine lives."""
        engine.await_first(busy)
        watch = self._watch_user_loop(engine, loop)
        try:
            await engine.run()
        finally:
            if watch is not None:
                watch.cancel()
            if self._runner is runner:
                self._runner = None  # ended by itself, not by stop(): it may be started again
            over.set_result(None)

    def _watch_user_loop(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
        if self.config.hosting is not Hosting.THREAD:
            return None
        limit = self.config.max_loop_stall

        seldom = Seldom(_log)  # a loop that is blocked again and again is told of each time by the event

        def stalled(seconds: float) -> None:
            leading = self.is_leader()
            text = "the event loop of %r has stood still for %.1f s"
            seldom.warning(self._clock.read(), text, self.namespace, seconds, size=seconds)
            self._bus.emit(LoopStalled(self.namespace, seconds, leading))
            if limit is not None and seconds >= limit:
                engine.user_loop_stalled(True)

        def gone() -> None:
            _log.info("the event loop that started %r was closed: leaving the fleet", self.namespace)
            engine.seats[:] = [seat for seat in engine.seats if not seat.is_gone]  # those on other loops wind up
            engine.request_stop()

        def recovered() -> None:
            engine.user_loop_stalled(False)

        watch = LoopWatch(loop, self._clock, stalled=stalled, recovered=recovered, gone=gone, limit=limit)
        return asyncio.get_running_loop().create_task(watch.run())

    async def _run_health_check(self) -> bool:
        """On the user's loop, since that is where the user's objects live."""
        if self.config.hosting is Hosting.LOOP or self._user_loop is None:
            return await self._ask_health()
        asked = asyncio.run_coroutine_threadsafe(self._ask_health(), self._user_loop)
        return await asyncio.wrap_future(asked)

    async def _ask_health(self) -> bool:
        check = self.config.health_check
        assert check is not None
        answer = check()
        return bool(await answer if inspect.isawaitable(answer) else answer)

    async def _leave_to(self, to: str | None) -> None:
        self._check_started()
        assert self._runner is not None
        assert self._engine is not None
        if not await self._runner.ask(_leave(self._engine, "step-down", to)):
            raise RequestRefused(f"{self.worker_id!r} does not lead {self.namespace!r}: ask the worker that does")

    def _scoped(self) -> Store:
        return TimeLimited(namespace_store(self._store, self.namespace), self.config.request_timeout_seconds)

    def _patience(self) -> float:
        """How long leaving may take: hooks, release with a re-read, deregistration."""
        watched = self.config.lease_timeout if self._may_exit else 0.0
        return self.config.drain_timeout + 6 * self.config.request_timeout_seconds + watched

    def _check_started(self) -> None:
        self._check_process()
        if self.replaced:
            raise self._why_over()
        if self._runner is None:
            raise CoordinationError(f"the coordinator of {self.namespace!r} is not running: await start() first")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"the coordinator of {self.namespace!r} was made in process {self._pid} and used in its forked child "
                f"{os.getpid()}: make a Database in the child itself (gunicorn: in post_fork; multiprocessing: 'spawn')"
            )

    def _at_exit(self) -> None:
        """The interpreter ends without `stop()`: release the lease all the same."""
        runner, engine = self._runner, self._engine
        if self._user_loop is not None and self._user_loop.is_running():
            return  # on another thread, which is not over yet: work goes on there, and with it leadership
        if isinstance(runner, ThreadRunner) and engine is not None:
            self._runner = None
            engine.forget_hooks()
            runner.tell(engine.request_stop)
            runner.wait(self._patience())

    def _forked(self) -> None:
        """In the child, before its first instruction: nothing here leads, or runs."""
        if self._engine is not None and self._engine.lead is not None:
            self._engine.lead = None
        self._runner = None


async def _all_done(leaving: list[Future[None]]) -> None:
    await asyncio.gather(*map(asyncio.wrap_future, leaving))


async def _leave(engine: Engine, reason: str, to: str | None) -> bool:
    if not engine.leave(reason, to):
        return False
    await engine.until_not_leading()
    return True


_services: weakref.WeakSet[GlobalCoordinatorService] = weakref.WeakSet()


class _Release:
    """Refers weakly: a runner that is remembered until the end must not keep its service alive."""

    def __init__(self, service: GlobalCoordinatorService) -> None:
        self._service = weakref.ref(service)

    def __call__(self) -> None:
        service = self._service()
        if service is not None:
            service._at_exit()


def _in_child() -> None:
    for service in list(_services):
        service._forked()


os.register_at_fork(after_in_child=_in_child)

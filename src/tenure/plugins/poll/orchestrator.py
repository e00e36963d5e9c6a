"""Runs service checks on a fleet: the leader decides what is due and who does it, workers do it.

Guarantee: every job that was created ends in exactly one final state, which never changes, whatever crashes, once some
leader lives and reaches the store. The check of a job is begun at most once, by one worker. Each job is counted once.

Assumption: leader and workers are given the same schedules (another definition is refused by its fingerprint).

Not guaranteed: that a check which was begun is finished: its worker may die, and the job is then a `TIMEOUT`. Nor that
two checks of one schedule never overlap: a worker that was paused or cut off may still be at one that was given up on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.coordinator.delivery import NamedEvent
from tenure.coordinator.events import EventBus, Handler, Subscription
from tenure.coordinator.seldom import Seldom
from tenure.entropy import NewId, new_id
from tenure.errors import ConfigError, LeadershipLost, StoreError, TenureError
from tenure.plugins.poll.book import Agent, PollBook, folder_of
from tenure.plugins.poll.decide import Limits, choose
from tenure.plugins.poll.desk import Desk, Retention
from tenure.plugins.poll.job import parse_job_id
from tenure.plugins.poll.schedule import Assignment, PollSchedule, by_name, check_count, check_seconds
from tenure.plugins.poll.summary import MAX_KEPT
from tenure.plugins.supervisor.child import Context
from tenure.store import Version

_log = logging.getLogger("tenure.poll")
AGENTS_MAX_AGE = 5.0
SPREAD = 0.1
"""Seconds between the first jobs of schedules that have never run."""
FORGET_AGENT_AFTER = 600.0
MAX_DESKS = 5000


class PollStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the leader's side. Counts are since it was made."""

    schedules: int
    open_jobs: int
    agents: int
    dispatched: int
    completed: int
    failed: int
    store_errors: int
    problems: Mapping[str, str]
    """By schedule: why nothing is done for it."""


class PollOrchestrator:
    """A child of the supervisor: `Child("poll", PollOrchestrator([PollSchedule(...), ...]))`.

    `orchestrator.on("plg:poll:job-failed", handler)` tells of what ends; `read_results` tells any worker.
    """

    def __init__(
        self,
        schedules: Iterable[PollSchedule],
        *,
        name: str = "default",
        tick: float = 1.0,
        dispatch_within: float = 15.0,
        pickup_within: float = 15.0,
        allowance: float = 10.0,
        attempts: int = 3,
        keep_jobs: int = 20,
        keep_outcomes: int = 100,
        sweep_interval: float = 300.0,
        concurrency: int = 8,
        draw_id: NewId = new_id,
    ) -> None:
        """Durations are seconds; `Limits` and `Retention` say what they mean. `concurrency`: requests at once."""
        folder_of(name)  # refuses a name that cannot be one
        self._schedules = by_name(schedules)
        self._name = name
        self._tick = check_seconds("tick", tick, least=0.05, most=60.0)
        self._limits = Limits(
            check_seconds("dispatch_within", dispatch_within, least=0.0),
            check_seconds("pickup_within", pickup_within, least=0.1),
            check_seconds("allowance", allowance, least=0.1),
            check_count("attempts", attempts, least=1, most=100),
        )
        self._retention = Retention(
            check_count("keep_jobs", keep_jobs, least=1, most=1000),
            check_count("keep_outcomes", keep_outcomes, least=1, most=MAX_KEPT),
        )
        self._sweep_interval = check_seconds("sweep_interval", sweep_interval, least=1.0)
        self._concurrency = check_count("concurrency", concurrency, least=1, most=100)
        self._draw_id = draw_id
        self._bus = EventBus(logger=_log)
        self._counts: Counter[str] = Counter()
        self._seldom = Seldom(_log)
        self._task: asyncio.Task[None] | None = None
        self._term: _Term | None = None

    # As a child

    async def start(self, context: Context) -> None:
        """Take up the open jobs of whoever led before, and go on."""
        if self._task is not None and not self._task.done():
            raise TenureError(f"the polling {self._name!r} is running already: stop() it first")
        if context.coordinator is not None and not context.coordinator.config.membership:
            raise ConfigError(
                f"membership is False for {context.coordinator.namespace!r}: polling must know which workers are alive"
            )
        self._term = _Term(self, context)
        self._task = asyncio.get_running_loop().create_task(self._term.run())

    async def wait(self) -> None:
        """Returns when it was stopped; raises what ended it."""
        task = self._task
        if task is not None:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.warning("the polling %r had ended: %s", self._name, error)

    # Looking in

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)`: `plg:poll:job-dispatched`, `plg:poll:job-completed` or `plg:poll:job-failed`."""
        return self._bus.on(name, handler)

    def off(self, name: str, handler: Handler) -> bool:
        return self._bus.off(name, handler)

    def status(self) -> PollStatus:
        desks = list(self._term.desks.values()) if self._term is not None else []
        return PollStatus(
            schedules=len(self._schedules),
            open_jobs=sum(desk.held is not None for desk in desks),
            agents=len(self._term.agents) if self._term is not None else 0,
            dispatched=self._counts["plg:poll:job-dispatched"],
            completed=self._counts["plg:poll:job-completed"],
            failed=self._counts["plg:poll:job-failed"],
            store_errors=self._counts["store-errors"],
            problems={desk.name: desk.problem for desk in desks if desk.problem is not None},
        )


class _Term:
    """The work of one start. Nothing of it outlives the leadership that it was started under."""

    def __init__(self, owner: PollOrchestrator, context: Context) -> None:
        self._owner = owner
        self._context = context
        self._clock: Clock = context.clock if context.clock is not None else SYSTEM_CLOCK
        self._book = PollBook(
            context.database.store, owner._name, clock=self._clock, draw_id=owner._draw_id, ensure=self._ensure
        )
        self.desks: dict[str, Desk] = {}
        self.agents: dict[str, tuple[Version, Agent]] = {}
        self._agents_read: Reading | None = None
        self._refreshing = asyncio.Lock()
        self._alive: frozenset[str] | None = None
        self._reserved: Counter[str] = Counter()
        self._last_asked: dict[str, int] = {}
        self._asked = 0
        self._swept: Reading | None = None
        self._absent_since: dict[str, Reading] = {}
        self._reported: dict[str, str | None] = {}
        self._in_hand = asyncio.Semaphore(owner._concurrency)

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._turn()
                except StoreError as error:
                    self._failed("polling", error)
                await self._clock.sleep(self._owner._tick)
        except LeadershipLost as error:
            _log.info("the polling %r has ended with its leadership: %s", self._owner._name, error)
            await asyncio.get_running_loop().create_future()  # until stop(): there is nothing to restart

    async def _turn(self) -> None:
        self._ensure()
        await self._see_who_lives()
        if self._is_old(self._swept, self._owner._sweep_interval):
            await self._sweep()
        busy = [desk for desk in self.desks.values() if desk.is_busy()]
        outcomes = await asyncio.gather(*map(self._turn_of, busy), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _turn_of(self, desk: Desk) -> LeadershipLost | None:
        async with self._in_hand:
            try:
                await desk.turn()
            except StoreError as error:
                self._failed(f"schedule {desk.name!r}", error)
            except LeadershipLost as error:
                return error
        if desk.problem is not None and self._reported.get(desk.name) != desk.problem:
            _log.warning("schedule %r is not polled: %s", desk.name, desk.problem)
        self._reported[desk.name] = desk.problem
        return None

    def _failed(self, what: str, error: StoreError) -> None:
        self._owner._counts["store-errors"] += 1
        self._owner._seldom.warning(self._clock.read(), "%s: %s", what, error, key=what)

    def _ensure(self) -> None:
        if self._context.lead is not None:
            self._context.lead.ensure()

    # At the start, and now and then

    async def _sweep(self) -> None:
        """Take up what is open, and clear away what nobody will: after crashes, some objects have no owner."""
        numbers: dict[str, list[int]] = {name: [] for name in self._owner._schedules}
        for job_id in await self._book.job_ids():
            parsed = parse_job_id(job_id)
            assert parsed is not None
            numbers.setdefault(parsed[0], []).append(parsed[1])
        fresh = 0
        for name, found in numbers.items():
            if name not in self.desks and len(self.desks) < MAX_DESKS:
                fresh += 1
                self.desks[name] = self._desk(name, SPREAD * (fresh - 1))
                self.desks[name].found(found)
        await self._clear_jobs(numbers)
        await self._clear_notes()
        await self._clear_agents()
        self._swept = self._clock.read()

    def _desk(self, name: str, first_after: float) -> Desk:
        return Desk(
            name,
            self._owner._schedules.get(name),
            book=self._book,
            office=self,
            clock=self._clock,
            limits=self._owner._limits,
            retention=self._owner._retention,
            first_after=first_after,
        )

    async def _clear_jobs(self, numbers: Mapping[str, list[int]]) -> None:
        """A create whose answer was lost may land after its job has ended and gone: what is below the line is that."""
        for name, found in numbers.items():
            summary = self.desks[name].summary if name in self.desks else None
            if summary is not None:
                ghosts = [number for number in found if number < summary.first_kept]
                if ghosts:
                    await self._book.delete_jobs(*(f"{name}-{number:010d}" for number in ghosts))

    async def _clear_notes(self) -> None:
        notes = await self._book.all_notes()
        open_jobs = {desk.held.job.id: desk.held.job for desk in self.desks.values() if desk.held is not None}
        settled = {name for name, desk in self.desks.items() if desk.summary is not None}
        gone = []
        for uid, job_id, attempt in notes:
            parsed = parse_job_id(job_id)
            job = open_jobs.get(job_id)
            if parsed is None or parsed[0] not in settled:
                continue  # not looked at yet
            if job is None or (job.uid, job.attempt) != (uid, attempt):
                gone.append((uid, job_id, attempt))
        if gone:
            await self._book.drop_notes(*gone)

    async def _clear_agents(self) -> None:
        """Records of workers that have been away for long. One that comes back writes its record again."""
        if self._alive is None:
            return
        await self._read_agents()
        now = self._clock.read()
        absent = [worker_id for worker_id in self.agents if worker_id not in self._alive]
        self._absent_since = {worker_id: self._absent_since.get(worker_id, now) for worker_id in absent}
        gone = [
            worker_id
            for worker_id, since in self._absent_since.items()
            if now.follower_elapsed(since) >= FORGET_AGENT_AFTER
        ]
        if gone:
            await self._book.delete_agents(*gone)

    # What the desks ask

    @property
    def epoch(self) -> int | None:
        return self._context.lead.epoch if self._context.lead is not None else None

    async def available(self, assign: Assignment, not_uid: str | None) -> Agent | None:
        """Reads who executes anew if that is a while ago, or if nobody fits."""
        async with self._refreshing:
            if self._is_old(self._agents_read, AGENTS_MAX_AGE):
                await self._read_agents()
            agent = self._choose(assign, not_uid)
            if agent is None and self._is_old(self._agents_read, self._owner._tick / 2):
                await self._read_agents()
                agent = self._choose(assign, not_uid)
        if agent is not None:
            self._asked += 1
            self._last_asked[agent.uid] = self._asked
        return agent

    async def is_alive(self, worker_id: str, uid: str) -> bool:
        if self._agents_read is None:
            async with self._refreshing:
                await self._read_agents()
        known = self.agents.get(worker_id)
        if known is None or known[1].uid != uid:
            return False
        return self._alive is None or worker_id in self._alive

    def reserve(self, uid: str) -> None:
        self._reserved[uid] += 1

    def unreserve(self, uid: str) -> None:
        self._reserved[uid] -= 1

    def why_nobody(self, assign: Assignment) -> str:
        alive = [worker for worker in self.agents if self._alive is None or worker in self._alive]
        load = self._load()
        busy = [worker for worker in alive if load[self.agents[worker][1].uid] >= self.agents[worker][1].concurrency]
        return f"{len(self.agents)} registered, {len(alive)} of them alive, {len(busy)} of those busy"

    def emit(self, event: NamedEvent) -> None:
        self._owner._counts[event.name] += 1
        self._owner._bus.emit(event)

    def _choose(self, assign: Assignment, not_uid: str | None) -> Agent | None:
        agents = [agent for _, agent in self.agents.values()]
        return choose(
            agents, assign, alive=self._alive, load=self._load(), last_asked=self._last_asked, not_uid=not_uid
        )

    def _load(self) -> Counter[str]:
        load = Counter(self._reserved)
        for desk in self.desks.values():
            if desk.held is not None and desk.held.job.uid is not None and not desk.held.job.state.final:
                load[desk.held.job.uid] += 1
        return load

    async def _see_who_lives(self) -> None:
        coordinator = self._context.coordinator
        self._alive = None if coordinator is None else frozenset(await coordinator.get_active_workers())

    async def _read_agents(self) -> None:
        self.agents = await self._book.agents(self.agents)
        self._agents_read = self._clock.read()
        uids = {agent.uid for _, agent in self.agents.values()}
        self._last_asked = {uid: asked for uid, asked in self._last_asked.items() if uid in uids}

    def _is_old(self, reading: Reading | None, seconds: float) -> bool:
        return reading is None or self._clock.read().leader_elapsed(reading) >= seconds

"""The side of polling that executes: on every node that may run checks.

Guarantee: a check is run only after this process's own compare-and-swap made its job `running`, and once. What is run
comes from this process's own schedules: a job names one, and its fingerprint must be the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.coordinator.fencing import EpochFence
from tenure.coordinator.given import shown
from tenure.coordinator.layout import MAX_WORKER_ID_CHARACTERS, check_name
from tenure.coordinator.seldom import Seldom
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.election.records import TooNew, time_of_day
from tenure.entropy import NewId, new_id
from tenure.errors import ConfigError, SchemaTooNew, StoreError, StoreUnavailable, TenureError, WorkerReplaced
from tenure.plugins.failure import text_of
from tenure.plugins.poll.book import Agent, Held, PollBook, folder_of
from tenure.plugins.poll.job import (
    MAX_DETAIL_BYTES,
    CheckResult,
    Declined,
    Failure,
    Job,
    JobState,
    Refusal,
    Reported,
    Started,
)
from tenure.plugins.poll.schedule import (
    MAX_PARTITION_CHARACTERS,
    PollSchedule,
    Run,
    Verdict,
    by_name,
    check_count,
    check_seconds,
)
from tenure.store import Version

_log = logging.getLogger("tenure.poll")
MAX_NOTES = 1000
"""Of one look into the inbox."""
REMEMBERED = 10_000
"""Jobs that were begun here, so as not to begin one twice."""
REGISTER_TRIES = 10
REPORT_WITHIN = 60.0
"""Seconds for which a result is offered to a store that does not answer; its leader has given up by then."""
UNWIND_WITHIN = 2.0
"""Seconds that a check gets to end after it was cancelled."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a worker. Counts are since it was made."""

    worker_id: str
    uid: str
    partition: str | None
    registered: bool
    running: tuple[str, ...]
    """The ids of the jobs whose checks run now."""
    executed: int
    reported: int
    declined: int
    """Jobs of a schedule that is not known here, or is defined otherwise."""
    stale: int
    """Notes of jobs that were no longer meant for this process."""
    refused: int
    """Jobs of a former leader."""
    late: int
    """Results that came after their job had been given up on, and were dropped."""
    store_errors: int
    replaced: bool
    """A newer process uses this worker's id; this one takes no more work."""


class PollWorker:
    """`worker = PollWorker(database, coordinator, schedules); await worker.start()`.

    `schedules` are the leader's. With `coordinator=None` (static assignment) give a `worker_id`.
    """

    def __init__(
        self,
        database: Database,
        coordinator: GlobalCoordinatorService | None,
        schedules: Iterable[PollSchedule],
        *,
        partition: str | None = None,
        concurrency: int = 4,
        poll_interval: float = 1.0,
        registration_interval: float = 10.0,
        drain_timeout: float = 5.0,
        name: str = "default",
        worker_id: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        draw_id: NewId = new_id,
    ) -> None:
        """`registration_interval`: how often it looks after its own record. `drain_timeout`: for checks at `stop`."""
        folder_of(name)  # refuses a name that cannot be one
        if (coordinator is None) == (worker_id is None):
            raise ConfigError("give a coordinator, or (under static assignment) a worker_id, and not both")
        if coordinator is not None and not isinstance(getattr(coordinator, "worker_id", None), str):
            raise ConfigError(f"coordinator is {shown(coordinator)}: give what get_global_coordinator() gave")
        self.worker_id = coordinator.worker_id if coordinator is not None else worker_id or ""
        check_name("worker_id", self.worker_id, MAX_WORKER_ID_CHARACTERS)
        if partition is not None:
            check_name("partition", partition, MAX_PARTITION_CHARACTERS)
        self._database = database
        self._coordinator = coordinator
        self._schedules = by_name(schedules)
        self._partition = partition
        self._concurrency = check_count("concurrency", concurrency, least=1, most=1000)
        self._poll_interval = check_seconds("poll_interval", poll_interval, least=0.05, most=60.0)
        self._registration_interval = check_seconds("registration_interval", registration_interval, least=0.5)
        self._drain_timeout = check_seconds("drain_timeout", drain_timeout, least=0.0, most=3600.0)
        self._name = name
        self._clock = clock
        self._seldom = Seldom(_log)
        self._draw_id = draw_id
        self.uid = ""
        self._fence = _fence_of(coordinator)
        self._counts: Counter[str] = Counter()
        self._book: PollBook | None = None
        self._agent: Agent | None = None
        self._agent_version: Version | None = None
        self._looked_after: Reading | None = None
        self._replaced = False
        self._loop_task: asyncio.Task[None] | None = None
        self._takers: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._checks: dict[str, asyncio.Task[Verdict]] = {}
        self._begun: OrderedDict[str, None] = OrderedDict()
        self._refused: OrderedDict[str, int] = OrderedDict()
        self._stopping = False

    def __repr__(self) -> str:
        return f"<PollWorker {self.worker_id!r} of {self._name!r}>"

    async def start(self) -> None:
        """Register, and take work. Raises `StoreError` if the store cannot be reached."""
        if self._loop_task is not None:
            return
        self._book = PollBook(self._database.store, self._name, clock=self._clock, draw_id=self._draw_id)
        self.uid = self._draw_id()  # each start is a process of its own: what was meant for the last one is not ours
        self._stopping = self._replaced = False
        self._agent = None
        await self._register()
        self._loop_task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Take no more work, let checks finish for `drain_timeout`, end the others and say so, and deregister."""
        task, self._loop_task = self._loop_task, None
        if task is None:
            return
        self._stopping = True
        task.cancel()
        await asyncio.wait([task])
        takers = list(self._takers.values())
        if takers:
            await asyncio.wait(takers, timeout=self._drain_timeout)
            for check in list(self._checks.values()):
                check.cancel()
            _, left = await asyncio.wait(takers, timeout=UNWIND_WITHIN + 5.0)
            for taker in left:
                taker.cancel()
            if left:
                await asyncio.wait(left)
        if not self._replaced:
            try:
                await self._records.delete_agents(self.worker_id)
            except StoreError as error:
                _log.warning("worker %r could not deregister: %s", self.worker_id, error)

    async def wait(self) -> None:
        """Returns when it was stopped; raises what ended it."""
        task = self._loop_task
        if task is not None:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    def status(self) -> WorkerStatus:
        count = self._counts
        return WorkerStatus(
            worker_id=self.worker_id,
            uid=self.uid,
            partition=self._partition,
            registered=self._agent is not None and self._loop_task is not None,
            running=tuple(self._checks),
            executed=count["executed"],
            reported=count["reported"],
            declined=count["declined"],
            stale=count["stale"],
            refused=count["refused"],
            late=count["late"],
            store_errors=count["store-errors"],
            replaced=self._replaced,
        )

    @property
    def _records(self) -> PollBook:
        assert self._book is not None
        return self._book

    # Its own record

    async def _register(self) -> None:
        """Have our record there, by compare-and-swap. The newer start of one id wins."""
        for _ in range(REGISTER_TRIES):
            there, version = await self._records.agent(self.worker_id)
            if isinstance(there, TooNew):
                self._replaced = True  # so that it is not removed in our name either
                raise SchemaTooNew(
                    f"the record of worker {self.worker_id!r} was written by a newer tenure (schemaVersion "
                    f"{there.schema_version}), so this one takes no more work: update it, or give it an id of its own"
                )
            mine = self._agent
            if isinstance(there, Agent) and there.uid == self.uid:
                self._agent, self._agent_version = there, version
                self._looked_after = self._clock.read()
                return
            if isinstance(there, Agent) and mine is not None and there.ordinal > mine.ordinal:
                self._replaced = True
                raise WorkerReplaced(f"a newer process polls as {self.worker_id!r}, so this one takes no more work")
            agent = Agent(
                write_id="none",
                worker_id=self.worker_id,
                uid=self.uid,
                # Kept once it is drawn: an older process that overwrites a newer one must find itself the older.
                ordinal=mine.ordinal if mine is not None else there.ordinal + 1 if isinstance(there, Agent) else 1,
                partition=self._partition,
                concurrency=self._concurrency,
            )
            if isinstance(there, Agent) and mine is not None and there.ordinal == mine.ordinal:
                agent = msgspec.structs.replace(agent, ordinal=there.ordinal + 1)
            written = await self._records.write_agent(agent, version)
            if written is not None:
                self._agent, self._agent_version = agent, written
                self._looked_after = self._clock.read()
                return
        raise StoreUnavailable(f"worker {self.worker_id!r} could not register in {REGISTER_TRIES} tries")

    # Taking work

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except StoreError as error:
                self._counts["store-errors"] += 1
                self._seldom.warning(self._clock.read(), "worker %r: %s", self.worker_id, error)
            except (WorkerReplaced, SchemaTooNew) as error:
                _log.warning("%s", error)
                return
            await self._clock.sleep(self._poll_interval)

    async def _turn(self) -> None:
        if self._is_old(self._looked_after, self._registration_interval):
            await self._register()
        if len(self._takers) >= self._concurrency:
            return
        for note in await self._records.notes(self.uid, MAX_NOTES):
            if len(self._takers) >= self._concurrency:
                return
            if note not in self._takers:
                task = asyncio.get_running_loop().create_task(self._take(*note))
                self._takers[note] = task
                task.add_done_callback(lambda _, note=note: self._takers.pop(note, None))  # type: ignore[misc]

    async def _take(self, job_id: str, attempt: int) -> None:
        try:
            await self._consider(job_id, attempt)
        except StoreError as error:
            self._counts["store-errors"] += 1
            _log.warning("job %s: %s", job_id, error)  # the note is still there: it is tried again
        except TenureError as error:
            _log.warning("job %s: %s", job_id, error)
        except Exception:
            _log.exception("job %s: an error that nobody foresaw", job_id)

    async def _consider(self, job_id: str, attempt: int) -> None:
        held = await self._records.look(job_id)
        if not isinstance(held, Held) or not self._is_ours(held.job, attempt):
            self._counts["stale"] += 1
            await self._drop_note(job_id, attempt)
            return
        job = held.job
        if job.state is JobState.DISPATCHING:
            if not self._is_of_a_current_leader(job):
                return  # if a new leader adopts it, it is looked at again
            objection = self._objection(job)
            if objection is not None:
                await self._decline(held, objection)
                await self._drop_note(job_id, attempt)
                return
        began = self._clock.read()
        started = await self._start_on(held)
        if started is None:
            self._counts["stale"] += 1
            await self._drop_note(job_id, attempt)
            return
        self._remember(job_id)
        # Both at once: a store that is slow to forget the note must not use up the check's time.
        await asyncio.gather(self._execute(started, began), self._drop_note(job_id, attempt))

    def _is_ours(self, job: Job, attempt: int) -> bool:
        """Meant for this process, and not begun by it. A start whose answer was lost shows as running, and is ours."""
        return (
            job.state in (JobState.DISPATCHING, JobState.RUNNING)
            and job.uid == self.uid
            and job.attempt == attempt
            and job.id not in self._begun
        )

    def _is_of_a_current_leader(self, job: Job) -> bool:
        coordinator = self._coordinator
        if coordinator is None:
            return True
        if self._refused.get(job.id) == job.epoch:
            return False  # judged and counted already
        now = self._clock.read()
        self._fence.observe(coordinator.get_epoch(), now)
        if self._fence.is_epoch_valid(job.epoch, now):
            return True
        self._counts["refused"] += 1
        coordinator.count_epoch_drift()
        self._refused[job.id] = job.epoch
        _trim(self._refused)
        return False

    def _objection(self, job: Job) -> str | None:
        """Why this process cannot run it, for a person to read."""
        schedule = self._schedules.get(job.schedule)
        if schedule is None:
            return f"worker {self.worker_id!r} has no schedule {job.schedule!r}: give it the leader's schedules"
        if schedule.fingerprint != job.fingerprint:
            return (
                f"schedule {job.schedule!r} is defined otherwise on worker {self.worker_id!r} (fingerprint "
                f"{schedule.fingerprint}) than on the leader ({job.fingerprint}): give both the same schedules"
            )
        return None

    async def _decline(self, held: Held, objection: str) -> None:
        job = held.job
        _log.warning("job %s: %s", job.id, objection)
        await self._records.change(held, Declined(self.uid, job.token, objection, self._now()))
        self._counts["declined"] += 1

    async def _start_on(self, held: Held) -> Held | None:
        """Make it `running`. `None`: it is not ours to run any more, and is not run."""
        started = await self._records.change(held, Started(self.uid, held.job.token, self._now()))
        return None if isinstance(started, Refusal) else started

    async def _execute(self, held: Held, began: Reading) -> None:
        job = held.job
        schedule = self._schedules[job.schedule]
        waited = self._clock.read().leader_elapsed(began)
        if waited > schedule.timeout:
            detail = f"the worker stood still for {waited:.0f} s before it could begin"
            await self._report(held, None, Failure.EXECUTION_ERROR, detail)
            return
        run = Run(job.id, job.schedule, job.token, job.epoch, schedule.timeout)
        self._counts["executed"] += 1
        result, failure, detail = await self._run_check(schedule, run)
        await self._report(held, result, failure, detail)

    async def _run_check(self, schedule: PollSchedule, run: Run) -> tuple[CheckResult | None, Failure | None, str]:
        """In a task of its own: it can be given up on even if it does not let itself be cancelled."""
        check = asyncio.get_running_loop().create_task(schedule.check.run(run))
        self._checks[run.job_id] = check
        began = self._clock.read()
        try:
            await asyncio.wait([check], timeout=schedule.timeout)
            latency = min(max(0.0, self._clock.read().leader_elapsed(began) * 1000), 1e9)
            if not check.done():
                check.cancel()
                await asyncio.wait([check], timeout=UNWIND_WITHIN)
                said = f"no answer within {schedule.timeout:g} s"
                return CheckResult(False, latency, said), Failure.TIMEOUT, said
        except asyncio.CancelledError:
            check.cancel()
            raise
        finally:
            self._checks.pop(run.job_id, None)
            check.add_done_callback(_retrieve)
        if check.cancelled():
            return None, Failure.EXECUTION_ERROR, f"worker {self.worker_id!r} was stopped while the check ran"
        error = check.exception()
        if error is not None:
            return None, Failure.EXECUTION_ERROR, text_of(error, MAX_DETAIL_BYTES)
        verdict: object = check.result()  # of whatever type: the check may be a user's
        if not isinstance(verdict, Verdict) or not isinstance(verdict.detail, str):
            return None, Failure.EXECUTION_ERROR, f"the check returned a {type(verdict).__name__}, and not a Verdict"
        return CheckResult(bool(verdict.ok), latency, verdict.detail), None, ""

    async def _report(self, held: Held, result: CheckResult | None, failure: Failure | None, detail: str) -> None:
        """Offer it until the store says what became of it. After a TIMEOUT by the leader it is dropped."""
        event = Reported(self.uid, held.job.token, result, failure, detail, self._now())
        began = self._clock.read()
        pause = 0.2
        while True:
            try:
                reported = await self._records.change(held, event)
            except StoreError as error:
                self._counts["store-errors"] += 1
                if self._clock.read().leader_elapsed(began) >= REPORT_WITHIN:
                    _log.warning("the result of job %s was not stored: %s", held.job.id, error)
                    return
                await self._clock.sleep(pause)
                pause = min(2 * pause, 5.0)
                continue
            if isinstance(reported, Refusal):
                self._counts["late"] += 1
                _log.warning("the result of job %s came too late (%s), and is dropped", held.job.id, reported.reason)
            else:
                self._counts["reported"] += 1
            return

    async def _drop_note(self, job_id: str, attempt: int) -> None:
        """If that fails, the note is found again, and dropped as stale."""
        try:
            await self._records.drop_notes((self.uid, job_id, attempt))
        except StoreError as error:
            self._counts["store-errors"] += 1
            _log.debug("the note of job %s was not removed: %s", job_id, error)

    def _remember(self, job_id: str) -> None:
        assert job_id not in self._begun, job_id
        self._begun[job_id] = None
        _trim(self._begun)

    def _now(self) -> str:
        return time_of_day(self._clock.read().wall_ns)

    def _is_old(self, reading: Reading | None, seconds: float) -> bool:
        return reading is None or self._clock.read().leader_elapsed(reading) >= seconds


def _fence_of(coordinator: GlobalCoordinatorService | None) -> EpochFence:
    if coordinator is None:
        return EpochFence(enabled=False)
    return EpochFence(coordinator.config.epoch_fencing_enabled, coordinator.config.epoch_grace_period)


def _trim(memory: OrderedDict[str, None] | OrderedDict[str, int]) -> None:
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _retrieve(check: asyncio.Task[Verdict]) -> None:
    if not check.cancelled():
        check.exception()

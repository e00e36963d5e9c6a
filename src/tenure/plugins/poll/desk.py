"""The leader's side of one schedule: one job at a time, from due to counted.

Jobs are numbered without a gap, and the next is opened only when the last is counted. So a new leader knows from the
summary which job is open, and finishes that one first.
"""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec

from tenure.clock import Clock, Reading
from tenure.coordinator.delivery import NamedEvent
from tenure.election.records import Damage, TooNew, time_of_day
from tenure.plugins.poll.book import Agent, Broken, Held, PollBook
from tenure.plugins.poll.decide import Ask, GiveUp, Limits, first_due, next_step
from tenure.plugins.poll.events import JobCompleted, JobDispatched, JobFailed
from tenure.plugins.poll.job import (
    Adopted,
    Assigned,
    Failure,
    GivenUp,
    Job,
    JobState,
    Refusal,
    job_id,
    next_token,
)
from tenure.plugins.poll.schedule import Anywhere, Assignment, PollSchedule
from tenure.plugins.poll.summary import Summary, fold
from tenure.store import Version

_log = logging.getLogger("tenure.poll")
MAX_STEPS = 4
"""Of one turn: counted, opened, dispatched."""


class Retention(msgspec.Struct, frozen=True):
    jobs: int = 20
    """Ended jobs of each schedule whose records are kept."""
    outcomes: int = 100
    """Ended jobs over which availability and latency are taken."""


class Office(Protocol):
    """What the desks of one leader share."""

    @property
    def epoch(self) -> int | None:
        """`None` under static assignment."""
        ...

    async def available(self, assign: Assignment, not_uid: str | None) -> Agent | None: ...

    async def is_alive(self, worker_id: str, uid: str) -> bool: ...

    def reserve(self, uid: str) -> None: ...

    def unreserve(self, uid: str) -> None: ...

    def why_nobody(self, assign: Assignment) -> str: ...

    def emit(self, event: NamedEvent) -> None: ...


class Desk:
    """`schedule` is `None` for one that is no longer configured: its open job is brought to its end, and no more."""

    def __init__(
        self,
        name: str,
        schedule: PollSchedule | None,
        *,
        book: PollBook,
        office: Office,
        clock: Clock,
        limits: Limits,
        retention: Retention,
        first_after: float = 0.0,
    ) -> None:
        self.name = name
        self.schedule = schedule
        self.held: Held | None = None
        """The open job."""
        self.summary: Summary | None = None
        self.problem: str | None = None
        """Why nothing is done here, if so."""
        self._book = book
        self._office = office
        self._clock = clock
        self._limits = limits
        self._retention = retention
        self._first_after = first_after
        self._version: Version | None = None
        self._backlog: list[int] = []
        self._highest = 0
        self._seen: tuple[JobState, int] | None = None
        self._since: Reading = clock.read()
        self._noted = False
        self._due_from: Reading = self._since
        self._due_after = 0.0

    def found(self, numbers: list[int]) -> None:
        """These jobs are in the bucket, in this order."""
        self._highest = max(numbers, default=0)
        self._backlog = sorted(numbers)

    def is_busy(self) -> bool:
        return self.summary is None or self.held is not None or bool(self._backlog) or self._is_due()

    async def turn(self) -> None:
        """Everything that can be done now. Raises `StoreError`: the next turn goes on from what is in the bucket."""
        self.problem = None
        if self.summary is None and not await self._load():
            return
        for _ in range(MAX_STEPS):
            if not await self._step():
                return

    async def _load(self) -> bool:
        summary, version = await self._book.summary(self.name)
        if isinstance(summary, TooNew):
            self.problem = f"its results were written by a newer tenure (schemaVersion {summary.schema_version})"
            return False
        if isinstance(summary, Damage):
            _log.error(
                "the results of schedule %r are unreadable (%s), and are counted anew", self.name, summary.reason
            )
            summary = Summary(write_id="none", schedule=self.name)
        if not summary.folded and self._backlog:
            # Nothing is counted, and there are jobs: what came before them is lost, and they are counted now.
            first = self._backlog[0]
            summary = msgspec.structs.replace(summary, folded=first - 1, first_kept=first)
        self._set(summary, version)
        now = self._clock.read()
        since = (now.wall_ns // 1_000_000 - summary.last_created_ms) / 1000 if summary.last_created_ms else None
        self._set_due(now, since)
        return True

    def _set(self, summary: Summary, version: Version | None) -> None:
        self.summary, self._version = summary, version
        self._highest = max(self._highest, summary.folded)
        self._backlog = [number for number in self._backlog if number > summary.folded]

    def _set_due(self, now: Reading, since_last: float | None) -> None:
        self._due_from = now
        if self.schedule is not None:
            self._due_after = self._first_after if since_last is None else first_due(self.schedule.every, since_last)

    def _is_due(self) -> bool:
        return self.schedule is not None and self._clock.read().leader_elapsed(self._due_from) >= self._due_after

    async def _step(self) -> bool:
        """True: there may be more to do at once."""
        if self.held is None:
            held = await self._take_up()
        else:
            held = await self._book.look(self.held.job.id, self.held)
        if held is None:
            if self.held is not None:
                _log.error("job %s has disappeared from the bucket", self.held.job.id)
                self.held = None
            return False
        if isinstance(held, Broken):
            return await self._mend(held)
        self.held = held
        if held.job.state.final:
            return await self._count(held.job)
        epoch = self._epoch_for(held.job.epoch)
        if held.job.epoch > epoch:
            self.problem = f"job {held.job.id} is in the hands of epoch {held.job.epoch}, and this is {epoch}"
            return False
        if held.job.epoch < epoch:
            return await self._change(held, Adopted(epoch)) is not None
        self._watch(held.job)
        return await self._drive(held)

    async def _take_up(self) -> Held | Broken | None:
        """The job that was left open, or a new one if it is due."""
        if self._backlog:
            held = await self._book.look(job_id(self.name, self._backlog[0]))
            if held is None:
                self._backlog.pop(0)
            elif isinstance(held, Held):
                now = self._clock.read()
                self._set_due(now, (now.wall_ns // 1_000_000 - held.job.created_ms) / 1000)
            return held
        if not self._is_due():
            return None
        assert self.schedule is not None
        now = self._clock.read()
        job = Job(
            write_id="none",
            schedule=self.name,
            number=self._highest + 1,
            fingerprint=self.schedule.fingerprint,
            timeout_ms=max(1, round(self.schedule.timeout * 1000)),
            epoch=self._epoch_for(0),
            created_ms=max(0, now.wall_ns // 1_000_000),
        )
        opened = await self._book.open(job)
        if opened is not None:
            self._highest = job.number
            self._backlog = [job.number]
            self._due_from, self._due_after = now, self.schedule.every
        return opened

    async def _mend(self, broken: Broken) -> bool:
        number = self.held.job.number if self.held is not None else self._backlog[0]
        name = job_id(self.name, number)
        if broken.newer:
            self.problem = f"job {name} was {broken.reason}"
            return False
        _log.error("the record of job %s is unreadable (%s): it has failed", name, broken.reason)
        job = Job(
            write_id="none",
            schedule=self.name,
            number=number,
            fingerprint="unknown",
            timeout_ms=1,
            epoch=self._epoch_for(0),
            state=JobState.FAILED,
            failure=Failure.EXECUTION_ERROR,
            detail=f"its record was unreadable: {broken.reason}",
            ended_at=self._now(),
            ended_by="leader",
        )
        return await self._book.mend(broken, job)

    def _watch(self, job: Job) -> None:
        """Its time in a state runs from when it was seen in it here: nobody else's clock is asked."""
        if self._seen != (job.state, job.token):
            self._seen, self._since = (job.state, job.token), self._clock.read()
            self._noted = False

    async def _drive(self, held: Held) -> bool:
        job = held.job
        assign = self.schedule.assign if self.schedule is not None else Anywhere()
        agent, alive = None, True
        if job.state is JobState.DISPATCHING:
            assert job.worker_id is not None
            assert job.uid is not None
            alive = await self._office.is_alive(job.worker_id, job.uid)
        waited = self._waited()
        late = job.state is JobState.DISPATCHING and (not alive or waited >= self._limits.pickup_within)
        # A schedule that is no longer configured has nobody who would know what to run.
        if (job.state is JobState.PENDING or late) and self.schedule is not None:
            agent = await self._office.available(assign, job.uid)
        wanted = f"{assign} ({self._office.why_nobody(assign)})" if self.schedule is not None else "its schedule"
        step = next_step(job, waited, agent, asked_is_alive=alive, wanted=wanted, limits=self._limits)
        if isinstance(step, Ask):
            return await self._ask(held, step.agent)
        if isinstance(step, GiveUp):
            event = GivenUp(self._epoch_for(job.epoch), step.failure, step.detail, self._now())
            return await self._change(held, event) is not None
        if job.state is JobState.DISPATCHING:
            await self._note(job)
        return False

    async def _ask(self, held: Held, agent: Agent) -> bool:
        assert self.summary is not None
        epoch = self._epoch_for(held.job.epoch)
        token = next_token(epoch, max(held.job.token, self.summary.last_token))
        self._office.reserve(agent.uid)
        try:
            changed = await self._change(held, Assigned(epoch, agent.worker_id, agent.uid, token, self._now()))
        finally:
            self._office.unreserve(agent.uid)
        if changed is None:
            return True  # its worker may have ended it meanwhile
        self._watch(changed.job)
        await self._note(changed.job)
        self._office.emit(JobDispatched(changed.job))
        return False

    async def _note(self, job: Job) -> None:
        """Tell its worker. Also after a failover, since the leader before may have got no further than the job."""
        if not self._noted:
            assert job.uid is not None
            self._noted = await self._book.tell(job.uid, job.id, job.attempt)

    async def _change(self, held: Held, event: Adopted | Assigned | GivenUp) -> Held | None:
        changed = await self._book.change(held, event)
        if isinstance(changed, Refusal):
            return None
        self.held = changed
        return changed

    async def _count(self, job: Job) -> bool:
        """Count an ended job, once: the summary says up to which number that was done."""
        summary = self.summary
        assert summary is not None
        epoch = self._epoch_for(summary.epoch)
        if summary.epoch > epoch:
            self.problem = f"its results are in the hands of epoch {summary.epoch}, and this is {epoch}"
            return False
        keep = self._retention
        after = fold(summary, job, epoch=epoch, keep=keep.outcomes, keep_jobs=keep.jobs)
        if after is not summary:
            version = await self._book.write_summary(after, self._version)
            if version is None:
                self.summary = None  # read it again: it may have been written, by us or by another
                return False
            self._set(after, version)
            self._office.emit(JobFailed(job) if job.state is JobState.FAILED else JobCompleted(job))
        self.held, self._seen = None, None
        self._backlog = [number for number in self._backlog if number > job.number]
        await self._tidy(job, summary.first_kept, after.first_kept)
        return True

    async def _tidy(self, job: Job, first: int, first_kept: int) -> None:
        if job.uid is not None:
            await self._book.drop_notes((job.uid, job.id, job.attempt))
        gone = range(max(first, first_kept - 100), first_kept)
        if gone:
            await self._book.delete_jobs(*(job_id(self.name, number) for number in gone))

    def _waited(self) -> float:
        """The smaller estimate: somebody is about to be given up on."""
        return self._clock.read().follower_elapsed(self._since)

    def _epoch_for(self, written: int) -> int:
        """Ours. Under static assignment there are no epochs, and the one that is written down stays."""
        epoch = self._office.epoch
        return written if epoch is None else epoch

    def _now(self) -> str:
        return time_of_day(self._clock.read().wall_ns)

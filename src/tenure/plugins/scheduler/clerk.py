"""What the leader decides on a schedule: which occurrences fire, which are passed over, what is tried again.

Every decision is an event, and the machine is changed by applying that event: a leader that decides and a follower that
reads cannot come to differ. What is decided begins only when it is written (`committed`).

Nothing is early: an instant is due when the store's clock has certainly reached it (`horizon`), on any host.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tenure.clock import Clock
from tenure.coordinator.events import NamedEvent
from tenure.entropy import Random
from tenure.errors import ConfigError, LedgerHalted
from tenure.ledger import InboxName, Item, LogEntry, Place, Situation, Stamp
from tenure.plugins.scheduler import events as told
from tenure.plugins.scheduler.changes import changed_job
from tenure.plugins.scheduler.due import Course, Due
from tenure.plugins.scheduler.job import (
    At,
    DamagedJob,
    Interrupted,
    Job,
    Misfire,
    Origin,
    Overlap,
    QueueTarget,
    decode_job,
    encode_job,
    same_job,
    same_timetable,
)
from tenure.plugins.scheduler.records import (
    MAX_ERROR_CHARACTERS,
    Begun,
    CutShort,
    Defined,
    Event,
    Failed,
    Fired,
    JobState,
    Occurrence,
    Outcome,
    Passed,
    Paused,
    Refused,
    Removed,
    Resumed,
    State,
    Succeeded,
    Work,
    run_name,
)
from tenure.plugins.scheduler.registry import Registry
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.telling import telling
from tenure.plugins.scheduler.timetable import timetable_of
from tenure.plugins.scheduler.wire import ADD, PAUSE, RESUME, Batch, Command, read_batch

_log = logging.getLogger("tenure.scheduler")

MAX_JOBS = 100_000
MAX_DECISIONS = 2000
"""Of one entry, besides those that a command asks for; the others follow in the next ones."""
MAX_DECLARED_BYTES = 4 * 1024 * 1024
"""Of jobs that one entry takes from the leader's code."""
MAX_ENDED_BYTES = 4 * 1024 * 1024
"""Of events on runs that have ended; the others follow in the next entries."""
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Of one entry's events: further commands are refused. Well below what a ledger's entry may hold, for what fires late
is decided together."""
MAX_FINISHED = 1000
"""Stored jobs that will never fire again; of more, the oldest are removed."""
MAX_REASON = 500
_TOO_MUCH = "too much was asked for at once: give it again"


class Start(msgspec.Struct, frozen=True):
    """A run that is to be begun: its entry is written."""

    number: int
    job: Job
    scheduled_ms: int
    token: int
    epoch: int
    attempt: int
    manual: str

    @property
    def run(self) -> str:
        return run_name(self.job.id, self.scheduled_ms, self.manual)


class End(msgspec.Struct, frozen=True):
    """A run that has ended, or was left behind."""

    number: int
    token: int
    error: str | None = None
    """`None`: it succeeded."""


class ScheduleClerk:
    def __init__(
        self,
        registry: Registry,
        *,
        worker: str,
        clock: Clock,
        random: Random,
        horizon: Callable[[], Awaitable[int]],
        begin: Callable[[Start], None] = lambda start: None,
        room: Callable[[], int] = lambda: 1_000_000,
        emit: Callable[[NamedEvent], None] = lambda event: None,
        on_entry: Callable[[LogEntry], None] = lambda entry: None,
    ) -> None:
        """`horizon`: what the store's clock has certainly reached, in ms. `room`: how many runs may be begun now."""
        self.machine = ScheduleMachine()
        self.due = Due(self.machine, clock)
        self._registry = registry
        self._worker = clean(worker)
        self._random = random
        self._horizon = horizon
        self._begin = begin
        self._room_left = room
        self._emit = emit
        self._on_entry = on_entry
        self._declared = -1
        """The version of the registry that was declared."""
        self._ended: list[End] = []
        self._retries: list[tuple[int, int]] = []
        """When, and which: a heap. What is out of date is left out when it is taken."""
        self._held: list[tuple[int, int]] = []
        """Retries that are due, and may not begin: their job is paused, or not known, or there is no room."""
        self._parked: dict[str, None] = {}
        """Jobs that are due, and not known here."""
        self._reported: set[str] = set()
        # Of the entry that is being decided:
        self._stamp = Stamp(0, 0, 0)
        self._cut_ms = 0
        self._events: list[Event] = []
        self._bytes = 0
        """Of these events."""
        self._starts: list[Start] = []
        self._decisions = 0
        self._room = 0
        self._uncommitted = False
        self.more = False
        """The last entry did not decide on everything that was due."""

    def take_over(self) -> None:
        """The log was read to its end, and is ours to go on with."""
        self.due.reset()
        self.more = True
        self._retries = [
            (occurrence.retry_ms, occurrence.number)
            for occurrence in self.machine.open.values()
            if occurrence.state is State.BACKING_OFF
        ]
        heapq.heapify(self._retries)

    # As those who lead see it

    def ended(self, end: End) -> None:
        """A run is over: the next entry says so."""
        self._ended.append(end)

    @property
    def has_ends(self) -> bool:
        return bool(self._ended)

    @property
    def has_news(self) -> bool:
        """Is there something to decide that has not to do with time?"""
        return self.more or self._declared != self._registry.version or bool(self.machine.cut_short)

    def next_ms(self) -> int | None:
        """When something is due next, as far as that is known."""
        due = self.due.next_ms()
        if self._retries and (due is None or self._retries[0][0] < due):
            return self._retries[0][0]
        return due

    # As the ledger sees it

    def read(self, name: InboxName, body: bytes) -> tuple[Place, Batch]:
        batch = read_batch(body)
        return Place(batch.after, batch.skipped, batch.ahead), batch

    async def prepare(self, items: Sequence[Item]) -> None:
        """What a command changes is first decided up to now: search that now, not while deciding."""
        named = {command.id for item in items for command in item.content.commands}
        await self.due.compute(await self._horizon(), self.machine.jobs if "" in named else sorted(named))

    def decide(self, items: Sequence[Item], situation: Situation) -> bytes | None:
        if self._uncommitted:
            # The state has run ahead of the log: whoever began here again has it from the log.
            raise LedgerHalted("what was decided last was not written: the term is begun anew")
        self._stamp = situation.stamp
        # A doubt that has grown does not undo what was certain before: by that some may be passed over already, and
        # those that fire in their place are decided together with them.
        certain_ms = max(situation.stamp.time_ms - situation.doubt_ms, self.due.reached_ms)
        self._cut_ms = min(certain_ms, situation.stamp.time_ms)
        self._events, self._bytes, self._starts = [], 0, []
        self._decisions, self._room, self.more = MAX_DECISIONS, self._room_left(), False
        self._declare()
        self._take_ends()
        self._take_cut_short()
        self._begin_ready()
        for item in items:
            for index, command in enumerate(item.content.commands):
                if not self._follow(command, item, index):
                    break
        self._decide_due()
        self._begin_ready()
        self._clear_finished()
        self._report_broken()
        if not self._events:
            return None
        self._uncommitted = True
        return msgspec.json.encode(Work(self._worker, tuple(self._events)))

    def committed(self, entry: LogEntry, items: Sequence[Item]) -> Sequence[str]:
        self._uncommitted = False
        starts, self._starts = self._starts, []
        events, self._events = self._events, []
        for start in starts:
            self._begin(start)
        self._on_entry(entry)
        for event in events:
            if (news := telling(event, self.machine)) is not None:
                self._emit(news)
        for start in starts:
            self._emit(
                told.RunFired(start.job.id, start.run, start.scheduled_ms, start.token, start.epoch, start.attempt)
            )
        return ()

    def _enact(self, event: Event) -> None:
        self.machine.enact(event, self._stamp, self._worker)
        self._events.append(event)
        self._bytes += len(msgspec.json.encode(event)) + 1

    @property
    def _is_full(self) -> bool:
        return self._bytes >= MAX_EVENT_BYTES

    # What the leader's code declares

    def _declare(self) -> None:
        version = self._registry.version
        if self._declared == version:
            return
        size = 0
        for job in self._registry.jobs.values():
            known = self.machine.jobs.get(job.id)
            if known is not None and same_job(known.job, job):
                continue
            size += len(encode_job(job))
            if size > MAX_DECLARED_BYTES:
                self.more = True
                return
            if known is not None:
                if not self._redefine(known, job, self._worker):
                    self.more = True
                    return
            elif len(self.machine.jobs) < MAX_JOBS:
                self._add(job, self._worker)
            else:
                _log.error("job %r is not declared: there are %s jobs already", job.id, f"{MAX_JOBS:,}")
        self._declared = version
        for parked in list(self._parked):
            self.due.changed(parked)
        self._parked = {}
        for state in self.machine.jobs.values():
            self._report(state.job)

    def _report(self, job: Job) -> None:
        """What this process cannot, or will not, run: once for each job and term."""
        if job.id in self._reported:
            return
        if (unknown := self._registry.unknown(job)) is not None:
            self._reported.add(job.id)
            _log.warning("nothing of job %r is decided for now: %s", job.id, unknown)
            self._emit(told.JobUnknown(job.id, unknown))
        elif (refused := self._registry.refused(self._registry.as_run(job))) is not None:
            self._reported.add(job.id)
            _log.warning("each run of job %r fails: %s", job.id, refused)
            self._emit(told.CommandRefused(job.id, refused))

    def _report_broken(self) -> None:
        for job, reason in self.due.broken.items():
            if job not in self._reported:
                self._reported.add(job)
                self._emit(told.JobUnknown(job, reason))

    # What became of runs

    def _take_ends(self) -> None:
        ended, self._ended = self._ended, []
        for index, end in enumerate(ended):
            if self._bytes >= MAX_ENDED_BYTES:
                self._ended = ended[index:]
                return
            occurrence = self.machine.open.get(end.number)
            if occurrence is None or occurrence.state is not State.RUNNING or occurrence.token != end.token:
                continue
            if end.error is None:
                self._enact(Succeeded(end.number))
                continue
            retry_ms = self._retry_ms(occurrence)
            self._enact(Failed(end.number, clean(end.error)[:MAX_ERROR_CHARACTERS], retry_ms))
            if retry_ms:
                heapq.heappush(self._retries, (retry_ms, end.number))

    def _retry_ms(self, occurrence: Occurrence) -> int:
        """When one that failed now is tried again; 0: not at all."""
        state = self.machine.jobs.get(occurrence.job)
        if state is None or occurrence.orphaned or occurrence.failures >= state.job.retries:
            return 0
        job = state.job
        pause = min(job.max_backoff_ms, job.backoff_ms << min(occurrence.failures, 40))
        return self._stamp.time_ms + max(1, round(pause * (0.5 + self._random.random() / 2)))

    def _take_cut_short(self) -> None:
        for number in list(self.machine.cut_short):
            occurrence = self.machine.open[number]
            state = self.machine.jobs.get(occurrence.job)
            if state is None or occurrence.orphaned:
                self._enact(CutShort(number, again=False))
            elif isinstance(state.job.target, QueueTarget):
                self._enact(CutShort(number, again=True, counts=False))  # sent twice, it is one message
            else:
                again = state.job.interrupted is Interrupted.RERUN
                self._enact(CutShort(number, again and occurrence.interruptions < state.job.max_interruptions))

    # Beginning

    def _begin_ready(self) -> None:
        """What waits, and what is to be tried again: the oldest first, so that where there is little room each has its
        turn."""
        while self._retries and self._retries[0][0] <= self._cut_ms:
            self._held.append(heapq.heappop(self._retries))
        if self._room <= 0:
            return
        ready = [(occurrence.number, occurrence) for occurrence in (*self._ready_again(), *self._ready_first())]
        ready.sort(key=lambda each: each[0])
        for number, occurrence in ready[: self._room]:
            self._enact(Begun(number))
            self._starting(occurrence, self.machine.jobs[occurrence.job].job)
        self._held = [retry for retry in self._held if self.machine.open[retry[1]].state is State.BACKING_OFF]

    def _ready_again(self) -> list[Occurrence]:
        """Those of `_held` that may begin. What is out of date is dropped from there."""
        held, self._held = self._held, []
        found = []
        for retry_ms, number in held:
            occurrence = self.machine.open.get(number)
            if occurrence is None or occurrence.state is not State.BACKING_OFF or occurrence.retry_ms != retry_ms:
                continue
            self._held.append((retry_ms, number))
            if self._may_begin(occurrence):
                found.append(occurrence)
        return found

    def _ready_first(self) -> list[Occurrence]:
        machine, found = self.machine, []
        for job, waiting in machine.waiting.items():
            definition = machine.jobs[job].job
            busy = len(machine.open_of[job]) - waiting
            limit = definition.max_running if definition.overlap is Overlap.ALLOW else 1
            if busy >= limit or self._registry.unknown(definition) is not None:
                continue
            mine = [each for each in machine.of(job) if each.state is State.WAITING and self._may_begin(each)]
            found += mine[: limit - busy]
        return found

    def _may_begin(self, occurrence: Occurrence) -> bool:
        state = self.machine.jobs[occurrence.job]
        if not occurrence.manual and not self.machine.is_active(state):
            return False
        return self._registry.unknown(state.job) is None

    def _starting(self, occurrence: Occurrence, job: Job) -> None:
        self._room -= 1
        self._starts.append(
            Start(
                occurrence.number,
                self._registry.as_run(job),
                occurrence.scheduled_ms,
                occurrence.token,
                occurrence.epoch,
                occurrence.attempts,
                occurrence.manual,
            )
        )

    # What is due

    def _decide_due(self) -> None:
        while True:
            if self._decisions <= 0:
                due = self.due.next_ms()
                self.more = self.more or (due is not None and due <= self._cut_ms)
                return
            course = self.due.pop(self._cut_ms)
            if course is None:
                return
            state = self.machine.jobs[course.job.id]
            if self._registry.unknown(state.job) is not None:
                self._parked[state.job.id] = None
                self._report(state.job)
                continue
            self._decide_course(course, state)
            self.due.put_back(course)

    def _decide_up_to_now(self, state: JobState) -> bool:
        """Everything that is due of a job before it is changed, jitter or no jitter.

        False: the entry is full, and the job must stay as it is. What was decided until then is decided, as it would
        have been without the change; the rest is due as before.
        """
        while self.machine.is_active(state):
            if self._is_full:
                return False
            course = self.due.through(state.job.id, self._cut_ms)
            if course is None:
                return True
            self._decide_course(course, state, everything=True)
            is_left = bool(course.instants) and course.instants[0] <= self._cut_ms
            is_known = course.exhausted or course.through_ms > self._cut_ms
            self.due.put_back(course)
            if is_known and not is_left:
                return True
        return True

    def _decide_course(self, course: Course, state: JobState, *, everything: bool = False) -> None:
        job = state.job
        assert self.machine.is_active(state), f"job {job.id!r} is not active, and nothing of it is due"
        course.settle(self._cut_ms)
        passed, course.passed = course.passed, []
        for span in passed:
            self._pass(job.id, span.outcome, span.low_ms, span.high_ms, span.count)
        while course.instants:
            due = course.instants[0] if everything else course.due_ms()
            if due is None or due > self._cut_ms:
                return
            is_late = course.is_late(course.instants[0], self._cut_ms)
            if not is_late and (self._is_full if everything else self._decisions <= 0):
                return  # those that others were coalesced into are decided together with them
            self._occur(state, course.instants.popleft(), is_late=is_late)

    def _occur(self, state: JobState, instant: int, *, is_late: bool, manual: str = "") -> bool:
        """An occurrence fires, unless others of its job are in the way. False: it does not."""
        job, machine = state.job, self.machine
        assert manual or instant > state.decided_ms, f"instant {instant} of job {job.id!r} is decided already"
        self._decisions -= 1
        open = len(machine.open_of.get(job.id, ()))
        waiting = machine.waiting.get(job.id, 0)
        fires = open < job.max_running if job.overlap is Overlap.ALLOW else not open
        waits = job.overlap is Overlap.QUEUE_ONE and not waiting
        if is_late and job.misfire is Misfire.FIRE_ALL:
            waits = waits or waiting < job.catch_up  # those that are caught up with do not overlap each other
        if not fires and not waits:
            self._pass(job.id, Outcome.SKIPPED_OVERLAP, instant, instant, 1, manual)
            return False
        begins = fires and not waiting and self._room > 0 and self._registry.unknown(job) is None
        number = machine.last + 1
        self._enact(Fired(number, job.id, instant, begins, manual))
        if begins:
            self._starting(machine.open[number], job)
        return True

    def _pass(self, job: str, outcome: Outcome, low_ms: int, high_ms: int, count: int, manual: str = "") -> None:
        self._decisions -= 1
        number = self.machine.last + 1
        self._enact(Passed(number, job, low_ms, outcome, high_ms if count > 1 else 0, count, manual))

    # Commands

    def _follow(self, command: Command, item: Item, index: int) -> bool:
        """False: this one and the rest of its batch are refused. They cannot wait for another entry: their batch is
        folded by this one."""
        refused = _TOO_MUCH if self._is_full else self._refusal(command)
        if refused is None:
            return True
        rest = refused is _TOO_MUCH
        self._enact(Refused(item.name.uid, item.name.number, index, clean(refused)[:MAX_REASON], rest))
        return not rest

    def _refusal(self, command: Command) -> str | None:
        """Follow a command, or say why not."""
        by = clean(command.by)
        if command.op == ADD:
            return self._follow_add(command, by)
        state = self.machine.jobs.get(command.id)
        if state is None and (command.id or command.op not in (PAUSE, RESUME)):
            return f"there is no job {command.id!r}"
        match command.op:
            case "update":
                assert state is not None
                return self._follow_update(state, command, by)
            case "remove":
                assert state is not None
                return self._follow_remove(state, by)
            case "pause":
                return self._follow_pause(state, by)
            case "resume":
                self._follow_resume(state, by)
                return None
            case "run-now":
                assert state is not None
                return self._follow_run_now(state, command)
        _log.warning("a command %r is not known here, and was not followed", command.op)
        return f"the leader does not know the command {command.op!r}: is it older than who gave it?"

    def _follow_add(self, command: Command, by: str) -> str | None:
        try:
            job = msgspec.structs.replace(decode_job(command.job), origin=Origin.STORED)
        except DamagedJob as error:
            return str(error)
        known = self.machine.jobs.get(job.id)
        if known is None:
            if len(self.machine.jobs) >= MAX_JOBS:
                return f"there are {MAX_JOBS:,} jobs already, and no more are kept: remove some"
            self._add(job, by)
            return None
        if not command.replace:
            return f"there is a job {job.id!r} already: update it, or remove it first"
        if known.job.origin is Origin.CODE:
            return _in_code(job.id)
        return None if self._redefine(known, job, by) else _TOO_MUCH

    def _follow_update(self, state: JobState, command: Command, by: str) -> str | None:
        if state.job.origin is Origin.CODE:
            return _in_code(state.job.id)
        try:
            job = changed_job(state.job, command.changes)
        except ConfigError as error:
            return str(error)
        if same_job(state.job, job) or self._redefine(state, job, by):
            return None
        return _TOO_MUCH

    def _follow_remove(self, state: JobState, by: str) -> str | None:
        if state.job.id in self._registry.jobs:
            return _in_code(state.job.id)
        if not self._decide_up_to_now(state):
            return _TOO_MUCH
        self._remove(state.job.id, by)
        return None

    def _follow_pause(self, state: JobState | None, by: str) -> str | None:
        if state is not None:
            if not state.paused:
                if not self._decide_up_to_now(state):
                    return _TOO_MUCH
                self._enact(Paused(state.job.id, by))
                self.due.changed(state.job.id)
        elif not self.machine.paused:
            if not all(self._decide_up_to_now(each) for each in list(self.machine.jobs.values())):
                return _TOO_MUCH
            self._enact(Paused("", by))
            self.due.reset()
        return None

    def _follow_resume(self, state: JobState | None, by: str) -> None:
        if state is not None:
            if state.paused:
                self._enact(Resumed(state.job.id, self._cut_ms, by))
                self.due.changed(state.job.id)
        elif self.machine.paused:
            self._enact(Resumed("", self._cut_ms, by))
            self.due.reset()

    def _follow_run_now(self, state: JobState, command: Command) -> str | None:
        job = state.job
        reason = self._registry.unknown(job) or self._registry.refused(self._registry.as_run(job))
        if reason is not None:
            return f"job {job.id!r} cannot be run: {reason}"
        manual = clean(command.run) or f"{self._stamp.seq}-{self.machine.last + 1}"
        if any(record.manual == manual for record in self.machine.records_of(job.id)):
            return None  # given twice
        if not self._occur(state, self._stamp.time_ms, is_late=False, manual=manual):
            return f"a run of job {job.id!r} is open, and its overlap is {job.overlap.value!r}: wait for its end"
        return None

    # Definitions

    def _add(self, job: Job, by: str) -> None:
        """From here on it has occurrences. One at a time that has passed meanwhile is decided as any that is late."""
        now_ms = self._stamp.time_ms
        decided_ms = min(now_ms, job.schedule.at_ms - 1) if isinstance(job.schedule, At) else now_ms
        self._enact(Defined(job, now_ms, decided_ms, by))
        self.due.changed(job.id)
        self._report(job)

    def _redefine(self, state: JobState, job: Job, by: str) -> bool:
        """What the old definition has to say up to now is decided; from here on the new one holds.

        False: there is no room for that in this entry, and the old one holds.
        """
        if not self._decide_up_to_now(state):
            return False
        before, anchor_ms, decided_ms = state.job, state.anchor_ms, state.decided_ms
        is_new = not same_timetable(before, job)
        if is_new or (job.enabled and not before.enabled):
            decided_ms = max(decided_ms, self._cut_ms)
        if is_new:
            anchor_ms = self._stamp.time_ms
            if isinstance(job.schedule, At) and not self._was_decided(state, job.schedule.at_ms):
                decided_ms = min(decided_ms, job.schedule.at_ms - 1)
        self._enact(Defined(job, anchor_ms, decided_ms, by))
        self._reported.discard(job.id)
        self._parked.pop(job.id, None)
        self.due.changed(job.id)
        self._report(job)
        return True

    def _was_decided(self, state: JobState, instant: int) -> bool:
        """Has this instant been one of the job's, and was it decided?"""
        if instant > state.decided_ms:
            return False
        try:
            return timetable_of(state.job, state.anchor_ms).next_after(instant - 1) == instant
        except ConfigError:
            return True

    def _remove(self, job: str, by: str) -> None:
        self._enact(Removed(job, by))
        self.due.removed(job)
        self._parked.pop(job, None)
        self._reported.discard(job)

    def _clear_finished(self) -> None:
        """One-off jobs must not pile up for ever."""
        if len(self.due.exhausted) <= MAX_FINISHED:
            return
        finished = [self.machine.jobs[job] for job in self.due.exhausted if job not in self.machine.open_of]
        finished = [state for state in finished if state.job.origin is Origin.STORED]
        finished.sort(key=lambda state: state.decided_ms)
        for state in finished[: max(0, len(finished) - MAX_FINISHED)]:
            if self._is_full:
                return
            self._remove(state.job.id, "finished")


def _in_code(job: str) -> str:
    return f"job {job!r} is declared in code: change it there (it can be paused, resumed and run by hand)"


def clean(text: str) -> str:
    """What can be written: what an exception says need not be text, file names are not."""
    return text.encode("utf-8", "replace").decode()

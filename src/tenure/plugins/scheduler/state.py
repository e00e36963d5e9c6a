"""What a schedule is, as a function of its log. Pure: no clock, no store, no timetable, no randomness.

Which occurrences there are, and what is decided on them, says the leader by its events; here is only what follows from
these. So reading a log takes no knowledge of time zones, and a leader whose zones are newer changes nothing that is
decided already.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

from tenure.ledger import Stamp
from tenure.plugins.ledgered import image
from tenure.plugins.scheduler.job import Job
from tenure.plugins.scheduler.records import (
    MAX_ERROR_CHARACTERS,
    Begun,
    Contents,
    CutShort,
    Defined,
    Event,
    Failed,
    Fired,
    Frame,
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
    Totals,
    decode_work,
)

VERSION = 1
MAX_RECORDS = 100_000
"""Of occurrences that are over, of all jobs together; the oldest go."""
REMOVED_JOBS_RECORDS = 100
REMOVED = "its job was removed"
CUT_SHORT = "the term of the leader that ran it ended"
_MERGED = (Outcome.MISSED_WINDOW, Outcome.COALESCED)


class ScheduleMachine:
    version = VERSION

    def __init__(self) -> None:
        self.paused = False
        """Everything is."""
        self.jobs: dict[str, JobState] = {}
        self.open: dict[int, Occurrence] = {}
        """Fired, and not over; by number, which is also their order."""
        self.open_of: dict[str, dict[int, Occurrence]] = {}
        """The same, by job."""
        self.waiting: dict[str, int] = {}
        """How many of each job wait, of those of which some do."""
        self.cut_short: dict[int, None] = {}
        """Those of `open` that the next leader decides on."""
        self.history: OrderedDict[int, Occurrence] = OrderedDict()
        """What is over, in the order in which it came to be."""
        self.history_of: dict[str, deque[int]] = {}
        self.last = 0
        """The number that was given last."""
        self.totals = Totals()

    # As the ledger sees it

    def apply(self, events: bytes, stamp: Stamp) -> None:
        work = decode_work(events)
        for event in work.events:
            self.enact(event, stamp, work.worker)

    def began(self, stamp: Stamp) -> None:
        """A leader begins, maybe the same once more: nothing of what ran before runs under it."""
        for occurrence in self.open.values():
            if occurrence.state is State.RUNNING:
                self._move(occurrence, State.CUT_SHORT)

    def enact(self, event: Event, stamp: Stamp, worker: str) -> None:
        """Total: an event about what is not there changes nothing."""
        match event:
            case Fired():
                self._fired(event, stamp, worker)
            case Begun():
                if (occurrence := self.open.get(event.number)) is not None:
                    self._begin(occurrence, stamp, worker)
            case Succeeded():
                self._succeeded(event, stamp)
            case Failed():
                self._failed(event, stamp)
            case Passed():
                self._passed(event, stamp, worker)
            case CutShort():
                self._cut_short(event, stamp)
            case Defined():
                self._defined(event, stamp)
            case Removed():
                self._removed(event, stamp)
            case Paused():
                self._paused(event)
            case Resumed():
                self._resumed(event)
            case Refused():
                pass  # for who asked

    # What is asked of it

    def is_active(self, state: JobState) -> bool:
        """Do its instants count as occurrences?"""
        return state.job.enabled and not state.paused and not self.paused

    def of(self, job: str) -> Iterator[Occurrence]:
        """What is open of a job, oldest first."""
        return iter(self.open_of.get(job, {}).values())

    def records_of(self, job: str) -> list[Occurrence]:
        """All that is known of a job's occurrences, newest first."""
        known = [*self.of(job), *(self.history[number] for number in self.history_of.get(job, ()))]
        return sorted(known, key=lambda occurrence: -occurrence.number)

    # Jobs

    def _defined(self, event: Defined, stamp: Stamp) -> None:
        known = self.jobs.get(event.job.id)
        if known is None:
            self.jobs[event.job.id] = JobState(
                event.job, event.anchor_ms, event.decided_ms, added_ms=stamp.time_ms, changed_ms=stamp.time_ms
            )
            self._forget(event.job)  # of one that had this id before
            return
        known.job, known.anchor_ms, known.decided_ms = event.job, event.anchor_ms, event.decided_ms
        known.revision += 1
        known.changed_ms = stamp.time_ms
        self._forget(event.job)

    def _removed(self, event: Removed, stamp: Stamp) -> None:
        if self.jobs.pop(event.job, None) is None:
            return
        for occurrence in list(self.of(event.job)):
            occurrence.orphaned = True
            if occurrence.state is not State.RUNNING:
                self._end(occurrence, Outcome.INTERRUPTED, stamp, REMOVED)

    def _paused(self, event: Paused) -> None:
        if not event.job:
            self.paused = True
        elif (state := self.jobs.get(event.job)) is not None:
            state.paused = True

    def _resumed(self, event: Resumed) -> None:
        if not event.job:
            self.paused = False
            for each in self.jobs.values():
                if self.is_active(each):
                    each.decided_ms = max(each.decided_ms, event.decided_ms)
        elif (state := self.jobs.get(event.job)) is not None:
            state.paused = False
            state.decided_ms = max(state.decided_ms, event.decided_ms)

    # Occurrences

    def _fired(self, event: Fired, stamp: Stamp, worker: str) -> None:
        self._decided(event.number, event.job, event.scheduled_ms, event.manual)
        self.totals.fired += 1
        self.totals.manual += bool(event.manual)
        occurrence = Occurrence(
            event.number,
            event.job,
            event.scheduled_ms,
            stamp.time_ms,
            state=State.WAITING,
            epoch=stamp.epoch,
            worker=worker,
            manual=event.manual,
        )
        self._open(occurrence)
        if event.begins:
            self._begin(occurrence, stamp, worker)

    def _passed(self, event: Passed, stamp: Stamp, worker: str) -> None:
        known = self.jobs.get(event.job)
        before = self.history.get(known.last) if known is not None and not event.manual else None
        self._decided(event.number, event.job, event.last_ms, event.manual)
        match event.outcome:
            case Outcome.SKIPPED_OVERLAP:
                self.totals.skipped_overlap += event.count
            case Outcome.MISSED_WINDOW:
                self.totals.missed_window += event.count
            case _:
                self.totals.coalesced += event.count
        goes_on = before is not None and not before.manual and before.last_ms < event.scheduled_ms
        if before is not None and goes_on and event.outcome in _MERGED and before.outcome is event.outcome:
            assert known is not None
            known.last = before.number
            before.to_ms, before.count = event.last_ms, before.count + event.count
            before.decided_ms = before.finished_ms = stamp.time_ms
            before.epoch, before.worker = stamp.epoch, worker
            return
        self._remember(
            Occurrence(
                event.number,
                event.job,
                event.scheduled_ms,
                stamp.time_ms,
                event.outcome,
                finished_ms=stamp.time_ms,
                epoch=stamp.epoch,
                worker=worker,
                manual=event.manual,
                to_ms=event.to_ms,
                count=event.count,
            )
        )

    def _decided(self, number: int, job: str, last_ms: int, manual: str) -> None:
        self.last = max(self.last, number)
        state = self.jobs.get(job)
        if state is not None and not manual:
            state.last = number
            state.decided_ms = max(state.decided_ms, last_ms)

    def _begin(self, occurrence: Occurrence, stamp: Stamp, worker: str) -> None:
        self._move(occurrence, State.RUNNING)
        occurrence.attempts += 1
        occurrence.started_ms, occurrence.retry_ms = stamp.time_ms, 0
        occurrence.token, occurrence.epoch, occurrence.worker = stamp.seq, stamp.epoch, worker

    def _succeeded(self, event: Succeeded, stamp: Stamp) -> None:
        occurrence = self.open.get(event.number)
        if occurrence is not None:
            self._end(occurrence, Outcome.FIRED, stamp)

    def _failed(self, event: Failed, stamp: Stamp) -> None:
        occurrence = self.open.get(event.number)
        if occurrence is None:
            return
        occurrence.failures += 1
        error = event.error[:MAX_ERROR_CHARACTERS]
        if not event.retry_ms:
            self._end(occurrence, Outcome.FAILED, stamp, error)
            return
        self.totals.retries += 1
        occurrence.error, occurrence.retry_ms = error, event.retry_ms
        self._move(occurrence, State.BACKING_OFF)

    def _cut_short(self, event: CutShort, stamp: Stamp) -> None:
        occurrence = self.open.get(event.number)
        if occurrence is None:
            return
        if event.counts:
            occurrence.interruptions += 1
            self.totals.interruptions += 1
        if event.again:
            self._move(occurrence, State.WAITING)
        else:
            self._end(occurrence, Outcome.INTERRUPTED, stamp, CUT_SHORT)

    # Inside

    def _open(self, occurrence: Occurrence) -> None:
        self.open[occurrence.number] = occurrence
        self.open_of.setdefault(occurrence.job, {})[occurrence.number] = occurrence
        self._index(occurrence)

    def _end(self, occurrence: Occurrence, outcome: Outcome, stamp: Stamp, error: str = "") -> None:
        match outcome:
            case Outcome.FIRED:
                self.totals.succeeded += 1
            case Outcome.FAILED:
                self.totals.failed += 1
            case _:
                self.totals.interrupted += 1
        self._move(occurrence, State.DONE)
        del self.open[occurrence.number]
        mine = self.open_of[occurrence.job]
        del mine[occurrence.number]
        if not mine:
            del self.open_of[occurrence.job]
        occurrence.outcome, occurrence.finished_ms, occurrence.retry_ms = outcome, stamp.time_ms, 0
        occurrence.error = error
        self._remember(occurrence)

    def _move(self, occurrence: Occurrence, state: State) -> None:
        if occurrence.state is State.WAITING:
            left = self.waiting[occurrence.job] - 1
            if left:
                self.waiting[occurrence.job] = left
            else:
                del self.waiting[occurrence.job]
        elif occurrence.state is State.CUT_SHORT:
            self.cut_short.pop(occurrence.number, None)
        occurrence.state = state
        self._index(occurrence)

    def _index(self, occurrence: Occurrence) -> None:
        if occurrence.state is State.WAITING:
            self.waiting[occurrence.job] = self.waiting.get(occurrence.job, 0) + 1
        elif occurrence.state is State.CUT_SHORT:
            self.cut_short[occurrence.number] = None

    def _remember(self, occurrence: Occurrence) -> None:
        self.history[occurrence.number] = occurrence
        self.history_of.setdefault(occurrence.job, deque()).append(occurrence.number)
        known = self.jobs.get(occurrence.job)
        if known is not None:
            self._forget(known.job)
        else:
            self._forget_of(occurrence.job, REMOVED_JOBS_RECORDS)
        while len(self.history) > MAX_RECORDS:
            _, oldest = self.history.popitem(last=False)
            self._drop_first(oldest.job)  # of all that is over, and so of its job's

    def _forget(self, job: Job) -> None:
        self._forget_of(job.id, job.history)

    def _forget_of(self, job: str, most: int) -> None:
        mine = self.history_of.get(job, deque())
        while len(mine) > most:
            del self.history[mine[0]]
            self._drop_first(job)

    def _drop_first(self, job: str) -> None:
        mine = self.history_of[job]
        mine.popleft()
        if not mine:
            del self.history_of[job]

    # Snapshots

    def snapshot(self) -> list[bytes]:
        frame = Frame(paused=self.paused, last=self.last, totals=self.totals)
        contents = Contents(list(self.jobs.values()), list(self.open.values()), list(self.history.values()))
        return image.encode(frame, contents)

    def restore(self, chunks: Sequence[bytes]) -> None:
        frame, contents = image.decode(chunks, Frame, Contents)
        self.__init__()  # type: ignore[misc]
        self.paused, self.last, self.totals = frame.paused, frame.last, frame.totals
        for state in contents.jobs:
            self.jobs[state.job.id] = state
        for occurrence in contents.open:
            self._open(occurrence)
        for occurrence in contents.history:
            self.history[occurrence.number] = occurrence
            self.history_of.setdefault(occurrence.job, deque()).append(occurrence.number)

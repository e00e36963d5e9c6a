"""Which job is due next. The leader's own: nothing of it is written down, for all of it follows from the state.

Instants are searched from a job's last decided one, never from now, and in slices: between two of them everything else
has its turn. A job whose next instant is not known yet is not due yet. What a long outage has left behind is not kept
instant by instant: what will surely be passed over is counted as it is found.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from tenure.clock import Clock
from tenure.plugins.scheduler.job import Misfire
from tenure.plugins.scheduler.records import JobState, Outcome
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.timetable import EveryTimetable, Timetable, jitter_of, timetable_of

_log = logging.getLogger("tenure.scheduler")

ON_TIME = 2000
"""Instants of one job that are kept, besides those that a misfire policy may ask for."""
SLICE_STEPS = 200
SLICE_SECONDS = 0.003
VISIT_STEPS = 1000
"""Of one job, before it is another's turn."""
LATE_MS = 1000
"""A job whose first instant is this much overdue is searched on before it is decided: newer ones may replace it."""
_STALE = 1000


class Span(msgspec.Struct):
    """Instants in a row that are passed over for one reason."""

    outcome: Outcome
    low_ms: int
    high_ms: int
    count: int


class Course:
    """What is known of one job's undecided instants, oldest first: `passed`, then `instants`, then the unknown."""

    __slots__ = ("_search", "exhausted", "instants", "job", "listed", "passed", "table", "through_ms")

    def __init__(self, state: JobState) -> None:
        self.job = state.job
        self.table: Timetable = timetable_of(state.job, state.anchor_ms)
        self.passed: list[Span] = []
        self.instants: deque[int] = deque()
        self.through_ms = state.decided_ms
        """All instants up to this one are known."""
        self.exhausted = False
        """There are no more than those."""
        self.listed: tuple[int, int, Course] | None = None
        """Its entry in the heap."""
        self._search: Iterator[int] | None = None

    def due_ms(self) -> int | None:
        """When its first undecided instant is to be decided."""
        if self.passed:
            return self.passed[0].low_ms
        if not self.instants:
            return None
        return self.instants[0] + jitter_of(self.job, self.instants[0])

    def is_late(self, instant: int, horizon_ms: int) -> bool:
        """Jitter never makes late: its whole range is allowed for."""
        return instant < horizon_ms - self.job.jitter_ms - self.job.misfire_grace_ms

    def is_known(self, horizon_ms: int) -> bool:
        """Up to there and the next one after that, or at least as much as can be decided at once."""
        if self.exhausted or (self.instants and self.through_ms > horizon_ms):
            return True
        return len(self.instants) >= ON_TIME + (self.job.catch_up if self.job.misfire is Misfire.FIRE_ALL else 1)

    def extend(self, horizon_ms: int, steps: int) -> int:
        """Search on, up to the first instant after `horizon_ms`; gives how many steps that took."""
        self.settle(horizon_ms)
        taken = 0
        if not self.instants and isinstance(self.table, EveryTimetable) and self.table.period_ms:
            self._leap(self.table, horizon_ms)
            taken = 1
        while taken < steps and not self.is_known(horizon_ms):
            if self._search is None:
                self._search = self.table.iterate(self.through_ms)
            instant = next(self._search, None)
            taken += 1
            if instant is None:
                self.exhausted, self._search = True, None
                break
            self.through_ms = instant
            self.instants.append(instant)
            self.settle(horizon_ms)
        if self.is_known(horizon_ms):
            self._search = None  # it takes up more than the job itself
        return taken

    def settle(self, horizon_ms: int) -> None:
        """Pass over what surely does not fire: it is too old, or a newer one that is late too fires in its place."""
        job, instants = self.job, self.instants
        late = horizon_ms - job.jitter_ms - job.misfire_grace_ms
        old = horizon_ms - job.jitter_ms - job.misfire_window_ms
        before = 1 if job.misfire is Misfire.FIRE_ONCE else job.catch_up
        while instants and instants[0] < late:
            first = instants[0]
            if first < old or job.misfire is Misfire.SKIP:
                outcome = Outcome.MISSED_WINDOW
            elif len(instants) > before and instants[before] < late:
                outcome = Outcome.COALESCED
            else:
                return
            instants.popleft()
            self._pass(outcome, first, first, 1)

    def _leap(self, table: EveryTimetable, horizon_ms: int) -> None:
        """A year of seconds need not be counted one by one."""
        limit = min(horizon_ms - self.job.jitter_ms - self.job.misfire_window_ms, table.end_ms) - 1
        first = table.next_after(self.through_ms)
        if first is None or first > limit:
            return
        count = (limit - first) // table.period_ms + 1
        last = first + (count - 1) * table.period_ms
        self._pass(Outcome.MISSED_WINDOW, first, last, count)
        self.through_ms, self._search = last, None

    def _pass(self, outcome: Outcome, low_ms: int, high_ms: int, count: int) -> None:
        last = self.passed[-1] if self.passed else None
        if last is not None and last.outcome is outcome:
            last.high_ms, last.count = high_ms, last.count + count
        else:
            self.passed.append(Span(outcome, low_ms, high_ms, count))


class Due:
    """Every active job's course, and a heap of the first of each."""

    def __init__(self, machine: ScheduleMachine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock
        self._courses: dict[str, Course] = {}
        self._heap: list[tuple[int, int, Course]] = []
        self._tie = 0
        self._pending: dict[str, None] = {}
        self.broken: dict[str, str] = {}
        """Jobs whose timetable cannot be worked out here, and why: a zone that is not known, for one."""
        self.exhausted: dict[str, None] = {}
        """Jobs without further instants."""
        self.reached_ms = 0
        """What the store's clock has certainly reached, by all that was ever known in this term."""

    @property
    def is_behind(self) -> bool:
        """Is there a job whose next instant is not known yet?"""
        return bool(self._pending)

    def reset(self) -> None:
        self._courses, self._heap = {}, []
        self.broken, self.exhausted = {}, {}
        self._pending = dict.fromkeys(self._machine.jobs)

    def changed(self, job: str) -> None:
        """It was added or redefined, paused or resumed, or can be decided on again."""
        self.removed(job)
        self._pending[job] = None

    def removed(self, job: str) -> None:
        self._drop(job)
        self.broken.pop(job, None)
        self.exhausted.pop(job, None)
        self._pending.pop(job, None)

    def next_ms(self) -> int | None:
        """When something is to be decided next."""
        heap = self._heap
        while heap and heap[0][2].listed is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, horizon_ms: int) -> Course | None:
        """The next that is due by then; it is to be put back."""
        due = self.next_ms()
        if due is None or due > horizon_ms:
            return None
        course = heapq.heappop(self._heap)[2]
        course.listed = None
        return course

    def put_back(self, course: Course) -> None:
        """What is left of it is due later."""
        if self._courses.get(course.job.id) is not course:
            return
        due = course.due_ms()
        if due is not None:
            self._tie += 1
            course.listed = (due, self._tie, course)
            heapq.heappush(self._heap, course.listed)
            if len(self._heap) > 2 * len(self._courses) + _STALE:
                self._heap = [entry for entry in self._heap if entry[2].listed is entry]
                heapq.heapify(self._heap)
        elif course.exhausted:
            course.listed = None
            self.exhausted[course.job.id] = None
        else:
            course.listed = None
            self._pending[course.job.id] = None

    async def compute(self, horizon_ms: int, also: Iterable[str] = ()) -> None:
        """Find what is not known up to `horizon_ms`: of jobs without a next instant, of those that are late, and of
        `also`. Never more than a slice at a time."""
        self.reached_ms = max(self.reached_ms, horizon_ms)
        self._find_late(horizon_ms)
        for job in also:
            self._pending[job] = None
        steps, began = 0, self._clock.read()
        while self._pending:
            job = next(iter(self._pending))
            del self._pending[job]
            state = self._machine.jobs.get(job)
            if state is None or not self._machine.is_active(state):
                self._drop(job)
                continue
            steps += self._visit(job, state, horizon_ms)
            if steps >= SLICE_STEPS or self._clock.read().leader_elapsed(began) > SLICE_SECONDS:
                await self._clock.sleep(0)
                steps, began = 0, self._clock.read()

    def through(self, job: str, horizon_ms: int) -> Course | None:
        """An active job's course, with everything up to `horizon_ms` in it: what is missing is searched at once.

        After `compute` that is next to nothing. The course is to be put back.
        """
        state = self._machine.jobs[job]
        self._pending.pop(job, None)
        while job not in self.broken:
            course = self._courses.get(job)
            if course is not None and course.is_known(horizon_ms):
                course.listed = None
                return course
            self._visit(job, state, horizon_ms)
            self._pending.pop(job, None)
        return None

    def _drop(self, job: str) -> None:
        course = self._courses.pop(job, None)
        if course is not None:
            course.listed = None  # what is in the heap of it counts no more

    def _find_late(self, horizon_ms: int) -> None:
        due = self.next_ms()
        if due is None or due > horizon_ms - LATE_MS:
            return
        popped = []
        while (course := self.pop(horizon_ms)) is not None:
            popped.append(course)
        for course in popped:
            first = course.instants[0] if course.instants else None
            if first is not None and course.is_late(first, horizon_ms) and not course.is_known(horizon_ms):
                self._pending[course.job.id] = None
            else:
                self.put_back(course)

    def _visit(self, job: str, state: JobState, horizon_ms: int) -> int:
        course = self._courses.get(job)
        try:
            if course is None:
                course = self._courses[job] = Course(state)
            taken = course.extend(horizon_ms, VISIT_STEPS)
        except Exception as error:  # one job that cannot be worked out does not keep the others from their times
            _log.warning("when job %r is due cannot be told here: %s", job, error)
            self.removed(job)
            self.broken[job] = f"its timetable cannot be worked out here: {error}"[:500]
            return 1
        if course.is_known(horizon_ms):
            self.put_back(course)
        else:
            self._pending[job] = None
        return taken

"""A schedule's core on a desk: one clerk who decides, one machine that reads along, and an auditor who counts.

Nothing here waits: time is what the test says. After each entry the clerk's state and the reader's must be the same in
every field, and every instant of every timetable must have been decided once, in order, and not early.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from itertools import islice
from typing import Any, Unpack

import msgspec

from tenure.clock import Reading
from tenure.entropy import Random
from tenure.ledger import InboxName, Item, LogEntry, Situation, Stamp
from tenure.plugins.scheduler.changes import changes_between
from tenure.plugins.scheduler.clerk import End, ScheduleClerk, Start
from tenure.plugins.scheduler.job import (
    Job,
    JobOptions,
    Origin,
    Schedule,
    change_job,
    encode_job,
    job_from,
)
from tenure.plugins.scheduler.records import (
    Defined,
    Fired,
    Occurrence,
    Outcome,
    Passed,
    Paused,
    Refused,
    Removed,
    Resumed,
    State,
    Work,
    decode_work,
)
from tenure.plugins.scheduler.registry import Registry
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.timetable import timetable_of
from tenure.plugins.scheduler.wire import SCHEMA, Batch, Command
from tests.unit.leases import at

START_MS = 1_700_000_000_000
"""2023-11-14 22:13:20 UTC."""


class DeskClock:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.turns = 0
        """How often something else had its turn."""

    def read(self) -> Reading:
        return at(self.seconds)

    async def sleep(self, seconds: float) -> None:
        self.turns += 1
        self.seconds += max(0.0, seconds)


def run_now(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Nothing on a desk waits: whatever is awaited is done in one turn."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Desk:
    def __init__(self, *, doubt_ms: int = 0, audited: bool = True, functions: Iterable[str] = ("work",)) -> None:
        self.clock = DeskClock()
        self.now_ms = START_MS
        self.doubt_ms = doubt_ms
        self.audited = audited
        self.epoch = 1
        self.seq = 0
        self.room = 1_000_000
        self.registry = new_registry(functions)
        self.told: list[Any] = []
        self.starts: list[Start] = []
        """Runs that were begun, in order."""
        self.works: list[Work] = []
        self.log: list[tuple[Stamp, bytes | None]] = []
        """Entries; `None`: a term begins."""
        self.reader = ScheduleMachine()
        self.auditor = Auditor(self)
        self._number = 0
        self._inbox: list[Item] = []
        self.clerk = self._new_clerk()
        self.clerk.take_over()

    def _new_clerk(self) -> ScheduleClerk:
        return ScheduleClerk(
            self.registry,
            worker=f"w{self.epoch}",
            clock=self.clock,
            random=Random(self.epoch),
            horizon=self._horizon,
            begin=self.starts.append,
            room=lambda: self.room,
            emit=self.told.append,
        )

    async def _horizon(self) -> int:
        return self.now_ms - self.doubt_ms

    @property
    def machine(self) -> ScheduleMachine:
        return self.clerk.machine

    # What comes in

    def give(self, *commands: Command) -> None:
        """One batch, for the next entry."""
        self._number += 1
        batch = Batch(SCHEMA, self._number - 1, commands=list(commands))
        self._inbox.append(Item(InboxName(0, "caller", self._number), self.now_ms, b"", (), batch))

    def add(self, id: str, schedule: Schedule, *, replace: bool = False, **options: Unpack[JobOptions]) -> None:
        if not {"function", "queue", "command"} & set(options):
            options["function"] = "work"
        job = job_from(id, schedule, origin=Origin.STORED, **options)
        self.give(Command("add", id, msgspec.Raw(encode_job(job)), replace=replace))

    def update(self, id: str, schedule: Schedule | None = None, **options: Unpack[JobOptions]) -> None:
        job = self.machine.jobs[id].job
        self.give(Command("update", id, changes=changes_between(job, change_job(job, schedule, **options))))

    def command(self, op: str, id: str = "", **more: Any) -> None:
        self.give(Command(op, id, **more))

    # Time

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)
        self.clock.seconds += seconds

    def tick(self) -> Work | None:
        """Decide on what came in and on what is due; gives the entry as others read it."""
        items, self._inbox = self._inbox, []
        run_now(self.clerk.due.compute(self.now_ms - self.doubt_ms))
        if items:
            run_now(self.clerk.prepare(items))
        stamp = Stamp(self.seq + 1, self.epoch, self.now_ms)
        events = self.clerk.decide(items, Situation(stamp, None, 0, frozenset(), self.doubt_ms))
        if events is None:
            return None
        self.seq += 1
        self.log.append((stamp, events))
        work = decode_work(events)
        self.works.append(work)
        self.reader.apply(events, stamp)
        if self.audited:
            assert fields(self.machine) == fields(self.reader)
            self.auditor.check(work)
        entry = LogEntry(write_id="w", seq=stamp.seq, epoch=stamp.epoch, time_ms=stamp.time_ms)
        assert self.clerk.committed(entry, items) == ()
        return work

    def settle(self, most: int = 1000) -> None:
        """Tick until nothing more is to be decided now."""
        for _ in range(most):
            if self.tick() is None and not self.clerk.more and not self.clerk.due.is_behind:
                if self.audited:
                    self.auditor.nothing_is_left()
                return
        raise AssertionError("there is no end to it")

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Tick after each step, and end whatever runs at once."""
        end = self.now_ms + round(seconds * 1000)
        while self.now_ms < end:
            self.wait(min(step, (end - self.now_ms) / 1000))
            self.settle()
            self.finish()
            self.settle()

    def new_leader(self, functions: Iterable[str] = ("work",), jobs: Sequence[Job] = ()) -> None:
        """The next term: what it knows is what the log says. Nothing of what ran goes on."""
        self.epoch += 1
        self.registry = new_registry(functions, jobs)
        self.clerk = self._new_clerk()
        self.clerk.machine.restore(self.reader.snapshot())
        assert fields(self.machine) == fields(self.reader)
        self.seq += 1
        stamp = Stamp(self.seq, self.epoch, self.now_ms)
        self.log.append((stamp, None))
        self.clerk.machine.began(stamp)
        self.reader.began(stamp)
        assert fields(self.machine) == fields(self.reader)
        self.clerk.take_over()

    # Runs

    def running(self, job: str | None = None) -> list[Occurrence]:
        open = self.machine.open.values()
        return [each for each in open if each.state is State.RUNNING and job in (None, each.job)]

    def finish(self, job: str | None = None, error: str | None = None) -> None:
        """Everything that runs has ended so."""
        for occurrence in self.running(job):
            self.clerk.ended(End(occurrence.number, occurrence.token, error))

    # What came of it

    def outcomes(self, job: str) -> list[str]:
        """Of all that was decided, oldest first, ranges told one by one."""
        found = []
        for record in reversed(self.machine.records_of(job)):
            found += [record.outcome.value] * record.count
        return found

    def instants(self, job: str, *outcomes: Outcome) -> list[float]:
        """Seconds after the start, of those with these outcomes."""
        records = [each for each in reversed(self.machine.records_of(job)) if each.outcome in (outcomes or Outcome)]
        return [(each.scheduled_ms - START_MS) / 1000 for each in records]

    def refused(self) -> list[str]:
        return [event.reason for work in self.works for event in work.events if isinstance(event, Refused)]

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


def new_registry(functions: Iterable[str], jobs: Sequence[Job] = ()) -> Registry:
    registry = Registry()
    for name in functions:
        registry.add_function(name, lambda: None)
    for job in jobs:
        registry.declare(job)
    return registry


def declared(id: str, schedule: Schedule, **options: Unpack[JobOptions]) -> Job:
    if not {"function", "queue", "command"} & set(options):
        options["function"] = "work"
    return job_from(id, schedule, origin=Origin.CODE, **options)


def fields(machine: ScheduleMachine) -> dict[str, Any]:
    """All of its state."""
    plain = msgspec.to_builtins
    return {
        "paused": machine.paused,
        "last": machine.last,
        "totals": plain(machine.totals),
        "jobs": [plain(state) for state in machine.jobs.values()],
        "open": [plain(occurrence) for occurrence in machine.open.values()],
        "open_of": {job: list(open) for job, open in sorted(machine.open_of.items())},
        "waiting": dict(sorted(machine.waiting.items())),
        "cut_short": sorted(machine.cut_short),
        "history": [plain(occurrence) for occurrence in machine.history.values()],
        "history_of": {job: list(numbers) for job, numbers in sorted(machine.history_of.items())},
    }


class Auditor:
    """Knows, from the log alone, up to where each job is decided."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._jobs: dict[str, tuple[Job, int]] = {}
        """And its anchor."""
        self._through: dict[str, int] = {}
        self._paused: set[str] = set()
        self._all_paused = False
        self.decided: dict[str, int] = {}
        """How many instants of each job were decided."""

    def check(self, work: Work) -> None:
        for event in work.events:
            match event:
                case Defined():
                    if event.job.id in self._jobs:
                        self._nothing_due(event.job.id)
                    self._jobs[event.job.id] = (event.job, event.anchor_ms)
                    self._through[event.job.id] = event.decided_ms
                case Removed(job):
                    self._nothing_due(job)
                    del self._jobs[job]
                    self._paused.discard(job)
                case Paused(job):
                    for each in [job] if job else list(self._jobs):
                        self._nothing_due(each)
                    if job:
                        self._paused.add(job)
                    else:
                        self._all_paused = True
                case Resumed(job, decided_ms):
                    self._paused.discard(job)
                    self._all_paused = self._all_paused and bool(job)
                    for each in [job] if job else [each for each in self._jobs if self._is_active(each)]:
                        self._through[each] = max(self._through[each], decided_ms)
                case Fired(manual=""):
                    self._decided(event.job, event.scheduled_ms, event.scheduled_ms, 1)
                case Passed(manual=""):
                    self._decided(event.job, event.scheduled_ms, event.last_ms, event.count)
        totals = self._desk.machine.totals
        assert totals.fired == totals.succeeded + totals.failed + totals.interrupted + len(self._desk.machine.open)

    def nothing_is_left(self) -> None:
        for job in self._jobs:
            definition, _ = self._jobs[job]
            if self._desk.registry.unknown(definition) is None:
                self._nothing_due(job, definition.jitter_ms)

    def _is_active(self, job: str) -> bool:
        return self._jobs[job][0].enabled and job not in self._paused and not self._all_paused

    def _nothing_due(self, job: str, jitter_ms: int = 0) -> None:
        if not self._is_active(job):
            return
        due = timetable_of(*self._jobs[job]).next_after(self._through[job])
        assert due is None or due > self._desk.now_ms - self._desk.doubt_ms - jitter_ms, f"{due} of {job} is left out"

    def _decided(self, job: str, low: int, high: int, count: int) -> None:
        expected = list(islice(timetable_of(*self._jobs[job]).iterate(self._through[job]), count))
        assert (expected[0], expected[-1], len(expected)) == (low, high, count), f"of {job}"
        assert high <= self._desk.now_ms - self._desk.doubt_ms, "it is early"
        assert self._is_active(job)
        self._through[job] = high
        self.decided[job] = self.decided.get(job, 0) + count

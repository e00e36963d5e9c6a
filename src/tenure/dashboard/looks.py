"""One ledger, looked at again and again: a queue, a schedule or counters.

The state is read from its newest snapshot once, and from then on costs one GET while nothing happens. The inbox is
listed when something has happened, and else at every third look.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenure.clock import Clock
from tenure.dashboard.bounds import MAX_INBOX_COUNTED, MAX_SNAPSHOT_BYTES
from tenure.dashboard.capped import Capped
from tenure.dashboard.sections import CounterRow, JobRow, LastRun, QueueRow, ScheduleRow, name_of, shown
from tenure.dashboard.times import now_ms
from tenure.errors import ConfigError, StoreUnavailable, TenureError
from tenure.ledger import LedgerState, Machine, ledger_of_onlooker, ledger_store
from tenure.ledger.layout import CHUNK_NAMES, INBOX_NAMES, LOG_NAMES, SNAPSHOT_NAMES, log_key, parse_number
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.counters import looking as counters_looking
from tenure.plugins.counters.settings import Retention
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.ledgered import LedgerView
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.scheduler import SchedulerPlugin
from tenure.plugins.scheduler.job import Cron
from tenure.plugins.scheduler.looking import told_schedule, told_target
from tenure.plugins.scheduler.records import JobState, State
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.timetable import timetable_of
from tenure.store import Store, ours
from tenure.store.url import redact

_LOOKS_PER_INBOX = 3
_SECONDS_BEFORE_ANEW = 600.0
"""A log that has not grown for so long is looked for anew: it may have been trimmed where we wait for it."""
_MAX_FIELDS = 20
_TIMETABLES_PER_LOOK = 2000
_TIMETABLES_AT_ONCE = 25


class LedgerLook:
    slug: ClassVar[str]

    def __init__(self, store: Store, name: str, clock: Clock) -> None:
        self.name = name
        self.problem: str | None = None
        self.bytes = 0
        """Of its snapshots, as they lay in the bucket when it was first read."""
        self.looked_ms: int | None = None
        self.inbox: int | None = None
        self._clock = clock
        self._own = ledger_store(store, self.slug, name)
        self._capped = Capped(self._own, MAX_INBOX_COUNTED)
        self._view: LedgerView | None = None
        self._seq = -1
        self._moved = clock.read()
        self._looks = 0

    async def look(self, room: int) -> None:
        """`room`: bytes of snapshots that may still be read. Raises `StoreUnavailable`; what is wrong with the ledger
        itself is told in its row."""
        try:
            now = self._clock.read()
            if now.leader_elapsed(self._moved) > _SECONDS_BEFORE_ANEW:
                self._view, self._moved = None, now
            if self._view is None:
                await self._measure(room)
                self._view = LedgerView(
                    self._own, self.machine, config=await ledger_of_onlooker(self._own), clock=self._clock
                )
            state = await self._view.refresh()
            if state.seq != self._seq or self._looks % _LOOKS_PER_INBOX == 0 or self.inbox is None:
                self.inbox = await self._count_inbox()
            await self.fold(state, state.seq != self._seq)
            if state.seq != self._seq:
                self._seq, self._moved = state.seq, now
            self.problem = None
        except StoreUnavailable:
            raise
        except TenureError as error:  # also what the store says of one object: that it is too large, or not for us
            self.problem = shown(redact(str(error)))
        except Exception as error:  # what lies in a bucket may be anything
            self.problem = shown(f"cannot be read: {type(error).__name__}: {error}")
        self._looks += 1
        self.looked_ms = now_ms(self._clock)

    async def _measure(self, room: int) -> None:
        """Of the snapshots, and of the log after the newest one: that is what will be read."""
        size, newest = 0, 0
        async for entry in ours(self._capped, CHUNK_NAMES):
            size += entry.size
        async for entry in ours(self._capped, SNAPSHOT_NAMES):
            newest = max(newest, parse_number(entry.key) or 0)
        async for entry in ours(self._capped, LOG_NAMES, after=log_key(newest)):
            size += entry.size
        self.bytes = 0
        if size > min(room, MAX_SNAPSHOT_BYTES):
            raise ConfigError(
                f"its state takes {size / 2**20:,.0f} MiB in the bucket, which is too much to be looked at here: use "
                "the `tenure` command"
            )
        self.bytes = size

    async def _count_inbox(self) -> int:
        count = 0
        async for _ in ours(self._capped, INBOX_NAMES):
            count += 1
        return count

    def machine(self) -> Machine:
        raise NotImplementedError

    async def fold(self, state: LedgerState, moved: bool) -> None:
        """Make the row of it."""
        raise NotImplementedError

    def _now(self, state: LedgerState) -> int:
        return max(state.time_ms, now_ms(self._clock))


class QueueLook(LedgerLook):
    slug = S3QueuePlugin.slug

    def __init__(self, store: Store, name: str, clock: Clock) -> None:
        super().__init__(store, name, clock)
        self._row = QueueRow(name=name_of(name))

    def machine(self) -> Machine:
        return QueueMachine()

    async def fold(self, state: LedgerState, moved: bool) -> None:
        machine, now = state.machine, self._now(state)
        assert isinstance(machine, QueueMachine)
        machine.advance(now)
        oldest = machine.oldest_ms()
        enqueued, done = machine.rates(now)
        self._row = QueueRow(
            name=name_of(self.name),
            ready=machine.ready_count,
            delayed=machine.delayed_count,
            in_flight=machine.in_flight_count,
            dead=len(machine.dead),
            inbox=self.inbox,
            paused=machine.paused,
            oldest_age_seconds=None if oldest is None else round(max(0, now - oldest) / 1000),
            workers=len(machine.workers),
            enqueue_rate=round(enqueued, 2),
            done_rate=round(done, 2),
            namespace=name_of(state.namespace),
        )

    def row(self) -> QueueRow:
        return msgspec.structs.replace(self._row, looked_ms=self.looked_ms, problem=self.problem)


class ScheduleLook(LedgerLook):
    slug = SchedulerPlugin.slug

    def __init__(self, store: Store, name: str, clock: Clock) -> None:
        super().__init__(store, name, clock)
        self._row = ScheduleRow(name=name_of(name))
        self._next: dict[str, tuple[tuple[int, int], int | None]] = {}
        """By job: which definition of it, and its next time; good until that has passed."""
        self.jobs: list[JobRow] = []

    def machine(self) -> Machine:
        return ScheduleMachine()

    async def fold(self, state: LedgerState, moved: bool) -> None:
        machine, now = state.machine, self._now(state)
        assert isinstance(machine, ScheduleMachine)
        if await self._find_next(machine, now) or moved:
            self.jobs = [self._job(machine, known) for known in machine.jobs.values()]
        running = sum(each.state is State.RUNNING for each in machine.open.values())
        self._row = ScheduleRow(
            name=name_of(self.name),
            paused=machine.paused,
            jobs=len(machine.jobs),
            running=running,
            namespace=name_of(state.namespace),
        )

    async def _find_next(self, machine: ScheduleMachine, now: int) -> bool:
        """Work out the next times that are not known, some at once. True: something has changed."""
        for id in [id for id in self._next if id not in machine.jobs]:
            del self._next[id]
        due = []
        for id, known in machine.jobs.items():
            found = self._next.get(id)
            after = max(now, known.decided_ms)
            if found is None or found[0] != _edition(known) or (found[1] is not None and found[1] <= after):
                due.append(known)
        for at, known in enumerate(due[:_TIMETABLES_PER_LOOK]):
            if at % _TIMETABLES_AT_ONCE == 0:
                await self._clock.sleep(0)
            self._next[known.job.id] = (_edition(known), _next_of(known, max(now, known.decided_ms)))
        return bool(due)

    def _job(self, machine: ScheduleMachine, known: JobState) -> JobRow:
        job = known.job
        open = [occurrence.state for occurrence in machine.of(job.id)]
        last = machine.open.get(known.last) or machine.history.get(known.last)
        return JobRow(
            schedule=name_of(self.name),
            id=name_of(job.id),
            when=shown(told_schedule(job.schedule)),
            timezone=shown(job.schedule.timezone if isinstance(job.schedule, Cron) else "UTC", 64),
            target=shown(told_target(job.target)),
            next_ms=self._next.get(job.id, (None, None))[1] if machine.is_active(known) else None,
            paused=known.paused or machine.paused,
            enabled=job.enabled,
            running=open.count(State.RUNNING),
            waiting=len(open) - open.count(State.RUNNING),
            last=None
            if last is None
            else LastRun(
                state=last.state.value,
                outcome=last.outcome.value,
                scheduled_ms=last.scheduled_ms,
                finished_ms=last.finished_ms,
                error=shown(last.error),
            ),
        )

    def row(self) -> ScheduleRow:
        return msgspec.structs.replace(self._row, problem=self.problem)


def _edition(known: JobState) -> tuple[int, int]:
    return known.revision, known.anchor_ms


def _next_of(known: JobState, after: int) -> int | None:
    try:
        return timetable_of(known.job, known.anchor_ms).next_after(after)
    except ConfigError:
        return None  # a time zone that this machine does not have


class CounterLook(LedgerLook):
    slug = EventualConsistencyPlugin.slug

    def __init__(self, store: Store, name: str, clock: Clock) -> None:
        super().__init__(store, name, clock)
        self._row = CounterRow(name=name_of(name))

    def machine(self) -> Machine:
        """How much is kept is the leader's to say: here nothing is left out."""
        return CountersMachine(Retention(hours=24 * 62, days=3660, months=1200))

    async def fold(self, state: LedgerState, moved: bool) -> None:
        found = await counters_looking.stats_of(Capped(self._own, 0), state)
        fields = sorted(found.fields.items())
        self._row = CounterRow(
            name=name_of(self.name),
            fields={name_of(field): shown(word, 64) for field, word in fields[:_MAX_FIELDS]},
            inbox=self.inbox,
            pending=found.pending,
            records=found.records,
            lag_seconds=round(found.lag, 1),
            calls=found.calls,
            namespace=name_of(state.namespace),
        )

    def row(self) -> CounterRow:
        return msgspec.structs.replace(self._row, problem=self.problem)

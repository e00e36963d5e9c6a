"""The leader's side of a schedule, for one term: sleep until something is due, decide, begin.

What has to do with time, or with runs that ended here, takes no look into the inbox. Entries are paced: however many
jobs run each second, about two of them are written in it; what is due goes before what has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tenure.clock import Reading
from tenure.database.tracing import UNTRACED, Tracing
from tenure.entropy import Random
from tenure.errors import StoreError
from tenure.ledger import LedgerTerm, LogEntry, Tick
from tenure.plugins.ledgered import LedgerLeading
from tenure.plugins.scheduler.clerk import End, ScheduleClerk
from tenure.plugins.scheduler.events import RunLeftBehind
from tenure.plugins.scheduler.queues import Queues
from tenure.plugins.scheduler.registry import Registry
from tenure.plugins.scheduler.runs import MAX_RUNS, MAX_THREADS, Runs
from tenure.plugins.scheduler.state import ScheduleMachine

GATHER = 0.02
"""Seconds for which runs that end together are gathered."""
ENTRIES_PER_SECOND = 2.0
BURST = 6.0
"""Entries that may be written at once after a silence."""
SOON = 0.1
CALMER = 1.3
"""A look that found nothing is followed by one after so many times the pause."""
SHORTEST = 0.002
BACKLOG_LOOKS = 2.0
"""Seconds: however much there is to catch up with, the inbox is looked into at least so often."""


class ScheduleLeading(LedgerLeading[ScheduleClerk]):
    what = "schedule"

    def __init__(
        self,
        *where: Any,
        registry: Registry,
        queues: Queues,
        name: str,
        worker: str,
        random: Random,
        idle_budget: float,
        max_runs: int = MAX_RUNS,
        max_threads: int = MAX_THREADS,
        on_idle: Callable[[], None] = lambda: None,
        tracing: Tracing = UNTRACED,
        **ledgered: Any,
    ) -> None:
        super().__init__(*where, **ledgered)
        self._registry = registry
        self._queues = queues
        self._name = name
        self._worker = worker
        self._random = random
        self._max_runs = max_runs
        self._max_threads = max_threads
        self._on_idle = on_idle
        self._tracing = tracing
        self._longest_look = 3600.0 / idle_budget
        self._look_pause = SOON
        self._began_at = self._clock.read()
        self._looked: Reading | None = None
        self._more = False
        self._tokens = BURST
        self._tokens_at = self._clock.read()
        self._ended_at: Reading | None = None
        self._stirred = asyncio.Event()
        """A run has ended, or something was declared."""
        self.runs: Runs | None = None

    @property
    def machine(self) -> ScheduleMachine | None:
        """The state, while this process decides on it."""
        return self.clerk.machine if self.clerk is not None and self.halted is None else None

    def stir(self) -> None:
        """Something is to be decided that has to do with this process alone."""
        self._stirred.set()

    # The term

    def new_clerk(self) -> ScheduleClerk:
        runs = self.runs = Runs(
            self._lead,
            self._registry.functions,
            self._queues,
            commands=self._registry.commands,
            name=self._name,
            clock=self._clock,
            on_end=lambda end: self._run_ended(clerk, end),
            on_left_behind=self._left_behind,
            max_runs=self._max_runs,
            max_threads=self._max_threads,
            tracing=self._tracing,
        )
        clerk = ScheduleClerk(
            self._registry,
            worker=self._worker,
            clock=self._clock,
            random=self._random,
            horizon=self._horizon_ms,
            begin=runs.begin,
            room=runs.room,
            emit=self._emit,
            on_entry=self._on_entry,
        )
        return clerk

    def began(self, entry: LogEntry, clerk: ScheduleClerk) -> None:
        clerk.take_over()
        self._began_at, self._looked, self._more, self._ended_at = self._clock.read(), None, False, None
        super().began(entry, clerk)

    async def serve(self, term: LedgerTerm, clerk: ScheduleClerk) -> None:
        runs = self.runs
        assert runs is not None
        try:
            while True:
                if not await self._rest(clerk):
                    continue
                look = self._is_look_due() <= 0 and not self._is_behind(clerk)
                tick = await self.tick(term, look=look)
                if tick is not None:
                    self._ticked(tick, clerk, look)
                    if tick.entry is None and not look:
                        await self._clock.sleep(SHORTEST)  # it was due by our clock, and not quite by the term's
        finally:
            await runs.wind_up()

    def _run_ended(self, clerk: ScheduleClerk, end: End) -> None:
        clerk.ended(end)
        if self._ended_at is None:
            self._ended_at = self._clock.read()
        self._stirred.set()

    def _left_behind(self, event: RunLeftBehind) -> None:
        self._emit(event)

    # When

    async def _horizon_ms(self) -> int:
        """What the store's clock has certainly reached."""
        now = await self._time.now()
        return int((now - min(self._time.uncertainty, 60.0)) * 1000)

    async def _rest(self, clerk: ScheduleClerk) -> bool:
        """Until there is a reason for a tick. False: the store does not tell the time now, and there was a pause."""
        try:
            while True:
                self._stirred.clear()
                horizon = await self._horizon_ms()
                await clerk.due.compute(horizon)
                pause = self._pause(clerk, horizon)
                if pause <= 0:
                    return True
                await self._wait(max(SHORTEST, pause))
        except StoreError as error:
            self._failures += 1
            text = "the store does not tell the time, and is asked again: %s"
            self._seldom.warning(self._clock.read(), text, error)
            await self._clock.sleep(min(5.0, 0.1 * 2.0 ** min(self._failures, 6)))
            return False

    def _pause(self, clerk: ScheduleClerk, horizon: int) -> float:
        """Seconds until the next tick; 0: at once."""
        if clerk.has_news or self._more:
            return 0.0
        pause = self._is_look_due()
        due = clerk.next_ms()
        if due is not None:
            pause = min(pause, max((due - horizon) / 1000, self._until_tokens(1.0)))
        if clerk.has_ends:
            gathered = self._clock.read().leader_elapsed(self._ended_at) if self._ended_at is not None else GATHER
            pause = min(pause, max(GATHER - gathered, self._until_tokens(2.0)))
        return pause

    def _is_look_due(self) -> float:
        """Seconds until the inbox is looked into."""
        if self._looked is None or self._more:
            return 0.0
        since = self._clock.read().leader_elapsed(self._looked)
        return (GATHER if self._bell.is_set() else self._look_pause) - since

    def _is_behind(self, clerk: ScheduleClerk) -> bool:
        """What has become due in a long absence is decided before anybody's commands: they are about what comes."""
        since = self._looked if self._looked is not None else self._began_at
        return clerk.more and self._clock.read().leader_elapsed(since) < BACKLOG_LOOKS

    def _ticked(self, tick: Tick, clerk: ScheduleClerk, looked: bool) -> None:
        self._ended_at = self._clock.read() if clerk.has_ends else None  # while it was written
        if tick.entry is not None and not tick.folded:  # who gives a command waits for it
            self._until_tokens(0.0)
            self._tokens = max(0.0, self._tokens - 1.0)  # a look that wrote as well makes nothing wait longer
        if not looked:
            return
        self._looked, self._more = self._clock.read(), tick.more
        if tick.folded or tick.more:
            self._look_pause = min(SOON, self._longest_look)
        else:
            self._on_idle()
            self._look_pause = min(self._longest_look, self._look_pause * CALMER)

    def _until_tokens(self, wanted: float) -> float:
        """Seconds until so many entries may be written."""
        now = self._clock.read()
        passed = now.leader_elapsed(self._tokens_at)
        self._tokens = min(BURST, self._tokens + passed * ENTRIES_PER_SECOND)
        self._tokens_at = now
        return max(0.0, (wanted - self._tokens) / ENTRIES_PER_SECOND)

    async def _wait(self, seconds: float) -> None:
        """Until a command of this process is durable, a run has ended, or so long."""
        events = [self._stirred] if self._bell.is_set() else [self._stirred, self._bell]
        tasks = [asyncio.get_running_loop().create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

"""The leader's side of a queue, for one term: tick, and rest for as long as nothing calls for the next tick."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

from tenure.clock import Reading
from tenure.coordinator.lead import Lead
from tenure.entropy import Random
from tenure.errors import LeadershipLost, LedgerError, StoreError
from tenure.ledger import LedgerTerm, LogEntry, Tick
from tenure.ledger.layout import SEGMENTS
from tenure.plugins.ledgered import LedgerLeading, either
from tenure.plugins.queue.clerk import QueueClerk
from tenure.plugins.queue.events import LeadingBegan, MessagesDead, TicketsLapsed, TicketsPublished
from tenure.plugins.queue.records import Work
from tenure.plugins.queue.settings import QueueSettings
from tenure.plugins.queue.state import QueueMachine
from tenure.store import Entry, Names, Store, ours

_log = logging.getLogger("tenure.queue")

BUSY_FROM = 500
"""Messages or more in one tick are load."""
CALMER = 1.3
"""A look that found nothing is followed by one after so many times the pause: about a quarter of the time that nothing
has happened for. So a trickle of messages costs some twenty looks for each, however long the silences are."""
RESULTS_SWEEP = 300.0
"""Seconds between two looks for old results. A term begins with one: terms may all be shorter than this."""
RESULTS = "results/"
RESULTS_AT_ONCE = 10_000
"""Rows between two ticks: ten pages."""
_DELETED_AT_ONCE = 1000
_SEGMENT_NAMES = Names(SEGMENTS, f"{SEGMENTS}0", f"{SEGMENTS}:")
_NUMBER = r"(?:0|[1-9]\d{0,18})"
_SEGMENT = re.compile(rf"{SEGMENTS}({_NUMBER})-[A-Za-z0-9\-]{{1,12}}-{_NUMBER}")
_RESULT = re.compile(rf"{RESULTS}[A-Za-z0-9\-]{{1,64}}-[A-Za-z0-9]{{6,12}}-{_NUMBER}-{_NUMBER}")
"""What others have put there is not ours to remove: dates, for one, are written with dashes as well."""


class Leading(LedgerLeading[QueueClerk]):
    what = "queue"

    def __init__(
        self,
        store: Store,
        lead: Lead,
        settings: QueueSettings,
        *,
        random: Random,
        is_alive: Callable[[str], bool | None],
        on_idle: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        """`on_idle`: called for each look that found nothing."""
        super().__init__(store, lead, **options)
        self._settings = settings
        self._random = random
        self._is_alive = is_alive
        self._on_idle = on_idle
        self._idle_tick = max(settings.tick_interval, 7200.0 / settings.idle_budget)
        self._results_swept: Reading | None = None
        self._results_cursor: str | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def machine(self) -> QueueMachine | None:
        """The state, while this process decides on it."""
        return self.clerk.machine if self.clerk is not None and self.halted is None else None

    def new_clerk(self) -> QueueClerk:
        return QueueClerk(
            self._store,
            self._settings,
            epoch=self._lead.epoch,
            tag=self._draw_id()[-12:],
            clock=self._clock,
            random=self._random,
            is_alive=self._is_alive,
            on_published=self._published,
        )

    def began(self, entry: LogEntry, clerk: QueueClerk) -> None:
        self._emit(LeadingBegan(entry.seq, entry.epoch, clerk.machine.ready_count))

    async def serve(self, term: LedgerTerm, clerk: QueueClerk) -> None:
        # As the log says, and not as it is decided next: an entry that is not written yet may never be.
        cleaning = asyncio.get_running_loop().create_task(self._clear_segments(frozenset(clerk.machine.segments)))
        try:
            await self._tick_on(term, clerk)
        finally:
            cleaning.cancel()
            if self._sweeping is not None:
                self._sweeping.cancel()

    async def _tick_on(self, term: LedgerTerm, clerk: QueueClerk) -> None:
        settings = self._settings
        pause = settings.tick_interval
        while True:
            tick = await self.tick(term)
            if tick is None or tick.more:
                continue
            # Somebody who says that he is there, and nothing else, is no reason to look again soon.
            happened = tick.entry is not None and tick.entry.decided is not None
            if tick.entry is None:
                self._on_idle()
            if happened:
                pause = settings.load_interval if _messages(tick) >= BUSY_FROM else settings.tick_interval
            else:
                pause = min(self._longest_pause(clerk.machine), pause * CALMER)
            await self._rest(clerk, pause, happened)
            self._sweep_results()

    def _longest_pause(self, machine: QueueMachine) -> float:
        """Who holds messages may ask for more time, and must be answered before it is over."""
        if not machine.in_flight_count:
            return self._idle_tick
        shortest = min(ticket.visibility_ms for ticket in machine.tickets.values()) / 1000
        return min(self._idle_tick, max(self._settings.tick_interval, shortest / 8))

    async def _rest(self, clerk: QueueClerk, pause: float, happened: bool) -> None:
        due = clerk.machine.next_due_ms()
        if due is not None:
            try:
                pause = min(pause, max(0.005, due / 1000 - await self._time.now()))
            except StoreError:
                pass  # the next tick needs the time as well, and says so
        if happened:
            # What was just written is not disturbed by what comes in the next moment: that is gathered.
            await self._clock.sleep(pause)
        else:
            await either(self._bell, pause)

    def _published(self, entry: LogEntry, work: Work) -> None:
        self._on_entry(entry)
        if work.tickets:
            messages = sum(ticket.count for ticket in work.tickets)
            self._emit(TicketsPublished(len(work.tickets), messages, entry.seq, entry.epoch))
        if work.lapsed:
            self._emit(TicketsLapsed(len(work.lapsed)))
        dead = [bury for settled in (*work.settled, *work.lapsed) for bury in settled.dead]
        if dead:
            self._emit(MessagesDead(len(dead), dead[0].reason))

    async def _clear_segments(self, needed: frozenset[str]) -> None:
        """Segments of former leaders that no entry names: their writers were cut short (L-8)."""
        try:
            doomed: list[str] = []
            async with aclosing(ours(self._store, _SEGMENT_NAMES)) as rows:
                async for row in rows:
                    match = _SEGMENT.fullmatch(row.key)
                    if match is None or int(match[1]) >= self._lead.epoch or match[0][len(SEGMENTS) :] in needed:
                        continue
                    doomed.append(row.key)
                    if len(doomed) >= _DELETED_AT_ONCE:
                        await self._clear(doomed)
            if doomed:
                await self._clear(doomed)
        except (StoreError, LedgerError, LeadershipLost) as error:
            _log.debug("old segments are cleared later: %s", error)

    async def _clear(self, doomed: list[str]) -> None:
        self._lead.ensure()
        await self._store.delete(*doomed)
        doomed.clear()

    def _sweep_results(self) -> None:
        """Beside what is decided, and some at a time, from where the last look ended: whoever has just taken over has
        messages that wait, and there may be millions of results."""
        kept, now = self._settings.result_retention, self._clock.read()
        if not kept or (self._sweeping is not None and not self._sweeping.done()):
            return
        if self._results_cursor is None:
            if self._results_swept is not None and now.follower_elapsed(self._results_swept) < RESULTS_SWEEP:
                return
            self._results_swept = now
        self._sweeping = asyncio.get_running_loop().create_task(self._remove_results(kept))

    async def _remove_results(self, kept: float) -> None:
        try:
            limit = await self._time.now() - kept
            old, cursor = await self._old_results(limit)
            if old:
                await self._store.delete(*old)
            self._results_cursor = cursor
        except StoreError as error:
            _log.debug("old results are removed later: %s", error)

    async def _old_results(self, limit: float) -> tuple[list[str], str | None]:
        """Of the next rows those that were written before `limit`, and where to go on; `None`: that was all."""
        old: list[str] = []
        seen = 0
        rows = cast("AsyncGenerator[Entry, None]", self._store.list(RESULTS, after=self._results_cursor))
        async with aclosing(rows) as listed:
            async for row in listed:
                if _RESULT.fullmatch(row.key) and row.modified.timestamp() < limit:
                    old.append(row.key)
                seen += 1
                if seen >= RESULTS_AT_ONCE:
                    return old, row.key
        return old, None


def _messages(tick: Tick) -> int:
    assert tick.entry is not None
    return max(tick.folded, len(memoryview(tick.entry.events)) // 8)

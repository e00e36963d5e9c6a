"""The leader's side of a queue, for one term: tick, and rest for as long as nothing calls for the next tick."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tenure.clock import Clock
from tenure.coordinator.events import NamedEvent
from tenure.coordinator.lead import Lead
from tenure.database.time import StoreTime
from tenure.entropy import NewId, Random
from tenure.errors import LeadershipLost, LedgerError, StoreError
from tenure.ledger import LedgerConfig, LedgerTerm, LogEntry, Tick
from tenure.ledger.layout import SEGMENTS
from tenure.ledger.leader import Overtaken
from tenure.plugins.queue.clerk import QueueClerk
from tenure.plugins.queue.events import LeadingBegan, MessagesDead, QueueHalted, TicketsLapsed, TicketsPublished
from tenure.plugins.queue.records import Work
from tenure.plugins.queue.settings import QueueSettings
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.worker import either
from tenure.store import Store

_log = logging.getLogger("tenure.queue")

BUSY_FROM = 500
"""Messages or more in one tick are load."""
CALMER = 1.3
"""A look that found nothing is followed by one after so many times the pause: about a quarter of the time that nothing
has happened for. So a trickle of messages costs some twenty looks for each, however long the silences are."""
HALTED_PAUSE = 10.0
RESULTS_SWEEP = 300.0
RESULTS = "results/"


class Leading:
    def __init__(
        self,
        store: Store,
        lead: Lead,
        settings: QueueSettings,
        *,
        ledger: LedgerConfig,
        clock: Clock,
        random: Random,
        draw_id: NewId,
        time: StoreTime,
        bell: asyncio.Event,
        is_alive: Callable[[str], bool | None],
        emit: Callable[[NamedEvent], None],
        on_entry: Callable[[LogEntry], None],
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_idle`: called for each look that found nothing."""
        self._store = store
        self._lead = lead
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._random = random
        self._draw_id = draw_id
        self._time = time
        self._bell = bell
        self._is_alive = is_alive
        self._emit = emit
        self._on_entry = on_entry
        self._on_idle = on_idle
        self.clerk: QueueClerk | None = None
        self.term: LedgerTerm | None = None
        self.halted: str | None = None
        self._idle_tick = max(settings.tick_interval, 7200.0 / settings.idle_budget)
        self._results_swept = clock.read()
        self._begun = self._finished = 0
        """Ticks, for who waits for one."""

    @property
    def machine(self) -> QueueMachine | None:
        """The state, while this process decides on it."""
        return self.clerk.machine if self.clerk is not None and self.halted is None else None

    async def run(self) -> None:
        """Until the term ends. What stops this queue is told, and tried again: nothing else suffers from it."""
        failures = 0
        while True:
            try:
                await self._lead_once()
            except LeadershipLost as error:
                _log.info("a queue is left to the next leader: %s", error)
                return
            except Overtaken as error:
                _log.info("%s", error)
            except StoreError as error:
                failures += 1
                _log.warning("a queue waits for its store: %s", error)
                await self._clock.sleep(min(5.0, 0.2 * 2.0 ** min(failures, 5)))
            except LedgerError as error:
                await self._halt(str(error))
            except Exception as error:  # whatever it is, it must not end the queue for the rest of the term unseen
                _log.exception("a queue met something that nobody foresaw")
                await self._halt(f"unforeseen: {error!r}"[:1000])
            finally:
                term, self.term, self.clerk = self.term, None, None
                if term is not None:
                    await term.aclose()

    async def settle(self, within: float) -> None:
        """Wait for a tick that begins after this call, if one comes in time: what was sent before is then decided."""
        wanted, began = self._begun + 1, self._clock.read()
        while self._finished < wanted and self.machine is not None:
            if self._clock.read().leader_elapsed(began) >= within:
                return
            self._bell.set()
            await self._clock.sleep(0.02)

    async def _halt(self, reason: str) -> None:
        self.halted = reason
        _log.error("a queue has halted, and is tried again in %g s: %s", HALTED_PAUSE, reason)
        self._emit(QueueHalted(reason))
        await self._clock.sleep(HALTED_PAUSE)

    async def _lead_once(self) -> None:
        clerk = QueueClerk(
            self._store,
            self._settings,
            epoch=self._lead.epoch,
            tag=self._draw_id()[-12:],
            clock=self._clock,
            random=self._random,
            is_alive=self._is_alive,
            on_published=self._published,
        )
        self.term = term = LedgerTerm(
            self._store,
            self._lead,
            clerk,
            config=self._ledger,
            clock=self._clock,
            draw_id=self._draw_id,
            now=self._time.now,
            uncertainty=lambda: self._time.uncertainty,
            namespace=self._lead.namespace,
        )
        entry = await term.begin()
        self.clerk, self.halted = clerk, None
        self._on_entry(entry)
        self._emit(LeadingBegan(entry.seq, entry.epoch, clerk.machine.ready_count))
        # As the log says, and not as it is decided next: an entry that is not written yet may never be.
        cleaning = asyncio.get_running_loop().create_task(self._clear_segments(frozenset(clerk.machine.segments)))
        try:
            await self._tick_on(term, clerk)
        finally:
            cleaning.cancel()

    async def _tick_on(self, term: LedgerTerm, clerk: QueueClerk) -> None:
        settings = self._settings
        pause = settings.tick_interval
        failures = 0
        while True:
            self._bell.clear()
            self._begun += 1
            try:
                tick = await term.tick()
                failures, self._finished = 0, self._begun
            except StoreError as error:  # nothing was decided
                failures += 1
                _log.warning("a tick of a queue failed, and is tried again: %s", error)
                await self._clock.sleep(min(5.0, 0.1 * 2.0 ** min(failures, 6)))
                continue
            if tick.more:
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
            await self._sweep_results()

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
            doomed = []
            async for row in self._store.list(SEGMENTS):
                name = row.key.removeprefix(SEGMENTS)
                epoch = name.partition("-")[0]
                if epoch.isdigit() and int(epoch) < self._lead.epoch and name not in needed:
                    doomed.append(row.key)
            if doomed:
                self._lead.ensure()
                await self._store.delete(*doomed)
        except (StoreError, LedgerError, LeadershipLost) as error:
            _log.debug("old segments are cleared later: %s", error)

    async def _sweep_results(self) -> None:
        kept = self._settings.result_retention
        if not kept or self._clock.read().follower_elapsed(self._results_swept) < RESULTS_SWEEP:
            return
        self._results_swept = self._clock.read()
        try:
            limit = await self._time.now() - kept
            old = [row.key async for row in self._store.list(RESULTS) if row.modified.timestamp() < limit]
            if old:
                await self._store.delete(*old)
        except StoreError as error:
            _log.debug("old results are removed later: %s", error)


def _messages(tick: Tick) -> int:
    assert tick.entry is not None
    return max(tick.folded, len(memoryview(tick.entry.events)) // 8)

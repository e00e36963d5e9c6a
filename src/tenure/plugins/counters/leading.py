"""The leader's side of counters, for one term: fold, apply, file away.

Three things go on beside each other. Ticks fold what is in the inbox and write down what the others did; rounds write
totals to records; the annals keep history. What goes wrong in one round concerns the records in it, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tenure.clock import Reading
from tenure.database.resource import Resource
from tenure.ledger import LedgerTerm, LogEntry, Tick
from tenure.plugins.counters.annals import Annals
from tenure.plugins.counters.applying import Applier
from tenure.plugins.counters.clerk import CountersClerk
from tenure.plugins.counters.pages import PageBook
from tenure.plugins.counters.rounds import Rounds
from tenure.plugins.counters.settings import CounterSettings
from tenure.plugins.ledgered import LedgerLeading, either

SOON = 0.1
CALMER = 1.3
"""A look that found nothing is followed by one after so many times the pause."""
GATHER = 0.02
"""Seconds for which what is to be written is gathered."""
SHORTEST = 0.001
MAX_WAITING = 100_000
"""Records that wait to be written: with more, the inbox is left alone until there are fewer."""

MAX_SEALED = 8
"""Pages that wait to be written: likewise."""


class CountersLeading(LedgerLeading[CountersClerk]):
    what = "counters"

    def __init__(
        self,
        *where: Any,
        resource: Resource[Any],
        name: str,
        settings: CounterSettings,
        on_idle: Callable[[], None] = lambda: None,
        **ledgered: Any,
    ) -> None:
        super().__init__(*where, **ledgered)
        self._resource = resource
        self._name = name
        self._settings = settings
        self._on_idle = on_idle
        self._longest_look = 3600.0 / settings.idle_budget
        self._look_pause = SOON
        self._looked: Reading | None = None
        self._ticked_at: Reading | None = None
        self._more = False
        self._news = asyncio.Event()
        self.rounds: Rounds | None = None
        self.annals: Annals | None = None

    def new_clerk(self) -> CountersClerk:
        return CountersClerk(self._settings, draw_id=self._draw_id, on_committed=self._committed, on_urgent=self._hurry)

    async def serve(self, term: LedgerTerm, clerk: CountersClerk) -> None:
        book = PageBook(self._store, self._draw_id, self._lead.epoch)
        stir = self._news.set
        self._looked, self._more, self._look_pause = None, False, SOON
        self.rounds = Rounds(
            clerk,
            Applier(self._resource, self._name, self._lead.ensure),
            book,
            self._settings,
            resource=self._resource.name,
            epoch=self._lead.epoch,
            clock=self._clock,
            emit=self._emit,
            stir=stir,
        )
        self.annals = Annals(
            clerk, book, self._settings, store=self._store, time=self._time, clock=self._clock, stir=stir
        )
        tasks = [asyncio.get_running_loop().create_task(each.run()) for each in (self.rounds, self.annals)]
        for task in tasks:
            task.add_done_callback(lambda _: stir())
        try:
            while True:
                await self._rest(clerk)
                for task in tasks:
                    if task.done():
                        task.result()  # it never ends by itself: this raises
                look = self._until_look(clerk) <= 0
                tick = await self.tick(term, look=look)
                self._ticked_at = self._clock.read()
                if tick is not None:
                    self._ticked(tick, look)
        finally:
            self.rounds = self.annals = None
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.exception()

    def _committed(self, entry: LogEntry) -> None:
        self._on_entry(entry)
        if self.rounds is not None:
            self.rounds.entry_written()
            if self.clerk is not None and len(self.clerk.machine.waiting) >= MAX_WAITING:
                self.rounds.make_room()
        if self.annals is not None:
            self.annals.entry_written()

    def _hurry(self, ids: Any) -> None:
        if self.rounds is not None:
            self.rounds.hurry(ids)

    # When

    async def _rest(self, clerk: CountersClerk) -> None:
        """Until there is a reason for a tick."""
        while True:
            self._news.clear()
            pause = self._until_look(clerk)
            if clerk.has_news:
                pause = min(pause, self._since_tick(GATHER))
            if pause <= 0:
                return
            await self._wait(max(SHORTEST, pause), clerk)

    def _since_tick(self, pause: float) -> float:
        """What is left of a pause after the last tick."""
        return pause - self._clock.read().leader_elapsed(self._ticked_at) if self._ticked_at is not None else 0.0

    def _until_look(self, clerk: CountersClerk) -> float:
        """Seconds until the inbox is looked into."""
        if len(clerk.machine.waiting) >= MAX_WAITING or len(clerk.machine.sealed) >= MAX_SEALED:
            return self._longest_look  # what waits is written first
        if self._looked is None or self._more:
            return 0.0
        is_wanted = self._bell.is_set() or clerk.is_asked
        pause = self._settings.fold_interval if is_wanted else max(self._look_pause, self._settings.fold_interval)
        return pause - self._clock.read().leader_elapsed(self._looked)

    def _ticked(self, tick: Tick, looked: bool) -> None:
        if not looked:
            return
        self._looked, self._more = self._clock.read(), tick.more
        if tick.folded or tick.more:
            self._look_pause = min(SOON, self._longest_look)
        else:
            self._on_idle()
            self._look_pause = min(self._longest_look, self._look_pause * CALMER)

    async def _wait(self, seconds: float, clerk: CountersClerk) -> None:
        """Until an amount of this process is durable, there is news, or so long."""
        if self._bell.is_set() or clerk.has_news:
            await either(self._news, seconds)
            return
        tasks = [asyncio.get_running_loop().create_task(event.wait()) for event in (self._news, self._bell)]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

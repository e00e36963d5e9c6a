"""The leader's filing: what was sealed becomes pages, and old pages are put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import tzinfo

from tenure.clock import Clock, Reading
from tenure.database.time import StoreTime
from tenure.errors import StoreError, TenureError
from tenure.plugins.counters.calendar import moment_of
from tenure.plugins.counters.clerk import CountersClerk
from tenure.plugins.counters.pages import PageBook, next_merge
from tenure.plugins.counters.records import Page
from tenure.plugins.counters.settings import CounterSettings
from tenure.plugins.ledgered import either
from tenure.store import Store

_log = logging.getLogger("tenure.counters")
LOOK = 60.0
"""Seconds after which it is looked whether an hour is over."""
_PATIENCE = 180.0
"""Seconds for which a store may fail before anybody is told: too many pages that wait hold back the inbox."""
_DELETES = 1000


class Annals:
    """For one term."""

    def __init__(
        self,
        clerk: CountersClerk,
        book: PageBook,
        settings: CounterSettings,
        *,
        store: Store,
        time: StoreTime,
        clock: Clock,
        stir: Callable[[], None],
    ) -> None:
        self._clerk = clerk
        self._book = book
        self._retention = settings.retention
        self._zone: tzinfo = settings.zone
        self._store = store
        self._time = time
        self._clock = clock
        self._stir = stir
        self._wake = asyncio.Event()
        self._filed: set[int] = set()
        """Of what was sealed: its page is written, and the log does not name it yet."""
        self._merged: Page | None = None
        """Likewise."""
        self._failing: Reading | None = None
        """Since when nothing could be filed ..."""
        self._is_told = False
        """... and whether somebody was told."""
        self._told: set[str] = set()
        """What is wrong with pages, since all went well last."""

    def entry_written(self) -> None:
        machine = self._clerk.machine
        filed = self._filed & {sealed.number for sealed in machine.sealed}
        is_merged = self._merged is not None and self._merged in machine.pages
        if filed != self._filed or is_merged or len(machine.sealed) > len(filed):
            self._wake.set()
        self._filed = filed
        if is_merged:
            self._merged = None

    async def run(self) -> None:
        """For the whole term. Nothing is lost if it fails: it is tried again."""
        await self._clear_away()
        while True:
            self._wake.clear()
            try:
                await self._file()
                self._failing, self._is_told = None, False
                self._told.clear()
            except StoreError as error:
                self._failed(error)
            except TenureError as error:
                self._damaged(error)
            await either(self._wake, LOOK)

    def _failed(self, error: StoreError) -> None:
        now = self._clock.read()
        self._failing = since = self._failing or now
        if self._is_told or (failed := now.leader_elapsed(since)) < _PATIENCE:
            _log.info("history is filed later: %s", error)
            return
        self._is_told = True
        _log.warning(
            "history of counters could not be filed for %.0f s, and is tried again; if that goes on for some hours, "
            "amounts are left in the inbox: %s",
            failed,
            error,
        )

    def _damaged(self, error: TenureError) -> None:
        """Told once for each: somebody has to put it back, and until then it is met at every look."""
        text = str(error)
        level = logging.DEBUG if text in self._told else logging.WARNING
        self._told.add(text)
        _log.log(level, "pages of history cannot be put together: %s", error)

    async def _clear_away(self) -> None:
        """What former leaders wrote and did not come to name."""
        try:
            orphans = await self._book.orphans(self._clerk.machine.pages)
            for start in range(0, len(orphans), _DELETES):
                await self._store.delete(*orphans[start : start + _DELETES])
        except StoreError as error:
            _log.debug("pages that nobody names are removed by the next leader: %s", error)

    async def _file(self) -> None:
        machine = self._clerk.machine
        for sealed in list(machine.sealed):
            if sealed.number not in self._filed:
                page = await self._book.write(sealed)
                self._filed.add(sealed.number)
                self._clerk.paged(page)
                self._stir()
        now = moment_of(int(await self._time.now() * 1000), self._zone)
        if machine.tally and machine.moment is not None and now.hour_ms > machine.moment.hour_ms:
            self._clerk.seal()
            self._stir()
        if machine.sealed or self._merged is not None:
            return  # pages follow each other: first those that are under way
        busy = frozenset({machine.moment.hour_ms}) if machine.tally and machine.moment is not None else frozenset()
        merge = next_merge(machine.pages, now, self._retention, busy)
        if merge is not None:
            page = await self._book.merge(merge, dict(machine.counters))
            self._merged = page
            self._clerk.merged(merge, page)
            self._stir()

"""Reading a log along for as long as somebody waits for what it says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tenure.clock import Clock
from tenure.errors import TenureError
from tenure.ledger import LedgerConfig, LogEntry, Resync, Tail
from tenure.store import Store

_log = logging.getLogger("tenure.ledger")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5


class Following:
    """One reader for all calls of a process that wait."""

    def __init__(
        self,
        store: Store,
        *,
        ledger: LedgerConfig,
        clock: Clock,
        on_entry: Callable[[LogEntry], None],
        on_end: Callable[[], None] = lambda: None,
        on_gap: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_end`: nobody waits any more. `on_gap`: entries were missed; what they said is to be learned otherwise."""
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._on_entry = on_entry
        self._on_end = on_end
        self._on_gap = on_gap
        self._tail: Tail | None = None
        self._starting = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._callers = 0

    async def join(self) -> None:
        """From here on every entry is heard, until `leave`."""
        self._callers += 1
        try:
            async with self._starting:
                if self._tail is None:
                    tail = Tail(self._store, config=self._ledger, clock=self._clock)
                    await tail.start()
                    self._tail = tail
                    self._reader = asyncio.get_running_loop().create_task(self._read(tail))
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        self._callers -= 1
        if not self._callers:
            self._stop()

    def heard(self, entry: LogEntry) -> None:
        """An entry that was read, or written by this process. What comes before its turn is read in its turn."""
        tail = self._tail
        if tail is not None and entry.seq == tail.position and tail.took(entry):
            self._on_entry(entry)

    async def aclose(self) -> None:
        reader = self._reader
        self._stop()
        if reader is not None:
            await asyncio.wait([reader])

    def _stop(self) -> None:
        reader, self._reader, self._tail = self._reader, None, None
        self._on_end()
        if reader is not None:
            reader.cancel()

    async def _read(self, tail: Tail) -> None:
        pause = _FIRST_PAUSE
        is_gap = False
        while True:
            try:
                if is_gap and self._on_gap is not None:
                    await self._on_gap()
                is_gap = False
                found = await tail.poll()
                if found is Resync.LOST:
                    await tail.start()
                    is_gap = True  # until it is learned what was missed
                elif found is not None:
                    self.heard(found)
                    pause = _FIRST_PAUSE
                    continue
            except TenureError as error:
                _log.debug("the log is read again later: %s", error)
            await self._clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.5)

"""Waiting for what the leader decides on a command: the log is read along until an entry has folded it."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from tenure.clock import Clock
from tenure.errors import RequestNotAnswered, StoreError, TenureError
from tenure.ledger import LedgerConfig, LogEntry, Producer, Receipt, Resync, Tail
from tenure.ledger.layout import INBOX, parse_inbox_key
from tenure.plugins.scheduler.records import Refused, decode_work
from tenure.plugins.scheduler.wire import OVERHEAD, Command
from tenure.store import Store

_log = logging.getLogger("tenure.scheduler")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_MOST_EARLY = 1000


class Calls:
    """All calls of one process that wait: they share one reader of the log."""

    def __init__(self, store: Store, producer: Producer, *, ledger: LedgerConfig, clock: Clock) -> None:
        self._store = store
        self._producer = producer
        self._ledger = ledger
        self._clock = clock
        self._tail: Tail | None = None
        self._starting = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._callers = 0
        self._waiting: dict[tuple[str, int], list[tuple[int, asyncio.Future[str | None]]]] = {}
        self._early: dict[tuple[str, int], dict[int, str]] = {}
        """Batches that were folded before their caller had its receipt: what was refused in them."""

    async def give(self, command: Command, timeout: float | None) -> str | None:
        """Give a command to the leader, and wait until it is durable; with a timeout also for the decision.

        Gives why it was refused; `None`: it was not. Raises `RequestNotAnswered` if nothing is known in time.
        """
        size = OVERHEAD + len(command.job) + len(msgspec.json.encode(command.changes))
        if timeout is None:
            await self._producer.submit(command, size, ordered=True)
            return None
        self._callers += 1
        try:
            await self._read_along()
            receipt = await self._producer.submit(command, size, ordered=True)
            return await self._answer(receipt, timeout)
        finally:
            self._callers -= 1
            if not self._callers:
                self._stop()

    def heard(self, entry: LogEntry) -> None:
        """An entry that was read, or written by this process. What comes before its turn is read in its turn."""
        tail = self._tail
        if tail is None or entry.seq != tail.position or not tail.took(entry):
            return
        refused: dict[tuple[str, int], dict[int, str]] = {}
        if (events := entry.decided) is not None and entry.folded:
            for event in decode_work(events).events:
                if isinstance(event, Refused):
                    refused.setdefault((event.uid, event.number), {})[event.index] = event.reason
        for rejection in entry.rejected:
            name = parse_inbox_key(rejection.key if rejection.key.startswith(INBOX) else INBOX + rejection.key)
            if name is not None:
                for _, answer in self._waiting.pop((name.uid, name.number), ()):
                    _answered(answer, f"the leader could not read it: {rejection.reason}")
        for uid, numbers in entry.folded.items():
            if self._producer.uid is None or not uid.startswith(self._producer.owner):
                continue
            for number in numbers:
                reasons = refused.get((uid, number), {})
                for index, answer in self._waiting.pop((uid, number), ()):
                    _answered(answer, reasons.get(index))
                if len(self._early) < _MOST_EARLY:
                    self._early[uid, number] = reasons

    async def aclose(self) -> None:
        reader = self._reader
        self._stop()
        if reader is not None:
            await asyncio.wait([reader])
        for waiting in self._waiting.values():
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(TenureError("the schedule was stopped before the leader had answered"))
                    answer.exception()
        self._waiting = {}

    async def _answer(self, receipt: Receipt, timeout: float) -> str | None:
        key = (receipt.uid, receipt.number)
        if key in self._early:
            return self._early[key].get(receipt.index)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append((receipt.index, answer))
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise RequestNotAnswered(
                f"it is written down, and no leader has decided on it in {timeout:g} s: it will be decided on once one "
                "leads that works on this schedule"
            ) from None
        finally:
            waiting = [each for each in self._waiting.pop(key, []) if each[1] is not answer]
            if waiting:
                self._waiting[key] = waiting

    async def _read_along(self) -> None:
        async with self._starting:
            if self._tail is None:
                tail = Tail(self._store, config=self._ledger, clock=self._clock)
                await tail.start()
                self._tail = tail
                self._reader = asyncio.get_running_loop().create_task(self._read(tail))

    def _stop(self) -> None:
        reader, self._reader, self._tail = self._reader, None, None
        self._early = {}
        if reader is not None:
            reader.cancel()

    async def _read(self, tail: Tail) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                found = await tail.poll()
            except (StoreError, TenureError) as error:
                _log.debug("the log is read again later: %s", error)
                found = None
            if found is Resync.LOST:
                await self._begin_anew(tail)
            elif isinstance(found, LogEntry):
                self.heard(found)
                pause = _FIRST_PAUSE
                continue
            await self._clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.5)

    async def _begin_anew(self, tail: Tail) -> None:
        """What was decided meanwhile is not known: those who wait for it are told so by their timeout."""
        try:
            await tail.start()
        except StoreError as error:
            _log.debug("the log is read again later: %s", error)


def _answered(answer: asyncio.Future[str | None], refused: str | None) -> None:
    if not answer.done():
        answer.set_result(refused)

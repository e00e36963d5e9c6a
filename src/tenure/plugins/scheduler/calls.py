"""Waiting for what the leader decides on a command: the log is read along until an entry has folded it."""

from __future__ import annotations

import asyncio

import msgspec

from tenure.clock import Clock
from tenure.errors import RequestNotAnswered, TenureError
from tenure.ledger import LedgerConfig, LogEntry, Producer, Receipt
from tenure.ledger.layout import INBOX, parse_inbox_key
from tenure.plugins.ledgered import Following
from tenure.plugins.scheduler.records import Refused, decode_work
from tenure.plugins.scheduler.wire import OVERHEAD, Command
from tenure.store import Store

_MOST_EARLY = 1000


class _Refusals:
    """What was refused of one batch."""

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}
        self._rest: Refused | None = None

    def add(self, event: Refused) -> None:
        if event.rest:
            self._rest = event
        self._reasons[event.index] = event.reason

    def reason(self, index: int) -> str | None:
        if self._rest is not None and index >= self._rest.index:
            return self._rest.reason
        return self._reasons.get(index)


_NONE = _Refusals()


class Calls:
    """All calls of one process that wait: they share one reader of the log."""

    def __init__(self, store: Store, producer: Producer, *, ledger: LedgerConfig, clock: Clock) -> None:
        self._producer = producer
        # What is decided while entries are missed is not known: those who wait for it are told so by their timeout.
        self._following = Following(store, ledger=ledger, clock=clock, on_entry=self._read, on_end=self._ended)
        self._waiting: dict[tuple[str, int], list[tuple[int, asyncio.Future[str | None]]]] = {}
        self._early: dict[tuple[str, int], _Refusals] = {}
        """Batches that were folded before their caller had its receipt: what was refused in them."""

    async def give(self, command: Command, timeout: float | None) -> str | None:
        """Give a command to the leader, and wait until it is durable; with a timeout also for the decision.

        Gives why it was refused; `None`: it was not. Raises `RequestNotAnswered` if nothing is known in time. With a
        timeout of 0 it is written all the same, for as long as that takes, and the decision is not waited for.
        """
        size = OVERHEAD + len(command.job) + len(msgspec.json.encode(command.changes))
        if timeout is None:
            await self._producer.submit(command, size, ordered=True)
            return None
        known = "it was not given to anybody: the store did not answer in time"
        try:
            async with asyncio.timeout(timeout or None) as limit:
                await self._following.join()
                try:
                    known = (
                        "the store has not said that it is written: it may have been written, or may be still, and is "
                        "then decided on"
                    )
                    receipt = await self._producer.submit(command, size, ordered=True)
                    known = "it is written down, and will be decided on once somebody leads who works on this schedule"
                    if not timeout:
                        limit.reschedule(asyncio.get_running_loop().time())
                    return await self._answer(receipt)
                finally:
                    self._following.leave()
        except TimeoutError:
            raise RequestNotAnswered(f"no leader has decided on it in {timeout:g} s; {known}") from None

    def heard(self, entry: LogEntry) -> None:
        """An entry that was written by this process."""
        self._following.heard(entry)

    def _ended(self) -> None:
        self._early = {}

    def _read(self, entry: LogEntry) -> None:
        refused: dict[tuple[str, int], _Refusals] = {}
        if entry.folded and (work := entry.decided_as(decode_work)) is not None:
            for event in work.events:
                if isinstance(event, Refused):
                    refused.setdefault((event.uid, event.number), _Refusals()).add(event)
        for rejection in entry.rejected:
            name = parse_inbox_key(rejection.key if rejection.key.startswith(INBOX) else INBOX + rejection.key)
            if name is not None:
                for _, answer in self._waiting.pop((name.uid, name.number), ()):
                    _answered(answer, f"the leader could not read it: {rejection.reason}")
        for uid, numbers in entry.folded.items():
            if self._producer.uid is None or not uid.startswith(self._producer.owner):
                continue
            for number in numbers:
                refusals = refused.get((uid, number), _NONE)
                for index, answer in self._waiting.pop((uid, number), ()):
                    _answered(answer, refusals.reason(index))
                self._early[uid, number] = refusals
                if len(self._early) > _MOST_EARLY:
                    del self._early[next(iter(self._early))]

    async def aclose(self) -> None:
        await self._following.aclose()
        for waiting in self._waiting.values():
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(TenureError("the schedule was stopped before the leader had answered"))
                    answer.exception()
        self._waiting = {}

    async def _answer(self, receipt: Receipt) -> str | None:
        key = (receipt.uid, receipt.number)
        if key in self._early:
            return self._early[key].reason(receipt.index)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append((receipt.index, answer))
        try:
            return await answer
        finally:
            waiting = [each for each in self._waiting.pop(key, []) if each[1] is not answer]
            if waiting:
                self._waiting[key] = waiting


def _answered(answer: asyncio.Future[str | None], refused: str | None) -> None:
    if not answer.done():
        answer.set_result(refused)

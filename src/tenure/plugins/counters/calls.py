"""Waiting for the leader: until an amount is in its record, or a request is answered."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tenure.clock import Clock
from tenure.errors import RequestNotAnswered, TenureError
from tenure.ledger import InboxName, LedgerConfig, LogEntry, Producer, Receipt
from tenure.ledger.layout import MAX_SEQ
from tenure.plugins.counters.looking import machine_of, read_counters
from tenure.plugins.counters.records import Answer, decode_work
from tenure.plugins.counters.wire import REQUEST_BYTES, Request
from tenure.plugins.ledgered import Following
from tenure.store import Store

_MOST_EARLY = 10_000
_LOOK_AGAIN = 0.5
_Batch = tuple[str, int]


class _Wait:
    """For a record to hold what a batch gave it."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.folded_at = 0
        """The entry that folded the batch; 0: none yet."""
        self.future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """False: the log does not tell, since there was nothing to count."""


class Calls:
    """All calls of one process that wait: they share one reader of the log."""

    def __init__(self, store: Store, producer: Producer, *, ledger: LedgerConfig, clock: Clock) -> None:
        self._store = store
        self._producer = producer
        self._clock = clock
        self._following = Following(
            store, ledger=ledger, clock=clock, on_entry=self._read, on_end=self._ended, on_gap=self._learn
        )
        self._unfolded: dict[_Batch, list[_Wait]] = {}
        self._unapplied: dict[str, list[_Wait]] = {}
        self._folded: dict[_Batch, tuple[int, bool]] = {}
        """Batches that were folded before their caller had its receipt, and whether `op_id`s were seen again ..."""
        self._applied: dict[str, int] = {}
        """... and what was applied since somebody waits at all."""
        self._requests: dict[str, asyncio.Future[Answer]] = {}

    async def join(self) -> None:
        """Before something is written that will be waited for; `leave` afterwards."""
        await self._following.join()

    def leave(self) -> None:
        self._following.leave()

    async def consolidated(self, receipt: Receipt, id: str, timeout: float) -> None:
        """Wait until what a batch gave to a record is in it."""
        wait = _Wait(id)
        batch = (receipt.uid, receipt.number)
        if batch in self._folded:
            self._is_folded(wait, *self._folded[batch])
        else:
            self._unfolded.setdefault(batch, []).append(wait)
        try:
            async with asyncio.timeout(timeout):
                if not await wait.future:
                    await self._looked_up(id, wait.folded_at)
        except TimeoutError:
            raise RequestNotAnswered(
                f"what was given to {id!r} is written down and will be counted, and is not in its record after "
                f"{timeout:g} s: does a process lead that has these counters, and did it tell of apply-failed?"
            ) from None
        finally:
            _without(self._unfolded, batch, wait)
            _without(self._unapplied, id, wait)

    async def _looked_up(self, id: str, folded_at: int) -> None:
        """An `op_id` had been counted before: what its first call gave may wait, and only the state tells."""
        through: int | None = None
        while True:
            with contextlib.suppress(TenureError):  # it is looked at again
                state = await read_counters(self._store)
                if state.seq >= folded_at:
                    through = state.seq if through is None else through
                    if machine_of(state).is_consolidated(through, id):
                        return
            await self._clock.sleep(_LOOK_AGAIN)

    async def ask(self, request: Request, timeout: float) -> Answer:
        """Give a request to the leader, and wait for its answer."""
        await self.join()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._requests[request.request] = answer
        try:
            async with asyncio.timeout(timeout):
                await self._producer.submit(request, REQUEST_BYTES, ordered=True)
                return await answer
        except TimeoutError:
            raise RequestNotAnswered(
                f"no leader has answered in {timeout:g} s: does one lead that works on these counters? What was asked "
                "for is done once one does"
            ) from None
        finally:
            self._requests.pop(request.request, None)
            self.leave()

    def heard(self, entry: LogEntry) -> None:
        """An entry that was written by this process."""
        self._following.heard(entry)

    async def aclose(self) -> None:
        await self._following.aclose()
        stopped = TenureError("the counters were stopped before the leader had answered")
        waits = [wait for waits in (*self._unfolded.values(), *self._unapplied.values()) for wait in waits]
        futures: list[asyncio.Future[Any]] = [*(wait.future for wait in waits), *self._requests.values()]
        for future in futures:
            if not future.done():
                future.set_exception(stopped)
                future.exception()

    # What the log says

    def _read(self, entry: LogEntry) -> None:
        work = entry.decided_as(decode_work)
        if work is not None:
            for id, through in work.applied.items():
                self._is_applied(id, through)
            for answer in work.answered:
                self._answered(answer)
        for uid, numbers in entry.folded.items():
            if not uid.startswith(self._producer.owner):
                continue
            for number in numbers:
                has_duplicates = work is not None and work.duplicates > 0
                for wait in self._unfolded.pop((uid, number), ()):
                    self._is_folded(wait, entry.seq, has_duplicates)
                self._folded[uid, number] = entry.seq, has_duplicates
                if len(self._folded) > _MOST_EARLY:
                    del self._folded[next(iter(self._folded))]

    def _is_folded(self, wait: _Wait, seq: int, has_duplicates: bool) -> None:
        wait.folded_at = seq
        if has_duplicates:  # its own may be among them: then nothing will ever be applied under this number
            _done(wait, False)
        elif self._applied.get(wait.id, 0) >= seq:
            _done(wait)
        else:
            self._unapplied.setdefault(wait.id, []).append(wait)

    def _is_applied(self, id: str, through: int) -> None:
        self._applied.pop(id, None)  # those that were applied last are remembered
        self._applied[id] = through
        if len(self._applied) > _MOST_EARLY:
            del self._applied[next(iter(self._applied))]
        for wait in self._unapplied.get(id, ()):
            if wait.folded_at <= through:
                _done(wait)

    def _answered(self, answer: Answer) -> None:
        future = self._requests.get(answer.request)
        if future is not None and not future.done():
            future.set_result(answer)

    def _ended(self) -> None:
        self._folded, self._applied = {}, {}

    async def _learn(self) -> None:
        """Entries were missed: what became of those who wait is read from the state."""
        state = await read_counters(self._store)
        machine = machine_of(state)
        for (uid, number), waits in list(self._unfolded.items()):
            if state.producers.is_done(InboxName(MAX_SEQ, uid, number)):
                del self._unfolded[uid, number]
                for wait in waits:
                    self._unapplied.setdefault(wait.id, []).append(wait)
        for id, waits in self._unapplied.items():
            offers = machine.unapplied(id)
            for wait in waits:
                if wait.folded_at > state.seq:
                    continue  # an entry was heard of while the state was read, and that one does not know it
                if not offers:
                    _done(wait)
                elif not wait.folded_at:
                    wait.folded_at = offers[-1].number


def _done(wait: _Wait, is_applied: bool = True) -> None:
    if not wait.future.done():
        wait.future.set_result(is_applied)


def _without(waits: dict[_Batch, list[_Wait]] | dict[str, list[_Wait]], key: object, wait: _Wait) -> None:
    table: dict[object, list[_Wait]] = waits  # type: ignore[assignment]
    left = [each for each in table.pop(key, []) if each is not wait]
    if left:
        table[key] = left

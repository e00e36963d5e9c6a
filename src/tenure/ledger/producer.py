"""Writing to an inbox: calls that come together share one object, and each returns when that is durable (L-6).

A batch is sent under one name until its outcome is certain. That the name is taken already says that an earlier copy of
it has landed, for nobody else uses it; it is believed of what can be read back (`create_own`). An answer that took
longer than `send_timeout` does not count, whatever it says: the batch may have been folded and forgotten meanwhile.

A batch that was given up on is named as skipped by those after it, so that nothing waits for it; should it land after
one of them was folded, it is too late.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenure.clock import Clock, Reading
from tenure.entropy import NewId
from tenure.errors import BodyTooLarge, LedgerBusy, TenureError, WriteUnknown
from tenure.ledger.config import MAX_INBOX_BYTES, LedgerConfig
from tenure.ledger.layout import MAX_NUMBER, InboxName
from tenure.ledger.log import log_end
from tenure.ledger.place import Place
from tenure.store import Applied, Store, Unknown
from tenure.store.own import create_own

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_ENOUGH_BATCHES = 16
_UID_CHARACTERS = 12
_SMALL_AT_ONCE = 2
"""Batches that are not full: so many at a time, as a rule."""
MAX_SKIPPED = 64
"""Batches that one uid may have given up on."""
WINDOW = 500
"""Batches that one uid may have sent after one whose outcome is not known: a leader remembers no more than twice so
many (`MAX_AHEAD`), and each batch names those that are durable."""


class Receipt(msgspec.Struct, frozen=True):
    """Which batch a lot went into, and its place there."""

    uid: str
    number: int
    index: int


class Lot:
    """What one call gives to be written."""

    __slots__ = ("future", "ordered", "payload", "size")

    def __init__(self, payload: Any, size: int, future: asyncio.Future[Receipt], ordered: bool = False) -> None:
        self.payload = payload
        self.size = size
        self.future = future
        self.ordered = ordered
        """It is folded after what was ordered and submitted before it, whether or not that was awaited."""


Compose = Callable[[InboxName, Place, Sequence[Lot]], bytes]
"""The body of a batch: its name, what it comes after, and what is in it."""


class _Incarnation:
    """One uid and its numbers."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.next = 1
        self.through = 0
        self._ahead: set[int] = set()
        self.skipped: list[int] = []
        """Given up on: whether they were written is not known."""

    def durable(self, number: int) -> None:
        self._settled(number)

    def given_up(self, number: int) -> None:
        self.skipped.append(number)
        self._settled(number)

    def _settled(self, number: int) -> None:
        self._ahead.add(number)
        while self.through + 1 in self._ahead:
            self.through += 1
            self._ahead.discard(self.through)

    @property
    def place(self) -> Place:
        """Of the next batch."""
        skipped = [number for number in self.skipped if number <= self.through]
        ahead = sorted(number for number in self._ahead if number not in self.skipped)
        return Place(self.through, skipped, ahead)

    @property
    def is_far_ahead(self) -> bool:
        return self.next - self.through > WINDOW

    @property
    def is_worn_out(self) -> bool:
        return self.next >= MAX_NUMBER or len(self.skipped) >= MAX_SKIPPED


class Producer:
    def __init__(
        self,
        store: Store,
        compose: Compose,
        *,
        config: LedgerConfig,
        clock: Clock,
        draw_id: NewId,
        on_durable: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._compose = compose
        self._config = config
        self._clock = clock
        self._draw_id = draw_id
        self.owner = draw_id()
        """The uid of whoever it writes for; its own begins with that."""
        self._on_durable = on_durable
        self._waiting: deque[Lot] = deque()
        self._waiting_bytes = 0
        self._sending: set[asyncio.Task[None]] = set()
        self._ordered: asyncio.Task[None] | None = None
        """The last batch with something ordered in it."""
        self._flusher: asyncio.Task[None] | None = None
        self._landed = asyncio.Event()
        self._self: _Incarnation | None = None
        self._known = 0
        self._known_at: Reading | None = None
        self._pid = os.getpid()
        self._closed = False
        self.batches = 0
        """That became durable."""

    @property
    def uid(self) -> str | None:
        return self._self.uid if self._self is not None else None

    @property
    def waiting(self) -> int:
        """Calls whose batch is not sent yet."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        return (
            len(self._waiting) >= self._config.waiting
            or self._waiting_bytes >= _ENOUGH_BATCHES * self._config.batch_bytes
        )

    async def room(self) -> None:
        """Wait until some of what waits was sent."""
        self._landed.clear()
        await self._landed.wait()

    def learn(self, number: int, at: Reading) -> None:
        """The log had reached `number` when `at` was read."""
        if number >= self._known:
            self._known, self._known_at = number, at

    def submit(self, payload: Any, size: int, *, ordered: bool = False) -> asyncio.Future[Receipt]:
        """Give something to be written. The future has its receipt when it is durable, or `WriteUnknown`.

        What is `ordered` keeps its order also if it is not awaited: batches that hold such are sent one at a time, for
        nothing may depend on a batch that may never land.
        """
        if self._closed:
            raise TenureError("the ledger's producer is closed: its plugin was stopped")
        if os.getpid() != self._pid:
            # A copied counter would drop an acknowledged batch (E-12); what waits is for the parent to send.
            self._self, self._flusher, self._landed = None, None, asyncio.Event()
            self.owner = self._draw_id()
            self._waiting, self._waiting_bytes, self._sending = deque(), 0, set()
            self._pid = os.getpid()
        if len(self._waiting) >= self._config.waiting:
            raise LedgerBusy(
                f"{len(self._waiting):,} writes wait already: await the earlier ones, or send fewer at a time"
            )
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(Lot(payload, size, future, ordered))
        self._waiting_bytes += size
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.get_running_loop().create_task(self._flush())
        return future

    async def drain(self) -> None:
        """Wait until everything that was submitted is durable, or given up on."""
        while self._waiting or self._sending or (self._flusher is not None and not self._flusher.done()):
            tasks = [*self._sending, *([self._flusher] if self._flusher is not None else [])]
            await asyncio.wait([task for task in tasks if not task.done()] or tasks)

    async def aclose(self) -> None:
        self._closed = True
        # First the one that begins others.
        for tasks in ([self._flusher] if self._flusher is not None else [], self._sending):
            doomed = list(tasks)
            for task in doomed:
                task.cancel()
            if doomed:
                await asyncio.wait(doomed)
        for lot in self._waiting:
            if not lot.future.done():
                lot.future.set_exception(TenureError("the ledger's producer was closed before this was sent"))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._landed.set()

    async def _flush(self) -> None:
        config = self._config
        while self._waiting:
            if self._sending and self._waiting_bytes < config.batch_bytes:
                await self._gather()
            while self._sending and (
                len(self._sending) >= config.in_flight or self._is_far_ahead() or self._must_wait(self._waiting[0])
            ):  # also before another uid is taken: what is sent under it does not follow what was sent before
                self._landed.clear()
                await self._landed.wait()
            began = self._clock.read()  # before what it knows of the log is looked at: both must be young when it lands
            try:
                me = await self._identity()
            except Exception as error:
                self._fail_waiting(error)
                return
            if not self._waiting:
                return
            name = InboxName(self._known, me.uid, me.next)
            lots, body = self._next_batch(name, me.place)
            if lots:
                me.next += 1
                task = asyncio.get_running_loop().create_task(self._send(me, name, body, lots, began))
                self._sending.add(task)
                if any(lot.ordered for lot in lots):
                    self._ordered = task
                task.add_done_callback(self._sent)

    async def _gather(self) -> None:
        """More may come, and one write for all of it costs less; a first one is not kept waiting. While some are under
        way already, the next ones wait for one of them, but not for one that takes very long."""
        began = self._clock.read()
        await self._clock.sleep(self._config.linger)
        while len(self._sending) >= _SMALL_AT_ONCE and self._waiting_bytes < self._config.batch_bytes:
            left = self._config.linger_busy - self._clock.read().leader_elapsed(began)
            if left <= 0:
                return
            await self._clock.sleep(min(left, max(0.001, self._config.linger)))

    def _must_wait(self, lot: Lot) -> bool:
        return lot.ordered and self._ordered is not None and not self._ordered.done()

    def _is_far_ahead(self) -> bool:
        return self._self is not None and (self._self.is_far_ahead or self._self.is_worn_out)

    def _next_batch(self, name: InboxName, place: Place) -> tuple[list[Lot], bytes]:
        """As much of what waits as one batch holds; nothing if it cannot be written, which is told to who gave it."""
        lots: list[Lot] = []
        size = 0
        while self._waiting and (not lots or size + self._waiting[0].size <= self._config.batch_bytes):
            if lots and self._must_wait(self._waiting[0]):
                break
            lots.append(self._waiting.popleft())
            size += lots[-1].size
        self._waiting_bytes -= size
        try:
            body = self._compose(name, place, lots)
            if len(body) > MAX_INBOX_BYTES and len(lots) > 1:
                self._waiting.extendleft(reversed(lots[1:]))  # sizes are estimates
                self._waiting_bytes += size - lots[0].size
                lots = lots[:1]
                body = self._compose(name, place, lots)
            if len(body) > MAX_INBOX_BYTES:
                raise BodyTooLarge(
                    f"a write of {len(body):,} bytes is over the limit of {MAX_INBOX_BYTES:,}: give less at a time"
                )
        except Exception as error:
            _fail(lots, error)
            self._landed.set()
            return [], b""
        return lots, body

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._landed.set()
        if not task.cancelled():
            task.exception()

    def _fail_waiting(self, error: Exception) -> None:
        lots, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        _fail(lots, error)
        self._landed.set()

    async def _identity(self) -> _Incarnation:
        """Who sends, and what it knows of the log: both recent enough for a leader to believe."""
        now = self._clock.read()
        if self._known_at is None or now.leader_elapsed(self._known_at) >= self._config.known_for / 2:
            end = await log_end(self._store)
            self.learn(end, now)
        me = self._self
        if me is None or me.is_worn_out:
            me = self._self = _Incarnation(f"{self.owner}-{self._draw_id()[-_UID_CHARACTERS:].replace('-', '')}")
        return me

    async def _send(self, me: _Incarnation, name: InboxName, body: bytes, lots: list[Lot], began: Reading) -> None:
        """`began`: not after its name was given. A copy that is sent long after may not be believed any more."""
        config, clock = self._config, self._clock
        pause = _FIRST_PAUSE
        outcome: Applied | Unknown | None = None
        try:
            while True:
                sent = clock.read()
                if sent.leader_elapsed(began) < config.give_up_after:
                    outcome = await create_own(self._store, name.key, body)
                    heard = clock.read()
                    if heard.leader_elapsed(sent) < config.send_timeout and isinstance(outcome, Applied):
                        break
                else:
                    heard = sent
                if heard.leader_elapsed(began) >= config.give_up_after:
                    error = outcome.error if isinstance(outcome, Unknown) else None
                    raise WriteUnknown(
                        f"a write to {name.key} got no decisive answer in {config.give_up_after:g} s "
                        f"({error or 'answers came too late'}): it may have happened, or may still; "
                        "give a dedup_key to be able to send it again"
                    )
                await clock.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
        except BaseException as error:
            me.given_up(name.number)
            told = error if isinstance(error, Exception) else WriteUnknown(f"the write to {name.key} was cut short")
            _fail(lots, told)
            if isinstance(error, Exception):
                return
            raise
        me.durable(name.number)
        self.batches += 1
        for index, lot in enumerate(lots):
            if not lot.future.done():
                lot.future.set_result(Receipt(name.uid, name.number, index))
        self._on_durable()


def _fail(lots: Iterable[Lot], error: Exception) -> None:
    for lot in lots:
        if not lot.future.done():
            lot.future.set_exception(error)
            lot.future.exception()  # whoever does not wait for it is not told

"""Calls that come together: what they give is put together before it is written."""

from __future__ import annotations

import asyncio
import os

from tenure.errors import TenureError
from tenure.ledger import Producer, Receipt
from tenure.plugins.counters.cell import Cell
from tenure.plugins.counters.numbers import Counter

MAX_ROWS = 5_000
"""Of one group; a batch may hold several."""
_SHARE_BYTES = 256 * 1024
"""What a group is said to take when it is opened: how much comes is not known yet."""


class Group:
    """What a batch will hold. Open until it is composed."""

    __slots__ = ("_waiting", "closed", "counters", "ops", "rows", "size", "urgent")

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Cell]] = {}
        self.ops: list[tuple[str, str, str, Cell]] = []
        self.counters: dict[str, Counter] = {}
        self.urgent: dict[str, None] = {}
        self.closed = False
        self.size = 0
        self._waiting: list[asyncio.Future[Receipt]] = []
        """One for each call: if one is cancelled the others wait on."""

    def cell(self, field: str, counter: Counter, id: str) -> Cell:
        cells = self.rows.get(field)
        if cells is None:
            cells = self.rows[field] = {}
            self.counters[field] = counter
        cell = cells.get(id)
        if cell is None:
            cell = cells[id] = Cell.blank(counter)
            self.size += 1
        return cell

    def op(self, op_id: str, field: str, counter: Counter, id: str) -> Cell:
        """A cell of its own: whether it counts is known only when it is folded."""
        self.counters[field] = counter
        cell = Cell.blank(counter)
        self.ops.append((op_id, field, id, cell))
        self.size += 1
        return cell

    def durable(self) -> asyncio.Future[Receipt]:
        """Done when all of it is written."""
        waiting: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    def settled(self, done: asyncio.Future[Receipt]) -> None:
        self.closed = True
        error = TenureError("the write was cut short") if done.cancelled() else done.exception()
        for waiting in self._waiting:
            if waiting.done():
                continue
            if error is None:
                waiting.set_result(done.result())
            else:
                waiting.set_exception(error)
        self._waiting = []

    def take(self, other: Group) -> None:
        """What the other holds, after what this one does."""
        for field, cells in other.rows.items():
            counter = other.counters[field]
            for id, cell in cells.items():
                self.cell(field, counter, id).followed_by(counter, cell)
        for op in other.ops:
            self.counters[op[1]] = other.counters[op[1]]
            self.ops.append(op)
        self.urgent.update(other.urgent)


class Collector:
    """Gives each call the group that is open, and the producer each group once."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._open: Group | None = None
        self._pid = os.getpid()

    @property
    def current(self) -> Group | None:
        """What to put something into, at once: it may be closed at the next `await`. `None`: see `group`."""
        group = self._open if self._pid == os.getpid() else None  # what is open in the parent is for it to send
        return None if group is None or group.closed or group.size >= MAX_ROWS else group

    async def group(self) -> Group:
        """Likewise; it waits for room if there is none."""
        while (group := self.current) is None:
            if self._producer.is_full and self._pid == os.getpid():
                await self._producer.room()
                continue
            group, self._pid = Group(), os.getpid()
            self._open = group
            self._producer.submit(group, _SHARE_BYTES).add_done_callback(group.settled)
        return group

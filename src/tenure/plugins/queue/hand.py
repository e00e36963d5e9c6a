"""What a worker has in hand, and how it reports that."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tenure.clock import Clock, Reading
from tenure.errors import TicketLost
from tenure.plugins.queue.message import Message
from tenure.plugins.queue.records import Ticket
from tenure.plugins.queue.wire import Failure, Outcome, Piece


class Holder(Protocol):
    """Whoever holds tickets: a worker."""

    clock: Clock
    drift: float

    async def extend(self, hand: Hand) -> None: ...


class Hand:
    """A ticket that this worker holds."""

    def __init__(self, worker: Holder, ticket: Ticket, base: Reading) -> None:
        self._worker = worker
        self.id = ticket.id
        self.token = ticket.seq
        self.visibility = ticket.visibility_ms / 1000
        self.base = base
        self.runs = ticket.runs
        self.total = ticket.count
        self.keyed = any(run.key for run in ticket.runs)
        self.open = self.total
        """Messages without an outcome."""
        self.done: list[tuple[str, int]] = []
        self.failed: list[Failure] = []
        self.back: list[tuple[str, int]] = []
        self.settled_first = False
        """At most once: all of it was reported as done."""
        self.extending: asyncio.Future[None] | None = None
        self.extend_asked: Reading | None = None
        self.lost = False

    def remaining(self) -> float:
        if self.lost:
            return 0.0
        passed = self._worker.clock.read().leader_elapsed(self.base)
        return max(0.0, self.visibility * (1 - self._worker.drift) - passed)

    async def extend(self) -> None:
        await self._worker.extend(self)


class HeldMessage:
    """A message in hand, until it has an outcome."""

    __slots__ = ("begun", "closed", "hand", "index", "message", "segment", "settled")

    def __init__(self, hand: Hand, message: Message, segment: str, index: int) -> None:
        self.hand = hand
        self.message = message
        self.segment = segment
        self.index = index
        self.begun = False
        self.closed = False
        self.settled = False
        """At most once: it was reported as done before it is begun."""


def ticket_lost(hand: Hand) -> TicketLost:
    return TicketLost(f"the time for ticket {hand.id} is over: its messages may be with another worker by now")


def size_of(outcome: Outcome) -> int:
    """About so many bytes."""
    return 64 * (1 + len(outcome.done) + len(outcome.back)) + sum(96 + len(each.error) for each in outcome.failed)


def pieces_of(places: list[tuple[str, int]]) -> list[Piece]:
    """Side by side, as one piece."""
    pieces: list[Piece] = []
    places.sort()
    for segment, index in places:
        if pieces and pieces[-1].segment == segment and pieces[-1].high == index:
            pieces[-1] = Piece(segment, pieces[-1].low, index + 1)
        else:
            pieces.append(Piece(segment, index, index + 1))
    return pieces

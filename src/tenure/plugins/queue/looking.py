"""A queue as anybody sees it who can read the bucket: no leader is asked, and nothing is written."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.errors import BodyTooLarge, NotFound
from tenure.ledger import LedgerState
from tenure.ledger.catchup import catch_up
from tenure.ledger.layout import INBOX_NAMES, SEGMENTS
from tenure.plugins.ledgered import Onlooker
from tenure.plugins.queue.records import Dead, Run, ref_of
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.wire import Held, Segment, TooNew, Unreadable
from tenure.store import Store, Stored, ours


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a queue. What lies in the inbox is durable, and not counted yet by any leader."""

    ready: int
    delayed: int
    in_flight: int
    dead: int
    inbox: int
    """Objects, each with one or more messages or reports."""
    paused: bool
    oldest_age: float | None
    """Seconds for which the first in the queue has waited."""
    workers: int
    enqueue_rate: float
    """Messages per second over about the last minute ..."""
    done_rate: float
    """... and those that were finished."""
    enqueued: int
    done: int
    failed: int
    lapsed: int
    duplicates: int
    seq: int
    epoch: int


class PeekedMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    ref: str
    body: Any
    attempt: int
    priority: int
    ordering_key: str | None
    enqueued_ms: int
    due_ms: int
    headers: dict[str, str]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    ref: str
    id: str | None
    reason: str
    at_ms: int
    attempts: int
    ordering_key: str | None
    body: Any
    headers: dict[str, str]
    history: list[dict[str, Any]]


async def read_queue(store: Store) -> LedgerState:
    """The state of a queue, from its newest snapshot and the log after that."""
    state = LedgerState(QueueMachine())
    await catch_up(store, state, Onlooker())
    return state


async def stats_of(store: Store, state: LedgerState, now_ms: int) -> QueueStats:
    machine = state.machine
    assert isinstance(machine, QueueMachine)
    machine.advance(now_ms)
    inbox = 0
    async for _ in ours(store, INBOX_NAMES):
        inbox += 1
    oldest = machine.oldest_ms()
    enqueue_rate, done_rate = machine.rates(now_ms)
    return QueueStats(
        ready=machine.ready_count,
        delayed=machine.delayed_count,
        in_flight=machine.in_flight_count,
        dead=len(machine.dead),
        inbox=inbox,
        paused=machine.paused,
        oldest_age=None if oldest is None else max(0.0, (now_ms - oldest) / 1000),
        workers=len(machine.workers),
        enqueue_rate=round(enqueue_rate, 3),
        done_rate=round(done_rate, 3),
        enqueued=machine.totals.enqueued,
        done=machine.totals.done,
        failed=machine.totals.failed,
        lapsed=machine.totals.lapsed,
        duplicates=machine.totals.duplicates,
        seq=state.seq,
        epoch=state.epoch,
    )


class Bodies:
    """Reads segments, each once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, Segment | None] = {}

    async def message(self, run: Run, index: int) -> Held | None:
        if run.segment not in self._read:
            self._read[run.segment] = await self._segment(run.segment)
        segment = self._read[run.segment]
        if segment is None:
            return None
        try:
            return next(iter(segment.messages(index, index + 1)), None)
        except (Unreadable, TooNew):
            return None

    async def _segment(self, name: str) -> Segment | None:
        try:
            stored = await self._store.get(SEGMENTS + name)
            assert isinstance(stored, Stored)
            return Segment(stored.body)
        except (NotFound, BodyTooLarge, Unreadable, TooNew):
            return None


def shown_body(held: Held | None) -> Any:
    """For people and JSON."""
    if held is None:
        return None
    if not held.options.raw:
        try:
            return msgspec.json.decode(held.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return held.body.decode("utf-8", "backslashreplace")


async def peek(store: Store, state: LedgerState, limit: int, now_ms: int) -> list[PeekedMessage]:
    """The first that would be given to workers."""
    machine = state.machine
    assert isinstance(machine, QueueMachine)
    machine.advance(now_ms)
    bodies = Bodies(store)
    found: list[PeekedMessage] = []
    for group in machine.in_order(60_000, now_ms, 1, limit):
        for run in group:
            for index in range(run.low, run.high):
                if len(found) >= limit:
                    return found
                held = await bodies.message(run, index)
                found.append(
                    PeekedMessage(
                        id=held.id if held is not None else "?",
                        ref=ref_of(run.segment, index),
                        body=shown_body(held),
                        attempt=run.attempt,
                        priority=run.priority,
                        ordering_key=run.key or None,
                        enqueued_ms=run.at_ms,
                        due_ms=run.due_ms,
                        headers=held.options.headers if held is not None else {},
                    )
                )
    return found


async def dead_letters(store: Store, state: LedgerState, limit: int) -> list[DeadLetter]:
    """Oldest first."""
    machine = state.machine
    assert isinstance(machine, QueueMachine)
    bodies = Bodies(store)
    chosen = sorted(machine.dead.values(), key=lambda dead: dead.at_ms)[:limit]
    return [await _letter(bodies, dead) for dead in chosen]


async def _letter(bodies: Bodies, dead: Dead) -> DeadLetter:
    run = dead.run
    held = await bodies.message(run, run.low)
    return DeadLetter(
        ref=ref_of(run.segment, run.low),
        id=held.id if held is not None else None,
        reason=dead.reason,
        at_ms=dead.at_ms,
        attempts=run.attempt,
        ordering_key=run.key or None,
        body=shown_body(held),
        headers=held.options.headers if held is not None else {},
        history=[
            {"attempt": note.attempt, "at_ms": note.at_ms, "worker": note.worker, "error": note.error}
            for note in dead.history
        ],
    )

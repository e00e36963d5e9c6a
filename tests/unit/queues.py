"""A queue's core on a desk: one clerk who decides, one machine that reads along, and an auditor who counts.

Nothing here waits: time is what the test says. After each entry the clerk's state and the reader's must be the same in
every field, and every message must be in exactly one place.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tenure.entropy import Random
from tenure.ledger import InboxName, Item, Place, Situation, Stamp
from tenure.plugins.queue.clerk import QueueClerk
from tenure.plugins.queue.records import Run, Ticket, Work
from tenure.plugins.queue.settings import QueueSettings
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.wire import (
    Command,
    Failure,
    Header,
    Options,
    Outcome,
    Piece,
    Span,
    WorkerNote,
    encode_batch,
    read_header,
)
from tenure.store.memory import MemoryStore
from tests.support.clock import ScriptedClock

START_MS = 1_700_000_000_000
Message = tuple[str, int]


def run_now(coroutine: Any) -> Any:
    """A memory store never waits: whatever is awaited on it is done in one turn."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


class Desk:
    """`audited=False`: only the decisions, for what is measured."""

    def __init__(self, audited: bool = True, **settings: Any) -> None:
        self.settings = QueueSettings(**settings)
        self.clock = ScriptedClock()
        self.audited = audited
        self.epoch = 1
        self.clerk = self._new_clerk()
        self.reader = QueueMachine()
        self.now_ms = START_MS
        self.seq = 0
        self.works: list[Work] = []
        self.auditor = Auditor()
        self.alive: set[str] | None = None
        self._number = 0
        self._inbox: list[Item] = []

    def _new_clerk(self) -> QueueClerk:
        return QueueClerk(
            MemoryStore(),
            self.settings,
            epoch=self.epoch,
            tag=f"tag{self.epoch}",
            clock=self.clock,
            random=Random(self.epoch),
            is_alive=lambda name: None if self.alive is None else name in self.alive,
        )

    @property
    def machine(self) -> QueueMachine:
        return self.clerk.machine

    # What comes in

    def send(
        self,
        spans: Sequence[tuple[int, Options | None]] = (),
        notes: Sequence[WorkerNote] = (),
        commands: Sequence[Command] = (),
        modified_ms: int | None = None,
    ) -> None:
        """One batch, for the next entry: so many messages with such options each, notes and commands."""
        self._number += 1
        first, placed = 0, []
        for count, options in spans:
            if options is not None:
                placed.append(Span(first, count, options))
            first += count
        body = encode_batch(Place(self._number - 1), [b"x"] * first, placed, notes, commands)
        header, _ = read_header(body)
        name = InboxName(0, "producer", self._number)
        self._inbox.append(Item(name, self.now_ms if modified_ms is None else modified_ms, body, (), header))

    def put(self, count: int = 1, **options: Any) -> None:
        self.send([(count, Options(**options) if options else None)])

    def join(self, uid: str = "w", capacity: int = 100, **more: Any) -> None:
        self.send(notes=[WorkerNote(uid, uid, capacity, **more)])

    def leave(self, uid: str = "w") -> None:
        self.send(notes=[WorkerNote(uid, uid, leaving=True)])

    def report(self, uid: str, *outcomes: Outcome, capacity: int | None = None) -> None:
        known = self.machine.workers.get(uid)
        room = capacity if capacity is not None else known.capacity if known is not None else 0
        self.send(notes=[WorkerNote(uid, uid, room, outcomes=list(outcomes))])

    def command(self, op: str, *refs: str) -> None:
        self.send(commands=[Command(op, list(refs))])

    # Time

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)
        self.clock.advance(seconds)

    def tick(self, swept: bool = True, slow_ms: int = 0, unread: Iterable[str] = (), doubt_ms: int = 0) -> Work | None:
        """Decide on what came in; gives the entry as others read it."""
        items, self._inbox = self._inbox, []
        run_now(self.clerk.prepare(items))
        stamp = Stamp(self.seq + 1, self.epoch, self.now_ms)
        swept_ms = self.now_ms if swept else None
        events = self.clerk.decide(items, Situation(stamp, swept_ms, slow_ms, frozenset(unread), doubt_ms))
        if events is None:
            assert not any(isinstance(item.content, Header) and item.content.sizes for item in items)
            return None
        self.seq += 1
        work = msgspec.json.decode(events, type=Work)
        self.works.append(work)
        if self.audited:
            self.reader.apply(events, stamp)
            assert fields(self.machine) == fields(self.reader)
            self.auditor.check(self.machine, work)
            self.auditor.check_counts(self.reader)
        return work

    def new_leader(self, doubt_ms: int = 0) -> None:
        """The next term: what it knows is what the log says."""
        self.epoch += 1
        spent = self.machine.spent
        self.clerk = self._new_clerk()
        self.clerk.machine.restore(self.reader.snapshot())
        self.clerk.machine.spent = spent
        self.seq += 1
        stamp = Stamp(self.seq, self.epoch, self.now_ms, doubt_ms)
        self.clerk.machine.began(stamp)
        self.reader.began(stamp)
        assert fields(self.machine) == fields(self.reader)

    def reread(self) -> None:
        """Whoever reads along begins anew, from a snapshot."""
        chunks = self.reader.snapshot()
        fresh = QueueMachine()
        fresh.restore(chunks)
        assert fields(fresh) == fields(self.reader)
        fresh.spent = self.reader.spent
        self.reader = fresh

    # What workers do

    def tickets(self, uid: str | None = None) -> list[Ticket]:
        return [ticket for ticket in self.machine.tickets.values() if uid is None or ticket.uid == uid]

    def finish_all(self, uid: str | None = None) -> None:
        for ticket in self.tickets(uid):
            self.report(ticket.uid, Outcome(ticket.id, all_done=True))

    def given(self, work: Work | None = None) -> list[Message]:
        """What the last entry gives out, in the order of its tickets."""
        work = work if work is not None else self.works[-1]
        return [message for ticket in work.tickets for message in messages_of(ticket.runs)]


def messages_of(runs: Iterable[Run]) -> list[Message]:
    return [(run.segment, index) for run in runs for index in range(run.low, run.high)]


def pieces(runs: Iterable[Run]) -> list[Piece]:
    return [Piece(run.segment, run.low, run.high) for run in runs]


def failures(runs: Iterable[Run], error: str = "boom", final: bool = False) -> list[Failure]:
    return [Failure(segment, index, error, final) for segment, index in messages_of(runs)]


def fields(machine: QueueMachine) -> dict[str, Any]:
    """All that a log says: what only speeds up the looking (offers, reminders, tie-breakers) is left out."""
    plain = msgspec.to_builtins
    return {
        "paused": machine.paused,
        "last_seq": machine.last_seq,
        "orders": machine.orders,
        "segments": dict(machine.segments),
        "ready": {priority: plain(list(queue)) for priority, queue in machine.ready.items()},
        "delayed": [plain(run) for _, _, run in sorted(machine.delayed, key=lambda each: each[:2]) if run.count],
        "keys": {key: (plain(queue.waiting), queue.in_flight) for key, queue in machine.keys.items()},
        "tickets": {id: plain(ticket) for id, ticket in machine.tickets.items()},
        "workers": plain(machine.workers),
        "history": {ref: plain(notes) for ref, notes in machine.history.items()},
        "dead": {ref: plain(dead) for ref, dead in machine.dead.items()},
        "dedup": list(machine.dedup.items()),
        "totals": plain(machine.totals),
        "counts": (machine.ready_count, machine.delayed_count, machine.in_flight_count),
    }


class Auditor:
    """Knows every message that ever came, and where it may be."""

    def __init__(self) -> None:
        self.purged_at_once = 0
        self.open: set[Message] = set()
        self.gone: set[Message] = set()
        self.spent: list[str] = []

    def check(self, machine: QueueMachine, work: Work) -> None:
        came = messages_of(work.arrived)
        assert len(set(came)) == len(came)
        assert not self.open & set(came)
        assert not self.gone & set(came)
        assert Counter(segment for segment, _ in came) == Counter(
            {segment: count for segment, count in work.segments.items() if count}
        )
        self.open |= set(came)
        everywhere = self.check_counts(machine)
        assert len(everywhere) == len(set(everywhere)), "a message is in two places"
        assert set(everywhere) <= self.open, "a message came back, or from nowhere"
        self.gone |= self.open - set(everywhere)
        self.open = set(everywhere)
        totals = machine.totals
        self.purged_at_once += work.purged
        assert totals.enqueued == len(self.open) + len(self.gone) + self.purged_at_once
        assert totals.done + totals.purged == len(self.gone) + self.purged_at_once
        assert totals.died >= len(machine.dead)
        # A segment is spent when nothing of it is open, once, and never before.
        assert machine.segments == Counter(segment for segment, _ in self.open)
        assert len(set(machine.spent)) == len(machine.spent)
        assert not set(machine.spent) & set(machine.segments)
        ended = {segment for segment, _ in self.gone} - set(machine.segments)
        ended |= {segment for segment, count in work.segments.items() if not count}
        self.spent += [segment for segment in ended if segment not in self.spent]
        assert set(machine.spent) == set(self.spent)

    def check_counts(self, machine: QueueMachine) -> list[Message]:
        """Everything that is counted, counted again. Gives every message, from wherever it is."""
        ready = [run for queue in machine.ready.values() for run in queue]
        keyed = [run for queue in machine.keys.values() for run in queue.waiting]
        delayed = [run for _, _, run in machine.delayed if run.segment]
        held = [run for ticket in machine.tickets.values() for run in ticket.runs]
        assert all(run.count > 0 for run in (*ready, *keyed, *delayed, *held))
        assert all(queue for queue in machine.ready.values())
        assert all(not run.key for run in ready)
        assert all(run.count == 1 and run.key for run in keyed)
        assert machine.ready_count == sum(run.count for run in (*ready, *keyed))
        assert machine.delayed_count == sum(run.count for run in delayed)
        assert machine.in_flight_count == sum(run.count for run in held)
        for ticket in machine.tickets.values():
            assert ticket.runs
            assert ticket.uid in machine.workers
        for uid, worker in machine.workers.items():
            assert worker.held == sum(ticket.count for ticket in machine.tickets.values() if ticket.uid == uid)
        in_flight = Counter(run.key for run in held for _ in range(run.count) if run.key)
        for key, queue in machine.keys.items():
            assert queue.in_flight == in_flight[key]
            assert queue.in_flight or len(queue), "an empty key is kept"
            orders = [run.order for run in queue.waiting]
            assert orders == sorted(set(orders))
            offered = queue.offer is not None and queue.offer in machine.key_heaps.get(queue.offered, [])
            reminded = any(run.key == key and not run.segment for _, _, run in machine.delayed)
            assert offered or reminded or queue.in_flight, "nobody would look at this key again"
        assert set(in_flight) <= set(machine.keys)
        dead = [(segment, index) for segment, index in machine.dead]
        for ref, letter in machine.dead.items():
            assert (letter.run.segment, letter.run.low, letter.run.count) == (*ref, 1)
        everywhere = [*messages_of((*ready, *keyed, *delayed, *held)), *dead]
        assert set(machine.history) <= set(everywhere) - set(dead)
        return everywhere

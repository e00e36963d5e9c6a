"""Numbers in the log of a queue that no leader writes. Whoever can write the bucket writes them for nothing; a reader
that believed them would be busy with them, or out of memory. They are refused, and cost no more than their text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.clock import SYSTEM_CLOCK
from tenure.entropy import Random
from tenure.errors import ConfigError
from tenure.ledger import InboxName, LedgerConfig, LedgerTerm, Place, Poison, Stamp
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.plugins.queue import image
from tenure.plugins.queue.clerk import QueueClerk
from tenure.plugins.queue.records import (
    MAX_SEGMENT_MESSAGES,
    MAX_TICKET_MESSAGES,
    Published,
    Run,
    Settled,
    Ticket,
    Totals,
    Work,
)
from tenure.plugins.queue.settings import settings_from
from tenure.plugins.queue.state import MAX_ARRIVED, QueueMachine
from tenure.plugins.queue.wire import MAX_MESSAGES_PER_BATCH, Options, Span, encode_batch
from tenure.store import Store
from tenure.store.memory import MemoryStore
from tests.support.clock import ScriptedClock
from tests.support.lease import ScriptedLease
from tests.unit.leases import numbered
from tests.unit.queues import Desk

HUGE = 2**60
MANY = MAX_SEGMENT_MESSAGES
STAMP = Stamp(seq=1, epoch=1, time_ms=1_000, doubt_ms=0)


def entry(**events: Any) -> bytes:
    return msgspec.json.encode(events)


def run(low: int, high: int, key: str = "", segment: str = "s") -> list[Any]:
    return [segment, low, high, 0, 0, 0, 1, key]


FORGED = {
    "a run without end": entry(segments={"s": HUGE}, arrived=[run(0, HUGE, "k")]),
    "of a segment that is not named": entry(arrived=[run(0, 1000, "k")]),
    "more than its segment has": entry(segments={"s": 1}, arrived=[run(0, 2, "k")]),
    "fewer than its segment has": entry(segments={"s": 3}, arrived=[run(0, 2)]),
    "the same ones again and again": entry(segments={"s": MANY}, arrived=[run(0, MANY, "k")] * 50),
    "more segments than fit into an entry": entry(
        segments={f"s{number}": MANY for number in range(50)},
        arrived=[run(0, MANY, "k", f"s{number}") for number in range(50)],
    ),
    "backwards": entry(segments={"s": 1}, arrived=[run(5, 2), run(0, 4)]),
    "below zero": entry(segments={"s": 2}, arrived=[run(-1, 1)]),
    "a ticket without end": entry(tickets=[["t", "w", 1, 5, 5, [run(0, HUGE)]]]),
    "a ticket of many": entry(tickets=[["t", "w", 1, 5, 5, [run(0, MANY)] * 1000]]),
}


@pytest.mark.parametrize("events", FORGED.values(), ids=FORGED.keys())
def test_an_entry_that_cannot_be_is_refused(events: bytes) -> None:
    machine = QueueMachine()
    with pytest.raises((ValueError, msgspec.ValidationError)):
        machine.apply(events, STAMP)
    assert not machine.keys
    assert not machine.tickets


@pytest.mark.parametrize("name", ["a ticket without end", "a ticket of many"])
def test_a_worker_refuses_it_as_well(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(FORGED[name], type=Published)


SNAPSHOTS = {
    "a key's messages together": {"waiting": [run(0, MANY, "k")]},
    "a key's messages together, later": {"delayed": [run(0, MANY, "k")]},
    "a run without end": {"waiting": [run(0, HUGE)]},
    "a dead letter of many": {"dead": [[run(0, 2), "", 0, []]]},
    "a ticket of many": {"tickets": [["t", "w", 1, 5, 5, [run(0, MAX_TICKET_MESSAGES + 1)]]]},
}


@pytest.mark.parametrize("contents", SNAPSHOTS.values(), ids=SNAPSHOTS.keys())
def test_a_snapshot_that_cannot_be_is_refused(contents: dict[str, Any]) -> None:
    frame = image.Frame(False, 1, 0, Totals(), [], {field: len(rows) for field, rows in contents.items()})
    with pytest.raises((ValueError, msgspec.ValidationError)):
        QueueMachine().restore([msgspec.json.encode(frame), msgspec.json.encode(contents)])


def test_the_most_that_can_be_is_taken() -> None:
    """Of what no ordering key sets apart, a run is one thing, however long it is."""
    machine = QueueMachine()
    segments = {f"s{number}": MANY for number in range(MAX_ARRIVED // MANY)}
    runs = [Run(segment, 0, MANY, 0) for segment in segments]
    machine.enact(Work(segments=segments, arrived=runs), STAMP)
    assert machine.ready_count == MAX_ARRIVED


def test_a_leader_cannot_bring_more_than_that() -> None:
    """However small they are: a queue whose inbox held so many would halt, and so would every leader after that."""
    most = LedgerConfig(bytes_per_tick=MAX_ENTRY_BYTES // 8).bytes_per_tick
    batch = encode_batch(Place(0), [b""] * MAX_MESSAGES_PER_BATCH)
    assert most / (len(batch) / MAX_MESSAGES_PER_BATCH) <= MAX_ARRIVED
    with pytest.raises(ConfigError):
        LedgerConfig(bytes_per_tick=most + 1)


async def test_four_million_empty_messages_that_nobody_has_read_yet_are_taken() -> None:
    store = MemoryStore()
    batches, each = 49, 86_000
    for number in range(1, batches + 1):
        body = encode_batch(Place(number - 1), [b""] * each)
        await store.create(InboxName(0, "p", number).key, body)
    assert await _taken(store, epoch=1) == batches * each


def _small_ones(number: int, count: int) -> bytes:
    """As a producer writes them: every second message has an option of its own."""
    spans = [Span(index, 1, Options(key="a")) for index in range(1, count, 2)]
    return encode_batch(Place(number - 1), [b"%d" % (index % 10) for index in range(count)], spans)


async def _taken(store: Store, epoch: int, tag: str = "t") -> int:
    """How many messages a leader takes in that finds all of this in the inbox."""
    clock, lease = ScriptedClock(), ScriptedLease(epoch)
    clerk = QueueClerk(store, settings_from({}), epoch=epoch, tag=tag, clock=SYSTEM_CLOCK, random=Random(1))
    config, draw_id = LedgerConfig(), numbered("w")
    term = LedgerTerm(store, lease, clerk, config=config, clock=SYSTEM_CLOCK, draw_id=draw_id, now=clock.now)
    await term.begin()
    while (await term.tick()).more:
        pass
    await term.aclose()
    return clerk.machine.ready_count


@pytest.mark.slow
async def test_many_small_messages_with_options_of_their_own_have_room_in_an_entry() -> None:
    """What is decided on them is five times as long as they are."""
    store = MemoryStore()
    batches, each = 60, 10_000
    for number in range(1, batches + 1):
        await store.create(InboxName(0, f"p{number}", 1).key, _small_ones(1, each))
    assert await _taken(store, epoch=12_345, tag="t" * 12) == batches * each


@pytest.mark.slow
def test_one_object_that_no_entry_has_room_for_is_set_aside() -> None:
    clerk = QueueClerk(MemoryStore(), settings_from({}), epoch=1, tag="t", clock=SYSTEM_CLOCK, random=Random(1))
    with pytest.raises(Poison, match="bytes of an entry"):
        clerk.read(InboxName(0, "p", 1), _small_ones(1, 390_000))
    clerk.read(InboxName(0, "p", 1), _small_ones(1, 108_000))  # more than fit into the largest batch of a producer


def test_what_is_settled_costs_no_more_than_is_remembered() -> None:
    """A purge of millions, of which a few had failed: each of these is forgotten, and the others are not looked for."""
    machine = QueueMachine()
    machine.enact(Work(segments={"s": MANY, "other": 1}, arrived=[Run("s", 0, MANY, 0), Run("other", 0, 1, 0)]), STAMP)
    machine.publish([Ticket("t", "w", 1, 5, 5, [Run("s", 0, 2, 0)])])
    machine.settle(Settled("t", lapsed=True), STAMP)
    machine.history["other", 0] = []
    assert len(machine.history) == 3
    for waiting in list(machine.ready.values()):
        for each in waiting:
            if each.segment == "s":
                machine._settle_for_good(each)
    assert list(machine.history) == [("other", 0)]


# Found by mutants


def test_more_spans_than_an_entry_has_room_for_are_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    def batch(spans: int) -> bytes:
        placed = [Span(2 * index, 1, Options(priority=1)) for index in range(spans)]
        return encode_batch(Place(0), [b"x"] * (2 * spans), placed, [], [])

    monkeypatch.setattr("tenure.plugins.queue.clerk.MAX_ARRIVAL_BYTES", 1000)
    clerk, name = Desk().clerk, InboxName(0, "producer", 1)
    clerk.read(name, batch(4))
    with pytest.raises(Poison, match="1,100 bytes of an entry"):
        clerk.read(name, batch(5))

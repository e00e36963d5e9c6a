"""What a ledger must hold to when its store is slow. Each of these went wrong once."""

from __future__ import annotations

import asyncio

import pytest

from tenure.errors import LedgerBusy
from tenure.ledger import LedgerConfig, Producer, Tail
from tests.support.store import ANY, After, Hold, Request
from tests.unit.ledgers import EPOCH_MS, Ledger, compose, settle_tasks


@pytest.fixture
async def ledger() -> Ledger:
    made = Ledger()
    await made.lead()
    return made


async def test_decisions_are_dated_after_a_listing_that_was_slow(ledger: Ledger) -> None:
    """Deadlines are counted from that time: from an older one they would be over before anybody knew of them."""

    async def slow(request: Request) -> None:
        if request.key == "inbox/":
            ledger.time.advance(12.0)

    await ledger.put("p", 1)
    began = EPOCH_MS + round(ledger.time.true_seconds * 1000)
    ledger.store.always("list", ANY, slow)
    tick = await ledger.term.tick()
    assert tick.entry is not None
    assert tick.entry.time_ms >= began + 12_000
    (situation,) = ledger.clerk.situations
    assert situation.stamp.time_ms == tick.entry.time_ms
    # What was seen was there when the listing was begun, and not when it ended.
    assert situation.swept_ms is not None
    assert situation.swept_ms <= began


async def test_who_reads_along_does_not_go_back_while_it_looks_for_the_end(ledger: Ledger) -> None:
    """The leader of the same process hands it entries meanwhile: none is to be heeded twice."""
    store, listed = ledger.store.beside(), Hold()
    tail = Tail(store, config=ledger.config, clock=ledger.time)
    await tail.start()
    store.always("list", "log/", After(listed))
    starting = asyncio.ensure_future(tail.start())
    await listed.reached()
    for number in (1, 2, 3):
        await ledger.put("p", number)
        entry = (await ledger.term.tick()).entry
        assert entry is not None
        assert entry.seq == tail.position
        assert tail.took(entry)
    position = tail.position
    listed.release()
    await starting
    assert tail.position == position
    assert await tail.poll() is None


@pytest.mark.req("SQ-3")
@pytest.mark.parametrize("ordered", [True, False])
async def test_what_is_ordered_is_sent_one_after_the_other(ledger: Ledger, ordered: bool) -> None:
    """Of two batches that are under way at once, the second may land first."""
    config = LedgerConfig(batch_bytes=10, in_flight=8)
    producer = Producer(ledger.store, compose, config=config, clock=ledger.time, draw_id=ledger.draw_id)
    under_way: list[asyncio.Event] = []
    most = 0

    async def hold(request: Request) -> None:
        nonlocal most
        free = asyncio.Event()
        under_way.append(free)
        most = max(most, len(under_way))
        await free.wait()
        under_way.remove(free)

    ledger.store.always("create", ANY, hold)
    sent = [producer.submit(f"{number}", 10, ordered=ordered) for number in range(3)]
    while not all(future.done() for future in sent):
        await settle_tasks(100)
        for free in under_way[-1:]:
            free.set()
    assert most == (1 if ordered else 3)
    await producer.aclose()


async def test_a_producer_that_is_full_says_so_before_it_refuses() -> None:
    """Whoever may not be refused, such as a worker with a report, waits for room."""
    ledger = Ledger()
    config = LedgerConfig(waiting=3, in_flight=1)
    producer = Producer(ledger.store, compose, config=config, clock=ledger.time, draw_id=ledger.draw_id)
    free = asyncio.Event()

    async def hold(request: Request) -> None:
        await free.wait()

    ledger.store.always("create", ANY, hold)
    sent = [producer.submit("first", 5)]
    await settle_tasks()
    while not producer.is_full:
        sent.append(producer.submit("more", 5))
    with pytest.raises(LedgerBusy):
        producer.submit("too many", 5)
    waiting = asyncio.ensure_future(producer.room())
    await settle_tasks()
    assert not waiting.done()
    free.set()
    await waiting
    assert not producer.is_full
    await asyncio.gather(*sent)
    await producer.aclose()

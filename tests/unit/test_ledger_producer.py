"""Writing to an inbox: calls that share a write, writes without an answer, and what is told to whom."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import BodyTooLarge, LedgerBusy, StoreError, StoreUnavailable, TenureError, WriteUnknown
from tenure.ledger import InboxName, Place, Producer
from tenure.ledger.config import MAX_INBOX_BYTES
from tenure.ledger.layout import parse_inbox_key
from tenure.ledger.producer import MAX_SKIPPED, WINDOW, Compose
from tenure.ledger.producers import MAX_AHEAD
from tests.support.store import ANY, After, Request
from tests.unit.ledgers import Batch, Ledger, compose, settle_tasks


def producer_of(ledger: Ledger, made: Compose = compose, **options: Any) -> Producer:
    return Producer(ledger.store, made, config=ledger.config, clock=ledger.time, draw_id=ledger.draw_id, **options)


@pytest.fixture
async def ledger() -> Ledger:
    made = Ledger()
    await made.lead()
    return made


async def batches(ledger: Ledger) -> dict[int, Batch]:
    """By number: what lies in the inbox."""
    found = {}
    for key in await ledger.store.keys("inbox/"):
        name = parse_inbox_key(key)
        assert name is not None
        stored = await ledger.store.inner.get(key)
        found[name.number] = msgspec.json.decode(stored.body, type=Batch)  # type: ignore[union-attr]
    return found


class Gate:
    """Holds up creates until they are let through."""

    def __init__(self, ledger: Ledger, *only: int) -> None:
        self.only = only
        self.open = asyncio.Event()
        self.waiting = 0
        self.most = 0
        ledger.store.always("create", ANY, self)

    async def __call__(self, request: Request) -> None:
        name = parse_inbox_key(request.key)
        if name is not None and (not self.only or name.number in self.only):
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            try:
                await self.open.wait()
            finally:
                self.waiting -= 1


class TestTogether:
    @pytest.mark.req("SQ-1")
    async def test_it_is_durable_when_it_returns(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        receipt = await producer.submit("a", 10)
        assert (await batches(ledger))[receipt.number].texts == ["a"]
        assert (receipt.uid, receipt.number, receipt.index) == (producer.uid, 1, 0)

    async def test_calls_that_come_together_share_a_write(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        receipts = await asyncio.gather(*(producer.submit(f"{n}", 10) for n in range(50)))
        assert [(each.number, each.index) for each in receipts] == [(1, n) for n in range(50)]
        assert (await batches(ledger))[1].texts == [f"{n}" for n in range(50)]

    async def test_a_batch_is_bounded(self) -> None:
        ledger = Ledger(batch_bytes=1000, in_flight=64)
        producer = producer_of(ledger)
        await asyncio.gather(*(producer.submit("x", 300) for _ in range(10)))
        found = await batches(ledger)
        assert [len(found[number].texts) for number in sorted(found)] == [3, 3, 3, 1]
        assert not producer._waiting_bytes

    async def test_one_lot_over_the_batch_goes_alone(self) -> None:
        ledger = Ledger(batch_bytes=1000)
        producer = producer_of(ledger)
        await asyncio.gather(producer.submit("a", 10), producer.submit("b", 5000), producer.submit("c", 10))
        found = await batches(ledger)
        assert [found[number].texts for number in sorted(found)] == [["a"], ["b"], ["c"]]

    async def test_writes_under_way_are_bounded(self) -> None:
        ledger = Ledger(batch_bytes=1, in_flight=3)
        producer = producer_of(ledger)
        gate = Gate(ledger)
        futures = [producer.submit(f"{n}", 10) for n in range(10)]
        await settle_tasks(50)
        assert gate.most == 3
        gate.open.set()
        await asyncio.gather(*futures)
        assert gate.most == 3
        assert len(await batches(ledger)) == 10

    async def test_calls_that_wait_are_bounded(self) -> None:
        ledger = Ledger(waiting=5, in_flight=1)
        producer = producer_of(ledger)
        gate = Gate(ledger)
        futures = [producer.submit("a", 10)]
        await settle_tasks()
        futures += [producer.submit("b", 10) for _ in range(5)]
        assert producer.is_full
        with pytest.raises(LedgerBusy):
            producer.submit("c", 10)
        gate.open.set()
        await asyncio.gather(*futures)
        assert not producer.is_full

    async def test_drain_waits_for_everything(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        futures = [producer.submit(f"{n}", 10) for n in range(5)]
        await producer.drain()
        assert all(future.done() for future in futures)
        await producer.drain()

    async def test_somebody_is_told_when_something_is_durable(self, ledger: Ledger) -> None:
        rung: list[int] = []
        producer = producer_of(ledger, on_durable=lambda: rung.append(1))
        await producer.submit("a", 1)
        assert rung == [1]

    async def test_a_caller_that_does_not_wait_harms_nobody(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        impatient, patient = producer.submit("a", 1), producer.submit("b", 1)
        impatient.cancel()
        assert (await patient).number == 1


class TestPlaces:
    async def test_one_after_the_other(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        for number in range(3):
            await producer.submit(f"{number}", 1)
        found = await batches(ledger)
        assert [found[number].after for number in (1, 2, 3)] == [0, 1, 2]

    async def test_what_is_durable_ahead_of_others_is_named(self) -> None:
        ledger = Ledger(batch_bytes=1)
        producer = producer_of(ledger)
        gate = Gate(ledger, 1)
        first = producer.submit("a", 10)
        await settle_tasks()
        await producer.submit("b", 10)
        await producer.submit("c", 10)
        found = await batches(ledger)
        assert (found[3].after, found[3].ahead) == (0, [2])
        gate.open.set()
        await first
        await producer.submit("d", 10)
        found = await batches(ledger)
        assert (found[4].after, found[4].ahead) == (3, [])

    async def test_what_was_given_up_on_is_named(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        await producer.submit("a", 1)
        ledger.store.always("create", ANY, "lost")
        with pytest.raises(WriteUnknown):
            await producer.submit("b", 1)
        ledger.store.end_script()
        await producer.submit("c", 1)
        found = await batches(ledger)
        assert (found[3].after, found[3].skipped) == (2, [2])
        await ledger.tick()
        assert ledger.texts == ["a", "c"]

    async def test_one_that_hangs_does_not_let_others_run_away_from_it(self) -> None:
        """A leader believes no batch that is more than so many ahead: what was acknowledged would never be folded."""
        ledger = Ledger(batch_bytes=1, in_flight=4)
        await ledger.lead()
        producer = producer_of(ledger)
        gate = Gate(ledger, 1)
        futures = [producer.submit(f"{n}", 10) for n in range(1, MAX_AHEAD + 200)]
        await settle_tasks(6 * MAX_AHEAD)
        assert sum(future.done() for future in futures) <= WINDOW
        ledger.store.always("create", ledger.store.made("create", "inbox/*")[0].key, "lost")
        gate.open.set()
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert isinstance(results[0], WriteUnknown)
        assert not any(isinstance(result, BaseException) for result in results[1:])
        for _ in range(30):
            await ledger.tick()
        assert sorted(ledger.texts, key=int) == [f"{n}" for n in range(2, MAX_AHEAD + 200)]
        assert await ledger.store.keys("damaged/") == []

    async def test_what_the_window_allows_a_leader_believes(self) -> None:
        assert WINDOW + MAX_SKIPPED + 64 <= MAX_AHEAD

    async def test_another_name_after_many_that_were_given_up_on(self) -> None:
        ledger = Ledger(give_up_after=0.001)
        await ledger.lead()
        producer = producer_of(ledger)
        await producer.submit("a", 1)
        uid = producer.uid
        ledger.store.always("create", ANY, "lost")
        for _ in range(MAX_SKIPPED):
            with pytest.raises(WriteUnknown):
                await producer.submit("x", 1)
        ledger.store.end_script()
        receipt = await producer.submit("b", 1)
        assert (receipt.number, receipt.uid != uid) == (1, True)
        await ledger.tick(3)
        assert ledger.texts == ["a", "b"]


class TestAnswers:
    async def test_a_lost_reply_is_settled_under_the_same_name(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        ledger.store.on("create", ANY, "kept")
        receipt = await producer.submit("a", 1)
        assert receipt.number == 1
        inbox = [request.key for request in ledger.store.made("create", "inbox/*")]
        assert len(inbox) == 2
        assert len(set(inbox)) == 1
        await ledger.tick()
        assert ledger.texts == ["a"]

    async def test_a_lost_request_is_sent_again(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        ledger.store.on("create", ANY, "lost", "lost")
        await producer.submit("a", 1)
        await ledger.tick()
        assert ledger.texts == ["a"]

    @pytest.mark.parametrize("before", [[], ["lost"]], ids=["on the first send", "after a send without answer"])
    async def test_a_rejection_is_not_believed_before_it_was_read_back(self, ledger: Ledger, before: list[str]) -> None:
        """WA-8: what stands before the store may answer 412 without asking it."""
        producer = producer_of(ledger)
        ledger.store.on("create", "inbox/*", *before, "rejected", "rejected")
        receipts = [await producer.submit(text, 1) for text in "abc"]
        ledger.store.assert_script_was_met()
        assert [receipt.number for receipt in receipts] == [1, 2, 3]
        await ledger.tick()
        assert ledger.texts == ["a", "b", "c"]

    async def test_a_rejection_of_what_is_there_says_that_it_landed(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        ledger.store.on("create", "inbox/*", "twice")
        await producer.submit("a", 1)
        assert (ledger.store.count("create", "inbox/*"), ledger.store.count("get", "inbox/*")) == (1, 1)
        await ledger.tick()
        assert ledger.texts == ["a"]

    async def test_what_was_folded_before_it_was_read_back_is_sent_again_and_folded_once(self, ledger: Ledger) -> None:
        """It is not there, which a rejection that nobody asked the store for looks like as well."""
        producer = producer_of(ledger)

        async def fold(request: Request) -> None:
            await ledger.tick()

        ledger.store.on("create", "inbox/*", After(fold, "denied"))
        await producer.submit("a", 1)
        assert ledger.store.count("create", "inbox/*") == 2
        await ledger.tick()
        assert ledger.texts == ["a"]
        assert await ledger.inbox() == []

    async def test_what_cannot_be_read_back_is_sent_again(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        ledger.store.on("create", "inbox/*", "rejected")
        ledger.store.on("get", "inbox/*", StoreUnavailable("no"))
        await producer.submit("a", 1)
        await ledger.tick()
        assert ledger.texts == ["a"]

    async def test_nothing_but_rejections_is_told_for_what_it_is(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        ledger.store.always("create", "inbox/*", "rejected")
        with pytest.raises(WriteUnknown, match="answered that it is there already, and it is not"):
            await producer.submit("a", 1)
        assert producer.batches == 0

    async def test_a_slow_read_back_does_not_count(self, ledger: Ledger) -> None:
        """Of the answer and of what was read back together: the batch may have been forgotten meanwhile."""
        producer = producer_of(ledger)
        slow = [ledger.config.send_timeout + 1]

        async def wait(request: Request) -> None:
            if slow:
                ledger.time.advance(slow.pop())

        ledger.store.on("create", "inbox/*", "denied")
        ledger.store.always("get", "inbox/*", wait)
        await producer.submit("a", 1)
        assert ledger.store.count("create", "inbox/*") == 2

    async def test_a_copy_that_lands_after_it_was_folded_is_not_folded_again(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        ledger.store.on("create", ANY, "late")
        await producer.submit("a", 1)
        await ledger.tick()
        await ledger.store.land()
        await ledger.tick()
        assert ledger.texts == ["a"]
        assert await ledger.inbox() == []

    async def test_an_answer_after_its_timeout_does_not_count(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        slow = [ledger.config.send_timeout + 1]

        async def wait(request: Request) -> None:
            if slow and request.key.startswith("inbox/"):
                ledger.time.advance(slow.pop())

        ledger.store.always("create", ANY, wait)
        await producer.submit("a", 1)
        assert ledger.store.count("create", "inbox/*") == 2

    async def test_it_is_given_up_on_after_a_while(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        ledger.store.always("create", ANY, "lost")
        began = ledger.time.true_seconds
        with pytest.raises(WriteUnknown, match="no decisive answer in 15 s"):
            await producer.submit("a", 1)
        assert 15 <= ledger.time.true_seconds - began <= 15 + 2 + 0.001
        assert producer.batches == 0

    @pytest.mark.parametrize("when", ["between two copies", "before the first"])
    async def test_one_that_stood_still_does_not_send_what_nobody_would_believe(
        self, ledger: Ledger, when: str
    ) -> None:
        """Stopped for hours, it wakes and sends: the store says yes, and no leader remembers so old a name."""
        await ledger.put("other", 1)
        await ledger.tick()
        producer = producer_of(ledger)
        other = producer_of(ledger)
        producer.learn(0, ledger.time.read())  # it began when the log was shorter
        stood = []

        def stand_still() -> None:
            if not stood:
                stood.append(1)
                ledger.time.advance(3 * ledger.config.retention)

        if when == "between two copies":
            ledger.store.on("create", ANY, "lost")
            ledger.time.on_sleep = stand_still
        else:
            producer._compose = lambda *arguments: (stand_still(), compose(*arguments))[1]
        future = producer.submit("a", 1)
        while not stood:
            await asyncio.sleep(0)
        ledger.time.on_sleep = None
        await ledger.tick()  # the others are forgotten, and the horizon rises
        assert ledger.term.state.producers.horizon > 0
        told: object
        try:
            told = await future
        except WriteUnknown as error:
            told = error
        await ledger.tick(3)
        assert isinstance(told, WriteUnknown) or "a" in ledger.texts, "it was acknowledged, and set aside"
        assert isinstance(told, WriteUnknown)
        assert (await other.submit("b", 1)).number == 1

    async def test_a_log_that_cannot_be_listed_fails_what_waits_and_nothing_was_written(self, ledger: Ledger) -> None:
        failing = ledger.store.always("list", ANY, StoreUnavailable("no"))
        producer = producer_of(ledger)
        with pytest.raises(StoreError):
            await producer.submit("a", 1)
        failing.stop()
        assert (await producer.submit("b", 1)).number == 1

    async def test_who_waits_for_room_is_woken_when_everything_failed(self) -> None:
        ledger = Ledger(waiting=1)

        ledger.store.always("list", ANY, StoreUnavailable("no"))
        producer = producer_of(ledger)
        future = producer.submit("a", 1)
        assert producer.is_full
        async with asyncio.timeout(10):
            await producer.room()
        assert future.done()
        future.exception()

    async def test_the_log_is_looked_at_again_in_time(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        await producer.submit("a", 1)
        for _ in range(10):
            await ledger.put("q", 1)
            await ledger.tick()
        ledger.time.advance(ledger.config.known_for / 2 + 1)
        receipt = await producer.submit("b", 1)
        names = [parse_inbox_key(key) for key in await ledger.store.keys("inbox/")]
        assert [name.known for name in names if name is not None and name.number == receipt.number] == [2]

    async def test_what_is_over_the_limit_is_refused_and_not_lost(self, ledger: Ledger) -> None:
        """A leader does not read it: it must not be acknowledged."""
        producer = producer_of(ledger)
        large = producer.submit("x" * (MAX_INBOX_BYTES + 1), 10)
        small = producer.submit("y", 1)
        with pytest.raises(BodyTooLarge, match="over the limit of 8,388,608"):
            await large
        assert (await small).number == 1
        await ledger.tick()
        assert ledger.texts == ["y"]

    async def test_sizes_that_were_estimated_too_low_do_not_lose_anything(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        part = "x" * (MAX_INBOX_BYTES // 3)
        await asyncio.gather(*(producer.submit(f"{n}{part}", 1) for n in range(5)))
        assert producer._waiting_bytes == 0
        await ledger.sweep()
        assert sorted(text[0] for text in ledger.texts) == ["0", "1", "2", "3", "4"]

    async def test_what_cannot_be_composed_is_told_and_harms_nothing_else(self, ledger: Ledger) -> None:
        def picky(name: InboxName, place: Place, lots: Any) -> bytes:
            if any(lot.payload == "bad" for lot in lots):
                raise TypeError("cannot be written")
            return compose(name, place, lots)

        producer = producer_of(ledger, picky)
        bad = producer.submit("bad", 1)
        with pytest.raises(TypeError):
            await asyncio.wait_for(bad, 10)
        assert (await producer.submit("good", 1)).number == 1
        await producer.drain()


class TestEnd:
    async def test_what_was_not_sent_is_told(self) -> None:
        ledger = Ledger(in_flight=1, batch_bytes=1)
        producer = producer_of(ledger)
        Gate(ledger)
        first = producer.submit("a", 10)
        await settle_tasks()
        second = producer.submit("b", 10)
        await producer.aclose()
        with pytest.raises(WriteUnknown):
            await first
        with pytest.raises(TenureError, match="before this was sent"):
            await second
        with pytest.raises(TenureError, match="is closed"):
            producer.submit("c", 10)

    async def test_who_waits_for_room_is_woken(self) -> None:
        ledger = Ledger(waiting=1, in_flight=1)
        producer = producer_of(ledger)
        Gate(ledger)
        futures = [producer.submit("a", 1)]
        await settle_tasks()
        futures.append(producer.submit("b", 1))
        room = asyncio.ensure_future(producer.room())
        await settle_tasks()
        await producer.aclose()
        await asyncio.wait_for(room, 10)
        assert all(future.exception() for future in futures)

    async def test_closing_twice_or_unused(self, ledger: Ledger) -> None:
        producer = producer_of(ledger)
        await producer.aclose()
        await producer.aclose()

    async def test_a_forked_child_has_another_name_and_sends_only_its_own(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E-12."""
        producer = producer_of(ledger)
        await producer.submit("a", 1)
        uid = producer.uid
        gate = Gate(ledger)
        parents = [producer.submit("b", 1)]
        await settle_tasks()
        parents.append(producer.submit("c", 1))
        gate.open.set()
        child = os.getpid() + 1
        monkeypatch.setattr("tenure.ledger.producer.os", SimpleNamespace(getpid=lambda: child))
        receipt = await asyncio.wait_for(producer.submit("d", 1), 10)
        assert receipt.uid != uid
        assert receipt.number == 1
        texts = [text for batch in (await batches(ledger)).values() for text in batch.texts]
        assert "c" not in texts
        for future in parents:
            future.cancel()


@pytest.mark.req("SQ-1")
@given(st.data())
@settings(max_examples=100)
def test_what_was_acknowledged_is_folded_once_and_what_was_not_at_most_once(data: st.DataObject) -> None:
    """Any fates of the writes, any ticks in between; calls that were awaited one after the other stay in order."""

    async def scenario() -> None:
        ledger = Ledger(
            in_flight=data.draw(st.integers(1, 4)),
            batch_bytes=data.draw(st.sampled_from([1, 30])),
            objects_per_tick=data.draw(st.integers(1, 5)),
            give_up_after=0.2,
        )
        await ledger.lead()
        producer = producer_of(ledger)
        acknowledged: list[str] = []
        unknown: list[str] = []
        pending: list[tuple[str, asyncio.Future[Any]]] = []
        fate = st.sampled_from(["ok", "ok", "ok", "lost", "kept", "late", "denied", "rejected"])
        for number in range(data.draw(st.integers(1, 15))):
            ledger.store.end_script()
            ledger.store.on("create", ANY, *data.draw(st.lists(fate, max_size=6)))
            text = f"{number}"
            future = producer.submit(text, 10)
            if data.draw(st.booleans()):
                try:
                    await future
                    acknowledged.append(text)
                except WriteUnknown:
                    unknown.append(text)
            else:
                pending.append((text, future))
            if data.draw(st.booleans()):
                await ledger.tick()
            if data.draw(st.integers(0, 3)) == 0:
                await ledger.store.land()
            if data.draw(st.integers(0, 5)) == 0:
                await ledger.lead()
        ledger.store.end_script()
        await producer.drain()
        loose = []
        for text, future in pending:
            if future.exception() is None:
                loose.append(text)
            else:
                unknown.append(text)
        for _ in range(2):
            await ledger.store.land()
            for _ in range(4):
                await ledger.sweep()
        texts = ledger.texts
        assert len(texts) == len(set(texts)), "folded twice"
        assert set(acknowledged) | set(loose) <= set(texts), "lost"
        assert set(texts) <= {*acknowledged, *loose, *unknown}
        assert [text for text in texts if text in set(acknowledged)] == acknowledged, "out of order"
        assert await ledger.inbox() == []

    asyncio.run(scenario())

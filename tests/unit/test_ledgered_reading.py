"""Reading a log along, and looking at it: nobody misses an entry, and nobody waits for a log to stand still."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.election.records import encode
from tenure.errors import LedgerDamaged, StoreUnavailable
from tenure.ledger import LedgerConfig, LedgerState, LogEntry, agreed_ledger, ledger_of_onlooker
from tenure.ledger.agreed import LEDGER, Trust
from tenure.ledger.layout import log_key
from tenure.ledger.log import log_end
from tenure.plugins.ledgered import Following, LedgerView, look_up
from tenure.plugins.ledgered import view as view_module
from tenure.store.memory import MemoryStore
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, Request, ScriptedStore
from tests.unit.leases import numbered
from tests.unit.ledgers import QUICK, Ledger, Notes, settle_tasks


class Growing(ScriptedStore):
    """A log that somebody writes to before every request, and requests that take their time."""

    def __init__(self) -> None:
        self.time = ScriptedClock()
        super().__init__(clock=self.time)
        self.growth = 0
        self.seconds = 0.0
        self.written = 0
        self.always("get list", ANY, self._pass)

    async def grow(self, count: int) -> None:
        for _ in range(count):
            self.written += 1
            entry = LogEntry(write_id=f"w{self.written}", seq=self.written, epoch=1, time_ms=0)
            await self.inner.put(log_key(self.written), encode(entry))

    async def _pass(self, request: Request) -> None:
        self.time.advance(self.seconds)
        await self.grow(self.growth)


USUAL = LedgerConfig()


async def _agreed(store: MemoryStore, *, reads: bool, config: LedgerConfig = USUAL) -> LedgerConfig:
    """`reads=False`: of who only sends."""
    return await agreed_ledger(store, config, is_given=False, reads=reads, what="a log", draw_id=numbered("w"))


def _view(store: Growing, config: LedgerConfig = QUICK) -> LedgerView:
    return LedgerView(store, Notes, config=config, clock=store.time)


# Looking


@pytest.mark.parametrize("growth", [0, 1, 3])
async def test_what_was_there_when_it_was_asked_for_is_seen_and_it_comes_to_an_end(growth: int) -> None:
    store = Growing()
    await store.grow(5)
    view = _view(store)
    store.growth = growth
    for _ in range(6):
        await store.grow(40)
        wanted = store.written
        async with asyncio.timeout(10):
            state = await view.refresh()
        assert wanted <= state.seq <= store.written


async def test_nothing_new_costs_one_request() -> None:
    store = Growing()
    await store.grow(3)
    view = _view(store)
    await view.refresh()
    for news in (0, 0, 1, 0):
        await store.grow(news)
        before = store.count("get")
        await view.refresh()
        assert store.count("get") == before + 1 + 2 * news


async def test_it_is_read_no_further_than_asked_for() -> None:
    store = Growing()
    await store.grow(3)
    view = _view(store)
    await view.refresh()
    await store.grow(30)
    assert (await view.refresh(20)).seq == 20
    assert (await view.refresh(21)).seq == 21
    assert (await view.refresh(5)).seq == 21, "it does not go back"
    assert (await view.refresh()).seq == 33
    assert (await view.refresh(33)).seq == 33


async def test_after_a_long_time_it_is_read_anew_and_a_ghost_is_not_believed() -> None:
    store = Growing()
    await store.grow(3)
    view = _view(store)
    state = await view.refresh()
    store.time.advance(QUICK.trusted_for)
    await store.grow(1)
    again = await view.refresh()
    assert again is not state
    assert again.seq == 4


async def test_what_goes_wrong_half_way_is_read_anew() -> None:
    store = Growing()
    await store.grow(3)
    view = _view(store)
    state = await view.refresh()
    await store.grow(3)
    store.on("get list", ANY, "lost")
    with pytest.raises(StoreUnavailable):
        await view.refresh()
    again = await view.refresh()
    assert again is not state
    assert again.seq == 6


async def test_those_who_ask_at_once_take_turns() -> None:
    store = Growing()
    await store.grow(3)
    view = _view(store)
    store.growth = 1
    states = await asyncio.gather(*(view.refresh() for _ in range(5)))
    assert len({id(state) for state in states}) == 1


async def test_a_log_with_a_hole_is_told() -> None:
    store = Growing()
    await store.grow(9)
    await store.delete(log_key(4))
    with pytest.raises(LedgerDamaged, match="entry 4 of the log is missing"):
        await look_up(store, LedgerState(Notes()))


async def test_an_empty_log_is_looked_up_at_once() -> None:
    state = LedgerState(Notes())
    await look_up(MemoryStore(), state)
    assert state.seq == 0


async def test_what_was_condensed_and_trimmed_is_looked_up() -> None:
    ledger = Ledger(snapshot_every=3)
    await ledger.lead()
    for number in range(1, 13):
        await ledger.put("p", number, f"note {number}")
        await ledger.tick()
        await settle_tasks()
        ledger.time.advance(2 * QUICK.trim_delay)
    assert len(await ledger.store.keys("log/")) < 12
    state = LedgerState(Notes())
    await look_up(ledger.store, state)
    assert state.machine.texts == [f"note {number}" for number in range(1, 13)]  # type: ignore[attr-defined]


async def test_what_is_trimmed_while_it_is_read_is_not_taken_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stands still between a listing of the log and what it reads by it. It must not come to believe
    that a log which was trimmed from there on ends there: it would do so for ever, since nothing is ever found."""
    ledger = Ledger(snapshot_every=20)
    await ledger.lead()
    view = LedgerView(ledger.store, Notes, config=QUICK, clock=ledger.time)
    await view.refresh()
    for number in range(1, 81):
        await ledger.put("p", number, f"note {number}")
        await ledger.tick()
        await settle_tasks()
    assert len(await ledger.store.keys("snapshots/")) > 2

    async def listed_and_stood_still(store: Any) -> int:
        end = await log_end(store)
        ledger.time.advance(0.9 * QUICK.trusted_for)
        await ledger.store.delete(*(log_key(seq) for seq in range(1, 61)))
        return end

    monkeypatch.setattr(view_module, "log_end", listed_and_stood_still)
    for _ in range(3):
        state = await view.refresh()
        assert state.machine.texts == [f"note {number}" for number in range(1, 81)]  # type: ignore[attr-defined]
        ledger.time.advance(0.5 * QUICK.trusted_for)
    monkeypatch.undo()
    state = await view.refresh(until=state.seq)
    assert state.seq > 80


async def test_an_entry_that_is_known_to_be_there_and_is_not_was_trimmed() -> None:
    ledger = Ledger(snapshot_every=5)
    await ledger.lead()
    view = LedgerView(ledger.store, Notes, config=QUICK, clock=ledger.time)
    await view.refresh()
    for number in range(1, 13):
        await ledger.put("p", number, f"note {number}")
        await ledger.tick()
        await settle_tasks()
    await ledger.store.delete(*(log_key(seq) for seq in range(1, 6)))
    assert (await view.refresh(until=9)).seq >= 9


# Reading along


class Listener:
    def __init__(self, store: Growing, *, gap_failures: int = 0, ledger: LedgerConfig = QUICK) -> None:
        self.heard: list[int] = []
        self.gaps = 0
        self.ends = 0
        self._gap_failures = gap_failures
        self.following = Following(
            store,
            ledger=ledger,
            clock=store.time,
            on_entry=lambda entry: self.heard.append(entry.seq),
            on_end=self._end,
            on_gap=self._gap,
        )

    def _end(self) -> None:
        self.ends += 1

    async def _gap(self) -> None:
        if self._gap_failures:
            self._gap_failures -= 1
            raise StoreUnavailable("out of order")
        self.gaps += 1

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0)


async def test_from_joining_on_every_entry_is_heard_once() -> None:
    store = Growing()
    await store.grow(3)
    listener = Listener(store)
    await listener.following.join()
    await store.grow(4)
    await listener.until(lambda: listener.heard == [4, 5, 6, 7])
    entry = LogEntry(write_id="w", seq=8, epoch=1, time_ms=0)
    listener.following.heard(entry)
    listener.following.heard(entry)
    listener.following.heard(LogEntry(write_id="w", seq=20, epoch=1, time_ms=0))
    assert listener.heard == [4, 5, 6, 7, 8], "what comes before its turn is read in its turn"
    listener.following.leave()
    assert listener.ends == 1
    await store.grow(3)
    await asyncio.sleep(0)
    assert listener.heard == [4, 5, 6, 7, 8]
    await listener.following.aclose()


@pytest.mark.parametrize("is_said", [True, False], ids=["said later", "never said"])
async def test_one_that_began_before_anybody_leads_hears_all(is_said: bool) -> None:
    """Only who may lead says how long entries are kept, and that may be later: a slow store must not make who was
    first distrust the log, and begin anew at its end again and again."""
    store = Growing()
    listener = Listener(store, ledger=await _agreed(store, reads=False))
    store.seconds = 0.3
    await listener.following.join()
    for _ in range(50):
        await asyncio.sleep(0)
    if is_said:  # an older tenure says nothing
        await _agreed(store, reads=True)
    for number in range(1, 6):
        store.time.advance(0.4)
        await store.grow(1)
        await listener.until(lambda number=number: number in listener.heard)
    assert listener.heard == [1, 2, 3, 4, 5]
    assert listener.gaps == 0
    await listener.following.aclose()


async def test_who_is_told_later_believes_no_longer_than_that() -> None:
    store = Growing()
    trust = Trust(store, await _agreed(store, reads=False))
    assert await trust.holds(100.0), "nobody has led"
    await _agreed(store, reads=True, config=QUICK)
    assert await trust.holds(QUICK.trusted_for - 0.01)
    assert not await trust.holds(QUICK.trusted_for)
    before = store.count("get")
    assert not await trust.holds(QUICK.trusted_for)
    assert store.count("get") == before, "it is known now"


@pytest.mark.parametrize("reads", [True, False], ids=["who reads", "who only sends"])
async def test_an_older_leader_trims_as_ever_and_nobody_believes_for_longer(reads: bool) -> None:
    """It knows nothing of what is agreed on: where that was longer, the log it had trimmed was one that had ended."""
    store = Growing()
    sender = Trust(store, await _agreed(store, reads=False))
    reader = Trust(store, await _agreed(store, reads=True, config=LedgerConfig(trim_delay=240.0)))
    trust = reader if reads else sender
    assert await trust.holds(LedgerConfig().trusted_for - 0.1)
    assert not await trust.holds(LedgerConfig().trusted_for)


@pytest.mark.parametrize("body", [b"{", b'{"tenure":"ledger","writeId":"w","schemaVersion":99}'])
async def test_what_cannot_be_known_is_not_relied_upon(body: bytes) -> None:
    store = Growing()
    trust = Trust(store, await _agreed(store, reads=False))
    await store.put(LEDGER, body)
    assert not await trust.holds(1.0)


async def test_a_view_that_began_before_anybody_leads_reads_on() -> None:
    store = Growing()
    view = _view(store, await ledger_of_onlooker(store))
    state = await view.refresh()
    await _agreed(store, reads=True)
    for number in range(1, 4):
        store.time.advance(5.0)
        await store.grow(1)
        assert await view.refresh() is state
        assert state.seq == number


async def test_it_reads_for_as_long_as_anybody_waits() -> None:
    store = Growing()
    listener = Listener(store)
    await asyncio.gather(listener.following.join(), listener.following.join())
    listener.following.leave()
    await store.grow(1)
    await listener.until(lambda: listener.heard == [1])
    listener.following.leave()
    await listener.following.join()
    await store.grow(1)
    await listener.until(lambda: listener.heard == [1, 2])
    await listener.following.aclose()


async def test_entries_of_a_former_leader_are_not_heard() -> None:
    store = Growing()
    listener = Listener(store)
    await listener.following.join()
    for seq, epoch in ((1, 2), (2, 1), (3, 2)):
        listener.following.heard(LogEntry(write_id="w", seq=seq, epoch=epoch, time_ms=0))
    assert listener.heard == [1, 3]
    await listener.following.aclose()


async def test_a_store_that_fails_is_asked_again() -> None:
    store = Growing()
    listener = Listener(store)
    await listener.following.join()
    store.on("get list", ANY, *["lost"] * 5)
    await store.grow(2)
    await listener.until(lambda: listener.heard == [1, 2])
    await listener.following.aclose()


async def test_who_cannot_begin_is_told_and_does_not_count() -> None:
    store = Growing()
    listener = Listener(store)
    store.on("get list", ANY, "lost")
    with pytest.raises(StoreUnavailable):
        await listener.following.join()
    assert listener.ends == 1
    await listener.following.join()
    await store.grow(1)
    await listener.until(lambda: listener.heard == [1])
    await listener.following.aclose()


@pytest.mark.parametrize("gap_failures", [0, 3])
async def test_what_was_missed_is_learned_before_anything_else_is_heard(gap_failures: int) -> None:
    """Also if the store fails just then: who waits for what was missed would wait for ever."""
    store = Growing()
    listener = Listener(store, gap_failures=gap_failures)
    await listener.following.join()
    store.time.advance(QUICK.trusted_for)
    await store.grow(3)
    await listener.until(lambda: listener.gaps == 1)
    assert listener.heard == []
    await store.grow(1)
    await listener.until(lambda: listener.heard == [4])
    assert listener.gaps == 1
    await listener.following.aclose()

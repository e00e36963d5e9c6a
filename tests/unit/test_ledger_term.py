"""The leader's side of a ledger: what is folded, what is set aside, and what a sweep may be taken to say."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import LeadershipLost, LedgerDamaged, LedgerHalted, NotFound, StoreError, StoreUnavailable
from tenure.ledger.config import MAX_INBOX_BYTES
from tenure.ledger.layout import log_key
from tenure.ledger.leader import _FOREIGN_NAMED, _MAX_REJECTIONS, Overtaken, Situation
from tenure.ledger.log import Superseded, read_entry
from tenure.ledger.records import Kind, LogEntry
from tenure.store import Stored
from tests.support.store import ANY, After, Request
from tests.unit.ledgers import Ledger, settle_tasks


@pytest.fixture
async def ledger() -> Ledger:
    made = Ledger()
    await made.lead()
    return made


class TestFolding:
    async def test_a_batch_is_folded_written_and_deleted(self, ledger: Ledger) -> None:
        await ledger.put("p", 1, "a", "b")
        tick = await ledger.term.tick()
        await settle_tasks()
        assert ledger.texts == ["a", "b"]
        assert tick.entry is not None
        assert await read_entry(ledger.store, 2) == tick.entry
        assert tick.entry.folded == {"p": [1]}
        assert await ledger.inbox() == []
        assert ledger.clerk.committed_entries == [tick.entry]

    async def test_a_tick_folds_no_more_bytes_than_it_may_however_much_was_read(self) -> None:
        """What is decided on them must have room in one entry. Read are also what was early, and answers that took
        long: all of these may come to be folded at once."""
        ledger = Ledger(bytes_per_tick=1000)
        await ledger.lead()
        text = "x" * 150
        for number in range(2, 7):
            await ledger.put("p", number, f"{number}{text}")
        await ledger.sweep()
        assert ledger.texts == []
        await ledger.put("p", 1, f"1{text}")
        for number in range(3):
            await ledger.put(f"q{number}", 1, f"q{number}{text}")
        await ledger.sweep()
        assert sorted(each.removesuffix(text) for each in ledger.texts) == [
            "1",
            "2",
            "3",
            "4",
            "5",
            "6",
            "q0",
            "q1",
            "q2",
        ]
        own = [each.removesuffix(text) for each in ledger.texts if not each.startswith("q")]
        assert own == ["1", "2", "3", "4", "5", "6"]
        folded = [sum(map(len, entry.folded.values())) for entry in ledger.clerk.committed_entries]
        assert max(folded) == 5, "of some 190 bytes each"
        assert await ledger.inbox() == []

    async def test_one_that_is_larger_than_a_tick_is_folded_alone(self) -> None:
        ledger = Ledger(bytes_per_tick=100)
        await ledger.lead()
        for number in range(3):
            await ledger.put(f"p{number}", 1, f"{number}" + "x" * 200)
        await ledger.sweep()
        assert [sum(map(len, entry.folded.values())) for entry in ledger.clerk.committed_entries] == [1, 1, 1]

    async def test_what_a_tick_had_no_room_for_is_not_early(self) -> None:
        """Or it would be set aside in the end, as something whose predecessor never comes."""
        ledger = Ledger(bytes_per_tick=1000)
        await ledger.lead()
        for number in range(2, 7):
            await ledger.put("p", number, f"{number}" + "x" * 150)
        await ledger.sweep()
        await ledger.put("p", 1, "1" + "x" * 150)
        tick = await ledger.term.tick()
        assert (tick.folded, tick.more) == (5, True)
        assert not ledger.term._sweep_early
        tick = await ledger.term.tick()
        assert (tick.folded, tick.more) == (1, False)
        assert not ledger.term._early

    async def test_what_a_store_is_slow_to_answer_counts_towards_what_is_asked_for(self) -> None:
        ledger = Ledger(bytes_per_tick=400)
        await ledger.lead()
        for number in range(20):
            await ledger.put(f"p{number:02}", 1, "x" * 150)
        held = asyncio.Event()

        async def slow(request: Request) -> None:
            if request.key.startswith("inbox/"):
                await held.wait()

        ledger.store.always("get", ANY, slow)
        for _ in range(2):
            with contextlib.suppress(StoreError):
                await ledger.term.tick()
        assert ledger.store.count("get", "inbox/*") == 2
        held.set()
        await ledger.sweep()
        assert len(ledger.texts) == 20

    async def test_a_clock_that_was_far_ahead_is_told_of_once(
        self, ledger: Ledger, caplog: pytest.LogCaptureFixture
    ) -> None:
        ledger.time.advance(7200)
        await ledger.put("p", 1)
        await ledger.tick()
        ledger.time.step_wall(-7200)
        await ledger.lead()
        await ledger.tick(3)
        told = [each.getMessage() for each in caplog.records if "ahead of the store's" in each.getMessage()]
        assert [each[:32] for each in told] == ["the log's time is 7200 s ahead o"]

    async def test_nothing_to_decide_writes_nothing(self, ledger: Ledger) -> None:
        tick = await ledger.term.tick()
        assert (tick.entry, tick.folded, tick.more) == (None, 0, False)
        assert await ledger.store.keys("log/") == [log_key(1)]

    async def test_a_copy_that_lands_after_its_batch_was_folded_is_deleted(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        await ledger.put("p", 1)
        await ledger.tick()
        assert ledger.texts == ["p1"]
        assert await ledger.inbox() == []

    async def test_a_delete_that_failed_is_made_good(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        failing = ledger.store.always("delete", ANY, StoreUnavailable("no"))
        await ledger.tick()
        assert await ledger.inbox() != []
        failing.stop()
        await ledger.tick()
        assert await ledger.inbox() == []
        assert ledger.texts == ["p1"]

    async def test_what_was_written_is_the_same_for_the_next_leader(self, ledger: Ledger) -> None:
        for number in range(1, 6):
            await ledger.put("p", number)
            await ledger.tick()
        texts, known = ledger.texts, ledger.term.state.producers.snapshot()
        await ledger.lead()
        assert ledger.texts == texts
        assert ledger.term.state.producers.snapshot() == known

    async def test_what_an_object_follows_comes_first_however_they_are_found(self, ledger: Ledger) -> None:
        await ledger.put("p", 3)
        await ledger.put("p", 2)
        await ledger.tick()
        assert ledger.texts == []
        await ledger.put("p", 1)
        await ledger.tick()
        assert ledger.texts == ["p1", "p2", "p3"]

    async def test_what_was_durable_out_of_order_comes_first_as_well(self, ledger: Ledger) -> None:
        await ledger.put("p", 4, after=0, ahead=[3])
        await ledger.tick()
        assert ledger.texts == []
        await ledger.put("p", 3, after=0)
        await ledger.tick()
        assert ledger.texts == ["p3", "p4"]

    async def test_what_was_given_up_on_is_not_waited_for_and_comes_too_late(self, ledger: Ledger) -> None:
        await ledger.put("p", 2, skipped=[1])
        await ledger.tick()
        assert ledger.texts == ["p2"]
        await ledger.put("p", 1)
        await ledger.tick()
        assert ledger.texts == ["p2"]
        assert await ledger.inbox() == []

    async def test_one_that_was_given_up_on_and_is_there_counts(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        ledger.time.advance(1)
        await ledger.put("p", 2, skipped=[1])
        await ledger.tick()
        assert ledger.texts == ["p1", "p2"]

    async def test_a_tick_that_may_not_write_any_more_changes_nothing(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        ledger.lease.valid = False
        with pytest.raises(LeadershipLost):
            await ledger.term.tick()
        assert await ledger.store.keys("log/") == [log_key(1)]
        assert len(await ledger.inbox()) == 1

    async def test_a_tick_after_the_lease_makes_no_request(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        ledger.lease.valid = False
        before = len(ledger.store.requests)
        with pytest.raises(LeadershipLost):
            await ledger.term.tick()
        assert len(ledger.store.requests) == before

    async def test_the_lease_lapses_while_the_inbox_is_read(self, ledger: Ledger) -> None:
        """Nothing is written then: an entry of a leader that is none any more would have to be voided by everybody."""
        await ledger.put("p", 1)

        async def lapse(request: Request) -> None:
            ledger.lease.valid = False

        ledger.store.always("get", ANY, lapse)
        with pytest.raises(LeadershipLost):
            await ledger.term.tick()
        assert await ledger.store.keys("log/") == [log_key(1)]

    async def test_the_lease_lapses_while_the_entry_is_written(self, ledger: Ledger) -> None:
        """It is written, and the next leader has it; this one told nobody, and deleted nothing."""
        await ledger.put("p", 1)

        async def lapse(request: Request) -> None:
            ledger.lease.valid = False

        lapsing = ledger.store.always("create", ANY, lapse)
        with pytest.raises(LeadershipLost):
            await ledger.term.tick()
        lapsing.stop()
        assert ledger.clerk.committed_entries == []
        assert len(await ledger.inbox()) == 1
        await ledger.lead()
        await ledger.tick()
        assert ledger.texts == ["p1"]
        assert await ledger.inbox() == []

    async def test_an_entry_without_an_answer_is_not_written_twice(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        ledger.store.on("create", log_key(2), "kept")
        await ledger.tick()
        await ledger.put("p", 2)
        await ledger.tick()
        await ledger.lead()
        assert ledger.texts == ["p1", "p2"]

    async def test_a_plugin_that_cannot_decide_halts(self, ledger: Ledger) -> None:
        await ledger.put("p", 1, "unheard of")
        with pytest.raises(LedgerHalted, match="could not decide on entry 2"):
            await ledger.term.tick()
        assert len(await ledger.inbox()) == 1

    async def test_an_entry_over_the_limit_is_not_written(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenure.ledger.leader.MAX_ENTRY_BYTES", 1000)
        await ledger.put("p", 1, "x" * 1000)
        with pytest.raises(LedgerHalted, match="the limit is 1,000"):
            await ledger.term.tick()
        assert await ledger.store.keys("log/") == [log_key(1)]


class TestOthers:
    """L-2 within a term, and L-3."""

    async def test_a_newer_leader_ends_the_term(self, ledger: Ledger) -> None:
        old, old_lease = ledger.term, ledger.lease
        await ledger.lead(store=ledger.store.beside())
        await ledger.put("p", 1)
        with pytest.raises(Superseded, match="epoch 2"):
            await old.tick()
        assert old_lease.valid
        assert len(await ledger.inbox()) == 1
        await ledger.tick()
        assert ledger.texts == ["p1"]

    async def test_a_former_leaders_entry_that_lands_before_the_term_begins_counts(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        ledger.store.on("create", log_key(2), *(["late"] * 20))

        def lapse() -> None:
            ledger.lease.valid = False

        ledger.time.on_sleep = lapse
        old = ledger.term
        with pytest.raises(LeadershipLost):
            await old.tick()
        ledger.time.on_sleep = None
        successor = ledger.store.beside()

        async def land(request: Request) -> None:  # after catch-up, and before the entry that begins the term
            await ledger.store.land()

        landing = successor.always("create", ANY, land)
        term = await ledger.lead(store=successor)
        landing.stop()
        assert term.state.seq == 3
        assert ledger.texts == ["p1"]
        await ledger.tick()
        assert ledger.texts == ["p1"]
        assert await ledger.inbox() == []

    async def test_a_former_leaders_entry_that_lands_after_the_term_began_is_refused(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        ledger.store.on("create", log_key(2), *(["late"] * 20))

        def lapse() -> None:
            ledger.lease.valid = False

        ledger.time.on_sleep = lapse
        with pytest.raises(LeadershipLost):
            await ledger.term.tick()
        ledger.time.on_sleep = None
        await ledger.lead(store=ledger.store.beside())
        await ledger.store.land()
        await ledger.tick()
        assert ledger.texts == ["p1"]
        await ledger.lead(store=ledger.store.beside())
        assert ledger.texts == ["p1"]

    async def test_a_void_entry_in_the_way_begins_the_work_anew(self, ledger: Ledger) -> None:
        await ledger.lead()
        ghost = LogEntry(write_id="ghost", seq=3, epoch=1, time_ms=0, events=msgspec.Raw(b'["void"]'))
        await ledger.raw(log_key(3), msgspec.json.encode(ghost))
        await ledger.put("p", 1)
        with pytest.raises(Overtaken):
            await ledger.term.tick()
        await ledger.lead(epoch=2)
        await ledger.tick()
        assert ledger.texts == ["p1"]
        assert ledger.term.state.voids == 1

    async def test_an_entry_of_this_epoch_by_somebody_else_is_damage(self, ledger: Ledger) -> None:
        twin = LogEntry(write_id="twin", seq=2, epoch=1, time_ms=0)
        await ledger.raw(log_key(2), msgspec.json.encode(twin))
        await ledger.put("p", 1)
        with pytest.raises(LedgerDamaged, match="whose leader did not write it"):
            await ledger.term.tick()

    async def test_a_log_that_knows_a_higher_epoch_is_not_led(self, ledger: Ledger) -> None:
        await ledger.lead(epoch=7)
        with pytest.raises(LedgerHalted, match="the log knows epoch 7, and this leader has epoch 6"):
            await ledger.lead(epoch=6)

    async def test_the_term_begins_with_its_entry(self, ledger: Ledger) -> None:
        await ledger.lead(version=3)
        entry = await read_entry(ledger.store, 2)
        assert entry is not None
        assert (entry.kind, entry.epoch, entry.machine) == (Kind.TERM, 2, 3)
        assert ledger.clerk.machine.terms == [1, 2]

    async def test_older_code_does_not_lead_after_newer(self, ledger: Ledger) -> None:
        await ledger.lead(version=2)
        with pytest.raises(LedgerHalted, match="version 2"):
            await ledger.lead(version=1)

    async def test_time_does_not_go_back(self, ledger: Ledger) -> None:
        ledger.time.advance(500)
        await ledger.put("p", 1)
        await ledger.tick()
        ledger.time.step_wall(-490)
        await ledger.lead()
        await ledger.put("p", 2)
        await ledger.tick()
        entries = [await read_entry(ledger.store, seq) for seq in range(2, 5)]
        times = [entry.time_ms for entry in entries if entry is not None]
        assert times == sorted(times)
        assert len(times) == 3


class TestPoison:
    """L-7."""

    async def test_it_is_decided_kept_and_deleted(self, ledger: Ledger) -> None:
        name = await ledger.put("p", 1)
        await ledger.raw(name.key, b"\xff not a batch")
        await ledger.put("p", 2)
        tick = await ledger.term.tick()
        await settle_tasks()
        assert tick.entry is not None
        assert [rejection.key for rejection in tick.entry.rejected] == [name.key]
        assert await ledger.store.keys("damaged/") == [name.key.replace("inbox/", "damaged/")]
        assert await ledger.inbox() == []
        assert ledger.texts == ["p2"]

    @pytest.mark.parametrize("reads", [["truncated"], ["truncated", "truncated"], ["truncated", "lost"]])
    async def test_a_read_that_was_truncated_is_not_final(self, ledger: Ledger, reads: list[str]) -> None:
        """WA-8: what is sound in the inbox was acknowledged, however it was read."""
        name = await ledger.put("p", 1)
        await ledger.put("p", 2)
        await ledger.put("q", 1)
        ledger.store.on("get", name.key, *reads)
        await ledger.tick(3)
        ledger.store.assert_script_was_met()
        assert ledger.texts == (["p1", "p2", "q1"] if len(reads) == 1 else ["q1", "p1", "p2"])
        assert await ledger.store.keys("damaged/") == []
        assert await ledger.inbox() == []
        assert ledger.term.problems == {}

    async def test_one_that_was_not_all_read_was_not_swept(self, ledger: Ledger) -> None:
        name = await ledger.put("p", 1)
        truncating = ledger.store.always("get", name.key, "truncated")
        await ledger.put("q", 1)
        await ledger.tick(2)
        assert ledger.texts == ["q1"]
        assert ledger.clerk.situations[-1].unread == {"p"}
        assert "of the 50 bytes that are listed" in ledger.term.problems[name.key]
        truncating.stop()
        await ledger.tick()
        assert ledger.texts == ["q1", "p1"]
        assert ledger.clerk.situations[-1].unread == set()

    async def test_what_is_set_aside_is_what_was_judged(self, ledger: Ledger) -> None:
        """Somebody puts it right between two reads of it."""
        name = await ledger.put("p", 1)
        sound = await ledger.store.inner.get(name.key)
        assert isinstance(sound, Stored)
        await ledger.raw(name.key, b"rubbish")

        async def mend(request: Request) -> None:
            await ledger.raw(name.key, sound.body)

        ledger.store.on("get", name.key, After(mend, "ok"))
        await ledger.tick(2)
        assert ledger.texts == ["p1"]
        assert await ledger.store.keys("damaged/") == []

    async def test_one_that_is_gone_when_it_is_read_again_is_not_decided_on(self, ledger: Ledger) -> None:
        name = await ledger.put("p", 1)
        ledger.store.on("get", name.key, "truncated", NotFound(name.key))
        tick = await ledger.term.tick()
        assert tick.entry is None
        await ledger.tick()
        assert ledger.texts == ["p1"]

    async def test_its_bytes_are_kept_before_anybody_is_told(self, ledger: Ledger) -> None:
        name = await ledger.put("p", 1)
        await ledger.raw(name.key, b"rubbish")

        failing = ledger.store.always("put", ANY, StoreUnavailable("no"))
        with pytest.raises(StoreError):
            await ledger.term.tick()
        assert await ledger.store.keys("log/") == [log_key(1)]
        assert len(await ledger.inbox()) == 1
        failing.stop()
        await ledger.tick()
        assert await ledger.store.keys("damaged/") != []

    @pytest.mark.parametrize(
        "fields", [{"after": 1}, {"after": 2}, {"after": -1}, {"after": 0, "ahead": [1]}, {"after": 0, "ahead": [9]}]
    )
    async def test_one_that_says_it_follows_itself(self, ledger: Ledger, fields: dict[str, object]) -> None:
        await ledger.put("p", 1, **fields)  # type: ignore[arg-type]
        tick = await ledger.term.tick()
        assert tick.entry is not None
        assert "follows itself" in tick.entry.rejected[0].reason
        assert ledger.texts == []

    async def test_one_over_the_limit_is_kept_too(self, ledger: Ledger) -> None:
        name = await ledger.put("p", 1)
        await ledger.raw(name.key, b"x" * (MAX_INBOX_BYTES + 1))
        await ledger.tick()
        assert await ledger.inbox() == []
        kept = await ledger.store.keys("damaged/")
        assert kept == [name.key.replace("inbox/", "damaged/")]

    async def test_one_that_no_store_would_read_is_left_and_told(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenure.ledger.leader.MAX_BODY_BYTES", 2 * MAX_INBOX_BYTES)
        name = await ledger.put("q", 1)
        await ledger.raw(name.key, b"x" * (2 * MAX_INBOX_BYTES + 1))
        await ledger.put("p", 1)
        await ledger.tick()
        assert ledger.texts == ["p1"]
        assert len(await ledger.inbox()) == 1
        assert "no batch is over" in ledger.term.problems[name.key]
        assert ledger.store.count("get", name.key) == 0

    async def test_a_newer_schema_is_left_and_told(self, ledger: Ledger) -> None:
        name = await ledger.put("q", 1)
        await ledger.raw(name.key, b"newer")
        await ledger.put("p", 1)
        await ledger.tick(3)
        assert ledger.texts == ["p1"]
        assert await ledger.inbox() == [name.key.removeprefix("inbox/")]
        assert ledger.term.problems == {name.key: "it is of schema 2"}
        assert all("q" in situation.unread for situation in ledger.clerk.situations), "it may hold a report"
        assert ledger.clerk.situations[-1].swept_ms is not None, "others do not suffer"

    async def test_what_follows_a_newer_one_is_not_folded_before_it(self, ledger: Ledger) -> None:
        """Its producer is not known. That it was forgotten must not be believed: what it follows lies there."""
        first = await ledger.put("p", 1)
        body = (await ledger.store.inner.get(first.key)).body  # type: ignore[union-attr]
        await ledger.raw(first.key, b"newer")
        await ledger.put("p", 2)
        for _ in range(15):
            ledger.time.advance(20)
            await ledger.tick()
        assert ledger.texts == []
        assert len(await ledger.inbox()) == 2
        await ledger.raw(first.key, body)  # a leader that can read it
        await ledger.tick()
        assert ledger.texts == ["p1", "p2"]

    async def test_foreign_names_are_told_and_left(self, ledger: Ledger) -> None:
        await ledger.raw("inbox/README", b"hello")
        await ledger.put("p", 1)
        await ledger.tick(2)
        assert ledger.texts == ["p1"]
        assert await ledger.inbox() == ["README"]
        assert list(ledger.term.problems) == ["inbox/README"]

    async def test_a_problem_that_is_gone_is_not_told_any_more(self, ledger: Ledger) -> None:
        await ledger.raw("inbox/README", b"hello")
        await ledger.tick()
        await ledger.store.inner.delete("inbox/README")
        await ledger.tick()
        assert ledger.term.problems == {}

    async def test_problems_are_bounded(self, ledger: Ledger) -> None:
        """Objects with foreign names are told of by a few of their names, and all together."""
        for number in range(_MAX_REJECTIONS + 50):
            await ledger.raw(f"inbox/x{number}", b"")
        await ledger.sweep()
        assert len(ledger.term.problems) == _FOREIGN_NAMED + 1
        assert f"over {_FOREIGN_NAMED} objects" in ledger.term.problems["inbox/"]

    async def test_poison_of_a_forgotten_producer_does_not_hold_up_what_follows(self, ledger: Ledger) -> None:
        """Nothing is known of the first ten but that the eleventh was rejected."""
        name = await ledger.put("p", 11)
        await ledger.raw(name.key, b"rubbish")
        await ledger.tick()
        await ledger.put("p", 12)
        await ledger.tick(4)
        assert ledger.texts == ["p12"]


class TestWithoutALook:
    async def test_a_tick_that_does_not_look_makes_no_request_unless_there_is_something_to_write(
        self, ledger: Ledger
    ) -> None:
        await ledger.put("p", 1)
        asked: list[str] = []

        async def note(request: Request) -> None:
            asked.append(request.key)

        for verb in ("get", "put", "create", "list", "delete"):
            ledger.store.always(verb, ANY, note)
        tick = await ledger.term.tick(look=False)
        assert (tick.folded, tick.entry, tick.more) == (0, None, False)
        assert asked == []
        assert ledger.texts == []
        await ledger.tick()
        assert ledger.texts == ["p1"]

    async def test_it_says_nothing_of_the_inbox(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        """A sweep that ended before is no news: nothing may be concluded from it once more."""
        seen: list[int | None] = []
        decide = ledger.clerk.decide

        def watched(items: Any, situation: Situation) -> bytes | None:
            seen.append(situation.swept_ms)
            return decide(items, situation)

        monkeypatch.setattr(ledger.clerk, "decide", watched)
        await ledger.tick()
        await ledger.term.tick(look=False)
        assert seen[0] is not None
        assert seen[1] is None


class TestDeletes:
    async def test_what_is_superfluous_is_deleted_with_what_was_folded_and_later_if_that_failed(
        self, ledger: Ledger
    ) -> None:
        await ledger.raw("seg/1", b"x")
        await ledger.raw("seg/2", b"x")
        ledger.clerk.superfluous = ["seg/1"]

        failing = ledger.store.always("delete", ANY, StoreUnavailable("not now"))
        await ledger.put("p", 1)
        await ledger.tick()
        assert [row.key async for row in ledger.store.list("seg/")] == ["seg/1", "seg/2"]
        assert len(await ledger.inbox()) == 1
        failing.stop()
        await ledger.tick()
        assert [row.key async for row in ledger.store.list("seg/")] == ["seg/2"]
        assert await ledger.inbox() == []
        assert ledger.texts == ["p1"]

    async def test_one_delete_is_under_way_at_a_time(self, ledger: Ledger) -> None:
        gate = asyncio.Event()
        begun = []

        async def hold(request: Request) -> None:
            begun.append(request.key)
            await gate.wait()

        ledger.store.always("delete", ANY, hold)
        for number in (1, 2, 3):
            await ledger.put("p", number)
            await ledger.tick()
        assert ledger.texts == ["p1", "p2", "p3"], "ticks do not wait for it"
        assert len(begun) == 1
        gate.set()
        await settle_tasks()
        assert await ledger.inbox() == []
        assert len(begun) == 2, "one for the first, and then one for both others"


class TestSweeps:
    """`swept_ms` says that everything that was in the inbox then is folded. It must be true."""

    async def test_an_empty_inbox_is_swept_at_once(self, ledger: Ledger) -> None:
        ledger.time.advance(5)
        await ledger.tick()
        assert ledger.clerk.situations[-1].swept_ms == round(await ledger.time.now() * 1000)

    async def test_pages_are_swept_when_the_last_was_read_and_as_of_the_first(self) -> None:
        ledger = Ledger(objects_per_tick=2)
        await ledger.lead()
        for number in range(1, 6):
            await ledger.put("p", number)
        began = round(await ledger.time.now() * 1000)
        swept = []
        for _ in range(3):
            await ledger.tick()
            swept.append(ledger.clerk.situations[-1].swept_ms)
            ledger.time.advance(1)
        assert swept == [None, None, began]
        assert ledger.texts == ["p1", "p2", "p3", "p4", "p5"]

    async def test_bytes_of_one_tick_are_bounded(self) -> None:
        ledger = Ledger(bytes_per_tick=250)
        await ledger.lead()
        for number in range(1, 8):
            await ledger.put("p", number, "x" * 100)
        sizes = []
        for _ in range(7):
            tick = await ledger.term.tick()
            await settle_tasks()
            sizes.append(tick.folded)
            if not tick.more:
                break
        assert sum(sizes) == 7
        assert max(sizes) <= 3
        assert ledger.clerk.situations[-1].swept_ms is not None
        assert all(each.swept_ms is None for each in ledger.clerk.situations[:-1])

    async def test_early_ones_keep_a_sweep_from_counting(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        await ledger.put("p", 3)
        await ledger.tick()
        assert ledger.clerk.situations[-1].unread == {"p"}
        await ledger.put("p", 2)
        await ledger.tick()
        assert ledger.clerk.situations[-1].swept_ms is not None
        assert ledger.clerk.situations[-1].unread == set()

    async def test_early_ones_are_read_once_and_count_as_unread_also_if_a_tick_fails(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        early = await ledger.put("p", 3)
        await ledger.tick(5)
        bad = await ledger.put("q", 1)

        failing = ledger.store.always("get", bad.key, StoreUnavailable("no answer"))
        with pytest.raises(StoreError):
            await ledger.term.tick()
        assert ledger.term._sweep_unread == {"p", "q"}
        failing.stop()
        await ledger.put("p", 2)
        await ledger.tick(2)
        assert ledger.texts == ["p1", "p2", "p3", "q1"]
        assert ledger.store.count("get", early.key) == 1
        assert ledger.term._kept == {}
        assert ledger.term._kept_bytes == 0

    @pytest.mark.parametrize("where", ["pages", "bytes"])
    async def test_what_could_not_be_prepared_was_not_swept(self, where: str) -> None:
        ledger = Ledger(objects_per_tick=2) if where == "pages" else Ledger(bytes_per_tick=1)
        await ledger.lead()
        for number in range(1, 5):
            await ledger.put("p", number, after=0)
        ledger.clerk.prepare_errors = [StoreUnavailable("a segment could not be written")]
        with pytest.raises(StoreError):
            await ledger.term.tick()
        await ledger.sweep()
        assert "p1" not in ledger.texts, "the test is of no use: it was folded in this sweep"
        assert all(situation.unread == {"p"} for situation in ledger.clerk.situations)
        await ledger.sweep()
        assert ledger.clerk.situations[-1].unread == set()
        assert sorted(ledger.texts) == ["p1", "p2", "p3", "p4"]

    async def test_what_could_not_be_set_aside_was_not_swept(self) -> None:
        ledger = Ledger(objects_per_tick=1)
        await ledger.lead()
        name = await ledger.put("a", 1)
        await ledger.raw(name.key, b"rubbish")
        await ledger.put("p", 1)

        failing = ledger.store.always("put", ANY, StoreUnavailable("no"))
        with pytest.raises(StoreError):
            await ledger.term.tick()
        failing.stop()
        await ledger.sweep()
        assert ledger.texts == ["p1"]
        assert ledger.clerk.situations[-1].unread == {"a"}
        await ledger.sweep()
        assert ledger.clerk.situations[-1].unread == set()
        assert ledger.clerk.situations[-1].swept_ms is not None

    async def test_what_could_not_be_read_was_not_swept(self) -> None:
        """A read that takes long and then fails, while another that took as long succeeds."""
        ledger = Ledger()
        await ledger.lead()
        slow, fails = await ledger.put("a", 1), await ledger.put("b", 1)
        await ledger.put("c", 1)
        gates = {slow.key: asyncio.Event(), fails.key: asyncio.Event()}

        async def hold(request: Request) -> None:
            if request.key in gates:
                await gates[request.key].wait()
            if request.key == fails.key:
                raise StoreUnavailable("no answer")

        holding = ledger.store.always("get", ANY, hold)
        await ledger.term.tick()
        assert ledger.texts == ["c1"]
        for gate in gates.values():
            gate.set()
        await settle_tasks()
        await ledger.tick()
        assert ledger.texts == ["c1", "a1"]
        assert ledger.clerk.situations[-1].unread == {"b"}
        holding.stop()
        await ledger.tick(2)
        assert ledger.texts == ["c1", "a1", "b1"]
        assert ledger.clerk.situations[-1].unread == set()
        assert ledger.clerk.situations[-1].swept_ms is not None

    async def test_a_straggler_does_not_keep_others_waiting_and_was_not_swept(self, ledger: Ledger) -> None:
        slow = await ledger.put("a", 1)
        await ledger.put("b", 1)
        gate = asyncio.Event()

        async def hold(request: Request) -> None:
            if request.key == slow.key:
                await gate.wait()

        ledger.store.always("get", ANY, hold)
        await ledger.tick()
        await ledger.put("c", 1)
        await ledger.tick()
        assert ledger.texts == ["b1", "c1"]
        assert all(situation.swept_ms is None for situation in ledger.clerk.situations)
        gate.set()
        await settle_tasks()
        await ledger.tick()
        assert ledger.texts == ["b1", "c1", "a1"]
        assert ledger.clerk.situations[-1].swept_ms is not None
        gets = ledger.store.made("get", slow.key)
        assert len(gets) == 1

    async def test_a_straggler_alone_does_not_keep_decisions_waiting(self, ledger: Ledger) -> None:
        await ledger.put("a", 1)

        async def hold(request: Request) -> None:
            await asyncio.Event().wait()

        ledger.store.always("get", ANY, hold)
        async with asyncio.timeout(30):
            await ledger.tick()
        assert [situation.swept_ms for situation in ledger.clerk.situations] == [None]
        await ledger.term.aclose()

    async def test_one_object_that_can_never_be_read_does_not_stop_everything(self, ledger: Ledger) -> None:
        bad = await ledger.put("a", 1)

        failing = ledger.store.always("get", bad.key, StoreUnavailable("the archive tier does not give it back"))
        with pytest.raises(StoreError):
            await ledger.term.tick()
        await ledger.put("b", 1)
        await ledger.tick(2)
        assert ledger.texts == ["b1"]
        before = len(ledger.clerk.situations)
        await ledger.tick()
        assert len(ledger.clerk.situations) > before, "decisions go on, though nothing else is in the inbox"
        assert ledger.clerk.situations[-1].swept_ms is not None
        assert ledger.clerk.situations[-1].unread == {"a"}
        assert "cannot be read" in ledger.term.problems[bad.key]
        failing.stop()
        await ledger.tick()
        assert ledger.texts == ["b1", "a1"]

    async def test_a_listing_that_fails_decides_nothing(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)

        failing = ledger.store.always("list", ANY, StoreUnavailable("no"))
        with pytest.raises(StoreError):
            await ledger.term.tick()
        failing.stop()
        assert ledger.clerk.situations == []
        await ledger.tick()
        assert ledger.texts == ["p1"]

    async def test_what_landed_behind_the_cursor_is_found_by_the_next_sweep(self) -> None:
        ledger = Ledger(objects_per_tick=2)
        await ledger.lead()
        for number in range(1, 5):
            await ledger.put("p", number, after=0)
        await ledger.tick()
        await ledger.put("a", 1)
        await ledger.tick()
        assert "a1" not in ledger.texts
        await ledger.sweep()
        assert "a1" in ledger.texts


class TestForgetting:
    """L-6: producers that were silent, the horizon, and those who come back."""

    async def silence(self, ledger: Ledger) -> None:
        """A retention passes, and somebody else goes on."""
        ledger.time.advance(ledger.config.retention + 1)
        await ledger.tick()

    async def test_a_silent_producer_is_forgotten_and_its_copies_are_set_aside(self, ledger: Ledger) -> None:
        name = await ledger.put("p", 1)
        await ledger.tick()
        ledger.time.advance(ledger.config.retention - 1)
        await ledger.tick()
        assert "p" in ledger.term.state.producers.known
        ledger.time.advance(2)
        await ledger.tick()
        assert ledger.term.state.producers.known == {}
        assert ledger.term.state.producers.horizon == 2
        await ledger.put("p", 1)  # a copy that was under way all the time
        await ledger.tick()
        assert ledger.texts == ["p1"]
        assert await ledger.inbox() == []
        assert await ledger.store.keys("damaged/") == [name.key.replace("inbox/", "damaged/")]

    async def test_it_is_not_forgotten_while_something_of_it_is_in_the_inbox(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()

        failing = ledger.store.always("delete", ANY, StoreUnavailable("no"))
        await ledger.put("p", 1)
        await self.silence(ledger)
        assert "p" in ledger.term.state.producers.known
        failing.stop()
        await ledger.tick(2)
        assert ledger.term.state.producers.known == {}

    async def test_a_new_producer_that_knows_the_log_is_believed_after_that(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        await self.silence(ledger)
        await ledger.put("q", 1, known=ledger.term.state.seq)
        await ledger.tick()
        assert ledger.texts == ["p1", "q1"]

    async def test_the_next_leader_knows_the_horizon(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        await self.silence(ledger)
        await ledger.lead()
        await ledger.put("p", 1)
        await ledger.tick()
        assert ledger.texts == ["p1"]

    async def test_one_that_comes_back_goes_on_where_it_was(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        await self.silence(ledger)
        seq = ledger.term.state.seq
        await ledger.put("p", 2, known=seq)
        await ledger.put("p", 3, known=seq)
        await ledger.tick(4)
        assert ledger.texts == ["p1", "p2", "p3"]
        await ledger.lead()
        assert ledger.texts == ["p1", "p2", "p3"]
        assert ledger.term.state.producers.known["p"].through == 3

    async def test_of_two_that_come_back_the_first_is_not_lost_because_it_is_read_late(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        await self.silence(ledger)
        seq = ledger.term.state.seq
        second = await ledger.put("p", 2, known=seq)
        await ledger.put("p", 3, known=seq)
        await ledger.tick(2)
        gate = asyncio.Event()

        async def hold(request: Request) -> None:
            if request.key == second.key:
                await gate.wait()

        ledger.store.always("get", ANY, hold)
        await ledger.tick()
        gate.set()
        await settle_tasks()
        await ledger.tick(5)
        assert ledger.texts == ["p1", "p2", "p3"]

    async def test_of_two_that_come_back_the_first_is_not_lost_because_it_could_not_be_read(
        self, ledger: Ledger
    ) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        await self.silence(ledger)
        seq = ledger.term.state.seq
        second = await ledger.put("p", 2, known=seq)
        await ledger.put("p", 3, known=seq)
        await ledger.tick(2)

        failing = ledger.store.always("get", second.key, StoreUnavailable("no answer"))
        await ledger.tick()
        failing.stop()
        await ledger.tick(5)
        assert ledger.texts == ["p1", "p2", "p3"]

    async def test_of_two_that_come_back_the_first_is_not_lost_to_a_store_whose_clock_went_back(
        self, ledger: Ledger
    ) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        await self.silence(ledger)
        seq = ledger.term.state.seq
        await ledger.put("p", 2, known=seq)
        ledger.time.step_wall(-3)
        await ledger.put("p", 3, known=seq)
        await ledger.tick(6)
        assert ledger.texts == ["p1", "p2", "p3"]

    async def test_one_that_comes_back_with_something_durable_out_of_order(self, ledger: Ledger) -> None:
        """12 was folded before, with 10; 11 was never written. The producer stood still before it noticed."""
        await ledger.put("p", 13, after=10, ahead=[12], known=1)
        await ledger.tick(3)
        assert ledger.texts == ["p13"]
        await ledger.put("p", 14, after=10, ahead=[12, 13], known=1)
        await ledger.tick()
        assert ledger.texts == ["p13", "p14"]

    async def test_one_that_comes_back_in_disorder(self) -> None:
        """13 is seen by a sweep that began before 12 landed: it does not overtake it."""
        ledger = Ledger(objects_per_tick=1)
        await ledger.lead()
        await ledger.raw("inbox/0", b"")  # a page of its own, and 12 lands behind it
        await ledger.tick()
        await ledger.put("p", 13, after=10, ahead=[12], known=1)
        ledger.time.advance(0.001)
        await ledger.sweep()
        await ledger.put("p", 12, after=10, known=1)
        for _ in range(5):
            await ledger.sweep()
        assert ledger.texts == ["p12", "p13"]

    async def test_what_never_came_is_not_waited_for_for_ever(self, ledger: Ledger) -> None:
        await ledger.put("p", 1)
        await ledger.tick()
        name = await ledger.put("p", 3)
        await ledger.tick(20)
        assert len(await ledger.inbox()) == 1, "a retention has not passed"
        ledger.time.advance(ledger.config.retention + 1)
        await ledger.tick(20)
        assert await ledger.inbox() == []
        assert ledger.texts == ["p1"]
        assert name.key.replace("inbox/", "damaged/") in await ledger.store.keys("damaged/")

    async def test_very_many_are_forgotten_some_at_a_time(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenure.ledger.leader._MAX_FORGOTTEN", 10)
        for number in range(25):
            await ledger.put(f"p{number}", 1)
        await ledger.tick()
        ledger.time.advance(ledger.config.retention + 1)
        left = []
        for _ in range(4):
            await ledger.tick()
            left.append(len(ledger.term.state.producers.known))
        assert left == [15, 5, 0, 0]

    async def test_nothing_is_kept_of_what_is_over(self, ledger: Ledger) -> None:
        for number in range(1, 40):
            await ledger.put(f"p{number}", 1)
            await ledger.put(f"q{number}", 3, after=1, ahead=[2])  # early at first
            await ledger.tick()
            await ledger.put(f"q{number}", 1, after=0)
            await ledger.put(f"q{number}", 2, after=0)
            await ledger.tick()
        ledger.time.advance(ledger.config.retention + 1)
        await ledger.tick(3)
        term = ledger.term
        assert term.state.producers.known == {}
        for held in (term._early, term._first_early, term._pending, term._reading, term._clearing, term.problems):
            assert len(held) == 0
        assert await ledger.inbox() == []


class TestHousekeeping:
    async def test_snapshots_and_trim(self) -> None:
        ledger = Ledger(snapshot_every=5)
        await ledger.lead()
        for number in range(1, 31):
            await ledger.put("p", number)
            await ledger.tick(2)
            ledger.time.advance(2)
        await ledger.tick(5)
        assert 1 < len(await ledger.store.keys("snapshots/")) < 6
        assert len(await ledger.store.keys("log/")) < 25
        texts = ledger.texts
        await ledger.lead()
        assert ledger.texts == texts
        assert len(texts) == 30

    async def test_a_snapshot_is_of_a_whole_entry(self) -> None:
        """It is asked for at the end of one tick, and begun while the next entry is being written."""
        ledger = Ledger(snapshot_every=1)
        await ledger.lead()
        turns = 0

        async def wait(request: Request) -> None:
            nonlocal turns
            turns += 1
            await settle_tasks()

        waiting = ledger.store.always("create", ANY, wait)
        for number in range(1, 6):
            await ledger.put("p", number)
            await ledger.term.tick()
        await settle_tasks(100)
        assert turns
        waiting.stop()
        texts = ledger.texts
        await ledger.lead()
        assert ledger.texts == texts == [f"p{number}" for number in range(1, 6)]

    async def test_a_log_under_load_is_condensed_too(self) -> None:
        ledger = Ledger(snapshot_every=5, objects_per_tick=1)
        await ledger.lead()
        for number in range(1, 40):
            await ledger.put("p", number)
        for _ in range(30):
            tick = await ledger.term.tick()
            await settle_tasks()
            assert tick.more
        assert await ledger.store.keys("snapshots/") != []

    async def test_closing_lets_go_of_everything(self, ledger: Ledger) -> None:
        slow = await ledger.put("a", 1)
        await ledger.put("b", 1)

        async def hold(request: Request) -> None:
            if request.key == slow.key:
                await asyncio.Event().wait()

        ledger.store.always("get", ANY, hold)
        await ledger.term.tick()
        before = asyncio.all_tasks()
        await ledger.term.aclose()
        assert len(asyncio.all_tasks() - {asyncio.current_task()}) < len(before)
        assert ledger.term._deleting is None or ledger.term._deleting.done()


@given(st.data())
@settings(max_examples=80)
def test_every_batch_is_folded_once_and_in_order(data: st.DataObject) -> None:
    """Any producers, pages, losses, copies, failures and changes of leader."""

    async def scenario() -> None:
        ledger = Ledger(
            objects_per_tick=data.draw(st.integers(1, 4)),
            bytes_per_tick=data.draw(st.sampled_from([1, 120, 10_000])),
            snapshot_every=data.draw(st.sampled_from([2, 1000])),
        )
        await ledger.lead()
        sent: dict[str, int] = {"p": 0, "q": 0}
        durable: dict[str, list[int]] = {"p": [], "q": []}
        skipped: dict[str, list[int]] = {"p": [], "q": []}
        bodies = {}
        failing = {"left": 0}

        async def fail(request: Request) -> None:
            if failing["left"]:
                failing["left"] -= 1
                raise StoreUnavailable("no answer")

        for _ in range(data.draw(st.integers(5, 30))):
            step = data.draw(st.sampled_from(["send", "send", "lose", "copy", "tick", "tick", "fail", "lead", "quiet"]))
            uid = data.draw(st.sampled_from(["p", "q"]))
            ledger.time.advance(0.01)
            if step in ("send", "lose"):
                sent[uid] += 1
                number = sent[uid]
                if step == "send":
                    known = ledger.term.state.seq
                    name = await ledger.put(uid, number, known=known, skipped=list(skipped[uid]))
                    bodies[name] = (await ledger.store.inner.get(name.key)).body  # type: ignore[union-attr]
                    durable[uid].append(number)
                else:
                    skipped[uid].append(number)
            elif step == "copy" and bodies:
                name = data.draw(st.sampled_from(sorted(bodies)))
                await ledger.store.inner.create(name.key, bodies[name])
            elif step == "fail":
                failing["left"] = data.draw(st.integers(1, 3))
                verb = data.draw(st.sampled_from(["get", "list", "delete", "prepare"]))
                ledger.store.end_script()
                ledger.store.always(verb, ANY, fail)
                if verb == "prepare":
                    ledger.clerk.prepare_errors = [StoreUnavailable("no")] * failing["left"]
            elif step == "lead":
                ledger.store.end_script()
                await ledger.lead()
            elif step == "quiet":
                ledger.store.end_script()
                ledger.time.advance(ledger.config.retention / 2 + 1)
            else:
                try:
                    await ledger.tick()
                except StoreError:
                    pass
            for situation in ledger.clerk.situations[-1:] if step == "tick" else []:
                for key in await ledger.inbox() if situation.swept_ms is not None else []:
                    written = await _modified(ledger, f"inbox/{key}")
                    text = _text(key[21:])
                    folded = text in ledger.texts or text[0] in situation.unread
                    assert folded or written >= (situation.swept_ms or 0), "swept, and not folded"
        ledger.store.end_script()
        ledger.clerk.prepare_errors = []
        for _ in range(8):
            await ledger.sweep()
        for uid in sent:
            wanted = [f"{uid}{number}" for number in durable[uid]]
            assert [text for text in ledger.texts if text.startswith(uid)] == wanted
        await ledger.lead()
        for uid in sent:
            wanted = [f"{uid}{number}" for number in durable[uid]]
            assert [text for text in ledger.texts if text.startswith(uid)] == wanted
        assert await ledger.inbox() == []

    asyncio.run(scenario())


def _text(name: str) -> str:
    uid, number = name.split("-")
    return f"{uid}{int(number)}"


async def _modified(ledger: Ledger, key: str) -> int:
    async for entry in ledger.store.inner.list("inbox/"):
        if entry.key == key:
            return round(entry.modified.timestamp() * 1000)
    raise AssertionError(key)


# Found by mutants


async def test_what_was_too_large_was_not_swept_if_the_rest_could_not_be_read() -> None:
    ledger = Ledger(objects_per_tick=2)
    await ledger.lead()
    large, fails = await ledger.put("a", 1), await ledger.put("b", 1)
    await ledger.raw(large.key, b"x" * (MAX_INBOX_BYTES + 1))
    await ledger.put("p", 1)

    ledger.store.always("get", fails.key, "lost")
    with pytest.raises(StoreError):
        await ledger.term.tick()
    await ledger.sweep()
    assert ledger.texts == ["p1"]
    assert ledger.clerk.situations[-1].unread == {"a", "b"}


async def test_what_was_taken_out_of_the_inbox_is_not_folded_from_memory(ledger: Ledger) -> None:
    await ledger.put("p", 1)
    await ledger.tick()
    early = await ledger.put("p", 3, "old")
    await ledger.tick()
    await ledger.store.inner.delete(early.key)
    await ledger.tick()
    await ledger.put("p", 3, "new")
    await ledger.put("p", 2)
    await ledger.tick(2)
    assert ledger.texts == ["p1", "p2", "new"]

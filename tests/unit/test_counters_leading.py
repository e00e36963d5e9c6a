"""Leaders of counters in simulated time: that go, come, lose their answers, and go on without knowing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from tenure.database.counted import COUNTERS
from tenure.database.ids import key_of
from tenure.errors import BodyTooLarge, RequestNotAnswered, StoreError, StoreUnavailable
from tenure.ledger import InboxName
from tenure.plugins.counters import ApplyFailed, FieldHidden, Retention
from tenure.plugins.counters.events import RecordRecalculated
from tenure.plugins.counters.pages import PageBook
from tenure.plugins.counters.state import MAX_OFFERED
from tenure.plugins.ledgered import Halted
from tests.support.store import ANY, Hold, Request
from tests.unit.counters_rig import INBOX, LOG, NAME, PAGES, Rig

HOUR = 3600.0


def _folded(rig: Rig) -> int:
    return sum(len(numbers) for entry in rig.entries for numbers in entry.folded.values())


@pytest.mark.req("EC-1")
def test_what_is_folded_by_an_entry_that_never_lands_is_counted_once() -> None:
    """The leader must not write amounts to a record before their entry is in the log: another folds them again."""
    with Rig(interval=0.2) as rig:
        first, writer = rig.leader("first"), rig.node("writer")
        gate = Hold()
        first.store.always("create", f"{LOG}*", gate)
        rig.done(writer, lambda: writer.counters.add("home", "views", 5))
        rig.until(lambda: gate.begun > 0)
        rig.wait(3.0)
        assert rig.envelope("home") is None, "it is in no log yet"
        assert first.lease is not None
        first.lease.valid = False
        rig.leader("second", epoch=2)
        gate.release()
        rig.until(lambda: rig.total("home") == 5)
        rig.wait(5.0)
        assert rig.total("home") == 5


@pytest.mark.req("EC-1")
@pytest.mark.parametrize("when", ["before the swap", "after the swap"])
def test_a_leader_that_goes_on_without_knowing_counts_nothing_twice(when: str) -> None:
    with Rig(interval=0.2) as rig:
        first, writer = rig.leader("first"), rig.node("writer")
        rig.done(writer, lambda: writer.pages.insert({"title": "t"}, "home"))
        gate = Hold()
        if when == "before the swap":
            first.store.always("replace", key_of(NAME, "home"), gate)
        rig.done(writer, lambda: writer.counters.add("home", "views", 5))
        if when == "before the swap":
            rig.until(lambda: gate.begun > 0)
        else:
            rig.until(lambda: _folded(rig) == 1)
            first.store.always("create", f"{LOG}*", gate)  # what it has applied is never written down
            rig.until(lambda: rig.total("home") == 5)
        second = rig.leader("second", epoch=2)
        rig.done(writer, lambda: writer.counters.add("home", "views", 7))
        rig.until(lambda: rig.total("home") == 12)
        gate.release()
        rig.wait(3.0)
        assert rig.total("home") == 12
        assert rig.done(second, lambda: second.counters.get("home", "views", consistent=True)) == 12


@pytest.mark.req("EC-1")
@pytest.mark.parametrize("conditional_delete", [True, False])
def test_deleted_and_inserted_again_meanwhile(conditional_delete: bool) -> None:
    with Rig(interval=0.3, conditional_delete=conditional_delete) as rig:
        rig.leader()
        a, b = rig.node("a"), rig.node("b")
        for number in range(6):
            rig.done(a, lambda: a.counters.add("home", "views", 1))
            act = (lambda: b.pages.insert({"n": 1}, "home")) if number % 2 == 0 else lambda: b.pages.delete("home")
            rig.done(b, act)
            rig.wait(0.2 * number)
        rig.done(a, lambda: a.counters.consolidate())
        assert rig.total("home") == 6
        rig.done(b, lambda: b.pages.insert({"n": 1}, "home"))
        assert rig.done(b, lambda: b.pages.get("home")).data == {"n": 1, "views": 6}


@pytest.mark.req("EC-2")
def test_one_bad_letter_and_one_bad_record_concern_themselves_alone() -> None:
    with Rig(interval=0.3) as rig:
        leader, writer = rig.leader(), rig.node("writer")
        bodies = [
            b"\xff",
            b'{"schema":1,"after":0,"fields":{"views":"int:sum"},"rows":{"views":{"' + b"x" * 200 + b'":[1,1]}}}',
            b'{"schema":1,"after":0,"fields":{"views":"int:sum"},"rows":{"views":{"a":[1,' + b"9" * 3000 + b"]}}}",
            b'{"schema":1,"after":0,"fields":{"views.x":"int:sum"},"rows":{"views.x":{"a":[1,1]}}}',
            b'{"schema":1,"after":0,"requests":[{"request":"r","op":"recalculate"}]}',
        ]
        rig.done(writer, lambda: writer.counters.add("good", "views", 1))
        for number, body in enumerate(bodies):
            rig.bucket.restore(_inbox_key(f"stranger{number}"), body)
        rig.bucket.restore(key_of(NAME, "bad"), b"no record")
        rig.done(writer, lambda: writer.counters.add("bad", "views", 1))
        rig.done(writer, lambda: writer.counters.add("good", "views", 2))
        rig.until(lambda: rig.total("good") == 3)
        rig.wait(20.0)
        assert leader.leading is not None and leader.leading.halted is None
        assert not [event for event in rig.events if isinstance(event, Halted)]
        assert [event.id for event in rig.events if isinstance(event, ApplyFailed)] == ["bad"]
        assert sum(len(entry.rejected) for entry in rig.entries) == 4
        rig.bucket.remove(key_of(NAME, "bad"))
        rig.until(lambda: rig.total("bad") == 1, within=400.0)


def _inbox_key(uid: str) -> str:
    return INBOX.removesuffix("inbox/") + InboxName(0, uid, 1).key


def test_what_cannot_be_shown_is_told_once() -> None:
    with Rig(interval=0.3, fields=["stats.likes"]) as rig:
        rig.leader()
        writer = rig.node("writer")
        rig.done(writer, lambda: writer.pages.insert({"stats": "none"}, "home"))
        for _ in range(2):
            rig.done(writer, lambda: writer.counters.add("home", "stats.likes", mode="sync"))
        hidden = [event for event in rig.events if isinstance(event, FieldHidden)]
        assert [(event.id, event.field) for event in hidden] == [("home", "stats.likes")]
        assert rig.total("home", "stats.likes") == 2
        assert rig.done(writer, lambda: writer.pages.get("home")).data == {"stats": "none"}


@pytest.mark.req("EC-2")
def test_recalculation_puts_right_what_was_changed_by_other_means() -> None:
    with Rig(interval=0.3) as rig:
        rig.leader()
        writer = rig.node("writer")
        rig.done(writer, lambda: writer.pages.insert({"views": 100}, "home"))
        for _ in range(3):
            rig.done(writer, lambda: writer.counters.add("home", "views", 5, mode="sync"))

        def recalculated() -> Any:
            return rig.done(writer, lambda: writer.counters.recalculate("home"))

        found = recalculated()
        assert (found.totals, found.former) == ({"views": 115}, {})
        envelope = rig.envelope("home")
        assert envelope is not None
        held = envelope.reserved[COUNTERS][NAME]
        wrong = {COUNTERS: {NAME: {**held, "totals": {"views": 3}}}}
        rig.corrupt("home", msgspec.structs.replace(envelope, data={"views": 3}, reserved=wrong))
        found = recalculated()
        assert (found.totals, found.former) == ({"views": 115}, {"views": 3})
        assert rig.total("home") == 115
        rig.corrupt("home", msgspec.structs.replace(envelope, reserved={}))
        found = recalculated()
        assert found.totals == {"views": 15}, "what it began with went with what was kept"
        rig.done(writer, lambda: writer.counters.add("home", "views", 5, mode="sync"))
        assert recalculated().former == {}
        assert rig.total("home") == 20
        rig.corrupt("home", msgspec.structs.replace(envelope, reserved={COUNTERS: "garbage"}))
        assert recalculated().totals == {"views": 20}
        rig.corrupt("home", None)
        assert recalculated().totals == {"views": 20}
        assert rig.total("home") == 20
        assert [event for event in rig.events if isinstance(event, RecordRecalculated)]


@pytest.mark.req("EC-2")
@pytest.mark.parametrize("crash", [False, True], ids=["same leader", "another leader"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["quiet", "counting goes on"])
def test_a_damaged_record_is_put_right_also_while_amounts_wait_for_it(goes_on: bool, crash: bool) -> None:
    """What waits can only be applied afterwards. Each amount counts once, in the totals or after them."""
    with Rig(interval=0.3) as rig:
        leader, writer = rig.leader(), rig.node("writer")
        rig.done(writer, lambda: writer.counters.add("home", "views", 5, mode="sync"))
        envelope = rig.envelope("home")
        assert envelope is not None
        rig.corrupt("home", msgspec.structs.replace(envelope, reserved={COUNTERS: "garbage"}))
        given = 5
        for _ in range(4):
            rig.done(writer, lambda: writer.counters.add("home", "views", 5))
            rig.wait(1.0)
            given += 5
        if crash:
            leader.host.crash()
            leader = rig.leader("second", 2)
        asked = writer.do(lambda: writer.counters.recalculate("home", timeout=600))
        for _ in range(10 if goes_on else 0):
            rig.done(writer, lambda: writer.counters.add("home", "views", 1))
            given += 1
        rig.until(lambda: bool(asked), 300.0)
        assert not isinstance(asked[0], Exception), asked
        rig.done(writer, lambda: writer.counters.add("home", "views", 1, mode="sync"), 60.0)
        rig.wait(10.0)
        assert rig.total("home") == given + 1
        assert not leader.leading.clerk.machine.waiting
        found = rig.done(writer, lambda: writer.counters.recalculate("home"))
        assert (found.totals, found.former) == ({"views": given + 1}, {})


@pytest.mark.req("EC-2")
def test_a_damaged_record_for_which_much_waits_is_left_as_it_is() -> None:
    """Of what is put together a watermark might cover a part, which would be counted twice."""
    with Rig(interval=0.3) as rig:
        leader, writer = rig.leader(), rig.node("writer")
        rig.done(writer, lambda: writer.counters.add("home", "views", 1, mode="sync"))
        envelope = rig.envelope("home")
        assert envelope is not None
        rig.corrupt("home", msgspec.structs.replace(envelope, reserved={COUNTERS: "garbage"}))
        for _ in range(MAX_OFFERED + 4):
            rig.done(writer, lambda: writer.counters.add("home", "views", 1))
            rig.wait(1.0)
        assert leader.leading.clerk.machine.waiting["home"].rest is not None
        (refused,) = rig.done(writer, lambda: _outcome(writer.counters.recalculate("home", timeout=20)), 60.0)
        assert isinstance(refused, RequestNotAnswered)
        envelope = rig.envelope("home")
        assert envelope is not None
        rig.corrupt("home", msgspec.structs.replace(envelope, reserved={}))  # as docs/counters.md says
        rig.until(lambda: not leader.leading.clerk.machine.waiting, 400.0)
        rig.done(writer, lambda: writer.counters.recalculate("home", timeout=60), 100.0)
        assert rig.total("home") == 1 + MAX_OFFERED + 4


@pytest.mark.req("EC-2")
def test_a_record_that_only_lags_is_not_put_right_before_what_waits_for_it() -> None:
    """What it lacked was told as wrong, although all of it was about to be written."""
    with Rig(interval=0.3) as rig:
        leader, writer = rig.leader(), rig.node("writer")
        rig.done(writer, lambda: writer.counters.add("home", "views", 5, mode="sync"))
        leader.store.always("replace", key_of(NAME, "home"), "lost")
        rig.done(writer, lambda: writer.counters.add("home", "views", 5))
        rig.until(lambda: any(isinstance(event, ApplyFailed) for event in rig.events))
        leader.store.end_script()
        assert rig.total("home") == 5
        found = rig.done(writer, lambda: writer.counters.recalculate("home"))
        assert (found.totals, found.former) == ({"views": 10}, {})
        assert not leader.leading.clerk.machine.waiting


def test_a_record_that_cannot_be_recalculated_either_is_tried_ever_more_rarely() -> None:
    """It was read, with all of its history, whenever anything at all was counted."""
    with Rig(interval=0.3) as rig:
        leader, writer = rig.leader(), rig.node("writer")
        rig.done(writer, lambda: writer.counters.add("home", "views", 5, mode="sync"))
        key = key_of(NAME, "home")
        envelope = rig.envelope("home")
        assert envelope is not None
        rig.bucket.corrupt(key, b"no record")

        rig.done(writer, lambda: writer.counters.add("home", "views", 5))
        rig.until(lambda: any(isinstance(event, ApplyFailed) for event in rig.events))
        leader.store.requests.clear()
        asked = writer.do(lambda: writer.counters.recalculate("home", timeout=900))
        rig.wait(1.0)
        assert leader.store.count("get", key), "the first try is at once"
        for _ in range(60):
            rig.done(writer, lambda: writer.counters.add("another", "views", 1))
            rig.wait(1.0)
        assert leader.store.count("get", key) < 12
        rig.corrupt("home", msgspec.structs.replace(envelope, reserved={COUNTERS: "garbage"}))
        rig.until(lambda: bool(asked), 700.0)
        assert asked[0].totals == {"views": 10}
        rig.wait(10.0)
        assert rig.total("home") == 10


async def _outcome(call: Coroutine[Any, Any, Any]) -> list[Any]:
    return list(await asyncio.gather(call, return_exceptions=True))


@pytest.mark.req("EC-2")
def test_history_becomes_pages_and_no_page_is_lost_when_leaders_change() -> None:
    with Rig(interval=600.0, retention=Retention(1, 1, 1), idle_budget=12.0) as rig:
        leader, writer = rig.leader(), rig.node("writer")
        given = 0
        for epoch in range(2, 6):
            for _ in range(3):
                rig.done(writer, lambda: writer.counters.add("home", "views", 1, mode="sync", timeout=900), 1000.0)
                given += 1
                rig.wait(1.1 * HOUR)
            if epoch % 2:
                leader.host.crash()
            else:
                assert leader.lease is not None
                leader.lease.valid = False
            leader = rig.leader(f"leader{epoch}", epoch)
            rig.wait(200.0)
            history = rig.done(writer, lambda: writer.counters.history("home", "views", period="hour"), 1000.0)
            assert sum(bucket.added for bucket in history) == given
        rig.wait(30 * HOUR)
        stats = rig.done(writer, lambda: writer.counters.stats(), 1000.0)
        assert stats.pages <= 8
        found = rig.done(writer, lambda: writer.counters.recalculate("home", timeout=900), 1000.0)
        assert (found.totals, found.former) == ({"views": given}, {})
        (top,) = rig.done(writer, lambda: writer.counters.top("views"), 1000.0)
        assert (top.id, top.value) == ("home", given)
        rig.wait(300.0)
        assert len(rig.bucket.keys(PAGES)) <= stats.pages + 1, "what is not needed any more is removed"


def test_history_that_cannot_be_filed_for_minutes_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filed, write = [True], PageBook.write

    async def refused(self: PageBook, sealed: Any) -> Any:
        if not filed[0]:
            raise BodyTooLarge("it has 70,000,000 bytes")
        return await write(self, sealed)

    monkeypatch.setattr(PageBook, "write", refused)
    with Rig() as rig:
        leader, writer = rig.leader(), rig.node("writer")
        for _ in range(2):
            filed[0] = False
            rig.done(writer, lambda: writer.counters.add("home", "views"))
            rig.until(lambda: bool(leader.leading.clerk.machine.sealed), 2 * HOUR)  # type: ignore[union-attr]
            rig.wait(100.0)
            assert not [record for record in caplog.records if record.levelname == "WARNING"]
            rig.wait(600.0)
            (told,) = [record for record in caplog.records if record.levelname == "WARNING"]
            assert "70,000,000" in told.getMessage()
            filed[0] = True
            rig.wait(200.0)
            assert not leader.leading.clerk.machine.sealed  # type: ignore[union-attr]
            caplog.clear()
        assert rig.total("home") == 2


def test_a_page_that_is_damaged_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is met at every look, and there is a look every minute."""
    with Rig(interval=600.0, retention=Retention(1, 1, 1), idle_budget=12.0) as rig:
        rig.leader()
        writer = rig.node("writer")
        for _ in range(2):
            rig.done(writer, lambda: writer.counters.add("home", "views", 1, mode="sync", timeout=900), 1000.0)
            rig.wait(1.1 * HOUR)
        key, *_ = rig.bucket.keys(PAGES)
        rig.bucket.corrupt(key, b"none")
        rig.wait(32 * HOUR)
        told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert [key.rpartition("/")[2] in each for each in told] == [True], told


def test_a_store_that_fails_delays_and_loses_nothing() -> None:
    with Rig(interval=0.3) as rig:
        leader, writer = rig.leader(), rig.node("writer")
        failures = [0]

        async def every_third(request: Request) -> StoreError | None:
            failures[0] += 1
            return (
                StoreUnavailable("out of order") if failures[0] % 3 == 0 and not request.key.startswith(LOG) else None
            )

        leader.store.always(ANY, ANY, every_third)
        for _ in range(10):
            rig.done(writer, lambda: writer.counters.add("home", "views", 1))
        rig.until(lambda: rig.total("home") == 10, within=120.0)


def test_stopped_counters_answer_nobody_and_say_so() -> None:
    with Rig() as rig:
        node = rig.node("a")
        waiting = node.do(lambda: node.counters.add("home", "views", mode="sync"))
        rig.wait(1.0)
        rig.done(node, node.counters.stop)
        rig.wait(1.0)
        assert isinstance(waiting[0], Exception)
        assert "stopped" in str(waiting[0])
        for call in (
            lambda: node.counters.add("home", "views"),
            lambda: node.counters.get("home", "views", consistent=True),
            lambda: node.counters.consolidate(),
            lambda: node.counters.stats(),
        ):
            with pytest.raises(Exception, match="not started"):
                rig.done(node, call)

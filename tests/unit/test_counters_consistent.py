"""A consistent read: whatever moves on between its requests, nothing is missed and nothing is there twice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tenure.errors import SchemaTooNew, StoreError
from tenure.ledger import InboxName, LedgerConfig, LedgerState, Place
from tenure.ledger.config import MAX_INBOX_BYTES
from tenure.plugins.counters.shelf import Shelf, Shelved
from tests.support.store import ANY, Hold, Request
from tests.unit.counters_rig import INBOX, LOG, Node, Rig

QUICK = LedgerConfig(trim_delay=20.0, retention=100.0, send_timeout=5.0, give_up_after=15.0, snapshot_every=40)


def _read(rig: Rig, node: Node, id: str = "home", field: str = "views") -> Any:
    return rig.done(node, lambda: node.counters.get(id, field, consistent=True))


def _key(uid: str, number: int = 1) -> str:
    return INBOX.removesuffix("inbox/") + InboxName(0, uid, number).key


def _letter(rows: str, field: str = "views", word: str = "int:sum", schema: int = 1) -> bytes:
    return f'{{"schema":{schema},"after":0,"fields":{{"{field}":"{word}"}},"rows":{{"{field}":{rows}}}}}'.encode()


@pytest.mark.req("EC-2")
@pytest.mark.parametrize("pause", [0.0, 0.05, 0.3, 1.0])
def test_whatever_happens_between_its_requests(pause: float) -> None:
    """Before each of its requests time passes, in which a leader folds, applies, clears away, condenses and trims, and
    the record is deleted or inserted. Amounts that were acknowledged before are there; those that come meanwhile may
    be. However slow it is, it comes to an end.
    """
    with Rig(interval=0.1, ledger=QUICK) as rig:
        rig.leader()
        writer, reader = rig.node("writer"), rig.node("reader")
        amounts = itertools.count(0)
        given: list[int] = []
        answers: list[tuple[int, int, Any]] = []
        acts = [
            lambda: writer.pages.insert({"n": 1}, "home"),
            lambda: writer.pages.delete("home"),
        ]

        async def trouble(request: Request) -> StoreError | None:
            if pause:
                await reader.host.clock.sleep(pause)
            return None

        reader.store.always(ANY, ANY, trouble)
        stopped = False

        async def write() -> None:
            for number in itertools.count():
                if stopped:
                    return
                await writer.counters.add("home", "views", 2 ** next(amounts) % 1_000_003)
                given.append(2 ** len(given) % 1_000_003)
                if number % 3 == 0:
                    try:
                        await acts[number // 3 % 2]()
                    except Exception as error:
                        assert "home" in str(error)
                await writer.host.clock.sleep(0.07)

        writing = writer.do(write)
        for _ in range(8):
            before = len(given)
            value = _read(rig, reader)
            answers.append((before, len(given) + 1, value))
        stopped = True
        rig.until(lambda: bool(writing))
        sums = [0, *itertools.accumulate(given)]
        for least, most, value in answers:
            assert value in sums[least : most + 1], (least, most, value)
        assert _read(rig, reader) == sums[-1]


@pytest.mark.req("EC-2")
def test_without_a_leader_everything_is_in_the_inbox_and_is_counted() -> None:
    with Rig(fields={"views": int, "paid": "decimal:sum", "high": "int:max"}) as rig:
        node, other = rig.node("node"), rig.node("other")
        rig.done(node, lambda: node.pages.insert({"views": 100}, "home"))
        for amount in (1, 2):
            rig.done(node, lambda amount=amount: node.counters.add("home", "views", amount))
            rig.done(other, lambda: other.counters.add("home", "views", 10, op_id="once"))
            rig.done(other, lambda amount=amount: other.counters.add("home", "high", amount))
        assert _read(rig, node) == 113
        whole = rig.done(node, lambda: node.counters.get("home", consistent=True))
        assert whole == {"views": 113, "paid": 0, "high": 2}
        assert rig.done(node, lambda: node.counters.get("home")) == {"views": 100, "paid": 0, "high": None}
        rig.done(node, lambda: node.counters.set("home", "views", 7))
        assert _read(rig, node) == 7
        assert _read(rig, node, "nobody") == 0
        rig.leader()
        rig.until(lambda: rig.total("home") == 7)
        rig.done(other, lambda: other.counters.add("home", "views", 10, op_id="once"))
        assert _read(rig, node) == 7


@pytest.mark.req("EC-2")
def test_what_a_leader_passes_over_is_passed_over() -> None:
    with Rig() as rig:
        node = rig.node("node")
        rig.done(node, lambda: node.counters.add("home", "views", 5))
        rig.bucket.restore(_key("garbage"), b"{")
        rig.bucket.restore(_key("otherwise"), _letter('{"home":[1,"1.5"]}', word="decimal:sum"))
        rig.bucket.restore(_key("enormous"), _letter('{"home":[1,1000]}') + b" " * MAX_INBOX_BYTES)
        rig.bucket.restore(INBOX + "not-a-letter", b"x")
        assert _read(rig, node) == 5
        rig.bucket.restore(_key("fine"), _letter('{"home":[1,3]}'))
        assert _read(rig, node) == 8
        rig.bucket.restore(_key("newer"), _letter('{"home":[1,3]}', schema=2))
        with pytest.raises(SchemaTooNew, match="update"):
            _read(rig, node)


def test_the_first_amounts_of_all_are_not_counted_twice() -> None:
    """The record holds the totals of a log that had no name yet when it was read."""
    with Rig(interval=0.05) as rig:
        writer, reader = rig.node("writer"), rig.node("reader")
        rig.done(writer, lambda: writer.counters.add("home", "views", 5))

        async def lead_now(request: Request) -> None:
            writer.lead()
            while rig.total("home") != 5:
                await reader.host.clock.sleep(0.05)

        reader.store.on("get", "*/data/*", lead_now)
        assert _read(rig, reader) == 5
        reader.store.assert_script_was_met()


@pytest.mark.req("EC-2")
def test_what_is_folded_and_applied_between_its_requests_is_counted_once() -> None:
    """It was in the inbox, not in the log, and is in the record: the log has to be read again, up to that number."""
    with Rig(interval=0.05) as rig:
        leader, writer, reader = rig.leader(), rig.node("writer"), rig.node("reader")
        rig.done(writer, lambda: writer.counters.add("home", "views", 100, mode="sync"))
        assert _read(rig, reader) == 100
        gate = Hold()

        async def let_go(request: Request) -> None:
            gate.release()
            while rig.total("home") != 105:
                await reader.host.clock.sleep(0.05)

        leader.store.always("list", f"{INBOX}*", gate)
        rig.wait(2.0)
        rig.done(writer, lambda: writer.counters.add("home", "views", 5))
        reader.store.on("get", "*/data/*", let_go)
        assert _read(rig, reader) == 105
        reader.store.assert_script_was_met()


@pytest.mark.req("EC-2")
def test_nothing_is_missed_if_another_who_asks_has_read_on() -> None:
    """The record is of one entry, and the log is read further than that: what was applied since is in neither."""
    ledger = LedgerConfig(objects_per_tick=1)
    with Rig(interval=0.05, ledger=ledger) as rig:
        leader, writer, reader = rig.leader(), rig.node("writer"), rig.node("reader")
        rig.done(writer, lambda: writer.counters.add("home", "views", 100, mode="sync"))
        assert _read(rig, reader) == 100
        view = reader.counters._view
        assert view is not None
        may_fold = [0]
        folded: list[str] = []

        async def one_by_one(request: Request) -> StoreError | None:
            while (
                request.verb == "get"
                and request.key.startswith(INBOX)
                and request.key not in folded
                and len(folded) >= may_fold[0]
            ):
                await leader.host.clock.sleep(0.01)
            if request.verb == "get" and request.key.startswith(INBOX) and request.key not in folded:
                folded.append(request.key)
            return None

        async def first(request: Request) -> None:
            may_fold[0] = 1
            while rig.total("home") == 100:
                await reader.host.clock.sleep(0.01)

        refresh = view.refresh

        async def after_another(until: int | None = None) -> LedgerState:
            if until is not None and may_fold[0] == 1:
                may_fold[0] = 2
                while rig.total("home") != 115:
                    await reader.host.clock.sleep(0.01)
                await reader.host.clock.sleep(1.0)  # it is written down as well
                await refresh()
            return await refresh(until)

        leader.store.always(ANY, ANY, one_by_one)
        for amount in (5, 10):
            rig.done(writer, lambda amount=amount: writer.counters.add("home", "views", amount))
        view.refresh = after_another  # type: ignore[method-assign]
        reader.store.on("get", "*/data/*", first)
        assert _read(rig, reader) == 115
        assert may_fold[0] == 2


def test_a_log_that_was_left_alone_for_long_is_read_anew() -> None:
    with Rig(interval=0.1, ledger=QUICK) as rig:
        rig.leader()
        writer, reader = rig.node("writer"), rig.node("reader")
        for number in range(1, 6):
            for _ in range(15):
                rig.done(writer, lambda: writer.counters.add("home", "views", 1, mode="sync"))
            rig.wait(60.0)
            assert _read(rig, reader) == 15 * number
        assert len(rig.bucket.keys(LOG)) < len(rig.entries), "it was trimmed meanwhile"


@pytest.mark.req("EC-1")
def test_while_nobody_leads_each_letter_is_fetched_once() -> None:
    """Otherwise reads alone keep the store too busy for anybody to come to lead."""
    with Rig() as rig:
        writer, reader = rig.node("writer"), rig.node("reader")
        for number in range(1, 21):
            rig.done(writer, lambda: writer.counters.add("home", "views", 1))
            asked = [reader.do(lambda: reader.counters.get("home", "views", consistent=True)) for _ in range(3)]
            rig.until(lambda asked=asked: all(asked))  # type: ignore[misc]
            assert asked == [[number]] * 3
        assert reader.store.count("get", f"{INBOX}*") == 20
        # Whoever leads then folds them, and what was read is not kept.
        rig.leader()
        rig.until(lambda: rig.total("home") == 20)
        assert _read(rig, reader) == 20
        assert len(reader.counters._shelf) == 0


def test_a_shelf_holds_so_much_and_no_more() -> None:
    shelf = Shelf(most_bytes=100)
    names = [InboxName(0, "u", number) for number in range(1, 5)]
    for name in names:
        shelf.put(name, Shelved(40, Place(0), None))
    assert [shelf.find(name) is not None for name in names] == [True, True, False, False]
    shelf.keep(names[1:])
    assert len(shelf) == 1
    shelf.put(names[2], Shelved(60, Place(0), None))
    assert shelf.find(names[2]) is not None

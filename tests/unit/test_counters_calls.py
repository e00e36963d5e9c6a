"""Calls of counters: those that wait, those that are cut short, and what may not be given to them."""

from __future__ import annotations

import asyncio
import math
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tenure.errors import (
    ConfigConflict,
    ConfigError,
    ForkedProcess,
    InvalidRecord,
    RequestNotAnswered,
    StoreError,
    StoreUnavailable,
)
from tenure.ledger import LedgerConfig, LogEntry, Producer, Receipt
from tenure.plugins.counters import Counter, EventualConsistencyPlugin, Kind, Retention, calls
from tenure.plugins.counters.group import MAX_ROWS, Collector
from tenure.plugins.counters.records import Work
from tenure.plugins.counters.settings import settings_from
from tenure.plugins.counters.wire import compose, read_letter
from tenure.store import Stored
from tenure.store.memory import MemoryStore
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, Request
from tests.unit.counters_rig import INBOX, LOG, Node, Rig
from tests.unit.ledgers import QUICK

VIEWS = Counter()


# Groups


class Desk:
    """A producer and its collector, on a store of their own."""

    def __init__(self, config: LedgerConfig = QUICK) -> None:
        self.store = MemoryStore()
        self.producer = Producer(
            self.store, compose, config=config, clock=ScriptedClock(), draw_id=lambda: "id0123456789"
        )
        self.collector = Collector(self.producer)

    async def add(self, id: str, amount: int = 1) -> None:
        group = self.collector.current or await self.collector.group()
        group.cell("views", VIEWS, id).add(VIEWS, amount)
        await group.durable()

    async def written(self) -> dict[str, int]:
        """By record, what all letters together say."""
        found: dict[str, int] = {}
        async for entry in self.store.list(INBOX.rpartition("/inbox/")[1].strip("/") + "/"):
            stored = await self.store.get(entry.key)
            assert isinstance(stored, Stored)
            for id, cell in read_letter(stored.body)[1].rows.get("views", {}).items():
                found[id] = found.get(id, 0) + cell.net
        return found


async def test_calls_that_come_together_share_a_request() -> None:
    desk = Desk()
    await asyncio.gather(*(desk.add(f"r{number % 10}") for number in range(2000)))
    assert await desk.written() == {f"r{number}": 200 for number in range(10)}
    assert desk.producer.batches <= 3


async def test_groups_of_many_records_are_cut_and_nothing_is_written_twice() -> None:
    desk = Desk()
    count = 3 * MAX_ROWS + 7
    await asyncio.gather(*(desk.add(f"record-{number:07d}-{'x' * 100}", number) for number in range(count)))
    found = await desk.written()
    assert sorted(found.values()) == list(range(count))


@pytest.mark.req("EC-1")
async def test_a_call_that_is_cut_short_takes_no_other_with_it() -> None:
    desk = Desk()
    tasks = [asyncio.create_task(desk.add("home")) for _ in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in done] == [False, False, True, False, False]
    assert (await desk.written())["home"] >= 4


async def test_a_group_that_cannot_be_written_is_told_to_everybody_in_it() -> None:
    desk = Desk()

    async def broken(key: str, body: bytes) -> Any:
        raise StoreUnavailable("out of order")

    desk.store.create = broken  # type: ignore[method-assign]
    done = await asyncio.gather(*(desk.add("home") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(each, StoreError) for each in done)


async def test_in_a_forked_child_nobody_waits_for_what_the_parent_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    parents = asyncio.create_task(desk.add("home", 1))
    await asyncio.sleep(0)
    pid = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: pid + 1)
    assert desk.collector.current is None
    with pytest.raises(ForkedProcess):  # by the store, at once
        await asyncio.wait_for(desk.add("home", 10), 5)
    monkeypatch.undo()
    parents.cancel()
    await asyncio.wait([parents])
    parents.cancelled() or parents.exception()


# Waiting


@pytest.mark.req("EC-1")
def test_sync_returns_when_it_is_in_the_record() -> None:
    with Rig(interval=60.0) as rig:
        rig.leader()
        node = rig.node("node")
        for number in range(1, 5):
            rig.done(node, lambda: node.counters.add("home", "views", mode="sync"))
            assert rig.total("home") == number
        before = rig.world.now
        outcomes = [node.do(lambda id=id: node.counters.add(id, "views", mode="sync")) for id in "abcdefgh" * 5]
        rig.until(lambda: all(outcomes))
        assert [outcome for outcome in outcomes if outcome != [None]] == []
        assert rig.world.now - before < 5.0, "nobody waits for the next round"
        assert [rig.total(id) for id in "abcdefgh"] == [5] * 8


def test_without_a_leader_sync_says_that_it_is_written_down() -> None:
    with Rig() as rig:
        node = rig.node("node")
        with pytest.raises(RequestNotAnswered, match="will be counted"):
            rig.done(node, lambda: node.counters.add("home", "views", mode="sync", timeout=3))
        with pytest.raises(RequestNotAnswered, match="no leader"):
            rig.done(node, lambda: node.counters.consolidate(timeout=timedelta(seconds=3)))
        assert rig.done(node, lambda: node.counters.get("home", "views", consistent=True)) == 1


@pytest.mark.req("EC-2")
def test_consolidate_covers_what_anybody_had_acknowledged() -> None:
    with Rig(interval=600.0) as rig:
        rig.leader()
        nodes = [rig.node(name) for name in "abc"]
        for number in range(6):
            writer = nodes[number % 3]
            for id in ("x", "y"):
                rig.done(writer, lambda writer=writer, id=id: writer.counters.add(id, "views", 1))
            asking = nodes[(number + 1) % 3]
            rig.done(asking, lambda asking=asking: asking.counters.consolidate("x"))
            assert rig.total("x") == number + 1
            rig.done(asking, lambda asking=asking: asking.counters.consolidate())
            assert rig.total("y") == number + 1


@pytest.mark.req("EC-1")
def test_who_waits_learns_what_was_missed_in_a_gap_also_if_the_store_fails_first() -> None:
    ledger = LedgerConfig(trim_delay=4.0, retention=100.0, send_timeout=5.0, give_up_after=15.0, snapshot_every=2)
    with Rig(interval=0.5, ledger=ledger) as rig:
        rig.leader()
        node, other = rig.node("node"), rig.node("other")
        held = {"is": False, "failures": 3}

        async def cut_off(request: Request) -> StoreError | None:
            while held["is"] and request.key.startswith(LOG):
                await node.host.clock.sleep(0.1)
            if (
                held["failures"]
                and request.key.startswith(LOG.removesuffix("log/") + "snapshots/")
                and rig.world.now > 20
            ):
                held["failures"] -= 1
                return StoreUnavailable("out of order")
            return None

        node.store.always(ANY, ANY, cut_off)
        outcome = node.do(lambda: node.counters.add("home", "views", mode="sync", timeout=120))
        rig.until(lambda: bool(rig.bucket.keys(INBOX)) or bool(rig.total("home")))
        held["is"] = True
        rig.wait(5.0)
        for _ in range(8):
            rig.done(other, lambda: other.counters.add("other", "views", mode="sync"))
            rig.wait(2.0)
        held["is"] = False
        rig.until(lambda: bool(outcome), within=60.0)
        assert outcome == [None]


async def test_what_was_folded_before_its_caller_knew_is_remembered_for_the_last_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy process always has somebody who waits: what it remembers is bounded, and is what came last."""
    monkeypatch.setattr(calls, "_MOST_EARLY", 4)
    desk = Desk()
    waiting = calls.Calls(desk.store, desk.producer, ledger=QUICK, clock=ScriptedClock())
    uid = f"{desk.producer.owner}-1"
    for number in range(1, 20):
        work = Work(applied={f"r{number - 1}": number - 1}, rows={"views": {f"r{number}": [1, 1]}})
        entry = LogEntry(
            write_id="w",
            seq=number,
            epoch=1,
            time_ms=0,
            folded={uid: [number]},
            events=msgspec.Raw(msgspec.json.encode(work)),
        )
        waiting._read(entry)
    assert len(waiting._folded) == len(waiting._applied) == 4
    await waiting.consolidated(Receipt(uid, 18, 0), "r18", 0.5)


@pytest.mark.req("EC-1")
@pytest.mark.parametrize("duplicates", [0, 1])
async def test_a_state_that_does_not_know_the_batch_yet_says_nothing_about_it(duplicates: int) -> None:
    """The state is read (after a gap, or for an `op_id` that was seen before) while the entry that folds the batch is
    heard of: that the state has nothing to apply does not mean that the record holds it. (Simulated seed 900429.)"""
    desk = Desk()
    waiting = calls.Calls(desk.store, desk.producer, ledger=QUICK, clock=ScriptedClock())
    uid = f"{desk.producer.owner}-1"
    caller = asyncio.create_task(waiting.consolidated(Receipt(uid, 1, 0), "home", 0.3))
    await asyncio.sleep(0)
    work = Work(rows={"views": {"home": [1, 1]}}, duplicates=duplicates)
    events = msgspec.Raw(msgspec.json.encode(work))
    waiting._read(LogEntry(write_id="w", seq=7, epoch=1, time_ms=0, folded={uid: [1]}, events=events))
    await waiting._learn()  # finds a store in which nothing was ever folded
    with pytest.raises(RequestNotAnswered, match="will be counted"):
        await caller


# What may be given


BAD_CALLS: dict[str, Any] = {
    "an empty id": lambda c: c.add("", "views"),
    "an id that is none": lambda c: c.add(5, "views"),
    "a long id": lambda c: c.add("x" * 129, "views"),
    "another field": lambda c: c.add("a", "likes"),
    "a field that is none": lambda c: c.add("a", ["views"]),
    "no amount": lambda c: c.add("a", "views", "1"),
    "a float for a whole number": lambda c: c.add("a", "views", 1.5),
    "too much": lambda c: c.sub("a", "views", 10**5000),
    "not a number": lambda c: c.set("a", "size", math.nan),
    "sub of a maximum": lambda c: c.sub("a", "high", 1),
    "an op_id that is empty": lambda c: c.add("a", "views", op_id=""),
    "an op_id that is too long": lambda c: c.add("a", "views", op_id="x" * 129),
    "an op_id that is none": lambda c: c.add("a", "views", op_id=5),
    "another mode": lambda c: c.add("a", "views", mode="later"),
    "no time": lambda c: c.add("a", "views", mode="sync", timeout=0),
    "time that is none": lambda c: c.add("a", "views", mode="sync", timeout="soon"),
    "a get of nothing": lambda c: c.get(""),
    "a get of another field": lambda c: c.get("a", "likes"),
    "a history of another field": lambda c: c.history("a", "likes"),
    "a history by the minute": lambda c: c.history("a", "views", period="minute"),
    "a history without a limit": lambda c: c.history("a", "views", limit=None),
    "a top of too many": lambda c: c.top("views", 10**6),
    "a top of a huge number": lambda c: c.top("views", 10**5000),
    "a top of none": lambda c: c.top("views", 0),
    "a top at a time that is none": lambda c: c.top("views", at="now"),
    "a top at a time without a zone": lambda c: c.top("views", at=datetime(2024, 1, 1)),
    "a top at the end of time": lambda c: c.top("views", at=datetime.max.replace(tzinfo=UTC)),
    "a top before 1970": lambda c: c.top("views", at=datetime(1, 1, 1, tzinfo=UTC)),
    "consolidate of a bad id": lambda c: c.consolidate("x" * 500),
    "consolidate without time": lambda c: c.consolidate(timeout=-1),
    "recalculate of all": lambda c: c.recalculate(""),
    "recalculate with a bad time": lambda c: c.recalculate("a", timeout=math.inf),
}


def test_what_cannot_be_meant_is_refused_in_few_words_and_writes_nothing() -> None:
    with Rig(fields={"views": int, "size": float, "high": "int:max"}) as rig:
        node = rig.node("node")
        for what, call in BAD_CALLS.items():
            with pytest.raises(ConfigError) as refused:
                rig.done(node, lambda call=call: call(node.counters))
            assert len(str(refused.value)) < 400, what
        rig.wait(1.0)
        assert rig.bucket.keys(INBOX) == []


BAD_SETTINGS: dict[str, dict[str, Any]] = {
    "an unknown one": {"speed": 1},
    "an interval of nothing": {"interval": 0},
    "an interval that is none": {"interval": "1s"},
    "an infinite interval": {"interval": math.inf},
    "a truth": {"interval": True},
    "a window below zero": {"dedup_window": -1},
    "a window of a month": {"dedup_window": timedelta(days=30)},
    "a zone that is none": {"timezone": "Mars/Olympus"},
    "a zone that is a path": {"timezone": "../../etc/passwd"},
    "a zone that is a folder": {"timezone": "Europe"},
    "no zone": {"timezone": ""},
    "a retention that is none": {"retention": 5},
    "another mode": {"mode": "later"},
    "a mode that is a list": {"mode": []},
    "another policy": {"on_direct_write": "explode"},
    "none at once": {"at_once": 0},
    "half at once": {"at_once": 0.5},
    "a budget of nothing": {"idle_budget": 0},
}


@pytest.mark.parametrize("what", BAD_SETTINGS)
def test_a_setting_that_cannot_work_is_refused(what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_from(BAD_SETTINGS[what])
    assert len(str(refused.value)) < 400


def test_a_retention_that_cannot_work_is_refused() -> None:
    for wrong in ({"hours": 0}, {"days": 10**9}, {"months": 1.5}, {"hours": True}):
        with pytest.raises(ConfigError, match=r"retention\."):
            Retention(**wrong)


def test_a_resource_that_has_no_name_is_refused() -> None:
    for name in ("", 5, None, "x" * 300):
        with pytest.raises(ConfigError):
            EventualConsistencyPlugin(name, ["views"])  # type: ignore[arg-type]


# What all have in common


def test_processes_that_count_otherwise_are_refused_and_fields_are_gathered() -> None:
    with Rig(fields=["views"]) as rig:
        rig.node("first")

        def begun(fields: Any, name: str, **settings: Any) -> Any:
            rig.fields, rig.settings = fields, {"interval": 1.0, **settings}
            node = Node.__new__(Node)
            host = rig.world.host(name)
            started: list[Any] = []
            original = host.start
            host.start = lambda task: started.append(task)  # type: ignore[method-assign,assignment]
            Node.__init__(node, rig, host)
            host.start = original  # type: ignore[method-assign]
            started[0].close()
            return rig.done(node, node.counters.start)

        with pytest.raises(ConfigConflict, match="'views' of 'pages' is counted as float:sum here"):
            begun({"views": float}, "second")
        with pytest.raises(ConfigConflict, match=r"'views' and 'views\.today'"):
            begun(["views.today"], "third")
        with pytest.raises(ConfigConflict, match="timezone is 'Europe/Berlin' here"):
            begun(["views"], "fourth", timezone="Europe/Berlin")
        begun({"likes": Counter(Kind.DECIMAL)}, "fifth")
        with pytest.raises(ConfigConflict, match="'likes'"):
            begun(["views", "likes"], "sixth")


def test_direct_writes_are_refused_or_passed_over() -> None:
    for policy in ("refuse", "keep"):
        with Rig(on_direct_write=policy) as rig:
            rig.leader()
            node = rig.node("node")
            rig.done(node, lambda node=node: node.pages.insert({"views": 1, "t": 1}, "home"))
            rig.done(node, lambda node=node: node.counters.add("home", "views", mode="sync"))
            write = node.do(lambda node=node: node.pages.patch("home", {"views": 99, "t": 2}))
            rig.until(lambda write=write: bool(write))
            if policy == "refuse":
                assert isinstance(write[0], InvalidRecord)
            else:
                assert write[0].data == {"views": 2, "t": 2}
            assert rig.done(node, lambda node=node: node.pages.get("home")).data["views"] == 2


def test_what_a_process_keeps_of_the_sums_of_hours_is_what_it_was_told_to() -> None:
    with Rig(retention=Retention(hours=60, days=62, months=24)) as rig:
        view = rig.node("node").counters._view
        assert view is not None
        assert view._machine().retention.hours == 60  # type: ignore[attr-defined]

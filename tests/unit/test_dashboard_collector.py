"""At what pace the bucket is looked at, what that costs, and that nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenure.coordinator.layout import STATE, TERMS, folder_of, namespace_store, term_key, worker_key
from tenure.coordinator.metrics import Latencies
from tenure.coordinator.pulse import write_pulse
from tenure.dashboard import fleet as fleet_module
from tenure.dashboard import looks as looks_module
from tenure.dashboard.bounds import LOOKS_AT_ONCE, LOOKS_PER_SECOND, MAX_CHANGES, MAX_TERMS, PULSES_PER_LISTING
from tenure.dashboard.capped import Capped
from tenure.dashboard.collector import Collector
from tenure.dashboard.looks import QueueLook
from tenure.dashboard.points import Points
from tenure.dashboard.sections import Changes, Latency, Lease, Meta, Queues, Terms, Usage, Workers
from tenure.dashboard.work import Budget
from tenure.election.records import Term, Worker, encode
from tenure.errors import BodyTooLarge, StoreUnavailable
from tenure.ledger import InboxName, ledger_store
from tenure.store.readonly import ReadOnly
from tenure.testing import SimulatedClock
from tests.support.store import ANY, WRITES, ScriptedStore
from tests.unit.dashboards import a_lease, turns


class Scene:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.store = ScriptedStore(clock=self.clock)
        self.own = namespace_store(self.store, "default")
        self.collector = Collector(ReadOnly(self.store), "memory://", "default", interval=1.0, clock=self.clock)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.collector.run())
        await turns()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def passes(self, seconds: float, step: float = 0.5) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            await turns(40)

    async def lead(self, name: str = "ada", epoch: int = 1, **changes: Any) -> None:
        await self.own.put(STATE, encode(a_lease(name, epoch, **changes)))
        term = Term(write_id="w", epoch=epoch, leader_id=name, uid=f"u-{name}", grant_id=f"g{epoch}")
        await self.own.put(term_key(epoch), encode(term))

    async def join(self, name: str, *, seconds: float = 3600.0, requests: int = 7200, **changes: Any) -> None:
        pulse = write_pulse(Latencies(0.005, 0.004, 0.02, 0.03), requests, requests * 1e-6, seconds, 2, "closed")
        worker = Worker(write_id="w", worker_id=name, uid=f"u-{name}", ordinal=1, pulse=pulse, **changes)
        await self.own.put(worker_key(name), encode(worker))

    def section(self, name: str) -> Any:
        return self.collector.board.section(name)


async def test_while_nobody_watches_it_costs_two_requests_a_minute() -> None:
    scene = Scene()
    await scene.lead()
    async with scene.looking():
        await scene.passes(60)
        scene.store.requests.clear()
        await scene.passes(600, step=5)
        assert scene.store.count("list") == 0
        assert 19 <= scene.store.count("get") <= 21
        assert isinstance(scene.section("lease"), Lease)
        assert scene.section("lease").leader == "ada"


@pytest.mark.req("OP-5")
async def test_while_somebody_watches() -> None:
    scene = Scene()
    await scene.lead()
    async with scene.looking():
        scene.collector.joined()
        await scene.passes(30)
        scene.store.requests.clear()
        await scene.passes(60)
        state = folder_of("default") + STATE
        assert 58 <= scene.store.count(ANY, state) <= 61, "one look at the lease a second"
        assert 11 <= scene.store.count(ANY, folder_of("default") + "workers/") <= 13, "workers every five"
        assert scene.store.count(ANY, folder_of("default") + TERMS) == 0, "terms when the epoch changes"
        assert scene.store.count(WRITES) == 0
        scene.collector.left()
        await scene.passes(90)
        scene.store.requests.clear()
        await scene.passes(60)
        assert scene.store.count("list") == 0
        assert scene.store.count("get") <= 3


@pytest.mark.req("OP-5")
async def test_whoever_comes_is_not_kept_waiting() -> None:
    scene = Scene()
    async with scene.looking():
        await scene.passes(200, step=5)
        await scene.lead("bob", 4)
        await scene.join("bob")
        scene.collector.touch()
        await turns()
        assert scene.section("lease").leader == "bob"
        assert scene.section("workers").total == 1


async def test_a_store_that_does_not_answer_is_told_without_its_secrets() -> None:
    scene = Scene()
    await scene.lead()
    async with scene.looking():
        scene.collector.touch()
        await turns()
        assert scene.collector.trouble is None
        secret = "it does not answer, with a secret at https://user:hunter2@host/?sig=hunter2"
        down = scene.store.always("get", ANY, StoreUnavailable(secret))
        await scene.passes(5)
        assert scene.collector.trouble is not None
        meta = scene.section("meta")
        assert isinstance(meta, Meta)
        assert meta.problem is not None
        since = meta.problem.since_ms
        assert "hunter2" not in str(meta)
        assert "hunter2" not in scene.collector.trouble
        assert "hunter2" not in str(scene.section("changes"))
        scene.store.requests.clear()
        await scene.passes(300, step=1)
        assert scene.section("meta").problem.since_ms == since
        down.stop()
        scene.collector.touch()
        await scene.passes(60)
        assert scene.section("meta").problem is None
        kinds = [change.kind for change in scene.section("changes").rows]
        assert (kinds.count("store-error"), kinds.count("store-back")) == (1, 1)


class TestWorkers:
    @pytest.mark.req("OP-5")
    async def test_pulses_are_sampled(self) -> None:
        scene = Scene()
        await scene.lead()
        for number in range(100):
            await scene.join(f"w{number:03}")
        await scene.join("ada")
        async with scene.looking():
            scene.collector.joined()
            await scene.passes(1)
            scene.store.requests.clear()
            await scene.passes(5)
            read = set(scene.store.made("get list", "*worker=*"))
            assert len(read) == PULSES_PER_LISTING + 1
            usage = scene.section("usage")
            assert isinstance(usage, Usage)
            assert usage.sampled == usage.workers == 101
            assert usage.requests_per_hour == pytest.approx(101 * 7200)
            assert usage.usd_per_day == pytest.approx(101 * 0.0072 * 24)
            row = scene.collector.fleet.page(offset=0, limit=1, filter="", state="all", sort="rank").rows[0]
            assert (row.id, row.is_leader, row.latency_p95_ms, row.breaker) == ("ada", True, 20.0, "closed")
            latency = scene.section("latency")
            assert isinstance(latency, Latency)
            assert latency.leader[-1][1:] == (5.0, 4.0, 20.0, 30.0)
            await scene.passes(25)
            read = set(scene.store.made("get list", "*worker=*"))
            assert len(read) == 101, "each in its turn"

    @pytest.mark.req("OP-5")
    async def test_pages(self) -> None:
        scene = Scene()
        await scene.lead()
        for name in ("ada", "bob", "eve"):
            await scene.join(name, healthy=name != "eve")
        await scene.join("old")
        scene.clock.advance(60)
        for name in ("ada", "bob", "eve"):
            await scene.join(name, healthy=name != "eve")
        async with scene.looking():
            scene.collector.touch()
            await turns()

            def names(**query: Any) -> list[str]:
                asked = {"offset": 0, "limit": 10, "filter": "", "state": "all", "sort": "rank", **query}
                return [row.id for row in scene.collector.fleet.page(**asked).rows]

            assert names() == ["ada", "bob", "eve", "old"]
            assert names(sort="age")[0] == "old"
            assert names(state="silent") == ["old"]
            assert names(state="unhealthy") == ["eve"]
            assert names(state="active", sort="id") == ["ada", "bob", "eve"]
            assert names(filter="B") == ["bob"]
            assert names(offset=1, limit=2) == ["bob", "eve"]
            found = scene.section("workers")
            assert isinstance(found, Workers)
            assert (found.total, found.active, found.silent, found.unhealthy) == (4, 3, 1, 1)
            assert not scene.section("meta").election_only

    async def test_no_more_than_are_allowed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fleet_module, "MAX_WORKERS", 50)
        scene = Scene()
        await scene.lead()
        for number in range(80):
            await scene.join(f"w{number:03}")
        async with scene.looking():
            scene.collector.touch()
            await scene.passes(1)
            assert scene.section("workers").total == 50
            assert scene.section("workers").left_out == 30

    @pytest.mark.req("OP-5")
    async def test_an_election_without_members_says_so(self) -> None:
        scene = Scene()
        await scene.lead()
        async with scene.looking():
            scene.collector.touch()
            await scene.passes(1)
            assert scene.section("meta").election_only
            assert scene.section("usage").requests_per_hour is None


class TestTerms:
    @pytest.mark.req("OP-5")
    async def test_how_they_ended(self) -> None:
        scene = Scene()
        await scene.lead("ada", 1)
        async with scene.looking():
            scene.collector.joined()
            await scene.passes(40)
            terms = scene.section("terms")
            assert isinstance(terms, Terms)
            assert (terms.terms[0].how, terms.terms[0].end_ms is not None) == ("lapsed", True)
            await scene.lead("bob", 2)
            await scene.passes(2)
            await scene.lead("bob", 2, renewals=1, leader_id=None, uid=None, previous_leader="bob")
            await scene.passes(2)
            await scene.lead("eve", 4)
            await scene.passes(2)
            found = [(term.epoch, term.leader, term.how) for term in scene.section("terms").terms]
            assert found == [(1, "ada", "lapsed"), (2, "bob", "released"), (4, "eve", None)]
            assert scene.section("lease").since_ms == scene.section("terms").terms[-1].start_ms

    @pytest.mark.req("OP-5")
    async def test_a_leader_that_was_silent_and_soon_replaced_leaves_a_gap(self) -> None:
        """A quick successor takes over before the lease is seen to lapse."""
        scene = Scene()
        await scene.lead("ada", 1)
        async with scene.looking():
            scene.collector.joined()
            await scene.passes(1)
            await scene.lead("ada", 1, renewals=1)
            await scene.passes(2)
            renewed = scene.section("lease").last_renewal_ms
            await scene.passes(scene.section("lease").lease_seconds * 0.8)
            assert scene.section("lease").phase == "leading"
            await scene.lead("bob", 2)
            await scene.passes(2)
            dead, _ = scene.section("terms").terms
            assert (dead.how, dead.end_ms) == ("lapsed", renewed)
            await scene.lead("bob", 2, renewals=1)
            await scene.passes(1)
            await scene.lead("eve", 3)
            await scene.passes(2)
            handed_over = scene.section("terms").terms[1]
            assert (handed_over.how, handed_over.end_ms) == ("replaced", scene.section("terms").terms[2].start_ms)

    @pytest.mark.req("OP-5")
    async def test_the_newest_are_read_and_once_each(self) -> None:
        scene = Scene()
        for epoch in range(1, 301):
            await scene.lead("ada", epoch)
        async with scene.looking():
            scene.collector.joined()
            await scene.passes(2)
            rows = scene.section("terms").terms
            assert [row.epoch for row in rows] == list(range(301 - MAX_TERMS, 301))
            scene.store.requests.clear()
            await scene.lead("bob", 301)
            await scene.passes(3)
            read = set(scene.store.made("get list", "*terms/0*"))
            assert len(read) == 1
            assert scene.store.count(ANY, folder_of("default") + TERMS) == 1
            assert len(scene.section("terms").terms) == MAX_TERMS

    async def test_a_term_that_is_not_on_record_is_not_asked_for_each_second(self) -> None:
        scene = Scene()
        await scene.own.put(STATE, encode(a_lease(epoch=10**17)))
        async with scene.looking():
            scene.collector.joined()
            await scene.passes(60)
            assert scene.store.count(ANY, folder_of("default") + TERMS) <= 14


class TestLedgers:
    async def test_a_budget_of_looks(self) -> None:
        clock = SimulatedClock()
        budget = Budget(clock)
        looks = 0

        async def spend() -> None:
            nonlocal looks
            while True:
                await budget.spend()
                looks += 1

        task = asyncio.ensure_future(spend())
        await turns(3 * LOOKS_AT_ONCE)
        assert looks == LOOKS_AT_ONCE
        for _ in range(100):
            clock.advance(0.1)
            await turns(10)
        task.cancel()
        assert looks <= LOOKS_AT_ONCE + 10 * LOOKS_PER_SECOND + 1
        assert looks >= LOOKS_AT_ONCE + 9 * LOOKS_PER_SECOND

    @pytest.mark.req("OP-5")
    async def test_many_queues_are_looked_at_in_turn(self) -> None:
        scene = Scene()
        for number in range(300):
            await ledger_store(scene.store, "s3-queue", f"q{number:03}").put(InboxName(0, "u", 1).key, b"")
        async with scene.looking():
            scene.collector.joined()
            await scene.passes(20)
            queues = scene.section("queues")
            assert isinstance(queues, Queues)
            assert queues.total == 300
            assert all(row.looked_ms is not None for row in queues.rows)
            assert {row.inbox for row in queues.rows} == {1}
            scene.store.requests.clear()
            await scene.passes(60)
            assert scene.store.count() / 60 < 5 * LOOKS_PER_SECOND
            assert scene.store.count(WRITES) == 0
            oldest = min(row.looked_ms or 0 for row in scene.section("queues").rows)
            assert scene.clock.read().wall_ns // 1_000_000 - oldest < 30_000

    async def test_an_inbox_is_counted_only_so_far(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(looks_module, "MAX_INBOX_COUNTED", 10)
        scene = Scene()
        own = ledger_store(scene.store, "s3-queue", "q")
        for number in range(30):
            await own.put(InboxName(0, "u", number + 1).key, b"")
        look = QueueLook(ReadOnly(scene.store), "q", scene.clock)
        await look.look(10**9)
        assert look.row().inbox == 10

    async def test_a_state_that_is_too_large_is_told(self) -> None:
        scene = Scene()
        own = ledger_store(scene.store, "s3-queue", "q")
        await own.put(f"chunks/{1:020d}-x-0", b"x" * 1000)
        look = QueueLook(ReadOnly(scene.store), "q", scene.clock)
        await look.look(999)
        assert "too much" in (look.row().problem or "")
        await look.look(1001)
        assert look.row().problem is None

    async def test_a_log_that_is_too_large_is_told(self) -> None:
        """Of what comes after the newest snapshot: the rest is not read."""
        scene = Scene()
        own = ledger_store(scene.store, "s3-queue", "q")
        for number in (1, 2, 3):
            await own.put(f"log/{number:020d}", b"x" * 500)
        look = QueueLook(ReadOnly(scene.store), "q", scene.clock)
        scene.store.requests.clear()
        await look.look(1499)
        assert "too much" in (look.row().problem or "")
        assert scene.store.count("get") == 0
        await own.put(f"snapshots/{2:020d}", b"{")
        await look.look(1499)
        assert "too much" not in (look.row().problem or "")

    async def test_an_object_that_no_process_would_read_costs_no_other_ledger_its_look(self) -> None:
        scene = Scene()
        for name in ("a", "b", "c"):
            await ledger_store(scene.store, "s3-queue", name).put(InboxName(0, "u", 1).key, b"")
        scene.store.always("get", "plugin=s3-queue/name=b/log/*", BodyTooLarge("it is too large"))
        async with scene.looking():
            scene.collector.joined()
            await scene.passes(40)
            problems = {row.name: row.problem for row in scene.section("queues").rows}
            assert "too large" in str(problems.pop("b"))
            assert problems == {"a": None, "c": None}
            assert scene.section("meta").problem is None

    async def test_a_capped_listing(self) -> None:
        store = ScriptedStore()
        for number in range(5):
            await store.put(f"a/{number}", b"")
        assert len([entry async for entry in Capped(store, 3).list("a/")]) == 3
        assert len([entry async for entry in Capped(store, 9).list("a/")]) == 5
        store.requests.clear()
        assert [entry async for entry in Capped(store, 0).list("a/")] == []
        assert store.count("list") == 0


def test_points_are_thinned_where_they_are_old() -> None:
    points = Points(most=100)
    for at in range(10_000):
        points.add(at, [at / 1000])
    found = points.all
    assert len(found) <= 100
    assert found[-1] == (9999, 9999.0)
    newest = [point[0] for point in found[-20:]]
    assert newest == list(range(9980, 10_000))
    assert found[0][0] is not None
    assert found == sorted(found)


async def test_changes_are_bounded() -> None:
    scene = Scene()
    async with scene.looking():
        scene.collector.joined()
        for epoch in range(1, MAX_CHANGES + 50):
            await scene.lead(f"w{epoch}", epoch)
            await scene.passes(1, step=1)
        changes = scene.section("changes")
        assert isinstance(changes, Changes)
        assert len(changes.rows) == MAX_CHANGES

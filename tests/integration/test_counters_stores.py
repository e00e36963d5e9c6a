"""Counters on real stores, in one or two processes' worth of databases: EC-1, EC-2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tenure import CoordinatorConfig, Database
from tenure.database.ids import key_of
from tenure.database.writing import Found
from tenure.errors import InvalidRecord, RecordExists
from tenure.plugins.counters import Counter, EventualConsistencyPlugin, Kind, Reducer
from tenure.plugins.ttl import TTLPlugin
from tenure.store import open_store

KINDS = [
    "memory",
    "directory",
    "ministack",
    pytest.param("ceph", marks=pytest.mark.servers),
    pytest.param("azurite", marks=pytest.mark.servers),
]
CONFIG = CoordinatorConfig.for_lease(6.0, startup_jitter_max=0)
FIELDS: dict[str, Any] = {
    "views": int,
    "stats.likes": Counter(),
    "paid": Decimal,
    "weight": float,
    "best": Counter(Kind.INT, Reducer.MAX),
    "least": Counter(Kind.DECIMAL, Reducer.MIN),
    "seen": Counter(Kind.INT, Reducer.LAST),
}


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> str:
    return url_of(request.param)


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    async with Database(url, worker_id="one") as database:
        yield database


def counters_of(fields: Any, resource: Any = "pages", **options: Any) -> EventualConsistencyPlugin:
    return EventualConsistencyPlugin(resource, fields, config=CONFIG, interval=0.2, **options)


@pytest.mark.req("EC-1", "EC-2")
async def test_a_life_of_counters(url: str, db: Database) -> None:
    pages = db.resource("pages")
    await pages.insert({"title": "home", "views": 10, "stats": {"shares": 3}}, id="home")
    counters = await db.use_plugin(counters_of(FIELDS))

    await asyncio.gather(*(counters.add("home", "views") for _ in range(50)))
    await counters.sub("home", "views", 5)
    await counters.add("home", "stats.likes", 2**62)
    await counters.add("home", "stats.likes", 2**62)
    for _ in range(10):
        await counters.add("home", "paid", Decimal("0.1"))
        await counters.add("home", "weight", 0.1)
    for value in (3, 9, 4):
        await counters.add("home", "best", value)
        await counters.add("home", "least", value)
        await counters.add("home", "seen", value)
    right = {
        "views": 55,
        "stats.likes": 2**63,
        "paid": Decimal("1.0"),
        "weight": pytest.approx(1.0),
        "best": 9,
        "least": Decimal(3),
        "seen": 4,
    }
    assert await counters.get("home", consistent=True) == right
    await counters.consolidate()
    assert await counters.get("home") == right
    record = (await pages.get("home")).data
    assert (record["title"], record["views"], record["paid"], record["best"]) == ("home", 55, "1.0", 9)
    assert record["stats"] == {"shares": 3, "likes": 2**63 - 1}, "the largest whole number that JSON readers take"

    # In the order of the calls, whatever shares a write.
    await counters.add("home", "views", 1000)
    await counters.set("home", "views", 7)
    await counters.add("home", "views", 1)
    assert await counters.get("home", "views", consistent=True) == 8

    # Sync: it is in the record when the call returns.
    await counters.add("home", "views", 2, mode="sync")
    assert (await pages.get("home")).data["views"] == 10
    assert await counters.get("home", "views") == 10

    # Given three times, and once more with the same write: counted once.
    for _ in range(3):
        await counters.add("home", "views", 100, op_id="order-1")
    await asyncio.gather(*(counters.sub("home", "views", 30, op_id="order-2") for _ in range(3)))
    assert await counters.get("home", "views", consistent=True) == 80

    # An id that has no record, which is inserted, deleted and inserted again.
    await counters.add("news", "views", 3, mode="sync")
    assert await pages.get_or_none("news") is None
    await pages.insert({"title": "news"}, id="news")
    assert (await pages.get("news")).data == {"title": "news", "views": 3}
    await counters.add("news", "views", 4, mode="sync")
    await pages.delete("news")
    await counters.add("news", "views", 5, mode="sync")
    assert await counters.get("news", "views") == 12
    await pages.insert({"title": "news again"}, id="news")
    assert (await pages.get("news")).data == {"title": "news again", "views": 12}

    # What other code does to other fields.
    await counters.add("news", "views", 1)
    await pages.patch("news", {"title": "news 3"})
    await pages.update("news", {"title": "news 4", "tags": ["a"]})
    await counters.consolidate("news")
    assert (await pages.get("news")).data == {"title": "news 4", "tags": ["a"], "views": 13}

    # History, roll-ups, the first.
    (day,) = await counters.history("news", "views")
    assert (day.adds, day.added, day.subs, day.sets, day.net) == (4, 13, 0, 0, 13)
    hours = await counters.history(None, "views", period="hour")
    assert sum(hour.adds for hour in hours) == 50 + 1 + 1 + 1 + 1 + 4
    assert sum(hour.subs for hour in hours) == 2
    assert sum(hour.sets for hour in hours) == 1
    assert [(top.id, top.value) for top in await counters.top("views", 2)] == [("home", 80), ("news", 13)]
    assert [top.id for top in await counters.top("views", 5, period="month")] == ["home", "news"]

    # An object that somebody has damaged by other means is put right from history; one that is right is left alone.
    stored = await db.resource("pages").find("news")
    assert stored is not None
    counted = stored.envelope.reserved["counters"]["pages"]
    wrong = {**stored.envelope.reserved, "counters": {"pages": {**counted, "totals": {"views": 99}}}}
    await pages.swap(stored, data={**stored.envelope.data, "views": 99}, reserved=wrong)
    done = await counters.recalculate("news")
    assert (done.totals, done.former) == ({"views": 13}, {"views": 99})
    assert (await pages.get("news")).data["views"] == 13
    done = await counters.recalculate("home")
    assert done.former == {}
    assert done.totals["views"] == 80

    stats = await counters.stats()
    assert (stats.inbox, stats.pending, stats.duplicates) == (0, 0, 4)

    # Another process finds all of it.
    async with Database(url, worker_id="two") if not url.startswith("memory") else _the_same(db) as other:
        again = counters
        if other is not db:
            again = await other.use_plugin(counters_of(FIELDS, producer_only=True))
        assert await again.get("home", "views") == 80
        assert await again.get("home", "views", consistent=True) == 80
        await again.add("home", "views", 1, mode="sync")
        assert await again.get("home", "views") == 81


class _the_same:
    """In the place of a second database, where a store is only one process's."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def __aenter__(self) -> Database:
        return self._db

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.req("EC-2", "TT-1")
async def test_counted_records_that_expire(db: Database) -> None:
    """Both plugins keep something with the same record: neither takes the other's away."""
    pages = db.resource("pages")
    ttl = await db.use_plugin(TTLPlugin("pages", ttl=600.0, tick=1.0, config=CONFIG))
    counters = await db.use_plugin(counters_of(["views"]))
    await pages.insert({"title": "a"}, id="a")
    await counters.add("a", "views", 3, mode="sync")
    due = await ttl.expires_at("a")
    assert due is not None
    assert timedelta(seconds=500) < due - datetime.now(UTC) < timedelta(seconds=700)
    await pages.patch("a", {"title": "b"})
    await counters.add("a", "views", 4, mode="sync")
    assert await ttl.expires_at("a") == due, "counting is no reason to live longer"
    assert (await pages.get("a")).data == {"title": "b", "views": 7}

    later = await ttl.touch("a", 1.0)
    assert later is not None
    assert later < due
    await counters.add("a", "views", 5, mode="sync")
    assert await ttl.expires_at("a") == later
    async with asyncio.timeout(60):
        while await pages.exists("a"):
            await asyncio.sleep(0.1)
    await counters.add("a", "views", 6, mode="sync")
    assert not await pages.exists("a"), "what was counted afterwards does not bring it back"
    assert await counters.get("a", "views") == 18
    await pages.insert({"title": "c"}, id="a")
    assert (await pages.get("a")).data == {"title": "c", "views": 18}
    renewed = await ttl.expires_at("a")
    assert renewed is not None
    assert renewed - datetime.now(UTC) > timedelta(seconds=500)


class Page(msgspec.Struct):
    title: str
    views: int = 0


@pytest.mark.req("EC-1")
async def test_a_schema_and_direct_writes_that_are_refused(db: Database) -> None:
    pages = db.resource("pages", Page)
    counters = await db.use_plugin(counters_of(["views"]))
    await counters.add("early", "views", 2, mode="sync")
    assert (await pages.insert(Page("early"), id="early")).data == Page("early", 2)
    await pages.insert(Page("home", 5), id="home")
    await counters.add("home", "views", 3, mode="sync")
    home = await pages.get("home")
    assert home.data == Page("home", 8)
    await pages.update("home", Page("home 2", 8))
    await pages.patch("home", {"title": "home 3"})
    with pytest.raises(InvalidRecord, match="its total is 8"):
        await pages.update("home", Page("home 4", 9))
    with pytest.raises(InvalidRecord, match="views"):
        await pages.patch("home", {"views": 0})
    assert (await pages.get("home")).data == Page("home 3", 8)


@pytest.mark.req("EC-1")
async def test_a_schema_and_direct_writes_that_are_undone(db: Database) -> None:
    pages = db.resource("pages", Page)
    counters = await db.use_plugin(counters_of(["views"], on_direct_write="keep"))
    await pages.insert(Page("home", 5), id="home")
    await counters.add("home", "views", 3, mode="sync")
    assert (await pages.update("home", Page("home 2", 99))).data == Page("home 2", 8)
    assert (await pages.patch("home", {"views": 0, "title": "home 3"})).data == Page("home 3", 8)
    await counters.add("home", "views", 1, mode="sync")
    assert (await pages.get("home")).data == Page("home 3", 9)


@pytest.mark.req("EC-2")
async def test_ids_that_are_used_once(db: Database) -> None:
    """Amounts that come before the record are no use of its id; and it stays used after the record is deleted."""
    pages = db.resource("pages", reuse_ids=False)
    counters = await db.use_plugin(counters_of(["views"], resource=pages))
    await counters.add("home", "views", 2, mode="sync")
    assert await pages.count() == 0
    assert (await pages.insert({"title": "home"}, id="home")).data == {"title": "home", "views": 2}
    with pytest.raises(RecordExists):
        await pages.insert({"title": "home"}, id="home")
    await pages.delete("home")
    await counters.add("home", "views", 3, mode="sync")
    with pytest.raises(RecordExists, match="not used twice"):
        await pages.insert({"title": "home"}, id="home")
    assert await counters.get("home", "views", consistent=True) == 5
    assert not await pages.exists("home")


@pytest.mark.req("EC-2")
async def test_a_consistent_read_while_the_very_first_amount_is_applied(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was empty when it was read, and the record holds the amount already that is also in the inbox."""
    reading = await db.use_plugin(counters_of(["views"], producer_only=True))
    await reading.add("home", "views", 7)
    pages = db.resource("pages")
    find = pages.find
    store = db.store
    led = []

    async def apply_before(id: str) -> Found | None:
        if not led:
            monkeypatch.undo()
            leading = counters_of(["views"])
            led.append(leading)
            leading.attach(db, reading.name)
            await leading.start()
            await leading.consolidate()
            assert await store.get(key_of("pages", "home"))
        return await find(id)

    monkeypatch.setattr(pages, "find", apply_before)
    try:
        assert await reading.get("home", "views", consistent=True) == 7
    finally:
        for leading in led:
            await leading.stop()
    assert await reading.get("home", "views", consistent=True) == 7


@pytest.mark.req("EC-2")
async def test_totals_go_on_under_a_new_log_where_the_old_one_was_lost(url_of: Callable[[str], str]) -> None:
    url = url_of("directory")
    async with Database(url, worker_id="one") as database:
        counters = await database.use_plugin(counters_of(["views"]))
        await counters.add("home", "views", 5, mode="sync")
    async with open_store(url) as store:
        keys = [row.key async for row in store.list("plugin=eventual-consistency/")]
        assert keys
        await store.delete(*keys)
    async with Database(url, worker_id="two") as database:
        counting = await database.use_plugin(counters_of(["views"], producer_only=True))
        await counting.add("home", "views", 2)
        assert await counting.get("home", "views", consistent=True) == 7
        assert await counting.get("home", "views") == 5
    async with Database(url, worker_id="three") as database:
        counters = await database.use_plugin(counters_of(["views"]))
        await counters.consolidate()
        assert await counters.get("home", "views") == 7
        assert await counters.get("home", "views", consistent=True) == 7

"""The index: names, shared objects, and the rule that an entry is there before the record that names it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.database.expiry import Expiry, expiry_of
from tenure.database.resource import Resource
from tenure.database.time import StoreTime
from tenure.errors import InvalidRecord, RecordExists, StoreUnavailable, WriteUnknown
from tenure.ledger import ledger_store
from tenure.plugins.ttl.guard import TTLGuard
from tenure.plugins.ttl.index import (
    DUE,
    MAX_GROUP,
    IndexWriter,
    ids_in,
    key_for,
    parse,
    slot_in,
)
from tenure.plugins.ttl.rules import Rules, Wish
from tenure.plugins.ttl.settings import settings_from
from tenure.store import Entry, Stored, Version
from tenure.store.keys import check_key
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, Request, ScriptedStore
from tests.unit.ledgers import EPOCH_MS

MODIFIED = datetime(2026, 1, 1, tzinfo=UTC)


def entry(key: str) -> Entry:
    return Entry(key, Version("1"), 12, MODIFIED)


class TestNames:
    @pytest.mark.parametrize("id", ["a", "a/b c", "ümlaut", ".hidden", "x" * 128, "~", "a.b.c"])
    def test_there_and_back(self, id: str) -> None:
        key = check_key(key_for("1700000000000/0123456789abcdef.", id))
        found = parse(entry(key))
        assert found is not None
        assert (found.id, found.slot_ms, found.stem) == (id, 1_700_000_000_000, "1700000000000/0123456789abcdef.")
        assert slot_in(found.stem) == found.slot_ms

    def test_of_a_group(self) -> None:
        found = parse(entry(key_for("1700000000000/0123456789abcdef", "any")))
        assert found is not None
        assert (found.id, found.key) == (None, "due/1700000000000/0123456789abcdef")

    @pytest.mark.parametrize(
        "key",
        [
            "due/17/0123456789abcdef.a",
            "due/1700000000000/0123.a",
            "due/1700000000000/0123456789abcdef.",
            "due/1700000000000/0123456789abcdef.~zz",
            "due/1700000000000/0123456789ABCDEF.a",
            "due/1700000000000/0123456789abcdef.a/b",
            "due/readme",
        ],
    )
    def test_that_no_writer_gives(self, key: str) -> None:
        assert parse(entry(key)) is None

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"\xff", b'{"schema":1}', b'{"schema":1,"ids":[7]}', b'{"ids":["a"]}']
    )
    def test_a_group_that_is_none(self, body: bytes) -> None:
        assert isinstance(ids_in(body), str)

    def test_a_group_of_a_newer_tenure(self) -> None:
        assert "update it" in str(ids_in(b'{"schema":2,"ids":["a"]}'))


class Bench:
    """An index on a store that does as it is told, and a resource that is guarded by it."""

    def __init__(self, **settings: Any) -> None:
        self.time = ScriptedClock()
        self.bucket = ScriptedStore(clock=self.time)
        self._ids = itertools.count(1)
        self.store = ledger_store(self.bucket, "ttl", "things")
        self.index = IndexWriter(self.store, clock=self.time, draw_id=self.draw_id)
        rules = Rules(settings_from({"ttl": 60.0, "quarantine": 400.0, **settings}))
        self.guard = TTLGuard(
            "things",
            rules,
            self.index,
            time=StoreTime(self.bucket, clock=self.time, draw_id=self.draw_id),
            clock=self.time,
        )
        self.things: Resource[dict[str, Any]] = Resource(self.bucket, "things", clock=self.time, draw_id=self.draw_id)
        self.things.guarded_by(self.guard)

    def draw_id(self) -> str:
        return f"id{next(self._ids):06d}"

    async def entries(self) -> list[str]:
        prefix = "plugin=ttl/name=things/due/"
        return [key.removeprefix(prefix) for key in await self.bucket.keys(prefix)]

    async def expiry(self, id: str) -> Expiry:
        found = await self.things.find(id)
        assert found is not None
        expiry = expiry_of(found.envelope.reserved)
        assert isinstance(expiry, Expiry)
        return expiry

    def puts(self) -> list[str]:
        return self.bucket.keys_of("put")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.index.aclose()


class TestWriter:
    async def test_one_has_a_name_and_hardly_a_body(self, bench: Bench) -> None:
        made = await bench.index.write("a b", 5000)
        assert await bench.entries() == [made.stem + "a~20b"]
        assert made.stem.startswith("0000000005000/")

    async def test_those_that_come_together_share_an_object(self, bench: Bench) -> None:
        made = await asyncio.gather(*(bench.index.write(f"r{n}", 5000) for n in range(10)))
        assert len({each.stem for each in made}) == 1
        assert len(bench.puts()) == 1
        stored = await bench.store.get(DUE + made[0].stem)
        assert isinstance(stored, Stored)
        assert sorted(ids_in(stored.body)) == sorted(f"r{n}" for n in range(10))

    async def test_few_do_not_nor_those_of_other_slots(self, bench: Bench) -> None:
        made = await asyncio.gather(
            *(bench.index.write(f"r{n}", 5000) for n in range(3)), *(bench.index.write(f"s{n}", 6000) for n in range(4))
        )
        assert len({each.stem for each in made[:3]}) == 3
        assert len({each.stem for each in made[3:]}) == 1

    async def test_an_entry_serves_one_write_of_an_id(self, bench: Bench) -> None:
        made = await asyncio.gather(*(bench.index.write(f"r{n % 5}", 5000) for n in range(10)))
        assert len({(f"r{n % 5}", each.stem) for n, each in enumerate(made)}) == 10

    async def test_very_many_are_several_objects(self, bench: Bench) -> None:
        made = await asyncio.gather(*(bench.index.write(f"r{n}", 5000) for n in range(2 * MAX_GROUP + 1)))
        assert len({each.stem for each in made}) == 3

    async def test_an_id_that_is_too_long_for_a_name_is_in_the_body(self, bench: Bench) -> None:
        id = "ü" * 31  # 186 bytes when encoded
        made = await bench.index.write(id, 5000)
        assert not made.stem.endswith(".")
        stored = await bench.store.get(DUE + made.stem)
        assert isinstance(stored, Stored)
        assert ids_in(stored.body) == [id]

    async def test_is_sent_again_under_the_same_name(self, bench: Bench) -> None:
        failures = [StoreUnavailable("no"), StoreUnavailable("no")]

        async def fail(request: Request) -> None:
            if failures:
                raise failures.pop()

        bench.bucket.always("put", ANY, fail)
        made = await bench.index.write("a", 5000)
        assert len(bench.puts()) == 3
        assert len(set(bench.puts())) == 1
        assert await bench.entries() == [made.stem + "a"]

    async def test_what_cannot_be_written_is_told_to_all_who_wait(self, bench: Bench) -> None:
        bench.bucket.always("put", ANY, StoreUnavailable("no"))
        told = await asyncio.gather(*(bench.index.write(f"r{n}", 5000) for n in range(6)), return_exceptions=True)
        assert all(isinstance(each, StoreUnavailable) for each in told)

    async def test_who_does_not_wait_any_more_harms_nobody(self, bench: Bench) -> None:
        first = asyncio.create_task(bench.index.write("a", 5000))
        second = asyncio.create_task(bench.index.write("b", 5000))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).stem
        with pytest.raises(asyncio.CancelledError):
            await first

    async def test_spent_entries_are_deleted_together(self, bench: Bench) -> None:
        made = [await bench.index.write(f"r{n}", 5000 + 1000 * n) for n in range(3)]
        for number, each in enumerate(made):
            bench.index.spend(each.stem, f"r{number}")
        await bench.index.drain()
        assert await bench.entries() == []
        assert bench.bucket.count("delete") == 1

    async def test_a_shared_entry_is_never_spent_by_one(self, bench: Bench) -> None:
        made = await asyncio.gather(*(bench.index.write(f"r{n}", 5000) for n in range(4)))
        bench.index.spend(made[0].stem, "r0")
        await bench.index.drain()
        assert await bench.entries() == [made[0].stem]

    async def test_names_are_never_used_twice(self, bench: Bench) -> None:
        stems = {(await bench.index.write("a", 5000)).stem for _ in range(50)}
        assert len(stems) == 50


class TestGuard:
    @pytest.mark.req("TT-2")
    async def test_the_entry_is_there_before_the_record(self, bench: Bench) -> None:
        seen: list[list[str]] = []

        async def look(request: Request) -> None:
            seen.append(await bench.entries())

        bench.bucket.always("create", "resource=*", look)
        await bench.things.insert({"a": 1}, id="x")
        expiry = await bench.expiry("x")
        assert seen == [[expiry.entry + "x"]]

    @pytest.mark.req("TT-2")
    async def test_without_an_entry_there_is_no_record(self, bench: Bench) -> None:
        bench.bucket.always("put", ANY, StoreUnavailable("no"))
        with pytest.raises(StoreUnavailable):
            await bench.things.insert({"a": 1}, id="x")
        assert await bench.bucket.keys("resource=things/") == []

    @pytest.mark.req("TT-2")
    async def test_without_the_time_there_is_none_either(self, bench: Bench) -> None:
        bench.bucket.always("list", ANY, StoreUnavailable("no clock"))
        with pytest.raises(StoreUnavailable, match="no clock"):
            await bench.things.insert({"a": 1}, id="x")
        assert await bench.bucket.keys("resource=things/") == []

    @pytest.mark.req("TT-2")
    async def test_from_creation_is_not_a_moment_too_short(self, bench: Bench) -> None:
        await bench.things.insert({}, id="x")
        at_ms = (await bench.expiry("x")).at
        assert at_ms is not None
        assert 0 <= at_ms - (EPOCH_MS + 1000 * bench.time.true_seconds + 60_000) < 3000

    @pytest.mark.req("TT-2")
    async def test_who_leaves_the_time_alone_writes_no_entry(self, bench: Bench) -> None:
        await bench.things.insert({}, id="x")
        before = await bench.expiry("x")
        puts = len(bench.puts())
        await bench.things.patch("x", {"a": 1})
        await bench.things.update("x", {"a": 2})
        await bench.things.rewrite("x", lambda data, reserved: ({"a": 3}, {"count": 1}))
        assert len(bench.puts()) == puts
        assert await bench.expiry("x") == before

    @pytest.mark.req("TT-2")
    async def test_touched_it_has_another_entry_and_the_former_is_spent(self, bench: Bench) -> None:
        await bench.things.insert({}, id="x")
        before = await bench.expiry("x")
        await bench.things.amend("x", bench.guard.cover("x", wish=Wish.TOUCH, ttl_ms=500_000))
        after = await bench.expiry("x")
        assert (after.at or 0) > (before.at or 0)
        assert after.entry != before.entry
        await bench.index.drain()
        assert await bench.entries() == [after.entry + "x"]

    @pytest.mark.req("TT-2")
    async def test_what_persists_has_none(self, bench: Bench) -> None:
        await bench.things.insert({}, id="x")
        await bench.things.amend("x", bench.guard.cover("x", wish=Wish.PERSIST))
        assert await bench.expiry("x") == Expiry(keep=True)
        await bench.things.patch("x", {"a": 1})
        assert await bench.expiry("x") == Expiry(keep=True)
        await bench.index.drain()
        assert await bench.entries() == []

    @pytest.mark.req("TT-2")
    async def test_deleted_its_entry_is_spent(self, bench: Bench) -> None:
        await bench.things.insert({}, id="x")
        await bench.things.delete("x")
        await bench.index.drain()
        assert await bench.entries() == []

    @pytest.mark.req("TT-2")
    async def test_a_new_record_never_takes_over_an_entry(self, bench: Bench) -> None:
        await bench.things.insert({}, id="x")
        before = await bench.expiry("x")
        found = await bench.things.find("x")
        assert found is not None
        await bench.things.swap(found, deleted=True, data={})  # a tombstone that still names its entry
        await bench.things.insert({}, id="x")
        after = await bench.expiry("x")
        assert after.entry != before.entry
        assert after.entry + "x" in await bench.entries()

    @pytest.mark.req("TT-2")
    async def test_an_id_that_is_taken_leaves_no_entry_behind(self, bench: Bench) -> None:
        await bench.things.insert({}, id="x")
        with pytest.raises(RecordExists):
            await bench.things.insert({}, id="x")
        await bench.index.drain()
        assert await bench.entries() == [(await bench.expiry("x")).entry + "x"]

    @pytest.mark.req("TT-2")
    async def test_a_write_that_may_still_land_keeps_its_entry(self, bench: Bench) -> None:
        await bench.guard.now()
        bench.bucket.on("create", ANY, "late")
        with pytest.raises(WriteUnknown):
            await bench.things.insert({}, id="x")
        await bench.index.drain()
        assert len(await bench.entries()) == 1
        await bench.bucket.land()
        assert await bench.entries() == [(await bench.expiry("x")).entry + "x"]

    @pytest.mark.req("TT-2")
    async def test_paused_before_it_was_sent_it_is_indexed_anew(self, bench: Bench) -> None:
        """A pause of hours between the entry and the record: the entry may be gone when the record lands."""

        async def pause(request: Request) -> None:
            bench.time.advance(7200)

        bench.bucket.on("put", ANY, pause)  # before the entry lands, and after its age has begun
        await bench.things.insert({}, id="x")
        assert len(set(bench.puts())) == 2
        assert (await bench.expiry("x")).entry in bench.puts()[1]
        await bench.index.drain()
        assert await bench.entries() == [(await bench.expiry("x")).entry + "x"]

    @pytest.mark.req("TT-2")
    async def test_a_copy_is_not_sent_again_so_long_afterwards(self, bench: Bench) -> None:
        await bench.things.insert({}, id="x")
        cover = bench.guard.cover("x", wish=Wish.TOUCH, ttl_ms=500_000)
        found = await bench.things.find("x")
        assert found is not None
        await cover.prepare(found.envelope, {}, found.envelope.reserved)
        cover.sending()
        bench.time.advance(101)  # a quarter of the quarantine
        with pytest.raises(WriteUnknown, match="may not be sent again so long after its index entry"):
            cover.sending()
        cover.close()
        await bench.index.drain()
        assert len(await bench.entries()) == 2

    @pytest.mark.req("TT-2")
    async def test_an_answer_after_hours_is_followed_by_another_entry(self, bench: Bench) -> None:
        async def stop(request: Request) -> None:
            bench.time.advance(201)  # half of the quarantine

        bench.bucket.on("create", "resource=*", stop)
        await bench.guard.now()
        record = await bench.things.insert({}, id="x")
        assert len(set(bench.puts())) == 2
        expiry = await bench.expiry("x")
        assert expiry.entry in bench.puts()[1]
        assert (await bench.things.get("x")).version == record.version

    async def test_many_at_once_share_their_entries(self, bench: Bench) -> None:
        done = await bench.things.insert_many([{"n": n} for n in range(300)])
        assert all(each.record is not None for each in done)
        assert len(bench.puts()) <= 3
        for each in done:
            assert (await bench.expiry(each.id)).entry in "".join(bench.puts())

    async def test_the_same_id_twice_in_one_call(self, bench: Bench) -> None:
        done = await bench.things.insert_many([{"n": n} for n in range(8)], ids=["a", "b", "c", "d"] * 2)
        assert sum(each.record is not None for each in done) == 4
        for id in "abcd":
            assert slot_in((await bench.expiry(id)).entry) is not None


class TestGuardByField:
    async def test_a_field_that_holds_no_time_is_refused(self) -> None:
        bench = Bench(ttl=None, field="until")
        with pytest.raises(InvalidRecord, match="record 'x' of 'things' cannot be stored: until is 'soon'"):
            await bench.things.insert({"until": "soon"}, id="x")
        with pytest.raises(InvalidRecord, match=r"item 1: .*until is -1"):
            await bench.things.insert_many([{"until": 5}, {"until": -1}])
        await bench.things.insert({"until": None}, id="x")
        with pytest.raises(InvalidRecord, match="without an offset"):
            await bench.things.patch("x", {"until": "2026-01-01T00:00:00"})
        assert await bench.entries() == []

    async def test_its_time_follows_its_data(self) -> None:
        bench = Bench(ttl=None, field="until")
        await bench.things.insert({}, id="x")
        assert await bench.expiry("x") == Expiry()
        await bench.things.patch("x", {"until": 5})
        first = await bench.expiry("x")
        assert first.at == 5000
        await bench.things.patch("x", {"until": 4.5})
        assert await bench.expiry("x") == Expiry(4500, first.entry)  # of the same slot
        await bench.things.patch("x", {"until": 5.5})
        second = await bench.expiry("x")
        assert (second.at, second.entry != first.entry) == (5500, True)
        await bench.things.patch("x", {"until": None})
        assert await bench.expiry("x") == Expiry()
        await bench.index.drain()
        assert await bench.entries() == []

    async def test_what_others_changed_is_put_right_by_the_next_write(self) -> None:
        bench = Bench(ttl=None, field="until")
        await bench.things.insert({"until": 5}, id="x")
        stranger: Resource[dict[str, Any]] = Resource(bench.bucket, "things", clock=bench.time)
        await stranger.patch("x", {"until": 900})
        assert (await bench.expiry("x")).at == 5000
        await bench.things.patch("x", {"a": 1})
        expiry = await bench.expiry("x")
        assert (expiry.at, slot_in(expiry.entry)) == (900_000, 900_000)
        await bench.index.aclose()

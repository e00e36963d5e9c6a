"""What a guard is asked, and when; and what becomes of a record's expiry, whoever writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.database.expiry import NONE, Expiry, Pending, ended, expiry_of, with_expiry
from tenure.database.gc import collect
from tenure.database.guarding import Outdated
from tenure.database.ids import key_of
from tenure.database.records import Envelope
from tenure.database.resource import Resource
from tenure.errors import (
    ConfigError,
    InvalidRecord,
    RecordExists,
    RecordNotFound,
    StoreUnavailable,
    WriteUnknown,
)
from tenure.store import Store, Stored, Version
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, CONDITIONAL, Request, ScriptedStore

WORK = Pending(how="archive", to="old", data={"a": 1}, version=3, write="w1", at=5)


class Watchful:
    """A guard that writes down what it is asked, and does as it is told."""

    is_retired = False

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.trouble: list[Exception] = []
        self.outdated = 0
        self.renewals = 0

    def check(self, id: str, data: dict[str, Any]) -> None:
        if data.get("bad"):
            raise InvalidRecord("bad", resource="things", id=id)

    def cover(self, id: str) -> Watchful:
        return self

    async def prepare(
        self, base: Envelope | None, data: dict[str, Any] | None, reserved: dict[str, Any]
    ) -> dict[str, Any]:
        what = "delete" if data is None else "new" if base is None or base.deleted else "change"
        self.log.append(f"prepare {what}")
        if self.trouble:
            raise self.trouble.pop(0)
        return {**reserved, "seen": self.log.count(f"prepare {what}")} if data is not None else reserved

    def sending(self) -> None:
        self.log.append("sending")
        if self.outdated:
            self.outdated -= 1
            raise Outdated

    def decided(self, applied: bool) -> None:
        self.log.append("applied" if applied else "lost")

    def renewal(self) -> Watchful | None:
        self.renewals -= 1
        return self if self.renewals >= 0 else None

    def close(self) -> None:
        self.log.append("close")


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore(conditional_delete=False)


@pytest.fixture
def things(store: ScriptedStore) -> Resource[dict[str, Any]]:
    resource: Resource[dict[str, Any]] = Resource(store, "things", clock=ScriptedClock())
    guard = Watchful([])
    resource.guarded_by(guard)

    async def note(request: Request) -> None:
        guard.log.append(request.verb)

    store.always(CONDITIONAL, ANY, note)
    return resource


def guard_of(things: Resource[Any]) -> Watchful:
    assert isinstance(things._guard, Watchful)
    return things._guard


async def reserved_of(store: Store, id: str) -> dict[str, Any]:
    stored = await store.get(key_of("things", id))
    assert isinstance(stored, Stored)
    found: dict[str, Any] = json.loads(stored.body)["reserved"]
    return found


class TestGuard:
    async def test_every_write_is_prepared_before_it_is_sent(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        await things.insert({"a": 1}, id="x")
        assert guard_of(things).log == ["prepare new", "sending", "create", "applied", "close"]
        assert (await things.get("x")).reserved == {"seen": 1}
        for write in (
            things.update("x", {"a": 2}),
            things.patch("x", {"a": 3}),
            things.rewrite("x", lambda data, reserved: ({"a": 4}, {})),
        ):
            guard_of(things).log.clear()
            await write
            assert guard_of(things).log == ["prepare change", "sending", "replace", "applied", "close"]
        guard_of(things).log.clear()
        await things.delete("x")
        assert guard_of(things).log == ["prepare delete", "sending", "replace", "applied", "close"]

    async def test_each_attempt_is_prepared_anew(self, store: ScriptedStore, things: Resource[dict[str, Any]]) -> None:
        await things.insert({}, id="x")
        other: Resource[dict[str, Any]] = Resource(store, "things")

        async def rival(request: Request) -> None:
            await other.patch("x", {"b": 1})

        guard_of(things).log.clear()
        store.on(CONDITIONAL, ANY, rival)
        await things.patch("x", {"a": 1})
        assert [line for line in guard_of(things).log if line != "replace"] == [
            *("prepare change", "sending", "lost"),
            *("prepare change", "sending", "applied", "close"),
        ]
        assert (await things.get("x")).data == {"a": 1, "b": 1}

    async def test_an_insert_over_a_tombstone_is_prepared_as_a_new_record(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        await things.insert({}, id="x")
        await things.delete("x")
        guard_of(things).log.clear()
        await things.insert({}, id="x")
        assert guard_of(things).log == [
            *("prepare new", "sending", "create", "lost"),
            *("prepare new", "sending", "replace", "applied", "close"),
        ]

    async def test_every_copy_of_a_write_is_announced(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        await things.insert({}, id="x")
        guard_of(things).log.clear()
        store.on(CONDITIONAL, ANY, "lost", "lost")
        await things.patch("x", {"a": 1})
        assert guard_of(things).log == ["prepare change", *["sending", "replace"] * 3, "applied", "close"]

    async def test_what_was_prepared_too_long_ago_is_prepared_again(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        guard_of(things).outdated = 1
        await things.insert({}, id="x")
        assert guard_of(things).log == [
            "prepare new",
            "sending",
            "prepare new",
            "sending",
            "create",
            "applied",
            "close",
        ]
        guard_of(things).log.clear()
        guard_of(things).outdated = 1
        await things.patch("x", {"a": 1})
        assert guard_of(things).log == [
            "prepare change",
            "sending",
            "prepare change",
            "sending",
            "replace",
            "applied",
            "close",
        ]

    async def test_nothing_is_sent_if_it_could_not_be_prepared(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        guard_of(things).trouble = [StoreUnavailable("no index")]
        with pytest.raises(StoreUnavailable, match="no index"):
            await things.insert({}, id="x")
        assert guard_of(things).log == ["prepare new", "close"]
        assert await things.get_or_none("x") is None

    async def test_a_write_without_an_answer_stays_undecided(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        store.always(CONDITIONAL, ANY, "lost")
        with pytest.raises(WriteUnknown):
            await things.insert({}, id="x")
        assert "applied" not in guard_of(things).log
        assert "lost" not in guard_of(things).log
        assert guard_of(things).log[-1] == "close"

    async def test_an_id_that_is_taken_is_decided(self, store: ScriptedStore, things: Resource[dict[str, Any]]) -> None:
        await things.insert({}, id="x")
        guard_of(things).log.clear()
        with pytest.raises(RecordExists):
            await things.insert({}, id="x")
        assert guard_of(things).log == ["prepare new", "sending", "create", "lost", "close"]

    async def test_what_took_too_long_is_written_anew(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        guard_of(things).renewals = 1
        record = await things.insert({"a": 1}, id="x")
        assert record.reserved == {"seen": 1}
        assert guard_of(things).log.count("applied") == 2
        assert (await things.get("x")).version == record.version

    async def test_many_are_prepared_before_the_first_is_sent(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        done = await things.insert_many([{"n": n} for n in range(40)])
        assert all(each.record is not None for each in done)
        assert guard_of(things).log[:40] == ["prepare new"] * 40
        guard_of(things).log.clear()
        with pytest.raises(InvalidRecord, match="item 1: bad"):
            await things.insert_many([{}, {"bad": 1}])
        assert guard_of(things).log == []

    async def test_one_that_cannot_be_prepared_stops_no_other(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        guard_of(things).trouble = [StoreUnavailable("no index")] * 3
        first, second = await things.insert_many([{}, {}], ids=["a", "b"])
        assert isinstance(first.error, StoreUnavailable)
        assert second.record is not None

    def test_a_second_guard_is_refused_unless_the_first_has_retired(self, things: Resource[dict[str, Any]]) -> None:
        with pytest.raises(ConfigError, match="'things' is guarded already"):
            things.guarded_by(Watchful([]))
        guard_of(things).is_retired = True
        things.guarded_by(Watchful([]))


class TestSwap:
    async def test_only_what_was_read_is_changed(self, store: ScriptedStore, things: Resource[dict[str, Any]]) -> None:
        await things.insert({"a": 1}, id="x")
        found = await things.find("x")
        assert found is not None
        await things.patch("x", {"a": 2})
        assert await things.swap(found, deleted=True, data={}) is None
        assert (await things.get("x")).data == {"a": 2}
        found = await things.find("x")
        assert found is not None
        written = await things.swap(found, deleted=True, data={}, reserved={})
        assert written is not None
        assert isinstance(written.version, Version)
        await things.clear_away("x", written)
        assert await things.get_or_none("x") is None

    async def test_an_answer_that_was_lost_is_found_again(
        self, store: ScriptedStore, things: Resource[dict[str, Any]]
    ) -> None:
        await things.insert({"a": 1}, id="x")
        found = await things.find("x")
        assert found is not None
        store.on(CONDITIONAL, ANY, "kept")
        assert await things.swap(found, deleted=True, data={}) is not None
        with pytest.raises(RecordNotFound):
            await things.get("x")

    async def test_what_is_placed_is_placed_once(self, store: ScriptedStore) -> None:
        things: Resource[dict[str, Any]] = Resource(store, "things")
        await things.place("x", {"a": 1})
        with pytest.raises(RecordExists):
            await things.place("x", {"a": 1})
        await things.delete("x")
        with pytest.raises(RecordExists, match="was deleted"):
            await things.place("x", {"a": 1})


class TestExpiryOfARecord:
    """Kept with it, in `reserved`: also by processes that know nothing of a TTL."""

    def test_there_and_back(self) -> None:
        expiry = Expiry(5, "e.", pending={"f": WORK})
        assert expiry_of(with_expiry({"other": 1}, expiry)) == expiry
        assert with_expiry({"other": 1, "ttl": {"at": 5}}, NONE) == {"other": 1}
        assert isinstance(expiry_of({"ttl": "soon"}), str)
        assert isinstance(expiry_of({"ttl": {"at": "soon"}}), str)

    def test_what_belongs_to_the_record_ends_with_it(self) -> None:
        both = with_expiry({"other": 1}, Expiry(5, "e.", pending={"f": WORK}))
        assert expiry_of(ended(both)) == Expiry(pending={"f": WORK})
        assert ended(both)["other"] == 1
        assert ended(with_expiry({}, Expiry(5, "e."))) == {}
        assert ended({"ttl": {"at": None, "keep": True}}) == {}
        assert ended({"other": 1}) == {"other": 1}

    async def test_a_deleted_record_leaves_none_and_a_new_one_inherits_none(self, store: ScriptedStore) -> None:
        things: Resource[dict[str, Any]] = Resource(store, "things")
        await things.insert({}, id="x")
        await self._give(things, Expiry(5, "e.", pending={"f": WORK}))
        await things.delete("x")
        assert expiry_of(await reserved_of(store, "x")) == Expiry(pending={"f": WORK})
        await things.insert({}, id="x")
        assert expiry_of(await reserved_of(store, "x")) == Expiry(pending={"f": WORK})

    async def test_an_older_tombstone_that_still_has_one_does_not_pass_it_on(self, store: ScriptedStore) -> None:
        things: Resource[dict[str, Any]] = Resource(store, "things")
        await things.insert({}, id="x")
        found = await things.find("x")
        assert found is not None
        await things.swap(found, deleted=True, data={}, reserved=with_expiry({}, Expiry(5, "e.")))
        await things.insert({}, id="x")
        assert await reserved_of(store, "x") == {}

    async def test_who_changes_something_else_leaves_it_alone(self, store: ScriptedStore) -> None:
        things: Resource[dict[str, Any]] = Resource(store, "things")
        await things.insert({"a": 1}, id="x")
        await self._give(things, Expiry(5, "e."))
        await things.update("x", {"a": 2})
        await things.patch("x", {"b": 2})
        await things.rewrite("x", lambda data, reserved: (data, {"count": 1}))
        await things.rewrite("x", lambda data, reserved: (data, {**reserved, "ttl": {"at": 9}}))
        assert await reserved_of(store, "x") == {"count": 1, "ttl": {"at": 5, "entry": "e."}}

    async def test_work_of_any_size_does_not_keep_others_from_reserving(self, store: ScriptedStore) -> None:
        things: Resource[dict[str, Any]] = Resource(store, "things")
        await things.insert({"a": 1}, id="x")
        large = Pending(how="archive", data={"text": "x" * 900_000}, version=1, write="w", at=5)
        await self._give(things, Expiry(pending={"f": large}))
        await things.rewrite("x", lambda data, reserved: (data, {**reserved, "count": 1}))
        assert (await reserved_of(store, "x"))["count"] == 1
        assert expiry_of(await reserved_of(store, "x")) == Expiry(pending={"f": large})

    async def test_gc_keeps_tombstones_with_work_to_do(self, store: ScriptedStore) -> None:
        things: Resource[dict[str, Any]] = Resource(store, "things")
        for id in ("x", "y"):
            await things.insert({}, id=id)
            await self._give(things, Expiry(5, "e.", pending={"f": WORK} if id == "x" else {}), id)
            await things.delete(id)
        collected = await collect(store)
        assert (collected.removed, collected.kept) == (1, 1)
        assert expiry_of(await reserved_of(store, "x")) == Expiry(pending={"f": WORK})

    async def _give(self, things: Resource[Any], expiry: Expiry, id: str = "x") -> None:
        found = await things.find(id)
        assert found is not None
        written = await things.swap(found, reserved=with_expiry(found.envelope.reserved, expiry))
        assert written is not None

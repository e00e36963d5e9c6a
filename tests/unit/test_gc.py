"""What `tenure gc` removes, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.database.gc import collect
from tenure.database.ids import key_of
from tenure.database.resource import Resource
from tenure.database.storage import PluginStorage
from tenure.errors import AccessDenied, BodyTooLarge
from tenure.store import Store, Stored, StoreInfo
from tenure.store.readonly import ReadOnly
from tenure.testing import SimulatedClock
from tests.support.store import ANY, Request, ScriptedStore


def aged() -> tuple[ScriptedStore, SimulatedClock]:
    """A store whose clock, which is not this host's, can be moved."""
    clock = SimulatedClock()
    return ScriptedStore(clock=clock, conditional_delete=False), clock


async def forgetful() -> tuple[ScriptedStore, Resource[dict[str, Any]]]:
    """Resources could not remove their tombstones in it; `gc` can."""
    store = ScriptedStore()
    refusing = store.always("discard", ANY, "lost")
    notes = await fill(store)
    refusing.stop()
    return store, notes


async def fill(store: Store) -> Resource[dict[str, Any]]:
    """Five records living, four deleted, and one deleted of which a plugin keeps something."""
    notes: Resource[dict[str, Any]] = Resource(store, "notes")
    for number in range(10):
        await notes.insert({"n": number}, id=str(number))
    await notes.rewrite("9", lambda data, reserved: (data, {"watermark": 1}))
    for number in range(5, 10):
        await notes.delete(str(number))
    await store.put("plugin=coordinator/namespace=default/state.json", b"x" * 511)
    await store.put("zzz", b"x" * 511)
    return notes


@pytest.mark.req("DB-2")
@pytest.mark.parametrize("conditional", [False, True])
async def test_tombstones_go_and_records_stay(conditional: bool) -> None:
    if conditional:
        store, notes = await forgetful()
    else:
        store = ScriptedStore(conditional_delete=False)
        notes = await fill(store)
    before = [entry.key async for entry in store.list()]
    looked = await collect(ReadOnly(store), dry_run=True)
    assert (looked.records, looked.tombstones, looked.removed, looked.kept) == (5, 5, 4, 1)
    assert [entry.key async for entry in store.list()] == before
    seen: list[tuple[str, int]] = []
    result = await collect(store, progress=lambda step, count: seen.append((step, count)))
    assert (result.records, result.tombstones, result.removed, result.kept) == (5, 5, 4, 1)
    assert result.ok
    assert result.conditional == conditional
    assert ("records", 10) in seen
    assert [record.id async for record in notes.records()] == ["0", "1", "2", "3", "4"]
    left = [entry.key async for entry in store.list()]
    assert len(left) == len(before) - 4
    assert key_of("notes", "9") in left
    assert (await notes.insert({}, id="9")).reserved == {"watermark": 1}
    again = await collect(store)
    assert (again.tombstones, again.removed) == (0, 0)


@pytest.mark.req("DB-2")
async def test_a_record_written_again_meanwhile_is_spared_where_that_can_be_told() -> None:
    store, notes = await forgetful()

    async def write_again(request: Request) -> None:
        await notes.insert({"again": True}, id="5")

    store.on("discard", ANY, write_again)
    result = await collect(store)
    assert (result.removed, result.kept) == (3, 2)
    assert (await notes.get("5")).data == {"again": True}


@pytest.mark.req("DB-2")
async def test_what_only_looks_like_a_tombstone_is_named_and_left() -> None:
    store = ScriptedStore(conditional_delete=False)
    await store.put(key_of("notes", "a"), b"x" * 511)
    result = await collect(store)
    assert result.damaged == (key_of("notes", "a"),)
    assert not result.ok
    assert isinstance(await store.get(key_of("notes", "a")), Stored)


async def test_a_store_that_fails_is_told_of() -> None:
    store = ScriptedStore(conditional_delete=False)
    store.always("delete", ANY, "lost")
    await fill(store)
    result = await collect(store)
    assert (result.removed, result.failed) == (0, 4)
    assert not result.ok


async def test_what_could_not_be_removed_by_its_version_is_told_of() -> None:
    store, _ = await forgetful()
    store.always("discard", ANY, AccessDenied("no"))
    result = await collect(store)
    assert (result.removed, result.kept, result.failed) == (0, 1, 4)
    assert not result.ok


async def test_an_object_too_large_to_be_read_is_named_and_stops_nothing() -> None:
    store = ScriptedStore(conditional_delete=False)
    store.always("get", key_of("large", "a"), BodyTooLarge("too large"))
    await store.put(key_of("large", "a"), b"x" * 511)
    await fill(store)
    result = await collect(store)
    assert result.damaged == (key_of("large", "a"),)
    assert result.removed == 4


async def test_old_scratch_objects_go_by_the_stores_clock() -> None:
    store, clock = aged()
    for folder in ("tenure-probe", "tenure-race", "tenure-doctor", "tenure-time"):
        await store.put(f"{folder}/x", b"x")
    clock.advance(23 * 3600)
    assert (await collect(store)).scratch_removed == 0
    clock.advance(2 * 3600)
    await store.put("tenure-time/new", b"x")
    assert (await collect(store)).scratch_removed == 4
    assert [entry.key async for entry in store.list()] == ["tenure-time/new"]


@pytest.mark.req("DB-3")
@pytest.mark.parametrize("conditional", [True, False])
async def test_leftovers_of_storages_go_after_a_day(conditional: bool) -> None:
    store, clock = aged()
    store.info = StoreInfo(provider="memory", url="memory://", conditional_delete=conditional)
    storage = PluginStorage(store, "s3-queue", "orders, late", clock=clock)
    other = PluginStorage(store, "p", "n", clock=clock)
    await storage.set_many({"stays": 1, "deleted/a": 1, "later": 1})
    await storage.delete("deleted/a")
    await storage.set("expired", 1, ttl=60)
    await other.set("expired", 1, ttl=60)
    await other.set("lives", 1, ttl=10 * 86_400)
    await other.set("just-expired", 1, ttl=86_400)
    spared = (
        "plugin=p/name=n/log/1",
        "plugin=p/name=n/storage",
        "plugin=p/namespace=n/storage/x",
        "plugin=p/name=n/storage/~zz",
    )
    for key in spared:
        await store.put(key, b"x")
    await store.put("plugin=p/name=n/storage/newer", b'{"tenure":"storage","schemaVersion":9}')
    clock.advance(86_400)
    assert (await collect(store, clock=clock)).storage_leftovers == 0
    await storage.delete("later")
    clock.advance(120)
    before = [entry.key async for entry in store.list()]
    looked = await collect(ReadOnly(store), dry_run=True, clock=clock)
    assert (looked.storage_leftovers, looked.storage_removed) == (3, 3)
    assert [entry.key async for entry in store.list()] == before
    result = await collect(store, clock=clock)
    assert (result.storage_leftovers, result.storage_removed, result.tombstones, result.removed) == (3, 3, 0, 0)
    assert result.ok
    left = {entry.key async for entry in store.list()}
    assert {key.rpartition("/")[2] for key in set(before) - left} == {"a", "expired"}
    assert left >= set(spared)
    assert [entry.key for entry in (await storage.list()).entries] == ["stays"]
    assert await other.get("lives") == 1
    await store.put("plugin=p/name=n/storage/damaged", b"x")
    clock.advance(2 * 86_400)
    result = await collect(store, clock=clock)
    assert result.damaged == ("plugin=p/name=n/storage/damaged",)
    assert not result.ok

"""What `tenure gc` removes, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.clock import SYSTEM_CLOCK, Reading
from tenure.database.gc import collect
from tenure.database.ids import key_of
from tenure.database.resource import Resource
from tenure.errors import StoreUnavailable
from tenure.store import Outcome, Stored, StoreInfo, Version
from tenure.store.memory import MemoryStore
from tenure.store.readonly import ReadOnly

pytestmark = pytest.mark.req("DB-2")


class Bucket(MemoryStore):
    """Without a conditional delete."""

    def __init__(self) -> None:
        super().__init__()
        self.info = StoreInfo(provider="memory", url="memory://bucket")


class Forgetful(MemoryStore):
    """Its resources cannot remove their tombstones; `gc` can."""

    forgets = True

    async def discard(self, key: str, expected: Version) -> Outcome:
        if self.forgets:
            raise StoreUnavailable("no answer")
        return await super().discard(key, expected)


class Later:
    """Two days on."""

    def read(self) -> Reading:
        now = SYSTEM_CLOCK.read()
        return Reading(now.boottime_ns, now.monotonic_ns, now.raw_ns, now.wall_ns + 2 * 86_400 * 10**9)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


async def fill(store: MemoryStore) -> Resource[dict[str, Any]]:
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


@pytest.mark.parametrize("make", [Bucket, Forgetful])
async def test_tombstones_go_and_records_stay(make: type[MemoryStore]) -> None:
    store = make()
    notes = await fill(store)
    if isinstance(store, Forgetful):
        store.forgets = False
    before = [entry.key async for entry in store.list()]
    looked = await collect(ReadOnly(store), dry_run=True)
    assert (looked.records, looked.tombstones, looked.removed, looked.kept) == (5, 5, 4, 1)
    assert [entry.key async for entry in store.list()] == before
    seen: list[tuple[str, int]] = []
    result = await collect(store, progress=lambda step, count: seen.append((step, count)))
    assert (result.records, result.tombstones, result.removed, result.kept) == (5, 5, 4, 1)
    assert result.ok
    assert result.conditional == isinstance(store, Forgetful)
    assert ("records", 10) in seen
    assert [record.id async for record in notes.records()] == ["0", "1", "2", "3", "4"]
    left = [entry.key async for entry in store.list()]
    assert len(left) == len(before) - 4
    assert key_of("notes", "9") in left
    assert (await notes.insert({}, id="9")).reserved == {"watermark": 1}
    again = await collect(store)
    assert (again.tombstones, again.removed) == (0, 0)


async def test_a_record_written_again_meanwhile_is_spared_where_that_can_be_told() -> None:
    class Meanwhile(Forgetful):
        notes: Resource[dict[str, Any]] | None = None

        async def discard(self, key: str, expected: Version) -> Outcome:
            if self.notes is not None:
                notes, self.notes = self.notes, None
                await notes.insert({"again": True}, id="5")
            return await super().discard(key, expected)

    store = Meanwhile()
    notes = await fill(store)
    store.forgets, store.notes = False, notes
    result = await collect(store)
    assert (result.removed, result.kept) == (3, 2)
    assert (await notes.get("5")).data == {"again": True}


async def test_what_only_looks_like_a_tombstone_is_named_and_left() -> None:
    store = Bucket()
    await store.put(key_of("notes", "a"), b"x" * 511)
    result = await collect(store)
    assert result.damaged == (key_of("notes", "a"),)
    assert not result.ok
    assert isinstance(await store.get(key_of("notes", "a")), Stored)


async def test_a_store_that_fails_is_told_of() -> None:
    class Fails(Bucket):
        async def delete(self, *keys: str) -> None:
            raise StoreUnavailable("no answer")

    store = Fails()
    await fill(store)
    result = await collect(store)
    assert (result.removed, result.failed) == (0, 4)
    assert not result.ok


async def test_old_scratch_objects_go() -> None:
    store = Bucket()
    for folder in ("tenure-probe", "tenure-race", "tenure-doctor"):
        await store.put(f"{folder}/x", b"x")
    assert (await collect(store)).scratch_removed == 0
    assert (await collect(store, clock=Later())).scratch_removed == 3
    assert [entry.key async for entry in store.list()] == []

"""The memory store; what all stores have in common is tested by the conformance suite."""

from __future__ import annotations

import asyncio
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from tenure.errors import BodyTooLarge, ForkedProcess, InvalidKey, NotFound, StoreError
from tenure.store import Applied, NotModified, Rejected, Stored, Version, open_store
from tenure.store.memory import Contents, MemoryStore
from tenure.store.protocol import MAX_BODY_BYTES
from tenure.testing import SimulatedClock


async def test_stores_of_one_name_share_their_contents() -> None:
    async with open_store("memory://shared") as one, open_store("memory://shared") as other:
        await one.put("k", b"1")
        assert (await other.get("k")).body == b"1"
        assert one.info.url == "memory://shared"


async def test_stores_of_other_names_or_of_none_share_nothing() -> None:
    async with (
        open_store("memory://one") as one,
        open_store("memory://other") as other,
        open_store("memory://") as unnamed,
        open_store("memory://") as unnamed_too,
    ):
        await one.put("k", b"1")
        await unnamed.put("k", b"1")
        for store in (other, unnamed_too):
            with pytest.raises(NotFound):
                await store.get("k")


async def test_what_has_a_name_stays_until_the_process_ends() -> None:
    async with open_store("memory://lasting") as store:
        await store.put("k", b"1")
    del store
    gc.collect()
    async with open_store("memory://lasting") as again:
        found = await again.get("k")
        assert isinstance(found, Stored)
        assert found.body == b"1"


async def test_versions_are_never_used_again() -> None:
    store = MemoryStore()
    seen = []
    for _ in range(3):
        created = await store.create("k", b"same")
        assert isinstance(created, Applied)
        replaced = await store.replace("k", b"same", created.version)
        assert isinstance(replaced, Applied)
        assert await store.replace("k", b"stale", created.version) == Rejected()
        seen += [created.version, replaced.version, await store.put("k", b"same"), await store.put("j", b"same")]
        await store.delete("k", "j", "never-there")
    assert len(set(seen)) == len(seen)
    assert await store.replace("k", b"x", seen[0]) == Rejected()


async def test_unless_spares_the_body() -> None:
    store = MemoryStore()
    version = await store.put("k", b"1")
    assert await store.get("k", unless=version) == NotModified(version)
    assert await store.get("k", unless=Version("other")) == Stored(b"1", version)


async def test_the_body_is_a_copy() -> None:
    store = MemoryStore()
    body = bytearray(b"1")
    await store.put("k", body)  # type: ignore[arg-type]
    body[0] = 0
    assert (await store.get("k")).body == b"1"


async def test_modified_is_the_wall_clock() -> None:
    clock = SimulatedClock()
    store = MemoryStore(clock=clock)
    await store.put("k", b"")
    (entry,) = [entry async for entry in store.list()]
    assert entry.modified == datetime.fromtimestamp(1_700_000_000, UTC)


async def test_a_listing_survives_changes_while_it_is_read() -> None:
    store = MemoryStore()
    keys = [f"k{number:05}" for number in range(2500)]
    for key in keys:
        await store.put(key, b"")
    seen = []
    async for entry in store.list():
        seen.append(entry.key)
        if len(seen) == 500:
            await store.delete(*keys[1000:1500])
            await store.put("a", b"")
    assert seen == keys[:1000] + keys[1500:]


def test_two_event_loops_in_two_threads_lose_no_update() -> None:
    contents = Contents()

    async def count() -> None:
        store = MemoryStore(contents=contents)
        for _ in range(300):
            while True:
                stored = await store.get("n")
                if isinstance(await store.replace("n", b"%d" % (int(stored.body) + 1), stored.version), Applied):
                    break
                await asyncio.sleep(0)

    asyncio.run(MemoryStore(contents=contents).put("n", b"0"))
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(asyncio.run, count()) for _ in range(4)]:
            done.result()
    assert asyncio.run(MemoryStore(contents=contents).get("n")).body == b"1200"


@pytest.mark.parametrize("verb", ["get", "put", "create", "replace", "list", "delete"])
async def test_what_every_verb_refuses(verb: str) -> None:
    store = MemoryStore()

    async def call(key: str, body: bytes = b"") -> object:
        if verb == "list":
            return [entry async for entry in store.list(key)]
        arguments = {"put": (body,), "create": (body,), "replace": (body, Version("1"))}.get(verb, ())
        return await getattr(store, verb)(key, *arguments)

    with pytest.raises(InvalidKey):
        await call("a/../b" + ("/" if verb == "list" else ""))
    if verb in ("put", "create", "replace"):
        with pytest.raises(BodyTooLarge, match="the body for 'k' has 67,108,865 bytes, and the limit is 67,108,864"):
            await call("k", bytes(MAX_BODY_BYTES + 1))
    await store.aclose()
    with pytest.raises(StoreError, match="is closed: open it again"):
        await call("k/" if verb == "list" else "k")


async def test_a_forked_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    with pytest.raises(ForkedProcess, match=f"used in its forked child {child}: open stores after the fork"):
        await store.get("k")
    with pytest.raises(ForkedProcess):
        [entry async for entry in store.list()]

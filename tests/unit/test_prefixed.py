"""A folder of a store as a store of its own."""

from __future__ import annotations

import pytest

from tenure.errors import InvalidKey, NotFound
from tenure.store import Applied, NotModified, Prefixed, Rejected, Version
from tenure.store.memory import MemoryStore


async def listed(store: MemoryStore | Prefixed, prefix: str = "", after: str | None = None) -> list[str]:
    return [entry.key async for entry in store.list(prefix, after=after)]


async def test_every_verb_stays_in_the_folder() -> None:
    inner = MemoryStore()
    store = Prefixed(inner, "app/")
    await store.put("put", b"1")
    created = await store.create("create", b"1")
    assert isinstance(created, Applied)
    assert isinstance(await store.replace("create", b"2", created.version), Applied)
    assert await store.replace("create", b"3", created.version) == Rejected()
    assert await listed(inner) == ["app/create", "app/put"]
    assert (await inner.get("app/create")).body == (await store.get("create")).body == b"2"
    await store.delete("put", "create")
    assert await listed(inner) == []


async def test_nothing_outside_is_seen() -> None:
    inner = MemoryStore()
    store = Prefixed(inner, "app/")
    for key in ("app", "app2/x", "ap/x", "zzz", "app/in/x", "app/y"):
        await inner.put(key, b"")
    assert await listed(store) == ["in/x", "y"]
    assert await listed(store, "in/") == ["in/x"]
    assert await listed(store, after="in/x") == ["y"]
    await store.delete("app", "zzz")
    assert len(await listed(inner)) == 6
    with pytest.raises(NotFound):
        await store.get("zzz")


@pytest.mark.parametrize("key", ["../zzz", "/zzz", "", "a/../../zzz"])
async def test_no_key_leads_out(key: str) -> None:
    store = Prefixed(MemoryStore(), "app/")
    for call in (store.get(key), store.put(key, b""), store.create(key, b""), store.replace(key, b"", Version("1"))):
        with pytest.raises(InvalidKey):
            await call
    with pytest.raises(InvalidKey):
        await store.delete(key)
    with pytest.raises(InvalidKey):
        await listed(store, key.rstrip("/") + "/")


async def test_a_missing_key_is_named_as_it_was_asked_for() -> None:
    with pytest.raises(NotFound, match=r"there is no object 'k'$") as caught:
        await Prefixed(MemoryStore(), "app/").get("k")
    assert caught.value.key == "k"


async def test_unless_and_info_pass_through() -> None:
    inner = MemoryStore(name="x")
    store = Prefixed(inner, "app/")
    version = await store.put("k", b"")
    assert await store.get("k", unless=version) == NotModified(version)
    assert store.info == inner.info


@pytest.mark.parametrize("prefix", ["app", "/", "../", "a b/"])
def test_a_folder_that_is_none_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidKey):
        Prefixed(MemoryStore(), prefix)


async def test_no_folder_is_the_whole_store() -> None:
    inner = MemoryStore()
    await Prefixed(inner, "").put("k", b"")
    assert await listed(inner) == ["k"]


async def test_closing_closes_the_inner_store() -> None:
    inner = MemoryStore()
    await Prefixed(inner, "app/").aclose()
    with pytest.raises(Exception, match="is closed"):
        await inner.get("k")

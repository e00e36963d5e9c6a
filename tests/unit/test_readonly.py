"""A store through which nothing can be changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.errors import BucketMissing, ReadOnlyStore
from tenure.store import Access, Version, open_store
from tenure.store.memory import MemoryStore
from tenure.store.readonly import ReadOnly


async def test_reading_works_and_writing_is_refused() -> None:
    inner = MemoryStore(name="x")
    version = await inner.put("k", b"1")
    store = ReadOnly(inner)
    assert (await store.get("k")).body == b"1"
    assert (await store.get("k", unless=version)).version == version
    assert [entry.key async for entry in store.list()] == ["k"]
    assert [entry.key async for entry in store.list(after="k")] == []
    assert store.info == inner.info
    for name, call in (
        ("put 'k'", store.put("k", b"2")),
        ("create 'j'", store.create("j", b"2")),
        ("replace 'k'", store.replace("k", b"2", version)),
        ("delete 1 keys", store.delete("k")),
    ):
        with pytest.raises(ReadOnlyStore, match=f"{name}: memory://x was opened with Access.READ_ONLY"):
            await call
    assert [(entry.key, entry.version) async for entry in inner.list()] == [("k", version)]


async def test_opening_for_reading(tmp_path: Path) -> None:
    async with open_store((tmp_path / "d").as_uri()) as writable:
        await writable.put("k", b"1")
    async with open_store((tmp_path / "d").as_uri(), access=Access.READ_ONLY) as store:
        assert (await store.get("k")).body == b"1"
        with pytest.raises(ReadOnlyStore):
            await store.replace("k", b"", Version("1"))


async def test_opening_for_reading_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(BucketMissing, match=f"there is no directory {tmp_path}/d: create it, or correct the name"):
        await open_store((tmp_path / "d").as_uri(), access=Access.READ_ONLY)
    (tmp_path / "k").write_bytes(b"1")
    async with open_store(tmp_path.as_uri(), access=Access.READ_ONLY) as store:
        assert (await store.get("k")).body == b"1"
        assert [entry.key async for entry in store.list()] == ["k"]
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


async def test_closing_closes_the_inner_store() -> None:
    inner = MemoryStore()
    await ReadOnly(inner).aclose()
    with pytest.raises(Exception, match="is closed"):
        await inner.get("k")

"""`tenure queue list` lists no more than it must, and misses nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.ledger import ledger_store
from tenure.observe import ledgers
from tenure.observe.ledgers import Queues, queues_at
from tenure.store import Entry
from tenure.store.memory import MemoryStore


class Counted(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.listings = 0
        self.rows = 0

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        self.listings += 1
        async for entry in super().list(prefix, after=after):
            self.rows += 1
            yield entry


async def filled(queues: dict[str, int]) -> Counted:
    store = Counted()
    for name, count in queues.items():
        for number in range(count):
            await ledger_store(store, "s3-queue", name).put(f"log/{number:020d}", b"")
    return store


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "PAGE", 5)


async def test_a_long_queue_is_skipped() -> None:
    store = await filled({"a": 1000, "b": 2, "c": 1000})
    assert (await queues_at(store, 10)).queues == ["a", "b", "c"]
    assert store.listings == 3
    assert store.rows <= 15
    store.listings = 0
    assert (await queues_at(store, 10, begins_anew=False)).queues == ["a", "b", "c"]
    assert store.listings == 1


async def test_the_limit() -> None:
    store = await filled({"a": 7, "b": 7, "c": 7})
    assert await queues_at(store, 2) == Queues(["a", "b"], [], True)
    assert await queues_at(store, 3) == Queues(["a", "b", "c"], [], False)


async def test_what_others_put_there_is_told_and_ends() -> None:
    store = await filled({"a": 7, "z": 1})
    behind = "~" * 200
    strange = ["name=a", "name=", "x/y", "x/z", f"name=a/{behind}/a", f"name=a/{behind}/b", "name=~7a/log", "plain"]
    for key in strange:
        await store.put(f"plugin=s3-queue/{key}", b"")
    await store.put(f"plugin=s3-queue/name={'y' * 65}/log", b"")
    await store.put("plugin=other/name=q/log", b"")
    found = await queues_at(store, 100)
    assert found.queues == ["a", "z"]
    assert sorted(found.unreadable) == sorted(["name=a", "name=", "x/", "name=~7a/", "plain", f"name={'y' * 65}/"])
    assert not found.more


NAMES = st.text(st.sampled_from("aAz0-._~= /é"), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES.filter(str.strip), st.sampled_from([1, 4, 5, 6, 12]), max_size=8))
async def test_every_queue_is_found_once(queues: dict[str, Any]) -> None:
    assert await queues_at(await filled(queues), 100) == Queues(sorted(queues), [], False)

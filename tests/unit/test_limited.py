"""A store whose every request ends in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tenure.errors import InvalidKey, NotFound, StoreUnavailable
from tenure.store import Applied, Entry, NotModified, Rejected, Stored, Unknown, Version
from tenure.store.limited import TimeLimited
from tenure.store.memory import MemoryStore
from tests.support.store import ANY, Hold, ScriptedStore

LIMIT = 0.05


def stuck() -> tuple[ScriptedStore, Hold]:
    """A store that answers nothing until it is released."""
    store, hold = ScriptedStore(), Hold()
    store.always(ANY, ANY, hold)
    return store, hold


async def listed(store: TimeLimited, prefix: str = "", after: str | None = None) -> list[str]:
    return [entry.key async for entry in store.list(prefix, after=after)]


Call = Callable[[TimeLimited], Awaitable[Any]]
RAISING: dict[str, Call] = {
    "get": lambda store: store.get("k"),
    "put": lambda store: store.put("k", b"1"),
    "list": lambda store: listed(store),
    "delete": lambda store: store.delete("k"),
}
THREE_WAYS: dict[str, Call] = {
    "create": lambda store: store.create("k", b"1"),
    "replace": lambda store: store.replace("k", b"1", Version("1")),
}


@pytest.mark.parametrize("call", RAISING.values(), ids=RAISING)
async def test_a_request_without_an_answer_ends_and_says_so(call: Call) -> None:
    inner, hold = stuck()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer within"):
        await call(TimeLimited(inner, LIMIT))
    assert LIMIT * 0.9 <= time.monotonic() - began < 10
    assert (hold.begun, hold.cancelled) == (1, 1)


@pytest.mark.parametrize("call", THREE_WAYS.values(), ids=THREE_WAYS)
async def test_a_conditional_write_without_an_answer_is_unknown(call: Call) -> None:
    """It may still happen, and must not be taken for a rejection."""
    outcome = await call(TimeLimited(stuck()[0], LIMIT))
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, StoreUnavailable)
    assert "no answer within 0.05 s" in str(outcome.error)


async def test_a_listing_has_a_limit_of_its_own() -> None:
    inner, hold = stuck()
    store = TimeLimited(inner, LIMIT, list_seconds=30.0)
    await inner.inner.create("a", b"")
    listing = asyncio.create_task(listed(store))
    await asyncio.sleep(3 * LIMIT)
    assert not listing.done()
    hold.release()
    assert await listing == ["a"]


async def test_the_message_of_a_listing_names_its_own_limit() -> None:
    with pytest.raises(StoreUnavailable, match=r"no answer within 0\.05 s"):
        await listed(TimeLimited(stuck()[0], 30.0, list_seconds=LIMIT))


async def test_a_listing_is_limited_as_a_whole() -> None:
    """Pages that each come in time may take too long together."""

    class Trickling(MemoryStore):
        async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
            async for entry in super().list(prefix, after=after):
                await asyncio.sleep(LIMIT / 4)
                yield entry

    inner = Trickling()
    for number in range(400):
        await inner.create(f"k{number}", b"")
    with pytest.raises(StoreUnavailable):
        await listed(TimeLimited(inner, LIMIT))


async def test_a_listing_may_be_read_slowly() -> None:
    """The limit is the store's, not the reader's."""
    inner = MemoryStore()
    for key in ("a", "b", "c"):
        await inner.create(key, b"")
    found = []
    async for entry in TimeLimited(inner, LIMIT).list():
        await asyncio.sleep(LIMIT)
        found.append(entry.key)
    assert found == ["a", "b", "c"]


async def test_what_is_in_time_is_passed_on() -> None:
    inner = MemoryStore()
    store = TimeLimited(inner, 30.0)
    created = await store.create("f/a", b"1")
    assert isinstance(created, Applied)
    assert isinstance(await store.create("f/a", b"2"), Rejected)
    replaced = await store.replace("f/a", b"3", created.version)
    assert isinstance(replaced, Applied)
    assert isinstance(await store.replace("f/a", b"4", created.version), Rejected)
    assert await store.get("f/a") == Stored(b"3", replaced.version)
    assert await store.get("f/a", unless=replaced.version) == NotModified(replaced.version)
    await store.put("f/b", b"5")
    await store.put("g", b"6")
    assert await listed(store) == ["f/a", "f/b", "g"]
    assert await listed(store, "f/", after="f/a") == ["f/b"]
    await store.delete("f/a", "g")
    assert await listed(store) == ["f/b"]
    assert store.info is inner.info


async def test_errors_of_the_store_are_passed_on_as_they_are() -> None:
    store = TimeLimited(MemoryStore(), 30.0)
    with pytest.raises(NotFound):
        await store.get("missing")
    with pytest.raises(InvalidKey):
        await store.create("no good", b"")


async def test_a_cancelled_caller_is_cancelled() -> None:
    """Not told that the store was late."""
    call = asyncio.create_task(TimeLimited(stuck()[0], 30.0).create("k", b""))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_closing_closes_what_is_behind() -> None:
    inner = MemoryStore()
    await TimeLimited(inner, 1.0).aclose()
    with pytest.raises(Exception, match="closed"):
        await inner.get("k")

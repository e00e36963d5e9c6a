"""Every wrapper of a store passes `discard` on, in its own way."""

from __future__ import annotations

from random import Random

import pytest

from tenure.errors import InvalidKey, NoConditionalDelete, NotFound, ReadOnlyStore
from tenure.store import Applied, Faults, Faulty, Metered, Prefixed, Rejected, StoreInfo, Unknown, Version
from tenure.store.limited import TimeLimited
from tenure.store.memory import MemoryStore
from tenure.store.readonly import ReadOnly
from tests.support.store import ANY, Hold, ScriptedStore


async def test_a_prefix_is_added_and_the_request_is_counted() -> None:
    inner = MemoryStore()
    metered = Metered(inner)
    folder = Prefixed(metered, "a/")
    version = await folder.put("k", b"x")
    assert isinstance(await folder.discard("k", Version("0")), Rejected)
    assert await folder.discard("k", version) == Applied(version)
    assert metered.usage().requests["discard"] == {"applied": 1, "rejected": 1}
    assert folder.info.conditional_delete
    with pytest.raises(InvalidKey):
        await folder.discard("../k", version)


async def test_a_read_only_store_refuses() -> None:
    with pytest.raises(ReadOnlyStore, match="discard 'k'"):
        await ReadOnly(MemoryStore()).discard("k", Version("1"))


async def test_a_limit_makes_it_unknown() -> None:
    store = ScriptedStore()
    store.always("discard", ANY, Hold())
    outcome = await TimeLimited(store, 0.01).discard("k", Version("1"))
    assert isinstance(outcome, Unknown)
    assert "no answer within" in str(outcome.error)


@pytest.mark.parametrize("fault", ["lost_request", "lost_reply", "late_landing", "repeated"])
async def test_a_faulty_store_loses_it_or_its_answer(fault: str) -> None:
    inner = MemoryStore()
    version = await inner.put("k", b"x")
    store = Faulty(inner, Faults(**{fault: 1.0}, late_seconds=0.01), random=Random(1))
    outcome = await store.discard("k", version)
    await store.drain()
    assert isinstance(outcome, Rejected if fault == "repeated" else Unknown)
    if fault == "lost_request":
        await inner.get("k")
    else:
        with pytest.raises(NotFound):
            await inner.get("k")


async def test_what_the_store_cannot_do_is_refused_before_a_fault_is_drawn() -> None:
    inner = MemoryStore()
    inner.info = StoreInfo(provider="s3", url="s3://bucket")
    store = Faulty(inner, Faults(lost_request=1.0), random=Random(1))
    with pytest.raises(NoConditionalDelete, match="s3://bucket cannot remove"):
        await store.discard("k", Version("1"))
    assert not store.hit

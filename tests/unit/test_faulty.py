"""Each fault does what it says, from a seed, and is counted."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tenure.errors import ConfigError, NotFound, StoreUnavailable
from tenure.store import Applied, Faults, Faulty, Rejected, Unknown, Version
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock


def faulty(seed: int = 1, clock: SimulatedClock | None = None, **faults: float) -> tuple[MemoryStore, Faulty]:
    inner = MemoryStore()
    return inner, Faulty(inner, Faults(**faults), random=Random(seed), clock=clock or SimulatedClock())


async def keys(store: MemoryStore) -> list[str]:
    return [entry.key async for entry in store.list()]


async def test_without_faults_nothing_is_changed() -> None:
    inner, store = faulty()
    created = await store.create("k", b"1")
    assert isinstance(created, Applied)
    assert await store.create("k", b"1") == Rejected()
    assert isinstance(await store.replace("k", b"2", created.version), Applied)
    await store.put("j", b"3")
    assert (await store.get("k")).body == b"2"
    assert [entry.key async for entry in store.list()] == ["j", "k"]
    assert [entry.key async for entry in store.list(after="j")] == ["k"]
    await store.delete("j")
    assert await keys(inner) == ["k"]
    assert not store.hit
    assert store.info == inner.info


async def test_a_lost_request_never_happens() -> None:
    inner, store = faulty(lost_request=1.0)
    outcome = await store.create("k", b"1")
    assert isinstance(outcome, Unknown)
    assert str(outcome.error) == "create 'k': no answer (injected: lost_request)"
    await store.drain()
    assert await keys(inner) == []
    version = await inner.put("k", b"1")
    assert isinstance(await store.replace("k", b"2", version), Unknown)
    with pytest.raises(StoreUnavailable, match="put 'k': no answer"):
        await store.put("k", b"2")
    with pytest.raises(StoreUnavailable, match=r"delete \('k',\): no answer"):
        await store.delete("k")
    assert (await inner.get("k")).body == b"1"
    assert store.hit == {"lost_request": 4}


async def test_a_lost_reply_has_happened() -> None:
    inner, store = faulty(lost_reply=1.0)
    assert isinstance(await store.create("k", b"1"), Unknown)
    stored = await inner.get("k")
    assert stored.body == b"1"
    assert isinstance(await store.replace("k", b"2", stored.version), Unknown)
    assert (await inner.get("k")).body == b"2"
    with pytest.raises(StoreUnavailable):
        await store.put("j", b"")
    with pytest.raises(StoreUnavailable):
        await store.delete("k")
    assert await keys(inner) == ["j"]
    assert store.hit == {"lost_reply": 4}


async def test_a_late_write_lands_when_its_time_has_come() -> None:
    clock = SimulatedClock()
    inner, store = faulty(clock=clock, late_landing=1.0, late_seconds=10.0)
    assert isinstance(await store.create("k", b"1"), Unknown)
    assert await keys(inner) == []
    draining = asyncio.create_task(store.drain())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not draining.done()
    assert await keys(inner) == []
    clock.advance(10.0)
    await draining
    assert (await inner.get("k")).body == b"1"
    assert store.hit == {"late_landing": 1}


async def test_a_late_write_keeps_its_condition() -> None:
    clock = SimulatedClock()
    inner, store = faulty(clock=clock, late_landing=1.0, late_seconds=1.0)
    version = await inner.put("k", b"1")
    assert isinstance(await store.replace("k", b"late", version), Unknown)
    await asyncio.sleep(0)
    await inner.put("k", b"2")
    clock.advance(1.0)
    await store.drain()
    assert (await inner.get("k")).body == b"2"


async def test_closing_waits_for_late_writes() -> None:
    clock = SimulatedClock()
    inner, store = faulty(clock=clock, late_landing=1.0)
    await store.create("k", b"1")
    closing = asyncio.create_task(store.aclose())
    await asyncio.sleep(0)
    clock.advance(1.0)
    await closing
    assert "k" in inner._contents.objects


async def test_a_repeated_write_is_answered_for_its_second_copy() -> None:
    inner, store = faulty(repeated=1.0)
    assert await store.create("k", b"1") == Rejected()
    stored = await inner.get("k")
    assert stored.body == b"1"
    assert await store.replace("k", b"2", stored.version) == Rejected()
    assert (await inner.get("k")).body == b"2"
    second = await store.put("k", b"3")
    assert (await inner.get("k")).version == second
    await store.delete("k")
    assert store.hit == {"repeated": 4}


async def test_a_failed_read_says_nothing() -> None:
    inner, store = faulty(failed_read=1.0)
    await inner.put("k", b"1")
    with pytest.raises(StoreUnavailable, match=r"get 'k': no answer .injected: failed_read"):
        await store.get("k")
    with pytest.raises(StoreUnavailable, match="list ''"):
        [entry async for entry in store.list()]
    assert isinstance(await store.create("j", b""), Applied)
    assert store.hit == {"failed_read": 2}


async def test_every_request_takes_its_time() -> None:
    clock = SimulatedClock()
    _, store = faulty(clock=clock, max_latency=2.0)
    for call in (store.create("k", b""), store.get("k")):
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        assert not task.done()
        clock.advance(2.0)
        await task


async def misadventures(seed: int) -> tuple[list[str], dict[str, int]]:
    inner, store = faulty(seed, lost_request=0.2, lost_reply=0.2, repeated=0.2, failed_read=0.3)
    told = []
    for number in range(60):
        told.append(type(await store.create(f"k{number}", b"")).__name__)
        try:
            await store.get(f"k{number}")
            told.append("read")
        except (StoreUnavailable, NotFound) as error:
            told.append(type(error).__name__)
    return told + await keys(inner), dict(store.hit)


async def test_the_same_seed_gives_the_same_faults() -> None:
    assert await misadventures(7) == await misadventures(7)
    assert (await misadventures(7))[0] != (await misadventures(8))[0]


async def test_faults_happen_about_as_often_as_asked_for() -> None:
    _, store = faulty(3, lost_request=0.1, lost_reply=0.2, late_landing=0.0, repeated=0.3)
    for number in range(2000):
        await store.replace(f"k{number}", b"", Version("0"))
    assert store.hit["lost_request"] == pytest.approx(200, rel=0.25)
    assert store.hit["lost_reply"] == pytest.approx(400, rel=0.2)
    assert store.hit["repeated"] == pytest.approx(600, rel=0.2)
    assert "late_landing" not in store.hit


@pytest.mark.parametrize(
    ("faults", "complaint"),
    [
        ({"lost_request": 1.1}, r"lost_request is 1.1: give a number from 0 to 1"),
        ({"failed_read": -0.1}, "failed_read is -0.1"),
        ({"lost_request": 0.5, "lost_reply": 0.4, "repeated": 0.2}, "together are over 1"),
    ],
)
def test_impossible_shares_are_refused(faults: dict[str, float], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Faults(**faults)

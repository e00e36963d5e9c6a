"""Requests by verb and outcome, bytes, and USD."""

from __future__ import annotations

from random import Random

import pytest

from tenure.errors import InvalidKey, NotFound, StoreUnavailable
from tenure.store import Applied, Faults, Faulty, Metered, Prices, StoreInfo, Unknown, Version
from tenure.store.memory import MemoryStore
from tenure.store.providers import DELETES_PER_REQUEST, KEYS_PER_LISTING, PRICES


def store_at(provider: str) -> MemoryStore:
    store = MemoryStore()
    store.info = StoreInfo(provider=provider, url=f"{provider}://x")
    return store


async def exhaust(store: Metered, prefix: str = "") -> int:
    return len([entry async for entry in store.list(prefix)])


async def test_every_verb_and_outcome_is_counted() -> None:
    store = Metered(store_at("s3"))
    created = await store.create("k", b"12345")
    assert isinstance(created, Applied)
    await store.create("k", b"12")
    replaced = await store.replace("k", b"123", created.version)
    assert isinstance(replaced, Applied)
    await store.replace("k", b"1", created.version)
    await store.put("j", b"1234567")
    await store.get("k")
    await store.get("k", unless=replaced.version)
    with pytest.raises(NotFound):
        await store.get("missing")
    await exhaust(store)
    await exhaust(store, "empty/")
    await store.delete("k", "j")

    usage = store.usage()
    assert usage.requests == {
        "create": {"applied": 1, "rejected": 1},
        "replace": {"applied": 1, "rejected": 1},
        "put": {"ok": 1},
        "get": {"ok": 1, "not-modified": 1, "missing": 1},
        "list": {"ok": 2},
        "delete": {"ok": 1},
    }
    assert usage.total == 11
    assert usage.bytes_sent == 5 + 2 + 3 + 1 + 7
    assert usage.bytes_received == 3
    assert usage.usd == pytest.approx((5 * 0.005 + 3 * 0.0004 + 2 * 0.005) / 1000, rel=1e-12)


async def test_failures_are_counted_as_such() -> None:
    faults = Faults(lost_reply=1.0, failed_read=1.0)
    store = Metered(Faulty(store_at("s3"), faults, random=Random(1)))
    assert isinstance(await store.create("k", b"1"), Unknown)
    assert isinstance(await store.replace("k", b"1", Version("1")), Unknown)
    for call in (store.put("k", b"1"), store.get("k"), store.delete("k"), exhaust(store)):
        with pytest.raises(StoreUnavailable):
            await call
    assert store.usage().requests == {
        "create": {"unknown": 1},
        "replace": {"unknown": 1},
        "put": {"error": 1},
        "get": {"error": 1},
        "delete": {"error": 1},
        "list": {"error": 1},
    }
    assert store.usage().bytes_sent == 3


async def test_what_was_never_sent_is_not_counted() -> None:
    store = Metered(store_at("s3"))
    for call in (store.create("a b", b"1"), store.get(""), exhaust(store, "x")):
        with pytest.raises(InvalidKey):
            await call
    assert store.usage().total == 0
    assert store.usage().usd == 0


@pytest.mark.parametrize(("keys", "pages"), [(0, 1), (1, 1), (1000, 1), (1001, 2), (2500, 3)])
async def test_a_listing_is_counted_by_its_pages(keys: int, pages: int) -> None:
    inner = store_at("s3")
    for number in range(keys):
        await inner.put(f"{number:05}", b"")
    store = Metered(inner)
    assert await exhaust(store) == keys
    assert store.usage().requests == {"list": {"ok": pages}}


async def test_a_listing_that_is_left_early_is_counted_as_far_as_it_went() -> None:
    inner = store_at("s3")
    for number in range(1500):
        await inner.put(f"{number:05}", b"")
    store = Metered(inner)
    listing = store.list()
    await anext(listing)
    await listing.aclose()  # type: ignore[attr-defined]
    assert store.usage().requests == {"list": {"ok": 1}}


@pytest.mark.parametrize(
    ("provider", "keys", "requests"), [("s3", 1000, 1), ("s3", 1001, 2), ("gs", 3, 3), ("az", 256, 1), ("az", 257, 2)]
)
async def test_deletes_are_counted_by_the_batch(provider: str, keys: int, requests: int) -> None:
    store = Metered(store_at(provider))
    await store.delete(*(f"{number}" for number in range(keys)))
    assert store.usage().requests == {"delete": {"ok": requests}}


@pytest.mark.parametrize(
    ("provider", "usd_of_a_thousand"),
    [("s3", 0.0154), ("gs", 0.0154), ("az", 0.02), ("file", 0.0), ("memory", 0.0), ("other", 0.0)],
)
async def test_cost_goes_by_the_provider(provider: str, usd_of_a_thousand: float) -> None:
    store = Metered(store_at(provider))
    await store.create("k", b"")
    await store.put("k", b"")
    await exhaust(store)
    await store.get("k")
    await store.delete("k")
    assert store.usage().usd * 1000 == pytest.approx(usd_of_a_thousand, rel=1e-12)


async def test_own_prices() -> None:
    store = Metered(store_at("s3"), Prices(write=1000, read=100, list=10, delete=1))
    await store.put("k", b"")
    await store.get("k")
    await exhaust(store)
    await store.delete("k")
    assert store.usage().usd == pytest.approx(1 + 0.1 + 0.01 + 0.001, rel=1e-12)


async def test_a_snapshot_does_not_change() -> None:
    store = Metered(store_at("s3"))
    before = store.usage()
    await store.put("k", b"1")
    assert before.total == 0
    assert before.bytes_sent == 0
    assert store.usage().total == 1


async def test_info_and_close_pass_through() -> None:
    inner = store_at("az")
    store = Metered(inner)
    assert store.info == inner.info
    await store.aclose()
    with pytest.raises(Exception, match="is closed"):
        await inner.get("k")


def test_every_cloud_has_prices_and_limits() -> None:
    assert {"s3", "gs", "az"} <= set(PRICES)
    assert set(DELETES_PER_REQUEST) == set(KEYS_PER_LISTING) == {"s3", "gs", "az"}

"""The scripted store does what it says, and says what it did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.errors import AccessDenied, NoConditionalDelete, NotFound, StoreUnavailable
from tenure.store import Applied, Rejected, Stored, Unknown, Version
from tenure.store.memory import MemoryStore
from tests.support.clock import ScriptedClock
from tests.support.store import (
    ANY,
    CONDITIONAL,
    NAMED,
    WRITES,
    After,
    Hold,
    Request,
    ScriptedStore,
    WholeSeconds,
    yields,
)


async def body(store: ScriptedStore, key: str = "k") -> bytes | None:
    try:
        found = await store.inner.get(key)
    except NotFound:
        return None
    assert isinstance(found, Stored)
    return found.body


async def test_without_rules_it_is_the_store_that_it_wraps() -> None:
    store = ScriptedStore()
    created = await store.create("a/k", b"1")
    assert isinstance(created, Applied)
    replaced = await store.replace("a/k", b"2", created.version)
    assert isinstance(replaced, Applied)
    assert await store.get("a/k") == Stored(b"2", replaced.version)
    assert [entry.key async for entry in store.list("a/")] == ["a/k"]
    assert isinstance(await store.discard("a/k", replaced.version), Applied)
    await store.put("a/l", b"3")
    await store.delete("a/l", "a/m")
    assert await store.keys() == []
    assert store.log == [
        "create a/k", "replace a/k", "get a/k", "list a/", "discard a/k", "put a/l", "delete a/l",
    ]  # fmt: skip
    assert store.keys_of("delete") == ["a/l", "a/m"]
    assert [request.body for request in store.made(WRITES, "a/*")] == [b"1", b"2", b"", b"3", b""]
    assert (store.count(), store.count("get list"), store.count("put", "a/k")) == (7, 2, 0)
    await store.aclose()


@pytest.mark.parametrize(
    ("fate", "stored", "answer"),
    [
        ("ok", b"new", Applied),
        ("lost", None, Unknown),
        ("kept", b"new", Unknown),
        ("late", None, Unknown),
        ("twice", b"new", Rejected),
        ("denied", b"new", Rejected),
        ("rejected", None, Rejected),
        ("lied", None, Applied),
        ("truncated", b"new", Applied),
        (StoreUnavailable("closed for today"), None, Unknown),
    ],
)
async def test_what_a_create_meets(fate: Any, stored: bytes | None, answer: type) -> None:
    store = ScriptedStore(fate)
    assert isinstance(await store.create("k", b"new"), answer)
    assert await body(store) == stored
    assert isinstance(await store.create("k2", b"new"), Applied), "one request meets it"
    store.assert_script_was_met()


async def test_a_body_that_is_truncated_on_its_way() -> None:
    store = ScriptedStore()
    version = await store.put("k", b"1234")
    store.on("get", "k", "truncated")
    assert [await store.get("k") for _ in range(2)] == [Stored(b"12", version), Stored(b"1234", version)]


async def test_each_name_is_known_and_no_other() -> None:
    store = ScriptedStore(*NAMED)
    for number in range(len(NAMED)):
        await store.create(f"k{number}", b"")
    store.assert_script_was_met()
    with pytest.raises(ValueError, match="no fate 'lsot'"):
        ScriptedStore("lsot")
    store.always("get", ANY, _answering("kpet"))
    with pytest.raises(ValueError, match="no fate 'kpet'"):
        await store.get("k0")


def _answering(fate: Any) -> Any:
    async def act(request: Request) -> Any:
        return fate

    return act


async def test_what_does_not_answer_raises() -> None:
    store = ScriptedStore()
    version = await store.put("k", b"old")
    denied = AccessDenied("not you")
    for verb in ("get", "put", "delete", "list"):
        store.on(verb, ANY, "lost", denied)
    calls = (lambda: store.get("k"), lambda: store.put("k", b"new"), lambda: store.delete("k"), lambda: listing(store))
    for call in calls:
        with pytest.raises(StoreUnavailable, match=r"no answer \(lost\)"):
            await call()
        with pytest.raises(AccessDenied):
            await call()
    assert await body(store) == b"old"
    store.on("discard replace", "k", denied, ConnectionAbortedError())
    assert await store.discard("k", version) == Unknown(denied)
    with pytest.raises(ConnectionAbortedError):
        await store.replace("k", b"new", version)
    store.assert_script_was_met()


async def listing(store: ScriptedStore, prefix: str = "") -> list[str]:
    return [entry.key async for entry in store.list(prefix)]


async def test_what_is_late_lands_in_order() -> None:
    store = ScriptedStore("late", "late")
    await store.create("k", b"first")
    await store.create("k", b"second")
    assert await body(store) is None
    landed = await store.land()
    assert [type(outcome) for outcome in landed] == [Applied, Rejected]
    assert await body(store) == b"first"
    assert await store.land() == []


async def test_a_rule_holds_for_its_verbs_and_keys_from_the_nth_on() -> None:
    store = ScriptedStore()
    store.on("create replace", "log/*", "rejected", nth=2)
    answers = [await store.create(key, b"") for key in ("log/1", "other", "log/2", "log/3")]
    assert [type(answer) for answer in answers] == [Applied, Applied, Rejected, Applied]
    await store.put("log/4", b"")
    store.on("delete", "log/4", "lost")
    with pytest.raises(StoreUnavailable):
        await store.delete("log/1", "log/4")
    store.assert_script_was_met()


async def test_rules_for_the_same_requests_follow_each_other() -> None:
    store = ScriptedStore("lost")
    store.on(CONDITIONAL, "k", "rejected")
    assert isinstance(await store.create("k", b""), Unknown)
    assert isinstance(await store.create("k", b""), Rejected)
    assert isinstance(await store.create("k", b""), Applied)


async def test_always_is_until_it_is_stopped() -> None:
    store = ScriptedStore()
    await store.put("k", b"")
    down = store.always("get list", ANY, "lost", nth=2)
    await store.get("k")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.get("k")
    with pytest.raises(StoreUnavailable):
        await listing(store)
    down.stop()
    await store.get("k")
    assert await listing(store) == ["k"]


async def test_an_act_comes_before_the_request_and_may_decide_it() -> None:
    store = ScriptedStore()
    seen: list[bytes | None] = []

    async def rival(request: Request) -> None:
        seen.append(await body(store))
        await store.inner.put(request.key, b"theirs")

    store.on("create", "k", rival, _answering("kept"), _answering(AccessDenied("no")))
    assert isinstance(await store.create("k", b"ours"), Rejected)
    assert seen == [None]
    await store.inner.delete("k")
    assert isinstance(await store.create("k", b"ours"), Unknown)
    assert await body(store) == b"ours"
    assert isinstance(await store.create("k", b"again"), Unknown)
    assert isinstance(await store.create("k", b"again"), Rejected)


async def test_an_act_that_decides_nothing_leaves_it_to_the_next_rule() -> None:
    store = ScriptedStore()
    noted: list[str] = []

    async def note(request: Request) -> None:
        noted.append(str(request))

    store.always(ANY, ANY, note)
    store.on("create", ANY, "lost")
    assert isinstance(await store.create("k", b""), Unknown)
    assert noted == ["create k"]


@pytest.mark.parametrize(("fate", "answer"), [("ok", Applied), ("kept", Unknown)])
async def test_an_act_after_the_request_comes_before_its_answer(fate: str, answer: type) -> None:
    store = ScriptedStore()

    async def overwrite(request: Request) -> None:
        assert await body(store) == b"ours"
        await store.inner.put(request.key, b"theirs")

    store.on("create", "k", After(overwrite, fate))
    assert isinstance(await store.create("k", b"ours"), answer)
    assert await body(store) == b"theirs"


async def test_a_listing_shows_what_was_there_when_it_was_read() -> None:
    store = ScriptedStore()
    await store.put("a", b"")
    store.on("list", ANY, After(lambda request: store.inner.delete("a")))
    assert await listing(store) == ["a"]
    assert await listing(store) == []


async def test_requests_wait_until_they_are_released() -> None:
    store = ScriptedStore()
    hold = Hold()
    store.always("put", ANY, hold)
    puts = [asyncio.create_task(store.put(f"k{number}", b"")) for number in range(3)]
    await hold.reached(3)
    assert await store.keys() == []
    assert store.most_at_once["put"] == 3
    puts[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await puts[0]
    assert (hold.begun, hold.cancelled) == (3, 1)
    hold.release()
    await asyncio.gather(*puts[1:])
    assert await store.keys() == ["k1", "k2"]
    await store.put("k3", b"")
    assert store.most_at_once["put"] == 3


async def test_requests_overlap_if_they_yield() -> None:
    store = ScriptedStore()
    await store.put("k", b"")
    await asyncio.gather(*(store.get("k") for _ in range(4)))
    assert store.most_at_once["get"] == 1
    store.always("get", ANY, yields)
    await asyncio.gather(*(store.get("k") for _ in range(4)))
    assert store.most_at_once["get"] == 4


async def test_a_rule_that_nothing_came_for_fails_the_test() -> None:
    store = ScriptedStore("lost", "lost")
    store.always("get", "never/*", "lost")
    await store.create("k", b"")
    with pytest.raises(AssertionError) as caught:
        store.assert_script_was_met()
    assert "create replace *: 1 left, 1 requests seen" in str(caught.value)
    assert "get never/*: 1 left, 0 requests seen" in str(caught.value)
    assert "create k" in str(caught.value)


async def test_two_stores_may_share_what_is_stored() -> None:
    inner = MemoryStore()
    one, other = ScriptedStore("lost", inner=inner), ScriptedStore(inner=inner)
    await one.create("k", b"ours")
    assert isinstance(await other.create("k", b"theirs"), Applied)
    assert (await one.get("k")) == Stored(b"theirs", Version("1"))


async def test_a_bucket_cannot_remove_by_version() -> None:
    store = ScriptedStore(conditional_delete=False)
    version = await store.put("k", b"")
    assert not store.info.conditional_delete
    with pytest.raises(NoConditionalDelete):
        await store.discard("k", version)


async def test_the_end_of_a_script_and_a_way_beside_it() -> None:
    store = ScriptedStore("lost", "lost", conditional_delete=False)
    store.always("get", ANY, "lost")
    beside = store.beside()
    assert isinstance(await beside.create("k", b"1"), Applied)
    assert not beside.info.conditional_delete
    assert isinstance(await store.create("k", b"2"), Unknown)
    store.end_script()
    assert isinstance(await store.create("k", b"2"), Rejected)
    assert await store.get("k") == Stored(b"1", Version("1"))
    assert beside.log == ["create k"]


async def test_what_it_does_not_have_cannot_be_set() -> None:
    """A test that patches a store by hand would not be seen in its script."""
    with pytest.raises(AttributeError):
        ScriptedStore().get = None  # type: ignore[method-assign, assignment]


async def test_listings_in_whole_seconds() -> None:
    clock = ScriptedClock()
    clock.advance(0.5)
    store = ScriptedStore(inner=WholeSeconds(clock=clock))
    await store.put("k", b"")
    (entry,) = [entry async for entry in store.list()]
    assert entry.modified.timestamp() == await clock.now() - 0.5

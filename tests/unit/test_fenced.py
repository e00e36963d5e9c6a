"""Writes that a deposed leader cannot make: EF-8."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.coordinator.fenced import (
    MAX_HEADER_BYTES,
    Fence,
    FencedValue,
    FencedWriter,
    Header,
    join,
    read,
    split,
)
from tenure.coordinator.lead import Lead
from tenure.election.holding import Holding
from tenure.errors import ConfigError, Fenced, LeadershipLost, NotFenced, StoreUnavailable, WriteUnknown
from tenure.store import Store, Stored, open_store
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.support.store import ANY, CONDITIONAL, Act, After, Request, ScriptedStore
from tests.unit.leases import numbered

BODIES = [b"value", b"", b"\n", b"two\nlines\n", b"\n\n{}", bytes(range(256)), b'{"tenure":"fenced"}\nx']


def always() -> None:
    """It leads."""


def writer(store: Store, epoch: int, *, namespace: str = "default", leading: Any = always) -> FencedWriter:
    return FencedWriter(store, Fence(namespace, epoch), numbered(f"e{epoch}-"), leading)


@pytest.fixture(params=["memory", "directory"])
async def store(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> AsyncIterator[Store]:
    async with open_store(url_of(request.param)) as opened:
        yield opened


async def body_of(store: Store, key: str) -> bytes:
    stored = await store.get(key)
    assert isinstance(stored, Stored)
    return stored.body


# One leader


@pytest.mark.req("EF-8")
@pytest.mark.parametrize("body", BODIES)
async def test_the_users_bytes_stay_the_same_bytes(store: Store, body: bytes) -> None:
    first = writer(store, 1)
    await first.put("k", body)
    assert await read(store, "k") == FencedValue(body, 1, "default")
    assert await writer(store, 2).claim("k") == body
    assert await read(store, "k") == FencedValue(body, 2, "default")


async def test_a_value_can_be_changed_as_often_as_wanted(store: Store) -> None:
    first = writer(store, 1)
    for number in range(5):
        await first.put("k", b"%d" % number)
    assert await read(store, "k") == FencedValue(b"4", 1, "default")


async def test_the_same_bytes_twice_are_two_versions(store: Store) -> None:
    first = writer(store, 1)
    await first.put("k", b"same")
    before = await body_of(store, "k")
    await first.put("k", b"same")
    assert await body_of(store, "k") != before


async def test_what_was_never_written_is_none(store: Store) -> None:
    assert await read(store, "k") is None


@pytest.mark.req("EF-8")
async def test_an_absent_key_can_be_claimed_and_stays_without_a_value(store: Store) -> None:
    assert await writer(store, 2).claim("k") is None
    assert await read(store, "k") == FencedValue(None, 2, "default")
    with pytest.raises(Fenced):
        await writer(store, 1).put("k", b"late")
    await writer(store, 2).put("k", b"first")
    assert await read(store, "k") == FencedValue(b"first", 2, "default")


@pytest.mark.req("EF-8")
async def test_a_deleted_value_leaves_its_fence(store: Store) -> None:
    await writer(store, 2).put("k", b"value")
    await writer(store, 2).delete("k")
    assert await read(store, "k") == FencedValue(None, 2, "default")
    with pytest.raises(Fenced):
        await writer(store, 1).put("k", b"back again")
    assert await writer(store, 3).claim("k") is None
    await writer(store, 3).put("k", b"new")
    assert await read(store, "k") == FencedValue(b"new", 3, "default")


async def test_deleting_what_is_not_there_leaves_a_fence_too(store: Store) -> None:
    await writer(store, 2).delete("k")
    with pytest.raises(Fenced):
        await writer(store, 1).put("k", b"late")


# Two leaders


STALE: dict[str, Callable[[FencedWriter], Awaitable[Any]]] = {
    "put": lambda stale: stale.put("k", b"stale"),
    "claim": lambda stale: stale.claim("k"),
    "delete": lambda stale: stale.delete("k"),
}


@pytest.mark.req("EF-8")
@pytest.mark.parametrize("act", STALE.values(), ids=STALE)
@pytest.mark.parametrize("newer", ["put", "claim", "delete"])
async def test_a_stale_leader_is_fenced_and_the_object_untouched(
    store: Store, act: Callable[[FencedWriter], Awaitable[Any]], newer: str
) -> None:
    stale, current = writer(store, 1), writer(store, 2)
    await stale.put("k", b"mine")
    await STALE[newer](current)
    before = await store.get("k")
    with pytest.raises(Fenced, match="epoch 2") as raised:
        await act(stale)
    assert not raised.value.maybe_written
    assert await store.get("k") == before


@pytest.mark.req("EF-8")
@pytest.mark.parametrize("act", STALE.values(), ids=STALE)
async def test_a_stale_leader_that_had_read_already_is_fenced_by_the_swap(
    store: Store, act: Callable[[FencedWriter], Awaitable[Any]]
) -> None:
    """The claim comes between its reading and its writing: only the moved version can stop it."""
    await writer(store, 1).put("k", b"value")

    async def claim(request: Request) -> None:
        assert await writer(store, 2).claim("k") == b"value"

    overtaken = ScriptedStore(inner=store)
    overtaken.on("get", "k", After(claim))
    with pytest.raises(Fenced) as raised:
        await act(writer(overtaken, 1))
    assert raised.value.maybe_written  # a copy was sent; what came of it is not known for certain
    assert await read(store, "k") == FencedValue(b"value", 2, "default")


@pytest.mark.req("EF-8")
async def test_a_stale_create_is_fenced_by_the_claim_of_an_absent_key(store: Store) -> None:
    async def claim(request: Request) -> None:
        await writer(store, 2).claim("k")

    overtaken = ScriptedStore(claim, inner=store)
    with pytest.raises(Fenced):
        await writer(overtaken, 1).put("k", b"late")
    assert await read(store, "k") == FencedValue(None, 2, "default")


@pytest.mark.req("EF-8")
async def test_there_is_no_grace(store: Store) -> None:
    """EF-4's grace is for tasks, never for writes."""
    await writer(store, 6).claim("k")
    with pytest.raises(Fenced):
        await writer(store, 5).put("k", b"a moment ago I led")


async def test_a_newer_leader_takes_over_what_older_ones_wrote(store: Store) -> None:
    await writer(store, 1).put("k", b"one")
    await writer(store, 9).put("k", b"nine")
    assert await read(store, "k") == FencedValue(b"nine", 9, "default")


# What does not mix


@pytest.mark.parametrize("act", STALE.values(), ids=STALE)
async def test_epochs_of_another_namespace_are_not_compared(
    store: Store, act: Callable[[FencedWriter], Awaitable[Any]]
) -> None:
    await writer(store, 1, namespace="jobs").put("k", b"theirs")
    before = await store.get("k")
    for epoch in (1, 2):
        with pytest.raises(NotFenced, match="jobs"):
            await act(writer(store, epoch))
    assert await store.get("k") == before
    assert await read(store, "k") == FencedValue(b"theirs", 1, "jobs")


PLAIN = [b"", b"plain", b"{}\n", b'{"epoch":1}\nbody', b"\n", b"[1]\n", b'{"tenure":"other"}\n', b"\xff\xfe\n"]


@pytest.mark.parametrize("plain", [*PLAIN, b"x" * (MAX_HEADER_BYTES + 1) + b"\n", b"[" * 1000 + b"\n"])
async def test_a_plain_object_is_left_alone(store: Store, plain: bytes) -> None:
    await store.put("k", plain)
    for act in STALE.values():
        with pytest.raises(NotFenced):
            await act(writer(store, 9))
    with pytest.raises(NotFenced):
        await read(store, "k")
    assert await body_of(store, "k") == plain


@pytest.mark.parametrize("key", ["plugin=coordinator/namespace=default/state.json", "plugin=x"])
async def test_our_own_keys_are_not_for_users(store: Store, key: str) -> None:
    for call in (writer(store, 1).put(key, b""), writer(store, 1).claim(key), writer(store, 1).delete(key)):
        with pytest.raises(ConfigError, match="plugin="):
            await call
    with pytest.raises(ConfigError):
        await read(store, key)


# Whether it still leads


@pytest.mark.req("EF-8")
@pytest.mark.parametrize("act", STALE.values(), ids=STALE)
async def test_nothing_is_sent_by_whoever_knows_that_it_does_not_lead(
    act: Callable[[FencedWriter], Awaitable[Any]],
) -> None:
    def lost() -> None:
        raise LeadershipLost("over")

    store = ScriptedStore()
    with pytest.raises(LeadershipLost):
        await act(writer(store, 1, leading=lost))
    assert store.log == []


async def test_leadership_that_ended_while_reading_sends_nothing() -> None:
    store = MemoryStore()
    asked = []

    def leads_once() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise LeadershipLost("over")

    with pytest.raises(LeadershipLost):
        await writer(store, 1, leading=leads_once).put("k", b"late")
    assert [entry async for entry in store.list()] == []


@pytest.mark.req("EF-8")
async def test_through_a_leadership() -> None:
    store, clock = MemoryStore(), SimulatedClock()

    def lead_of(epoch: int) -> Lead:
        return Lead(
            namespace="default",
            worker_id="ada",
            epoch=epoch,
            grant_id=f"g{epoch}",
            holding=Holding(clock.read(), 14.85, 10.0),
            clock=clock,
            store=store,
            draw_id=numbered(f"l{epoch}-"),
        )

    old, new = lead_of(1), lead_of(2)
    await old.put("k", b"one")
    assert await new.claim("k") == b"one"
    with pytest.raises(Fenced):
        await old.put("k", b"two")  # its clock says that it leads, and it is wrong
    await new.delete("k")
    assert await new.get("k") == FencedValue(None, 2, "default")
    clock.advance(10)
    with pytest.raises(LeadershipLost):
        await new.put("k", b"late")
    assert await read(store, "k") == FencedValue(None, 2, "default")


# Stores that do not say


def beating(store: ScriptedStore) -> Act:
    """Another write comes before ours."""

    async def beaten(request: Request) -> str:
        header = Header(namespace="default", epoch=1, write_id=f"other-{store.count(CONDITIONAL)}")
        await store.inner.put(request.key, join(header, b"other"))
        return "rejected"

    return beaten


@pytest.mark.parametrize("fate", ["kept", "twice", "lost"])
async def test_a_write_whose_answer_was_lost_is_settled(fate: str) -> None:
    store = ScriptedStore(fate)
    await writer(store, 1).put("k", b"value")
    assert await read(store, "k") == FencedValue(b"value", 1, "default")


@pytest.mark.parametrize("fate", ["kept", "lost"])
async def test_a_write_that_cannot_be_settled_says_that_it_may_have_happened(fate: str) -> None:
    store = ScriptedStore(fate)
    store.always("get", ANY, "lost", nth=2)
    with pytest.raises(WriteUnknown, match="may have happened"):
        await writer(store, 1).put("k", b"value")


async def test_a_write_that_never_gets_an_answer_ends() -> None:
    store = ScriptedStore(*["lost"] * 100)
    with pytest.raises(WriteUnknown):
        await writer(store, 1).put("k", b"value")
    assert store.count(CONDITIONAL) <= 4


async def test_a_store_that_cannot_be_read_is_a_failed_request() -> None:
    store = ScriptedStore()
    store.always("get", ANY, "lost")
    with pytest.raises(StoreUnavailable) as raised:
        await writer(store, 1).put("k", b"value")
    assert not isinstance(raised.value, WriteUnknown)  # nothing was sent
    assert store.count(CONDITIONAL) == 0


async def test_a_write_that_was_beaten_is_made_again() -> None:
    store = ScriptedStore()
    store.on(CONDITIONAL, ANY, *[beating(store)] * 2)
    await writer(store, 1).put("k", b"value")
    assert await read(store, "k") == FencedValue(b"value", 1, "default")


async def test_a_claim_that_was_beaten_claims_what_is_there_now() -> None:
    store = ScriptedStore()
    store.on(CONDITIONAL, ANY, "ok", beating(store))
    await writer(store, 1).put("k", b"before")
    assert await writer(store, 2).claim("k") == b"other"
    assert await read(store, "k") == FencedValue(b"other", 2, "default")


async def test_a_write_that_is_always_beaten_ends() -> None:
    store = ScriptedStore()
    store.always(CONDITIONAL, ANY, beating(store))
    with pytest.raises(WriteUnknown):
        await writer(store, 1).put("k", b"value")
    assert store.count(CONDITIONAL) < 100


# The envelope


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=64),
    st.integers(1, 10**18),
    st.booleans(),
    st.binary(max_size=200),
)
def test_an_envelope_gives_back_what_was_put_in(namespace: str, epoch: int, absent: bool, body: bytes) -> None:
    header = Header(namespace=namespace, epoch=epoch, write_id="f" * 32, absent=absent)
    sealed = join(header, body)
    assert split("k", sealed) == (header, body)
    assert sealed.index(b"\n") <= MAX_HEADER_BYTES


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise_anything_else(stored: bytes) -> None:
    try:
        header, _ = split("k", stored)
    except NotFenced:
        return
    assert isinstance(header, Header)


def test_the_header_is_one_line_that_people_can_read() -> None:
    sealed = join(Header(namespace="a\nb", epoch=7, write_id="w"), b"x")
    line, _, body = sealed.partition(b"\n")
    assert body == b"x"
    assert msgspec.json.decode(line) == {
        **{"tenure": "fenced", "namespace": "a\nb", "epoch": 7},
        **{"writeId": "w", "absent": False, "schemaVersion": 1},
    }

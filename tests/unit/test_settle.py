"""Every way in which a write without a decisive answer is settled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import pytest

from tenure.errors import NotFound, StoreUnavailable
from tenure.store import (
    Applied,
    Attempt,
    Faults,
    Faulty,
    Rejected,
    Remembers,
    Settled,
    Store,
    Stored,
    Unknown,
    Version,
    commit,
    settle,
)
from tenure.store.memory import MemoryStore
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, CONDITIONAL, After, Request, ScriptedStore

LAST, EVERY = Remembers.LAST_WRITE, Remembers.EVERY_WRITE


def ids_in(body: bytes) -> list[str]:
    return body.decode().split()


def numbered() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"w{next(numbers)}"


async def write(
    store: Store,
    expected: Version | None = None,
    *,
    remembers: Remembers = LAST,
    trail: str = "",
    clock: ScriptedClock | None = None,
    tries: int = 4,
) -> Settled:
    """Commit the id of this write, after those in `trail`."""
    return await commit(
        store,
        Attempt("k", expected),
        lambda write_id: f"{trail} {write_id}".strip().encode(),
        write_ids=ids_in,
        remembers=remembers,
        draw_id=numbered(),
        clock=clock or ScriptedClock(),
        tries=tries,
    )


async def test_a_decisive_yes_takes_one_request() -> None:
    store = ScriptedStore("ok")
    settled = await write(store)
    assert (settled.outcome, settled.write_id, settled.stored) == (Applied(Version("1")), "w1", None)
    assert settled.attempt == Attempt("k", None, ["w1"], [Applied(Version("1"))])
    assert (store.count(CONDITIONAL), store.count("get")) == (1, 0)


@pytest.mark.parametrize("conditional", ["create", "replace"])
async def test_a_lost_reply_is_found_by_reading_back(conditional: str) -> None:
    store = ScriptedStore("kept")
    expected = await store.put("k", b"old") if conditional == "replace" else None
    settled = await write(store, expected)
    assert settled.outcome == Applied((await store.get("k")).version)
    assert settled.write_id == "w1"
    assert settled.stored == await store.get("k")
    assert store.count(CONDITIONAL) == 1


@pytest.mark.parametrize("conditional", ["create", "replace"])
async def test_a_lost_request_is_sent_again_under_a_new_id(conditional: str) -> None:
    store = ScriptedStore("lost", "lost", "ok")
    expected = await store.put("k", b"old") if conditional == "replace" else None
    clock = ScriptedClock()
    settled = await write(store, expected, clock=clock)
    assert isinstance(settled.outcome, Applied)
    assert settled.write_id == "w3"
    assert [request.body for request in store.made(CONDITIONAL)] == [b"w1", b"w2", b"w3"]
    assert clock.slept == [0.05]


async def test_a_copy_that_lands_before_the_second_is_sent_is_found() -> None:
    store = ScriptedStore("late", "lost")
    settled = await write(store, clock=ScriptedClock(store.land))
    assert isinstance(settled.outcome, Applied)
    assert settled.write_id == "w1"  # the first copy, although the second was sent last
    assert (await store.get("k")).body == b"w1"


async def test_a_copy_that_lands_after_the_second_cannot_be_applied() -> None:
    store = ScriptedStore("late", "ok")
    settled = await write(store)
    assert settled.write_id == "w2"
    await store.land()
    assert (await store.get("k")).body == b"w2"
    assert settled.outcome == Applied((await store.get("k")).version)


async def test_of_two_late_copies_one_is_applied() -> None:
    store = ScriptedStore("late", "late", "late", "late", "late")
    expected = await store.put("k", b"old")
    settled = await write(store, expected, clock=ScriptedClock(store.land))
    assert settled.write_id == "w1"
    await store.land()
    assert (await store.get("k")).body == b"w1"


@pytest.mark.parametrize("remembers", [LAST, EVERY])
async def test_a_rejection_by_our_own_first_copy_is_no_rejection(remembers: Remembers) -> None:
    store = ScriptedStore("twice")
    settled = await write(store, remembers=remembers)
    assert settled.write_id == "w1"
    assert settled.outcome == Applied((await store.get("k")).version)


async def test_a_lost_race_is_rejected_where_every_write_is_remembered() -> None:
    store = ScriptedStore()
    old = await store.put("k", b"old")
    await store.put("k", b"old theirs")
    settled = await write(store, old, remembers=EVERY)
    assert settled.outcome == Rejected()
    assert settled.write_id is None
    assert settled.stored == await store.get("k")
    assert store.count("get") == 2


async def test_a_lost_race_is_unknown_where_only_the_last_write_is_remembered() -> None:
    store = ScriptedStore()
    old = await store.put("k", b"old")
    await store.put("k", b"theirs")
    settled = await write(store, old, remembers=LAST)
    assert isinstance(settled.outcome, Unknown)
    assert "whether ours came before it is not recorded" in str(settled.outcome.error)
    assert settled.stored == await store.get("k")
    assert store.count("get") == 2  # reading again would show no more


async def test_a_write_that_was_overwritten_is_found_in_the_trail() -> None:
    store = ScriptedStore("kept")
    old = await store.put("k", b"old")
    attempt = Attempt("k", old, ["w1"])
    await store.replace("k", b"old w1", old)
    version = await store.put("k", b"old w1 theirs")
    settled = await settle(store, attempt, write_ids=ids_in, remembers=EVERY, clock=ScriptedClock())
    assert (settled.outcome, settled.write_id) == (Applied(version), "w1")


async def test_a_write_that_was_overwritten_without_a_trace_is_unknown() -> None:
    store = ScriptedStore("kept")
    old = await store.put("k", b"old")
    await store.replace("k", b"w1", old)
    await store.put("k", b"theirs")
    settled = await settle(store, Attempt("k", old, ["w1"]), write_ids=ids_in, remembers=LAST, clock=ScriptedClock())
    assert isinstance(settled.outcome, Unknown)


async def test_a_create_that_found_the_key_taken() -> None:
    store = ScriptedStore()
    await store.put("k", b"theirs")
    assert (await write(store, None, remembers=EVERY)).outcome == Rejected()
    assert isinstance((await write(store, None, remembers=LAST)).outcome, Unknown)


async def test_a_store_that_cannot_be_read_is_asked_again() -> None:
    store = ScriptedStore("kept")
    store.on("get", ANY, *["lost"] * 3)
    clock = ScriptedClock()
    settled = await write(store, clock=clock)
    assert settled.write_id == "w1"
    assert clock.slept == [0.05, 0.1, 0.2]
    assert store.count(CONDITIONAL) == 1  # nothing is sent again while it is not known to be pending


async def test_a_store_that_stays_unreadable_leaves_it_unknown() -> None:
    store = ScriptedStore("kept")
    store.always("get", ANY, StoreUnavailable("unreadable"))
    settled = await write(store)
    assert isinstance(settled.outcome, Unknown)
    assert str(settled.outcome.error) == "unreadable"
    assert store.count("get") == 5
    assert store.count(CONDITIONAL) == 1


async def test_a_key_that_vanished_is_unknown() -> None:
    store = ScriptedStore()
    old = await store.put("k", b"old")
    await store.delete("k")
    settled = await write(store, old, remembers=EVERY)
    assert isinstance(settled.outcome, Unknown)
    assert isinstance(settled.outcome.error, NotFound)


async def test_the_last_copy_is_read_back_too() -> None:
    store = ScriptedStore("lost", "lost", "lost", "lost", "kept")
    settled = await write(store)
    assert settled.write_id == "w5"
    assert isinstance(settled.outcome, Applied)


async def test_a_store_that_takes_nothing_leaves_it_pending() -> None:
    store = ScriptedStore(*["lost"] * 9)
    old = await store.put("k", b"old")
    settled = await write(store, old)
    assert isinstance(settled.outcome, Unknown)
    assert settled.outcome.error is settled.attempt.trouble, "what it said to the write"
    assert settled.stored == await store.get("k")
    assert store.count(CONDITIONAL) == 5


async def test_without_resending_a_pending_write_stays_unknown() -> None:
    store = ScriptedStore("late")
    old = await store.put("k", b"old")
    await store.replace("k", b"w1", old)
    attempt = Attempt("k", old, ["w1"])
    settled = await settle(store, attempt, write_ids=ids_in, clock=ScriptedClock())
    assert isinstance(settled.outcome, Unknown)
    assert attempt.ids == ["w1"]
    assert store.count("get") == 1
    await store.land()
    assert (await settle(store, attempt, write_ids=ids_in, clock=ScriptedClock())).write_id == "w1"


async def test_without_resending_an_absent_create_stays_unknown() -> None:
    store = ScriptedStore()
    settled = await settle(store, Attempt("k", None, ["w1"]), write_ids=ids_in, clock=ScriptedClock())
    assert isinstance(settled.outcome, Unknown)
    assert isinstance(settled.outcome.error, NotFound)


async def test_no_tries_is_no_verdict() -> None:
    settled = await settle(
        ScriptedStore(), Attempt("k", None, ["w1"]), write_ids=ids_in, clock=ScriptedClock(), tries=0
    )
    assert isinstance(settled.outcome, Unknown)
    assert "nothing was read back for 'k'" in str(settled.outcome.error)


async def test_an_id_is_recorded_before_it_is_sent() -> None:
    async def cut_off(request: Request) -> None:
        raise ConnectionAbortedError  # as a cancelled call does: sent, and never answered

    attempt = Attempt("k", None, ["w0"])
    store = ScriptedStore(After(cut_off))
    with pytest.raises(ConnectionAbortedError):
        await settle(store, attempt, write_ids=ids_in, resend=str.encode, draw_id=numbered(), clock=ScriptedClock())
    assert attempt.ids == ["w0", "w1"]
    assert (await settle(store, attempt, write_ids=ids_in, clock=ScriptedClock())).write_id == "w1"


async def test_a_body_that_cannot_be_decoded_proves_nothing() -> None:
    store = ScriptedStore()
    await store.put("k", b"\xff")
    settled = await commit(
        store, Attempt("k", None), str.encode, write_ids=lambda body: (), remembers=EVERY, clock=ScriptedClock()
    )
    assert settled.outcome == Rejected()


@pytest.mark.parametrize("seed", range(40))
async def test_at_most_one_copy_is_ever_applied(seed: int) -> None:
    """Whatever is lost, late or repeated: one attempt makes at most one change, and what is said of it is true."""
    inner = MemoryStore()
    old = await inner.put("k", b"old")
    faults = Faults(lost_request=0.2, lost_reply=0.2, late_landing=0.3, repeated=0.2, failed_read=0.3)
    store = Faulty(inner, faults, random=Random(seed), clock=ScriptedClock())
    settled = await write(store, old)
    await store.drain()
    found = await inner.get("k")
    assert isinstance(found, Stored)
    assert int(found.version.e_tag) - int(old.e_tag) <= 1, "a memory store counts its writes"
    if isinstance(settled.outcome, Applied):
        assert settled.write_id is not None
        assert found.body == settled.write_id.encode()


# Deadlines.


def slow(store: ScriptedStore) -> ScriptedClock:
    """A clock on which each request takes a second."""
    clock = ScriptedClock()

    async def takes_a_second(request: Request) -> None:
        clock.advance(1.0)

    store.always("get create replace", ANY, takes_a_second)
    return clock


@pytest.mark.parametrize(
    ("within", "sent", "reads"),
    [(None, 5, 5), (0.5, 1, 0), (1.5, 1, 1), (2.5, 2, 1), (3.5, 2, 2), (4.5, 3, 2), (99.0, 5, 5)],
)
async def test_nothing_is_begun_after_the_deadline(within: float | None, sent: int, reads: int) -> None:
    """Each is a request of one second: send, read, send, read, …"""
    store = ScriptedStore()
    clock = slow(store)
    store.always(CONDITIONAL, ANY, "lost")
    old = await store.put("k", b"old")
    settled = await commit(
        store, Attempt("k", old), str.encode, write_ids=ids_in, draw_id=numbered(), clock=clock, within=within
    )
    assert isinstance(settled.outcome, Unknown)
    assert (store.count(CONDITIONAL), store.count("get")) == (sent, reads)
    assert settled.attempt.ids == [f"w{number}" for number in range(1, sent + 1)]


async def test_the_last_copy_is_not_read_back_after_the_deadline() -> None:
    store = ScriptedStore()
    clock = slow(store)
    store.on(CONDITIONAL, ANY, "lost", "lost")
    settled = await commit(
        store,
        Attempt("k", None),
        str.encode,
        write_ids=ids_in,
        draw_id=numbered(),
        clock=clock,
        tries=1,
        within=2.5,
    )
    assert isinstance(settled.outcome, Unknown)
    assert (store.count(CONDITIONAL), store.count("get")) == (2, 1)


async def test_an_attempt_that_was_handed_in_keeps_every_id_and_answer() -> None:
    store = ScriptedStore("lost", "late", "ok")
    attempt = Attempt("k", None)
    settled = await commit(store, attempt, str.encode, write_ids=ids_in, draw_id=numbered(), clock=ScriptedClock())
    assert settled.attempt is attempt
    assert attempt.ids == ["w1", "w2", "w3"]
    assert [type(answer) for answer in attempt.answers] == [Unknown, Unknown, Applied]
    assert Attempt("k", None).ids == []  # no list is shared between attempts


@pytest.mark.parametrize("exists", [False, True])
async def test_a_store_that_says_why_it_takes_nothing_is_quoted(exists: bool) -> None:
    """Reading back shows that nothing is there. Why that is, the answer to the write had said."""

    store = ScriptedStore()
    store.always(CONDITIONAL, ANY, StoreUnavailable("no space left: free some"))
    version = await store.put("k", b"before") if exists else None
    settled = await commit(store, Attempt("k", version), str.encode, write_ids=lambda body: [], clock=ScriptedClock())
    assert isinstance(settled.outcome, Unknown)
    assert str(settled.outcome.error) == "no space left: free some"

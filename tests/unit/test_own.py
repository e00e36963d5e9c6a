"""Creating what nobody else creates: when it is there, and when it has to be sent again."""

from __future__ import annotations

import pytest

from tenure.entropy import new_id
from tenure.errors import StoreUnavailable
from tenure.plugins.poll.book import PollBook
from tenure.store import Applied, Unknown
from tenure.store.own import create_own
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, ScriptedStore


@pytest.mark.parametrize("fate", ["ok", "denied", "twice"])
async def test_it_is_there(fate: str) -> None:
    store = ScriptedStore(fate)
    outcome = await create_own(store, "ours", b"body")
    assert isinstance(outcome, Applied)
    stored = await store.inner.get("ours")
    assert outcome.version.matches(stored.version)


@pytest.mark.parametrize(
    ("fate", "read", "says"),
    [
        ("rejected", "ok", "answered that it is there already, and it is not"),  # WA-8
        ("rejected", StoreUnavailable("no bucket"), "no bucket"),
        ("denied", StoreUnavailable("no bucket"), "no bucket"),
        ("lost", "ok", "no answer"),
    ],
)
async def test_it_has_to_be_sent_again(fate: str, read: str | Exception, says: str) -> None:
    store = ScriptedStore(fate)
    store.on("get", ANY, read)
    outcome = await create_own(store, "ours", b"body")
    assert isinstance(outcome, Unknown)
    assert says in str(outcome.error)
    assert isinstance(await create_own(store, "ours", b"body"), Applied)


async def test_a_note_for_a_worker_is_there_before_it_counts_as_told() -> None:
    store = ScriptedStore("rejected", "ok", "ok")
    book = PollBook(store, "p", clock=ScriptedClock(), draw_id=new_id)
    assert [await book.tell("uid", "job", 1) for _ in range(3)] == [False, True, True]

"""A quarantine that two processes understand differently would lose records: the second one is refused."""

from __future__ import annotations

import pytest

from tenure.errors import ConfigConflict, Damaged, SchemaTooNew, StoreError
from tenure.plugins.ttl.agreed import SETTINGS, agree
from tenure.store import Store
from tenure.store.memory import MemoryStore
from tests.support.store import ANY, ScriptedStore
from tests.unit.leases import numbered

draw_id = numbered("w")


async def say(store: Store, quarantine: float) -> None:
    await agree(store, quarantine, resource="sessions", draw_id=draw_id)


async def test_the_first_one_decides_and_others_must_agree() -> None:
    store = MemoryStore()
    await say(store, 60.0)
    await say(store, 60.0)
    with pytest.raises(ConfigConflict, match=r"quarantine is 30 s here, and 60 s where the TTL of 'sessions'"):
        await say(store, 30.0)
    await say(store, 60.0)


async def test_a_write_whose_answer_was_lost_is_found_again() -> None:
    await say(ScriptedStore("kept"), 60.0)


async def test_where_nothing_can_be_known_nothing_begins() -> None:
    store = ScriptedStore()
    store.always("create", ANY, "lost")
    with pytest.raises(StoreError, match="no answer"):
        await say(store, 60.0)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", Damaged),
        (b'{"tenure":"ttl","schemaVersion":1,"writeId":"w","quarantineMs":0}', Damaged),
        (b'{"tenure":"ttl","schemaVersion":99,"writeId":"w"}', SchemaTooNew),
    ],
)
async def test_what_is_damaged_or_newer_is_left_alone(body: bytes, error: type[Exception]) -> None:
    store = MemoryStore()
    await store.put(SETTINGS, body)
    with pytest.raises(error, match=r"settings\.json"):
        await say(store, 60.0)
    assert [row.key async for row in store.list()] == [SETTINGS]

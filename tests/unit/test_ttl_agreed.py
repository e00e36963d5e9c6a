"""A quarantine that two processes understand differently would lose records: the second one is refused."""

from __future__ import annotations

import pytest

from tenure.errors import ConfigConflict, Damaged, SchemaTooNew, StoreError, StoreUnavailable
from tenure.plugins.ttl.agreed import SETTINGS, agree
from tenure.store import Outcome, Unknown
from tenure.store.memory import MemoryStore
from tests.unit.leases import numbered

draw_id = numbered("w")


async def say(store: MemoryStore, quarantine: float) -> None:
    await agree(store, quarantine, resource="sessions", draw_id=draw_id)


class Doubtful(MemoryStore):
    """Keeps the answer to the first write to itself."""

    lands = True
    answers = 0

    async def create(self, key: str, body: bytes) -> Outcome:
        outcome = await super().create(key, body) if self.lands else None
        if self.answers and outcome is not None:
            self.answers -= 1
            return outcome
        return Unknown(StoreUnavailable("no answer"))


async def test_the_first_one_decides_and_others_must_agree() -> None:
    store = MemoryStore()
    await say(store, 60.0)
    await say(store, 60.0)
    with pytest.raises(ConfigConflict, match=r"quarantine is 30 s here, and 60 s where the TTL of 'sessions'"):
        await say(store, 30.0)
    await say(store, 60.0)


async def test_a_write_whose_answer_was_lost_is_found_again() -> None:
    await say(Doubtful(), 60.0)


async def test_where_nothing_can_be_known_nothing_begins() -> None:
    store = Doubtful()
    store.lands = False
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

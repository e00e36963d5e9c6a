"""How often static coordinators were started: what a newer tenure wrote there is not written over."""

from __future__ import annotations

import json

import pytest

from tenure.errors import StoreError
from tenure.plugins.supervisor.static import StaticPost
from tenure.plugins.supervisor.status import folder_of
from tenure.store import Stored
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.leases import numbered

KEY = folder_of("kids") + "static/starts.json"


def post(store: MemoryStore) -> StaticPost:
    return StaticPost(store, "kids", "a", clock=SimulatedClock(), draw_id=numbered("w"))


async def stored(store: MemoryStore) -> bytes:
    found = await store.get(KEY)
    assert isinstance(found, Stored)
    return found.body


async def test_it_says_of_which_version_it_is() -> None:
    store = MemoryStore()
    assert await post(store).raised_base() == 1
    assert json.loads(await stored(store))["schemaVersion"] == 1


async def test_one_without_a_version_is_of_the_first() -> None:
    store = MemoryStore()
    await store.put(KEY, b'{"base":7,"writeIds":["w"]}')
    assert await post(store).raised_base() == 8


@pytest.mark.parametrize("newer", [b'{"schemaVersion":2,"base":7}', b'{"schemaVersion":2,"bases":{"a":7}}'])
async def test_a_newer_one_is_left_alone(newer: bytes) -> None:
    store = MemoryStore()
    await store.put(KEY, newer)
    for ask in (post(store).raised_base, post(store).base):
        with pytest.raises(StoreError, match=r"newer tenure \(schemaVersion 2\): update this process"):
            await ask()
    assert await stored(store) == newer

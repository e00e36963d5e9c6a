"""What every process of a namespace must agree on, and who is refused."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tenure.coordinator.agreement import Agreement, agree
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.layout import METADATA, STATE
from tenure.election.records import Metadata, decode, encode
from tenure.errors import AccessDenied, ConfigConflict, SchemaTooNew, StoreUnavailable
from tenure.store import Store, Stored
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.support.store import ANY, Request, ScriptedStore
from tests.unit.leases import held, numbered


async def meet(store: Store, **settings: Any) -> Agreement:
    return await agree(store, "default", CoordinatorConfig(**settings), SimulatedClock(), numbered("w"))


async def stored(store: Store) -> Metadata:
    answer = await store.get(METADATA)
    assert isinstance(answer, Stored)
    metadata = decode(answer.body, Metadata)
    assert isinstance(metadata, Metadata)
    return metadata


@pytest.mark.req("EL-8")
async def test_the_first_founds_the_namespace() -> None:
    store = MemoryStore()
    agreement = await meet(store)
    assert agreement.longest_lease == 60.0
    assert agreement.differences == []
    metadata = await stored(store)
    assert metadata.created_at
    assert (metadata.schema_version, metadata.drift) == (1, 0.01)
    assert (metadata.longest_lease_ms, metadata.trim_delay_ms) == (60_000, 120_000)
    assert metadata.timing == {"lease_timeout": 15_000, "heartbeat_interval": 5_000, "worker_timeout": 20_000}


async def test_the_metadata_has_the_names_that_others_read() -> None:
    store = MemoryStore()
    await meet(store)
    answer = await store.get(METADATA)
    assert isinstance(answer, Stored)
    assert json.loads(answer.body).keys() >= {"createdAt", "schemaVersion", "drift", "longestLeaseMs", "trimDelayMs"}


async def test_others_find_it_as_it_is() -> None:
    store = MemoryStore()
    await meet(store)
    before = await stored(store)
    assert (await meet(store)).differences == []
    assert await stored(store) == before


@pytest.mark.req("EL-8")
async def test_whoever_differs_in_timing_may_take_part_and_is_told() -> None:
    store = MemoryStore()
    await meet(store, longest_lease=60)
    agreement = await meet(store, lease_timeout=30, heartbeat_interval=6, worker_timeout=40)
    assert agreement.longest_lease == 60.0  # the namespace's, not ours: others wait for it
    assert agreement.differences == [
        ("lease_timeout", "30 s", "15 s"),
        ("heartbeat_interval", "6 s", "5 s"),
        ("worker_timeout", "40 s", "20 s"),
    ]


CONFLICTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "drift": ({}, {"drift": 0.02}),
    "longest_lease": ({}, {"longest_lease": 90}),
    "trim_delay": ({}, {"trim_delay": 600}),
    "lease_timeout": (
        {"longest_lease": 16},
        {"lease_timeout": 17, "heartbeat_interval": 5, "worker_timeout": 40},
    ),
}


@pytest.mark.parametrize("field", CONFLICTS)
async def test_whoever_breaks_the_agreement_is_refused_by_name(field: str) -> None:
    founder, other = CONFLICTS[field]
    store = MemoryStore()
    await meet(store, **founder)
    before = await stored(store)
    with pytest.raises(ConfigConflict, match=rf"^{field} is .*'default'"):
        await meet(store, **other)
    assert await stored(store) == before


async def test_what_is_left_to_the_default_is_taken_over() -> None:
    store = MemoryStore()
    await meet(store, longest_lease=90, trim_delay=600)
    assert (await meet(store)).longest_lease == 90.0


# Damage and newer forms


@pytest.mark.parametrize(("given", "trim_delay"), [({}, 200.0), ({"trim_delay": 600}, 600.0)])
async def test_what_is_founded_anew_keeps_to_the_lease_that_is_held(given: dict[str, Any], trim_delay: float) -> None:
    """Logs were kept for two of the founder's longest leases, which may be shorter."""
    store = MemoryStore()
    await store.put(STATE, encode(held(lease_duration_ms=100_000)))
    agreement = await meet(store, **given)
    assert (agreement.longest_lease, agreement.trim_delay) == (100.0, trim_delay)
    assert (await stored(store)).trim_delay_ms == trim_delay * 1000


@pytest.mark.parametrize("body", [b"", b"junk", b'{"writeId":"w","drift":5}', b"[" * 1000])
async def test_damaged_metadata_is_written_anew(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    await store.put(METADATA, body)
    with caplog.at_level(logging.WARNING, "tenure.coordinator"):
        assert (await meet(store)).longest_lease == 60.0
    assert (await stored(store)).longest_lease_ms == 60_000
    assert "damaged" in caplog.text


async def test_a_newer_tenure_is_not_joined_and_not_overwritten() -> None:
    store = MemoryStore()
    await store.put(METADATA, b'{"schemaVersion":2}')
    with pytest.raises(SchemaTooNew, match="update this process"):
        await meet(store)
    answer = await store.get(METADATA)
    assert isinstance(answer, Stored)
    assert answer.body == b'{"schemaVersion":2}'


# Stores that do not say


@pytest.mark.parametrize("fates", [("kept",), ("lost",), ("lost", "kept"), ("rejected",)])
async def test_a_founding_without_an_answer_is_settled(fates: tuple[str, ...]) -> None:
    store = ScriptedStore(*fates)
    assert (await meet(store)).longest_lease == 60.0
    assert (await stored(store)).longest_lease_ms == 60_000


async def test_of_two_founders_one_is_followed() -> None:
    async def beaten(request: Request) -> None:
        await meet(store.inner, longest_lease=90)

    store = ScriptedStore(beaten)
    assert (await meet(store)).longest_lease == 90.0


async def test_a_store_that_fails_for_a_moment_is_asked_again() -> None:
    store = ScriptedStore()
    store.on("get", ANY, "lost", "lost")
    assert (await meet(store)).longest_lease == 60.0
    store.assert_script_was_met()


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_a_store_that_fails_for_good_is_not_asked_for_ever(verb: str) -> None:
    store = ScriptedStore()
    store.always(verb, ANY, "lost")
    with pytest.raises(StoreUnavailable, match="'default'"):
        await meet(store)
    assert store.count() < 20


async def test_what_another_try_cannot_mend_is_raised_at_once() -> None:
    store = ScriptedStore()
    store.always("get", ANY, AccessDenied("no"))
    with pytest.raises(AccessDenied):
        await meet(store)
    assert store.count() == 1

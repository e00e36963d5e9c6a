"""`tenure step-down` and `tenure transfer`: asked from outside, followed or refused by the leader."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenure.coordinator.layout import STATE, namespace_store
from tenure.coordinator.reading import read_state
from tenure.election.records import State, encode
from tenure.store import open_store
from tests.acceptance.fleet import fleet, leader_of
from tests.acceptance.test_status import DEAD, command, plant
from tests.support.command import tenure

NAMES = ("ada", "ben", "cyd")
READY = 0.6


@pytest.mark.req("EL-17")
async def test_a_leader_steps_down_when_it_is_asked_to(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, *NAMES, min_epoch_duration=READY) as coordinators:
        old = await leader_of(coordinators)
        await asyncio.sleep(READY)
        run = await command("step-down", url)
        assert run.code == 0, run.err
        new = await leader_of(coordinators)
        assert new != old
        assert coordinators[new].get_epoch() == 2
        assert not coordinators[old].is_leader()
        assert run.out.startswith(f"{new} leads, epoch 2; {old}, epoch 1, stepped down")
        assert coordinators[old].running  # it stays in the fleet


@pytest.mark.req("EL-17")
async def test_leadership_is_transferred_to_the_worker_that_was_named(tmp_path: Path) -> None:
    """To the last in rank, which would not have taken over by itself."""
    url = tmp_path.as_uri()
    async with fleet(url, *NAMES, min_epoch_duration=READY) as coordinators:
        old = await leader_of(coordinators)
        target = max(set(NAMES) - {old})
        await asyncio.sleep(READY)
        run = await command("transfer", url, "--to", target, "--json")
        assert run.code == 0, run.out
        assert run.json()["verdict"] == "done"
        expected = {"previous_leader": old, "previous_epoch": 1, "leader": target, "epoch": 2}
        assert run.json()["handover"] == expected
        assert await leader_of(coordinators) == target


@pytest.mark.req("EL-17", "EL-5")
@pytest.mark.slow
async def test_inside_the_minimum_only_a_forced_request_is_followed(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada", "ben", min_epoch_duration=60) as coordinators:
        old = await leader_of(coordinators)
        (other,) = {"ada", "ben"} - {old}
        for arguments in (["step-down"], ["transfer", "--to", other]):
            run = await command(*arguments, url)
            assert run.code == 1
            assert f"'{old}', epoch 1, says no" in run.err
            assert "only a forced request" in run.err
            assert run.seconds < 20
        assert coordinators[old].is_leader()

        forced = await command("transfer", url, "--to", other, "--force")
        assert forced.code == 0, forced.err
        assert await leader_of(coordinators) == other


@pytest.mark.req("EL-17")
async def test_a_worker_that_is_unknown_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada", "ben", min_epoch_duration=0) as coordinators:
        old = await leader_of(coordinators)
        run = await command("transfer", url, "--to", "zoe")
        assert run.code == 1
        assert "'zoe' is not a live worker" in run.err
        assert "ada, ben" in run.err
        again = await command("transfer", url, "--to", old, "--json")
        assert again.code == 1
        assert again.json()["verdict"] == "refused"
        assert "leads 'default' already" in again.json()["reason"]
        assert coordinators[old].is_leader()
        assert coordinators[old].get_epoch() == 1


@pytest.mark.req("EL-17")
async def test_a_leader_that_is_dead_cannot_be_asked(tmp_path: Path) -> None:
    """The request stays in the lease; it cannot be told whether anybody will follow it."""
    url = tmp_path.as_uri()
    await plant(url, encode(DEAD))
    run = await command("step-down", url, "--timeout", "500ms")
    assert run.code == 2
    assert "unclear" in run.err
    assert "'ada', epoch 7, has not answered in time" in run.err
    async with open_store(url) as store:
        state = await read_state(namespace_store(store, "default"))
    assert isinstance(state, State)
    assert state.leader_write_id == DEAD.leader_write_id  # nobody can take it for a renewal
    assert state.handoff is not None
    again = await command("step-down", url, "--timeout", "500ms")
    assert again.code == 1
    assert "is waiting for the leader already" in again.err


@pytest.mark.slow
async def test_a_worker_that_is_alone_leads_again(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada", min_epoch_duration=0) as coordinators:
        await leader_of(coordinators)
        run = await command("step-down", url)
        assert run.code == 0, run.err
        assert "ada stepped down, nobody else stood, and it leads again: epoch 2" in run.out


@pytest.mark.slow
async def test_a_leader_that_leaves_without_a_successor_is_not_a_handover(tmp_path: Path) -> None:
    """It is gone as soon as it has been asked, and nobody else stands."""
    url = tmp_path.as_uri()
    async with fleet(url, "ada", min_epoch_duration=0) as coordinators:
        await leader_of(coordinators)
        asking = asyncio.create_task(command("step-down", url, "--timeout", "2500ms"))
        while await _request(url) is None:
            await asyncio.sleep(0.01)
        await coordinators["ada"].stop()
        run = await asking
        assert run.code == 2
        assert "'ada' has stepped down, and nobody has taken over in time" in run.err


async def _request(url: str) -> object:
    async with open_store(url) as store:
        state = await read_state(namespace_store(store, "default"))
    assert isinstance(state, State)
    return state.handoff if not state.released else "released"


async def test_a_lease_that_was_released_or_is_damaged_cannot_be_handed_over(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada") as coordinators:
        await leader_of(coordinators)
    released = await command("step-down", url)
    assert (released.code, "was released" in released.err) == (1, True)
    async with open_store(url) as store:
        await namespace_store(store, "default").put(STATE, b"garbage")
    damaged = await command("step-down", url)
    assert (damaged.code, "is damaged" in damaged.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["transfer"], "--to"),
        (["transfer", "--to", ""], "--to"),
        (["transfer", "--to", "x" * 129], "--to"),
        (["step-down", "--timeout", "30"], "500ms, 30s or 2m"),
        (["step-down", "--timeout", "2 weeks"], "500ms, 30s or 2m"),
        (["step-down", "--timeout", "2h"], "between"),
    ],
)
def test_what_is_asked_wrongly_is_refused_before_anything_is_opened(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    run = tenure(*arguments, tmp_path.as_uri())
    assert run.code == 2
    assert complaint in run.err
    assert list(tmp_path.iterdir()) == []

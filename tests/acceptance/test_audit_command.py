"""`tenure audit` on the history that real coordinators leave, and on one that was tampered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.coordinator.layout import namespace_store, term_key
from tenure.election.records import encode
from tenure.store import Stored, open_store
from tests.acceptance.fleet import fleet, leader_of
from tests.acceptance.test_status import DEAD, command, plant


async def leave_a_history(url: str) -> list[str]:
    """Three terms, the leaders of which are returned."""
    leaders = []
    async with fleet(url, "ada", "ben", min_epoch_duration=0) as coordinators:
        for _ in range(3):
            leaders.append(await leader_of(coordinators))
            if len(leaders) < 3:
                await coordinators[leaders[-1]].step_down()
    return leaders


@pytest.mark.req("EL-18")
async def test_the_history_that_a_fleet_leaves_is_whole_and_damage_to_it_is_named(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    leaders = await leave_a_history(url)
    run = await command("audit", url, "--json")
    assert run.code == 0, run.out
    result = run.json()
    assert result["ok"] is True
    assert result["findings"] == []
    assert result["terms"] >= 3  # whoever is left when the other stops may lead once more
    assert [(term["epoch"], term["leader"]) for term in result["timeline"][:3]] == list(enumerate(leaders, 1))
    told = await command("audit", url)
    assert told.code == 0
    assert "one leader each, no number missing" in told.out
    assert told.err == ""

    async with open_store(url) as store:
        inside = namespace_store(store, "default")
        first = await inside.get(term_key(1))
        assert isinstance(first, Stored)
        await inside.put(term_key(2), first.body)  # a record under another's number
        await inside.put("terms/notes.txt", b"hello")
    run = await command("audit", url, "--json")
    assert run.code == 1
    result = run.json()
    assert result["ok"] is False
    assert {finding["kind"] for finding in result["findings"]} == {"mismatch", "foreign"}
    told = await command("audit", url)
    assert told.code == 1
    assert "terms/00000000000000000002.json" in told.out
    assert "not right" in told.out


async def test_what_cannot_be_told(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    await plant(url, encode(DEAD).replace(b'"schemaVersion":1', b'"schemaVersion":2'))
    newer = await command("audit", url)
    assert newer.code == 2
    assert "newer tenure" in newer.err
    typo = await command("audit", url, "--namespace", "defualt", "--json")
    assert typo.code == 2
    assert "no namespace 'defualt'" in typo.err
    assert typo.json()["founded"] is False

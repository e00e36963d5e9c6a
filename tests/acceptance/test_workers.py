"""`tenure workers` as a person or a script meets it; and `tenure status` of fleets that are unlike others."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tenure.cli.status import show as show_status
from tenure.cli.workers import show as show_workers
from tenure.coordinator.layout import namespace_store, worker_key
from tenure.coordinator.reading import MAX_WORKERS_READ, Status, WorkerStatus, list_workers, read_worker_records
from tenure.election.records import MAX_RECORD_BYTES, Worker, encode
from tenure.errors import StoreUnavailable
from tenure.store import open_store
from tests.acceptance.fleet import fleet, leader_of
from tests.acceptance.test_status import DEAD, command, plant
from tests.support.store import ANY, ScriptedStore, yields

STARTED = "2026-05-01T12:00:00.000+00:00"


@pytest.mark.req("OP-1")
async def test_who_is_there_and_who_would_lead_next(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada", "ben", "cyd", min_epoch_duration=0) as coordinators:
        leader = await leader_of(coordinators)
        others = sorted({"ada", "ben", "cyd"} - {leader})
        run = await command("workers", url, "--json")
        assert run.code == 0, run.err
        found = run.json()
        assert (found["leader"], found["epoch"], found["active"], found["workers_left_out"]) == (leader, 1, 3, 0)
        assert [(each["worker_id"], each["rank"]) for each in found["workers"]] == [
            (leader, None),
            (others[0], 1),
            (others[1], 2),
        ]
        assert all(each["active"] and each["healthy"] and each["started_at"] for each in found["workers"])
        told = await command("workers", url)
        assert told.code == 0
        assert "3 of 3 workers of 'default' are active" in told.out
        # The order that is shown is the one that is followed.
        await coordinators[leader].step_down()
        assert await leader_of(coordinators) == others[0]
    gone = await command("workers", url)
    assert gone.code == 1
    assert "no workers" in gone.out


@pytest.mark.parametrize("lease", [DEAD, None])
async def test_what_the_dead_have_left_is_not_alive(tmp_path: Path, lease: object) -> None:
    """Their records look fresh against each other; only that none is written again tells."""
    url = tmp_path.as_uri()
    released = encode(DEAD).replace(b'"ada"', b"null").replace(b'"uid":"u"', b'"uid":null')
    await plant(url, encode(DEAD) if lease is not None else released, workers=("ada", "ben"))
    run = await command("workers", url, "--json")
    assert run.code == 1
    assert [each["active"] for each in run.json()["workers"]] == [False, False]
    believed = await command("workers", url, "--json", "--no-wait")
    assert (believed.code, believed.json()["active"]) == (0, 2)


async def test_a_lease_that_cannot_be_read_leaves_it_open(tmp_path: Path) -> None:
    await plant(tmp_path.as_uri(), b"garbage")
    run = await command("workers", tmp_path.as_uri(), "--json")
    assert run.code == 2
    assert run.json()["problem"]


@pytest.mark.slow
async def test_an_election_without_members_says_so(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada", membership=False) as coordinators:
        async with asyncio.timeout(30):
            while not coordinators["ada"].is_leader():
                await asyncio.sleep(0.02)
        for name in ("status", "workers"):
            run = await command(name, url)
            assert run.code == 0
            assert "election-only: no worker records" in run.out


# Many of them


async def crowd(workers: int) -> ScriptedStore:
    store = ScriptedStore()
    store.always("get", ANY, yields)
    for number in range(workers):
        name = f"w{number:05}"
        await store.put(worker_key(name), encode(Worker(write_id="w", worker_id=name, uid=name, ordinal=1)))
    return store


async def test_some_records_are_read_at_once_and_no_more_than_some() -> None:
    store = await crowd(200)
    found = await list_workers(store, 20.0)
    assert len(found) == 200
    assert [each.rank for each in found] == list(range(1, 201))
    assert 16 <= store.most_at_once["get"] <= 32


async def test_the_newest_are_read_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.coordinator.reading.MAX_WORKERS_READ", 10)
    store = await crowd(13)
    await store.put(worker_key("w00000"), encode(Worker(write_id="x", worker_id="w00000", uid="w", ordinal=1)))
    found = await read_worker_records(store, 20.0)
    assert (len(found.workers), found.left_out) == (10, 3)
    assert "w00000" in {each.worker_id for each in found.workers}
    assert MAX_WORKERS_READ == 5000


async def test_a_store_that_fails_meanwhile_is_told_as_it_is() -> None:
    store = await crowd(200)
    store.on("get", ANY, "lost", nth=40)
    with pytest.raises(StoreUnavailable, match="no answer"):
        await list_workers(store, 20.0)
    begun = store.count("get")
    await asyncio.sleep(0.01)
    assert store.count("get") == begun, "nothing goes on behind our back"


async def test_records_of_others_are_left_out_and_counted(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    await plant(url, encode(DEAD), workers=("ada",))
    async with open_store(url) as store:
        inside = namespace_store(store, "default")
        await inside.put(worker_key("ben"), b"{")
        await inside.put(worker_key("cyd"), encode(Worker(write_id="w", worker_id="mallory", uid="u", ordinal=1)))
    run = await command("workers", url, "--json", "--no-wait")
    found = run.json()
    assert [each["worker_id"] for each in found["workers"]] == ["ada"]
    assert found["workers_unreadable"] == 2
    assert found["first_unreadable"] == min(worker_key("ben"), worker_key("cyd"))


async def test_where_no_record_can_be_read_it_is_not_said_that_there_are_none(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    await plant(url, encode(DEAD))
    async with open_store(url) as store:
        inside = namespace_store(store, "default")
        await inside.put(worker_key("ben"), b"{")
        await inside.put(worker_key("big"), b" " * (MAX_RECORD_BYTES + 1))
    for name in ("workers", "status"):
        run = await command(name, url, "--no-wait")
        assert "2 objects are no record of a worker and left out: workers/" in run.out
        assert "election-only" not in run.out
    assert (await command("status", url, "--no-wait", "--json")).json()["workers_unreadable"] == 2


# Room


def members(*names: str) -> Status:
    return Status(
        namespace="default",
        leader=names[0],
        epoch=3,
        lease_seconds=15.0,
        lease_remaining_seconds=9.0,
        workers=tuple(
            WorkerStatus(name, 1234.0, True, 100, True, name == names[0], rank=None, started_at=STARTED)
            for name in names
        ),
        successor=None,
        elected_at=STARTED,
        mandate_ends_at=STARTED,
        renewals=7,
        problem=None,
    )


def drawn(show: Callable[[Console], None], width: int) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None, highlight=False)
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_names_that_workers_are_given_by_default_are_never_cut() -> None:
    names = ("worker-1700000000000-0a1b2c00", "worker-1700000000001-0a1b2c01")
    found = members(*names)
    for show in (lambda console: show_status(found, console), lambda console: show_workers(found, 2, console)):
        for width in (80, 120):
            told = drawn(show, width)
            assert all(name in told for name in names), told
            assert "…" not in told
            assert ("started" in told) is (width == 120)  # what is least missed goes first
        for width in (20, 40, 60):
            told = drawn(show, width)
            table = [line for line in told.splitlines() if line.startswith("│")]
            letters = "".join(line.split("│")[1].strip() for line in table)
            assert all(name in letters for name in names), told  # folded


async def test_what_is_not_read_on_a_terminal_is_as_wide_as_it_is(tmp_path: Path) -> None:
    names = tuple(f"worker-{number}-" + "x" * 100 for number in range(2))
    await plant(tmp_path.as_uri(), encode(DEAD), workers=names)
    for name in ("workers", "status"):
        run = await command(name, tmp_path.as_uri(), "--no-wait", COLUMNS="40")
        assert all(each in run.out for each in names)
        assert "started" in run.out

"""`tenure status` as a person or a script meets it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from tenure.cli.main import run
from tenure.cli.status import Patience, exit_code, look
from tenure.coordinator.layout import METADATA, STATE, namespace_store, worker_key
from tenure.coordinator.reading import read_worker_timeout
from tenure.election.records import Handoff, Metadata, Refusal, State, Worker, encode
from tenure.store import open_store
from tenure.store.memory import MemoryStore
from tests.acceptance.fleet import fleet, leader_of
from tests.acceptance.test_doctor import files_of
from tests.support.clock import ScriptedClock
from tests.support.command import Run, tenure, tenure_process

KEYS = {"leader", "epoch", "workers", "lease_remaining_seconds"}
DEAD = State(
    write_id="w",
    leader_id="ada",
    uid="u",
    epoch=7,
    grant_id="g",
    leader_write_id="w",
    lease_duration_ms=1000,
    renewals=5,
)


async def command(*arguments: str, **environment: str) -> Run:
    return await asyncio.to_thread(tenure_process, *arguments, **environment)


async def plant(url: str, body: bytes, namespace: str = "default", workers: tuple[str, ...] = ()) -> None:
    async with open_store(url) as store:
        inside = namespace_store(store, namespace)
        await inside.put(STATE, body)
        for name in workers:
            await inside.put(worker_key(name), encode(Worker(write_id="w", worker_id=name, uid="u", ordinal=1)))


@pytest.mark.parametrize("more", [[], ["--no-wait"]])
async def test_who_leads(tmp_path: Path, more: list[str]) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada", "ben") as coordinators:
        leader = await leader_of(coordinators)
        run = await command("status", url, "--json", *more)
        assert run.code == 0, run.err
        status = run.json()
        assert status.keys() >= KEYS
        assert status["leader"] == leader
        assert status["epoch"] == coordinators[leader].get_epoch() == 1
        assert 0 < status["lease_remaining_seconds"] <= 3
        assert {worker["worker_id"]: worker["active"] for worker in status["workers"]} == {"ada": True, "ben": True}
        assert [worker["worker_id"] for worker in status["workers"] if worker["is_leader"]] == [leader]
        assert status["problem"] is None

        told = await command("status", url, *more)
        assert told.code == 0
        assert f"{leader} leads 'default', epoch 1" in told.out
        assert "ben" in told.out
        assert told.err == ""
    left = await command("status", url, *more)
    assert left.code == 1
    assert "epoch 1 was released" in left.out or "epoch 2 was released" in left.out


async def test_url_and_namespace_may_come_from_the_environment(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada", namespace="reports") as coordinators:
        await leader_of(coordinators)
        run = await command("status", "--json", TENURE_URL=url, TENURE_NAMESPACE="reports")
        assert (run.code, run.json()["leader"], run.json()["namespace"]) == (0, "ada", "reports")
        # Another namespace of the same store has a leader of its own, or none.
        assert (await command("status", url)).code == 1


@pytest.mark.slow
async def test_a_leader_that_is_dead_does_not_lead(tmp_path: Path) -> None:
    """The lease names its holder for ever; only by watching it can be told that nobody renews it."""
    url = tmp_path.as_uri()
    await plant(url, encode(DEAD), workers=("ada", "ben"))
    run = await command("status", url, "--json")
    status = run.json()
    assert run.code == 1
    assert status["leader"] is None
    assert status["lease_remaining_seconds"] == 0
    assert status["epoch"] == 7
    assert "'ada' has not renewed the lease of epoch 7" in status["problem"]
    assert [worker["active"] for worker in status["workers"]] == [False, False]
    assert run.seconds >= 1.0
    told = await command("status", url)
    assert told.code == 1
    assert "nobody leads" in told.out

    believed = await command("status", url, "--no-wait", "--json")
    assert (believed.code, believed.json()["leader"]) == (0, "ada")


@pytest.mark.parametrize(
    "body",
    [b"garbage", encode(msgspec.structs.replace(DEAD, schema_version=9)), encode(DEAD).replace(b'"ada"', b"null")],
)
async def test_a_lease_that_cannot_be_read_may_be_somebodys(tmp_path: Path, body: bytes) -> None:
    await plant(tmp_path.as_uri(), body)
    run = await command("status", tmp_path.as_uri(), "--json")
    assert run.code == 2
    assert run.json()["leader"] is None
    assert run.json()["problem"]
    assert "could not tell who leads" in (await command("status", tmp_path.as_uri())).out


@pytest.mark.parametrize("name", ["status", "audit", "step-down"])
def test_a_directory_that_does_not_exist_is_not_made(tmp_path: Path, name: str) -> None:
    run = tenure(name, (tmp_path / "nothing" / "here").as_uri())
    assert run.code == 2
    assert "no directory" in run.err
    assert "nothing/here" in run.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "code"), [("status", 1), ("audit", 2), ("step-down", 1)])
def test_an_empty_directory_stays_empty(tmp_path: Path, name: str, code: int) -> None:
    run = tenure(name, tmp_path.as_uri())
    assert run.code == code
    assert "namespace" in run.out + run.err  # what to check
    assert list(tmp_path.iterdir()) == []


async def test_looking_writes_nothing(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with fleet(url, "ada") as coordinators:
        await leader_of(coordinators)
    before = {file: Path(file).stat().st_mtime_ns for file in files_of(tmp_path)}
    for name in ("status", "audit"):
        await command(name, url)
    assert {file: Path(file).stat().st_mtime_ns for file in files_of(tmp_path)} == before


@pytest.mark.parametrize("namespace", ["", "x" * 65, "a\nb"])
def test_a_namespace_that_cannot_be_is_refused(tmp_path: Path, namespace: str) -> None:
    run = tenure("status", tmp_path.as_uri(), f"--namespace={namespace}")
    assert run.code == 2
    assert "namespace" in run.err


def test_a_store_that_is_not_there_is_not_judged() -> None:
    run = tenure("status", "s3://bucket/x?endpoint=http://127.0.0.1:9&access_key_id=a&secret_access_key=b")
    assert run.code == 2
    assert run.err.startswith("tenure: ")
    assert run.out == ""


# What nobody should have written

EVIL = "e\x1b]0;pwned\x07\x1b[31mvil\nFAKE  elected\u202e\x9b"


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--no-wait"],
        ["status"],
        ["workers", "--no-wait"],
        ["watch", "--for", "1500ms", "--interval", "100ms"],
        ["step-down", "--timeout", "300ms"],
        ["transfer", "--to", "ben", "--timeout", "300ms"],
    ],
)
def test_what_the_bucket_holds_cannot_act_upon_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    state = msgspec.structs.replace(
        DEAD,
        leader_id=EVIL,
        elected_at=EVIL,
        mandate_ends_at=EVIL,
        refusal=Refusal(request_id="q", reason=EVIL),
        handoff=Handoff(request_id="r", epoch=7, by=EVIL) if "transfer" in arguments else None,
    )
    for more in ([], ["--json"]):
        asyncio.run(plant(tmp_path.as_uri(), encode(state), workers=(EVIL, "ben")))
        run([*arguments, *more, tmp_path.as_uri()])
        said = capfd.readouterr()
        told = said.out + said.err
        assert "FAKE" in told
        assert all(each == "\n" or each.isprintable() for each in told), told
        assert not any(line.startswith("FAKE") for line in told.splitlines())
        if more and arguments[0] != "watch":
            json.loads(said.out)


DAY_MS = 86_400_000


@pytest.mark.parametrize("released", [False, True])
async def test_no_record_can_make_it_wait_for_longer_than_the_longest_lease(released: bool) -> None:
    store, clock = MemoryStore(), ScriptedClock()
    gone = {"leader_id": None, "uid": None} if released else {}
    await store.put(STATE, encode(msgspec.structs.replace(DEAD, lease_duration_ms=DAY_MS, **gone)))
    await store.put(METADATA, founded(DAY_MS))
    await store.put(worker_key("ben"), encode(Worker(write_id="w", worker_id="ben", uid="u", ordinal=1)))
    said: list[str] = []
    found = await look(store, "default", Patience.UNTIL_SURE, clock, said.append)
    assert 600 < clock.true_seconds < 700
    assert "661 s" in said[0]
    assert found.problem is not None
    assert found.workers_unclear
    assert exit_code(found) == (1 if released else 2)  # one that was released is nobody's
    assert found.leader is None


async def test_a_lease_of_600_seconds_is_watched_to_its_end() -> None:
    store, clock = MemoryStore(), ScriptedClock()
    await store.put(STATE, encode(msgspec.structs.replace(DEAD, lease_duration_ms=600_000)))
    found = await look(store, "default", Patience.UNTIL_SURE, clock)
    assert (exit_code(found), found.unclear) == (1, False)
    assert found.problem is not None
    assert "it has lapsed" in found.problem


def test_what_is_waited_for_is_told_without_a_terminal_too_if_it_takes_long(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(plant(tmp_path.as_uri(), encode(DEAD)))
    assert run(["status", tmp_path.as_uri()]) == 1
    assert capfd.readouterr().err == ""
    monkeypatch.setattr("tenure.cli.status._SILENT_SECONDS", 0.1)
    assert run(["status", tmp_path.as_uri()]) == 1
    assert capfd.readouterr().err.startswith("watching the lease for a renewal, for 1 s at most")


def founded(worker_timeout: int) -> bytes:
    return encode(
        Metadata(write_id="w", drift=0.01, longest_lease_ms=1000, trim_delay_ms=1000, timing={"worker_timeout": 77})
    ).replace(b"77", str(worker_timeout).encode())


@pytest.mark.parametrize("worker_timeout", [10**400, 10**15, -5, 0])
def test_a_worker_timeout_that_cannot_be_is_not_believed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], worker_timeout: int
) -> None:
    async def prepare() -> float | None:
        await plant(tmp_path.as_uri(), encode(DEAD), workers=("ada",))
        async with open_store(tmp_path.as_uri()) as store:
            await namespace_store(store, "default").put(METADATA, founded(worker_timeout))
            return await read_worker_timeout(namespace_store(store, "default"))

    assert asyncio.run(prepare()) is None
    for arguments, code in ((["status", "--no-wait"], 0), (["watch", "--for", "300ms"], 0), (["workers"], 1)):
        assert run([*arguments, tmp_path.as_uri()]) == code
        assert capfd.readouterr().err == ""


def test_a_version_of_thousands_of_digits_is_not_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = encode(msgspec.structs.replace(DEAD, schema_version=99)).replace(b"99", b"9" * 4000)
    asyncio.run(plant(tmp_path.as_uri(), body))
    assert run(["status", tmp_path.as_uri()]) == 2
    assert len(capfd.readouterr().out) < 500

"""`tenure audit` on the history that real coordinators leave, and on one that was tampered with."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import msgspec
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tenure.cli.main import run as run_here
from tenure.cli.status import Patience, find_status
from tenure.coordinator import audit as audit_module
from tenure.coordinator.layout import MEMBERS, METADATA, STATE, folder_of, term_key
from tenure.election.records import Term, encode
from tenure.errors import StoreError, TenureError
from tenure.store.directory.layout import file_of
from tenure.store.url import parse_url
from tests.acceptance.fleet import PATIENCE, fleet, leader_of
from tests.acceptance.test_status import DEAD, command, plant
from tests.support.command import Run, tenure

ROOT = Path(__file__).parents[2]
FOLDER = folder_of("default")
_MEMBER = """
import asyncio, sys
from tests.acceptance.fleet import fleet
async def main():
    async with fleet(sys.argv[1], sys.argv[2], min_epoch_duration=0):
        await asyncio.sleep(3600)
asyncio.run(main())
"""


class Files:
    """The objects as another program meets them: files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, key: str) -> bytes:
        return (self._root / file_of(FOLDER + key)).read_bytes()

    def write(self, key: str, body: bytes) -> None:
        (self._root / file_of(FOLDER + key)).write_bytes(body)

    def remove(self, key: str) -> None:
        (self._root / file_of(FOLDER + key)).unlink()


class Bucket:
    """The objects as another program meets them: by S3's own protocol."""

    def __init__(self, url: str) -> None:
        place = parse_url(url)
        self._bucket, self._prefix = place.bucket, place.prefix + FOLDER
        self._client = boto3.client(
            "s3",
            endpoint_url=place.options["endpoint"],
            region_name=place.options["region"],
            aws_access_key_id=place.options["access_key_id"],
            aws_secret_access_key=place.options["secret_access_key"],
            config=Config(s3={"addressing_style": "path"}),
        )

    def read(self, key: str) -> bytes:
        return bytes(self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"].read())

    def write(self, key: str, body: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=body)

    def remove(self, key: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)


Objects = Files | Bucket


def changed(objects: Objects, key: str, **fields: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(objects.read(key)), **fields})


def newest_epoch(objects: Objects) -> int:
    return int(msgspec.json.decode(objects.read(STATE))["epoch"])


async def leave_a_history(url: str, terms: int = 3) -> list[str]:
    """So many terms, the leaders of which are returned."""
    leaders = []
    async with fleet(url, "ada", "ben", min_epoch_duration=0) as coordinators:
        while True:
            leaders.append(await leader_of(coordinators))
            if len(leaders) == terms:
                return leaders
            await coordinators[leaders[-1]].step_down()


async def lead_and_renew(url: str, objects: Objects) -> None:
    """One more term, by a worker that stays until it has renewed and written its members, and is alone."""
    async with fleet(url, "cyd", min_epoch_duration=0) as coordinators:
        await leader_of(coordinators)
        async with asyncio.timeout(PATIENCE):
            while not _has_settled(objects):
                await asyncio.sleep(0.05)


def _has_settled(objects: Objects) -> bool:
    try:
        lease, members = (msgspec.json.decode(objects.read(key)) for key in (STATE, MEMBERS))
    except (OSError, ClientError):
        return False  # there are no members yet
    return bool(lease["renewals"] and members["epoch"] == lease["epoch"])


# Each plants one kind of damage in a history of four terms or more, and says what must be found.


def a_missing_term(objects: Objects) -> tuple[str, str]:
    objects.remove(term_key(2))
    return "missing", term_key(2)


def the_newest_term(objects: Objects) -> tuple[str, str]:
    """The fleet has stopped: its lease was released."""
    newest = term_key(newest_epoch(objects))
    objects.remove(newest)
    return "missing", newest


def two_grants_of_the_newest_epoch(objects: Objects) -> tuple[str, str]:
    objects.write(STATE, changed(objects, STATE, leaderId="mallory", uid="u", grantId="stolen"))
    return "lease-differs", STATE


def two_leaders_of_the_newest_epoch(objects: Objects) -> tuple[str, str]:
    """The fleet has stopped: whose the released lease was is known by its previous leader."""
    newest = term_key(newest_epoch(objects))
    fields = {"leaderId": "mallory", "uid": "u"}
    objects.write(newest, changed(objects, newest, **fields))
    return "lease-differs", STATE


def two_leaders_of_an_old_epoch(objects: Objects) -> tuple[str, str]:
    objects.write(term_key(2), changed(objects, term_key(2), leaderId="mallory", uid="u"))
    return "two-leaders", term_key(2)


def an_unreadable_term(objects: Objects) -> tuple[str, str]:
    objects.write(term_key(3), objects.read(term_key(3))[:40])
    return "unreadable", term_key(3)


def an_old_lease(objects: Objects) -> tuple[str, str]:
    first = msgspec.json.decode(objects.read(term_key(1)))
    fields = {name: first[name] for name in ("epoch", "grantId", "leaderId", "uid")}
    objects.write(STATE, changed(objects, STATE, **fields))
    return "lease-behind", STATE


def a_copied_term(objects: Objects) -> tuple[str, str]:
    fields = {"epoch": 3, "previousLeader": None}
    objects.write(term_key(3), changed(objects, term_key(1), **fields))
    return "same-grant", term_key(3)


def a_term_under_anothers_number(objects: Objects) -> tuple[str, str]:
    objects.write(term_key(2), objects.read(term_key(1)))
    return "mismatch", term_key(2)


def members_of_the_future(objects: Objects) -> tuple[str, str]:
    """As if the lease and the newest terms had been put back together."""
    objects.write(MEMBERS, changed(objects, MEMBERS, epoch=newest_epoch(objects) + 1))
    return "lease-behind", STATE


def a_foreign_object(objects: Objects) -> tuple[str, str]:
    objects.write("terms/notes.txt", b"hello")
    return "foreign", "terms/notes.txt"


PLANTED = (
    a_missing_term,
    the_newest_term,
    two_grants_of_the_newest_epoch,
    two_leaders_of_the_newest_epoch,
    members_of_the_future,
    two_leaders_of_an_old_epoch,
    an_unreadable_term,
    an_old_lease,
    a_copied_term,
    a_term_under_anothers_number,
    a_foreign_object,  # the last, for what is no term is not written over
)


class Here:
    """The command in this process: a new one for each of many runs would take most of the time."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        # Nothing is late in a history that nobody goes on with: the second look need not wait.
        monkeypatch.setattr(audit_module, "_SECOND_LOOK_AFTER", 0.1)

    def __call__(self, *arguments: str) -> Run:
        self._capsys.readouterr()
        code = run_here(list(arguments))
        told = self._capsys.readouterr()
        return Run(code, told.out, told.err, 0.0)


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(capsys, monkeypatch)


def check_planted(url: str, objects: Objects, here: Here) -> None:
    """One history of a fleet that has stopped, and each kind of damage planted in it in turn, and taken back."""
    asyncio.run(leave_a_history(url, 3))
    asyncio.run(lead_and_renew(url, objects))
    keys = [STATE, MEMBERS, *map(term_key, range(1, newest_epoch(objects) + 1))]
    whole = {key: objects.read(key) for key in keys}
    assert msgspec.json.decode(whole[STATE])["leaderId"] is None
    assert (here("audit", url).code, here("audit", url, "--json").json()["findings"]) == (0, [])
    for damage in PLANTED:
        kind, key = damage(objects)
        run = here("audit", url, "--json")
        result = run.json()
        assert (run.code, result["ok"]) == (1, False), damage.__name__
        first, *others = [(each["kind"], each["key"]) for each in result["findings"]]
        assert first == (kind, key), damage.__name__
        assert others == ([("missing", term_key(len(keys) - 1))] if damage is members_of_the_future else [])
        for name, body in whole.items():
            objects.write(name, body)
    told = tenure("audit", url)
    assert told.code == 1
    assert f"{kind} {key}: " in told.out
    assert "not right" in told.out
    objects.remove(key)
    again = here("audit", url, "--json")
    assert (again.code, again.json()["findings"]) == (0, [])


@pytest.mark.req("EL-18", "OP-1")
@pytest.mark.slow
def test_each_kind_of_damage_is_named(tmp_path: Path, here: Here) -> None:
    check_planted(tmp_path.as_uri(), Files(tmp_path), here)


@pytest.mark.servers
@pytest.mark.req("EL-18", "OP-1")
def test_each_kind_of_damage_is_named_in_a_bucket(url_of: Callable[[str], str], here: Here) -> None:
    url = url_of("ministack")
    check_planted(url, Bucket(url), here)


@pytest.mark.req("EL-18")
def test_a_history_that_was_wiped_is_missed(tmp_path: Path, here: Here) -> None:
    url, objects = tmp_path.as_uri(), Files(tmp_path)
    asyncio.run(lead_and_renew(url, objects))
    for epoch in range(1, newest_epoch(objects) + 1):
        objects.remove(term_key(epoch))
    objects.remove(STATE)
    run = here("audit", url, "--json")
    assert run.code == 1
    assert [each["kind"] for each in run.json()["findings"]] == ["lease-missing", "missing"]


@pytest.mark.slow
@pytest.mark.req("EL-18")
async def test_nothing_is_found_in_a_fleet_whose_leaders_come_and_go(tmp_path: Path) -> None:
    """A dozen audits or more while leaders step down without pause; what is late is late here."""
    url = tmp_path.as_uri()
    async with fleet(url, "ada", "ben", "cyd", min_epoch_duration=0) as coordinators:

        async def step_down() -> None:
            while True:
                for coordinator in coordinators.values():
                    if coordinator.is_leader():
                        with contextlib.suppress(TenureError):
                            await coordinator.step_down()
                await asyncio.sleep(0.01)

        await leader_of(coordinators)
        stepping = asyncio.create_task(step_down())
        seen: list[int] = []
        async with asyncio.timeout(120):
            while len(seen) < 12 or len(set(seen)) < 5:
                run = await command("audit", url, "--json")
                assert (run.code, run.json()["findings"]) == (0, []), run.out
                seen.append(run.json()["terms"])
        stepping.cancel()
        await asyncio.wait([stepping])
    assert seen == sorted(seen)


@pytest.mark.req("EL-18")
async def test_the_history_that_a_fleet_leaves_is_whole(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    leaders = await leave_a_history(url)
    run = await command("audit", url, "--json")
    assert run.code == 0, run.out
    result = run.json()
    assert result["ok"] is True
    assert result["findings"] == []
    assert result["terms"] >= 3  # whoever is left when the other stops may lead once more
    assert [(term["epoch"], term["leader"]) for term in result["timeline"][:3]] == list(enumerate(leaders, 1))
    assert [term["ended"] for term in result["timeline"][:2]] == ["replaced", "replaced"]
    assert result["timeline"][-1]["ended"] == "released"
    assert result["timeline"][0]["held_seconds"] > 0
    told = await command("audit", url)
    assert told.code == 0
    assert "one leader each, no number missing" in told.out
    assert told.err == ""


@pytest.mark.slow
@pytest.mark.req("EL-18")
async def test_the_history_of_a_fleet_whose_leaders_are_killed_is_whole(tmp_path: Path) -> None:
    """Real processes, two of which are killed while they lead; and asked for while the fleet goes on."""
    url = tmp_path.as_uri()
    members = {name: _member(url, name) for name in ("ada", "ben", "cyd")}
    started = list(members.values())
    try:
        for _ in range(2):
            leader = await _leads(url, members)
            await command("step-down", url, "--force")
            leader = await _leads(url, members)
            members.pop(leader).send_signal(signal.SIGKILL)
            during = await command("audit", url, "--json")
            assert (during.code, during.json()["findings"]) == (0, [])
        await _leads(url, members)
    finally:
        for member in started:
            member.kill()
            member.wait()
    run = await command("audit", url, "--json")
    assert run.code == 0, run.out
    assert run.json()["terms"] >= 4
    assert run.json()["timeline"][-1]["ended"] == "holds"


def _member(url: str, name: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", _MEMBER, url, name], cwd=ROOT, env=environment)


async def _leads(url: str, members: dict[str, Any]) -> str:
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(StoreError):  # nothing is there yet
                leader = (await find_status(url, "default", Patience.UNTIL_SURE)).leader
                if leader in members:
                    return leader
            await asyncio.sleep(0.1)


def test_what_cannot_be_told(tmp_path: Path, here: Here) -> None:
    url = tmp_path.as_uri()
    asyncio.run(plant(url, encode(DEAD).replace(b'"schemaVersion":1', b'"schemaVersion":2')))
    newer = here("audit", url)
    assert newer.code == 2
    assert "newer tenure" in newer.err
    for form in ((), ("--json",)):
        typo = here("audit", url, "--namespace", "defualt", *form)
        assert typo.code == 2
        assert "no namespace 'defualt'" in typo.err
        assert typo.out == ""  # whoever reads it must not find that all is right


def test_a_new_namespace_has_nothing_wrong(tmp_path: Path, here: Here) -> None:
    (tmp_path / file_of(FOLDER + METADATA)).parent.mkdir(parents=True)
    Files(tmp_path).write(METADATA, b"{}")
    run = here("audit", tmp_path.as_uri(), "--json")
    assert (run.code, run.json()["terms"]) == (0, 0)
    told = here("audit", tmp_path.as_uri())
    assert "nobody has led here yet" in told.out
    assert "one leader each" not in told.out


def test_without_a_terminal_nothing_is_cut(tmp_path: Path) -> None:
    """However narrow whoever starts it says that things are."""
    name = "worker-1700000000000-" + 8 * "0a1b2c00"
    asyncio.run(plant(tmp_path.as_uri(), encode(msgspec.structs.replace(DEAD, epoch=1, leader_id=name))))
    first = Term(
        write_id="t", epoch=1, leader_id=name, uid="u", grant_id="g", elected_at="2026-05-01T12:00:00.000+00:00"
    )
    path = tmp_path / file_of(FOLDER + term_key(1))
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(first))
    run = tenure("audit", tmp_path.as_uri(), COLUMNS="40")
    assert run.code == 0
    assert name in run.out
    assert "2026-05-01 12:00:00Z" in run.out
    assert "held for about" in run.out

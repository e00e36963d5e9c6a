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

from tenure.cli.status import Patience, find_status
from tenure.coordinator.layout import METADATA, STATE, folder_of, term_key
from tenure.election.records import encode
from tenure.errors import StoreError
from tenure.store.directory.layout import file_of
from tenure.store.url import parse_url
from tests.acceptance.fleet import PATIENCE, fleet, leader_of
from tests.acceptance.test_status import DEAD, command, plant

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


async def leave_a_history(url: str, terms: int = 3) -> list[str]:
    """So many terms, the leaders of which are returned."""
    leaders = []
    async with fleet(url, "ada", "ben", min_epoch_duration=0) as coordinators:
        while True:
            leaders.append(await leader_of(coordinators))
            if len(leaders) == terms:
                return leaders
            await coordinators[leaders[-1]].step_down()


# Each plants one kind of damage in a history of four terms or more, and says what must be found.


def a_missing_term(objects: Objects) -> tuple[str, str]:
    objects.remove(term_key(2))
    return "missing", term_key(2)


def two_leaders_of_the_newest_epoch(objects: Objects) -> tuple[str, str]:
    objects.write(STATE, changed(objects, STATE, leaderId="mallory", uid="u", grantId="stolen"))
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


def a_foreign_object(objects: Objects) -> tuple[str, str]:
    objects.write("terms/notes.txt", b"hello")
    return "foreign", "terms/notes.txt"


PLANTED = (
    a_missing_term,
    two_leaders_of_the_newest_epoch,
    two_leaders_of_an_old_epoch,
    an_unreadable_term,
    an_old_lease,
    a_copied_term,
    a_term_under_anothers_number,
    a_foreign_object,  # the last, for what is no term is not written over
)


async def check_planted(url: str, objects: Objects) -> None:
    """One history, and each kind of damage planted in it in turn, and taken back."""
    await leave_a_history(url, 4)
    keys = [STATE, *map(term_key, range(1, 5))]
    whole = {key: objects.read(key) for key in keys}
    for damage in PLANTED:
        kind, key = damage(objects)
        run = await command("audit", url, "--json")
        result = run.json()
        assert (run.code, result["ok"]) == (1, False), damage.__name__
        assert [(each["kind"], each["key"]) for each in result["findings"]] == [(kind, key)], damage.__name__
        for name, body in whole.items():
            objects.write(name, body)
    told = await command("audit", url)
    assert told.code == 1
    assert f"{kind} {key}: " in told.out
    assert "not right" in told.out
    objects.remove(key)
    again = await command("audit", url, "--json")
    assert (again.code, again.json()["findings"]) == (0, [])


@pytest.mark.req("EL-18", "OP-1")
async def test_each_kind_of_damage_is_named(tmp_path: Path) -> None:
    await check_planted(tmp_path.as_uri(), Files(tmp_path))


@pytest.mark.servers
@pytest.mark.req("EL-18", "OP-1")
async def test_each_kind_of_damage_is_named_in_a_bucket(url_of: Callable[[str], str]) -> None:
    url = url_of("ministack")
    await check_planted(url, Bucket(url))


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


async def test_a_new_namespace_has_nothing_wrong(tmp_path: Path) -> None:
    (tmp_path / file_of(FOLDER + METADATA)).parent.mkdir(parents=True)
    Files(tmp_path).write(METADATA, b"{}")
    run = await command("audit", tmp_path.as_uri(), "--json")
    assert (run.code, run.json()["terms"]) == (0, 0)

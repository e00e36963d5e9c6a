"""Objects of 100 MB in the place of small records: refused by their size, before they are read into memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from lab.buckets import make_bucket
from lab.endpoint import S3Endpoint
from tenure.coordinator.layout import MEMBERS, METADATA, STATE, folder_of, term_key, worker_key
from tenure.store import open_store
from tests.support.command import Run, ok, tenure_process

MB = 1_000_000
URL = "(the store)"
OURS = folder_of("default")
QUEUE = "plugin=s3-queue/name=jobs/"
SCHEDULE = "plugin=scheduler/name=nightly/"
COUNTERS = "plugin=eventual-consistency/name=pages/"
TTL = "plugin=ttl/name=sessions/"
ENTRY, SNAPSHOT = f"log/{1:020d}", f"snapshots/{1:020d}"
OF_A_LEDGER = ("ledger.json", "settings.json", ENTRY, SNAPSHOT, f"inbox/{0:020d}-u-{1:010d}")
KEYS = [
    *(OURS + key for key in (STATE, METADATA, MEMBERS, term_key(1), worker_key("x"))),
    "plugin=locks/lock=door.json",
    "plugin=kept/name=things/storage/last",
    "resource=pages/data/id=front.json",
    *(QUEUE + key for key in ("ledger.json", "settings.json", ENTRY, SNAPSHOT)),
]
MORE_KEYS = [
    *(folder + key for folder in (SCHEDULE, COUNTERS, TTL) for key in OF_A_LEDGER),
    f"{QUEUE}results/m",
    f"{QUEUE}seg/s",
    f"{COUNTERS}chunks/{1:020d}-c-000000",
    f"{COUNTERS}pages/{1:020d}-{1:020d}-p-000000",
    f"{TTL}failed/{1:020d}-f",
    f"{TTL}due/1700000000000/0a7e2f419bdac0ad",
    f"plugin=poll/name=web/jobs/web-{1:010d}.json",
    "plugin=poll/name=web/results/schedule=web.json",
    "plugin=supervisor/name=coordinator/children.json",
    "plugin=supervisor/name=coordinator/static/starts.json",
]

SCRIPT = """
import asyncio, json, resource, sys
from tenure.errors import BodyTooLarge
from tenure.store import open_store

async def main(url, keys):
    async with open_store(url) as store:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        refused = 0
        for key in keys:
            try:
                await store.get(key)
            except BodyTooLarge:
                refused += 1
        print(json.dumps([refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024]))

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""


async def fill(folder: Path, keys: list[str]) -> None:
    async with open_store(f"file://{folder}") as store:
        for key in keys:
            await store.put(key, b"small")
    files = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == b"small"]
    assert len(files) == len(keys)
    for path in files:
        os.truncate(path, 100 * MB)  # holes: no disk is taken


async def test_none_is_read_into_memory(tmp_path: Path) -> None:
    keys = KEYS + MORE_KEYS
    await fill(tmp_path, keys)
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, f"file://{tmp_path}", json.dumps(keys)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    refused, grown_mb = json.loads(ended.stdout)
    assert refused == len(keys)
    assert grown_mb < 20


NAMED: list[tuple[str, list[str], int]] = [
    *((OURS + STATE, [command], 2) for command in ("status", "audit", "workers")),
    *((OURS + METADATA, [command], 2) for command in ("status", "audit", "workers")),
    (OURS + MEMBERS, ["audit"], 2),
    (OURS + term_key(1), ["audit"], 1),
    *((OURS + worker_key("x"), [command], 1) for command in ("status", "workers")),
    *((f"{QUEUE}{key}", ["queue", "stats", URL, "jobs"], 2) for key in (ENTRY, SNAPSHOT)),
    *((f"{QUEUE}{key}", ["queue", "peek", URL, "jobs"], 2) for key in (ENTRY, SNAPSHOT)),
    *(
        (f"{SCHEDULE}{key}", ["schedule", command, URL, "--name", "nightly"], 2)
        for key in (ENTRY, SNAPSHOT)
        for command in ("list", "history")
    ),
    (f"{COUNTERS}settings.json", ["counter", "get", URL, "pages", "front"], 2),
    (f"{COUNTERS}settings.json", ["counter", "top", URL, "pages", "views"], 2),
]
"""What is too large, a command that reads it, and how that ends."""


@pytest.mark.parametrize(
    ("key", "command", "code"), NAMED, ids=lambda each: "-".join(each[:2]) if type(each) is list else None
)
async def test_a_command_says_so_and_ends(tmp_path: Path, key: str, command: list[str], code: int) -> None:
    """By its name, so that somebody can move it away: there is nothing else in the bucket."""
    await fill(tmp_path, [key])
    ended = asked(f"file://{tmp_path}", command)
    name = key.removeprefix(OURS)
    (told,) = [line for line in (ended.out + ended.err).splitlines() if name in line]
    assert "100,000,000 bytes" in told or "is no record of a worker" in told
    assert ended.code == code


async def test_what_is_not_read_is_left_alone(tmp_path: Path) -> None:
    """Only tombstones are removed, and their size says whether it may be one."""
    await fill(tmp_path, ["resource=pages/data/id=front.json"])
    ended = asked(f"file://{tmp_path}", ["gc", "--dry-run"])
    assert "1 records left alone" in ok(ended).out


def asked(url: str, command: list[str]) -> Run:
    """In a process of its own, which has no more memory than it needs."""
    arguments = [url if each == URL else each for each in command]
    if url not in arguments:
        arguments.insert(1, url)
    return tenure_process(*arguments)


@pytest.fixture
def filled_bucket(ministack: S3Endpoint) -> Iterator[str]:
    """The same over HTTP, on a server of its own kind: its answers say how much would come."""
    make_bucket(ministack, "huge")
    body = bytes(100 * MB)
    paths = [f"{ministack.url}/huge/run/{quote(key)}" for key in KEYS]
    for path in paths:
        urlopen(Request(path, method="PUT", data=body), timeout=60).close()
    yield ministack.store_url("huge", "run")
    for path in paths:
        urlopen(Request(path, method="DELETE"), timeout=60).close()


@pytest.mark.servers
def test_none_is_read_into_memory_from_a_server(filled_bucket: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, filled_bucket, json.dumps(KEYS)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    refused, grown_mb = json.loads(ended.stdout)
    assert refused == len(KEYS)
    assert grown_mb < 40, "what was on its way when it was refused is little"
    for command, key in (("status", STATE), ("audit", MEMBERS), ("workers", STATE)):
        said = asked(filled_bucket, [command])
        assert f"{OURS}{key}" in said.err
        assert said.code == 2

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

MB = 1_000_000
KEYS = [
    *(folder_of("default") + key for key in (STATE, METADATA, MEMBERS, term_key(1), worker_key("x"))),
    "plugin=locks/lock=door.json",
    "plugin=kept/name=things/storage/last",
    "resource=pages/data/id=front.json",
    *(
        f"plugin=s3-queue/name=jobs/{key}"
        for key in ("ledger.json", "settings.json", f"log/{1:020d}", f"snapshots/{1:020d}")
    ),
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


async def fill(folder: Path) -> None:
    async with open_store(f"file://{folder}") as store:
        for key in KEYS:
            await store.put(key, b"small")
    files = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == b"small"]
    assert len(files) == len(KEYS)
    for path in files:
        os.truncate(path, 100 * MB)  # holes: no disk is taken


async def test_none_is_read_into_memory(tmp_path: Path) -> None:
    await fill(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, f"file://{tmp_path}", json.dumps(KEYS)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    refused, grown_mb = json.loads(ended.stdout)
    assert refused == len(KEYS)
    assert grown_mb < 20


@pytest.mark.parametrize("command", [["status"], ["audit"], ["gc", "--dry-run"], ["workers"]], ids=lambda each: each[0])
async def test_a_command_says_so_and_ends(tmp_path: Path, command: list[str]) -> None:
    await fill(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-m", "tenure", *command[:1], f"file://{tmp_path}", *command[1:]],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr, ended.stderr
    assert ended.returncode in (0, 1, 2, 3, 4, 5)


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
    for command in (["status"], ["audit"], ["workers"]):
        said = subprocess.run(
            [sys.executable, "-m", "tenure", *command[:1], filled_bucket, *command[1:]],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert "Traceback" not in said.stderr, said.stderr
        assert said.returncode in (0, 1, 2, 3, 4, 5)

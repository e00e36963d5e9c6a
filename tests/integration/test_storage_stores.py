"""Plugin storage on real stores, and in real processes that are in each other's way: DB-3."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure.database.storage import PluginStorage
from tenure.database.time import TIME_FOLDER, StoreTime
from tenure.errors import Conflict
from tenure.store import Store, Stored, open_store

ROOT = Path(__file__).resolve().parents[2]
PROCESSES, ROUNDS, INCREMENTS = 4, 25, 10
KINDS = [
    "directory",
    "ministack",
    pytest.param("ceph", marks=pytest.mark.servers),
    pytest.param("azurite", marks=pytest.mark.servers),
]


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> str:
    return url_of(request.param)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, timeout=20) as opened:
        yield opened


def storage_of(store: Store) -> PluginStorage:
    return PluginStorage(store, "s3-queue", "orders & more")


@pytest.mark.req("DB-3")
async def test_a_life_of_a_key(store: Store) -> None:
    storage = storage_of(store)
    assert await storage.get("grüße/☃") is None
    first = await storage.set("grüße/☃", {"n": 1})
    with pytest.raises(Conflict):
        await storage.set_if_version("grüße/☃", {"n": 3}, first + 1)
    second = await storage.set_if_version("grüße/☃", {"n": 2}, first)
    assert await storage.set_if_not_exists("grüße/☃", {}) is None
    assert [entry.value for entry in (await storage.list("grüße/")).entries] == [{"n": 2}]
    assert await storage.delete("grüße/☃")
    assert (await storage.list()).entries == ()
    third = await storage.set_if_not_exists("grüße/☃", {"n": 4})
    assert third is not None
    assert third > second > first
    assert await storage_of(store).get("grüße/☃") == {"n": 4}


@pytest.mark.req("DB-3")
async def test_batches_and_pages(store: Store) -> None:
    storage = storage_of(store)
    names = [f"jobs/{number:02d}" for number in range(25)]
    (await storage.set_many({name: name for name in names})).check()
    assert [entry.value for entry in (await storage.get_many(names)).check().values() if entry] == names
    (await storage.delete_many(names[::2])).check()
    found, after = [], None
    while True:
        page = await storage.list("jobs/", limit=5, after=after)
        found += [entry.key for entry in page.entries]
        after = page.after
        if after is None:
            break
    assert found == names[1::2]


@pytest.mark.req("DB-3")
async def test_a_time_to_live_ends_within_two_seconds(store: Store) -> None:
    """The store is on this machine, so that its clock can be compared with ours for once."""
    storage = storage_of(store)
    assert abs(await storage.time.now() - time.time()) < 2
    assert storage.time.uncertainty < 2
    began = time.monotonic()
    await storage.set("k", 1, ttl=3)
    while await storage.get("k") is not None:
        assert time.monotonic() - began < 10
        await asyncio.sleep(0.1)
    assert 1 < time.monotonic() - began < 6
    assert await storage.set_if_not_exists("k", 2)
    assert [entry async for entry in store.list(TIME_FOLDER)] == []


async def test_two_processes_agree_on_the_time(store: Store) -> None:
    """Each knows of its own measurement only; together they are off by no more than both allow for."""
    one, other = StoreTime(store), StoreTime(store)
    await one.now(), await other.now()  # measured; from here on both answer at once
    difference = abs(await one.now() - await other.now())
    assert difference <= one.uncertainty + other.uncertainty + 0.1
    assert one.skew is not None
    assert abs(one.skew) < 2


# Four processes


class Race(msgspec.Struct, frozen=True):
    url: str
    name: str


class Told(msgspec.Struct):
    won: list[int] = []
    """The rounds in which `set_if_not_exists` gave a version."""
    counted: list[int] = []
    """What each applied `set_if_version` counted up to."""
    conflicts: int = 0


async def contend(race: Race) -> Told:
    """What this file does as a process: reads a `Race`, says `ready`, waits for a line, and answers `Told`."""
    told = Told()
    async with open_store(race.url, timeout=20) as store:
        storage = storage_of(store)
        print("ready", flush=True)
        sys.stdin.buffer.readline()
        for number in range(ROUNDS):
            if await storage.set_if_not_exists(f"race/{number}", race.name, ttl=3600):
                told.won.append(number)
        while len(told.counted) < INCREMENTS:
            entry = await storage.get_entry("counter")
            assert entry is not None
            try:
                await storage.set_if_version("counter", entry.value + 1, entry.version)
                told.counted.append(entry.value + 1)
            except Conflict:
                told.conflicts += 1
    return told


@pytest.mark.req("DB-3")
async def test_four_processes_race(url: str, store: Store) -> None:
    storage = storage_of(store)
    await storage.set("counter", 0)
    names = [f"p{number}" for number in range(PROCESSES)]
    processes = [await _process() for _ in names]
    told: dict[str, Told] = {}
    try:
        async with asyncio.timeout(120):
            for name, process in zip(names, processes, strict=True):
                _tell(process, msgspec.json.encode(Race(url, name)))
            for process in processes:
                assert await _line(process) == b"ready\n"
            for process in processes:
                _tell(process, b"go")
            for name, process in zip(names, processes, strict=True):
                told[name] = msgspec.json.decode(await _line(process), type=Told)
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.communicate()
    winners = Counter(number for one in told.values() for number in one.won)
    assert winners == Counter(range(ROUNDS)), "each round has one winner"
    for name, one in told.items():
        for number in one.won:
            assert await storage.get(f"race/{number}") == name
    assert sorted(value for one in told.values() for value in one.counted) == list(range(1, PROCESSES * INCREMENTS + 1))
    assert await storage.get("counter") == PROCESSES * INCREMENTS
    conflicts = sum(one.conflicts for one in told.values())
    wins = {name: len(one.won) for name, one in told.items()}
    print(f"\n{store.info.provider}: wins {wins}, {conflicts} conflicts in {PROCESSES * INCREMENTS} increments")
    assert conflicts, "nobody was ever in anybody's way"


async def _process() -> Any:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, __file__), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )


def _tell(process: Any, line: bytes) -> None:
    process.stdin.write(line + b"\n")


async def _line(process: Any) -> bytes:
    line: bytes = await process.stdout.readline()
    return line


async def test_what_is_stored_is_plain_json(store: Store) -> None:
    await storage_of(store).set("k", {"a": 1}, ttl=60)
    stored = await store.get("plugin=s3-queue/name=orders~20~26~20more/storage/k")
    assert isinstance(stored, Stored)
    record = msgspec.json.decode(stored.body)
    assert record["tenure"] == "storage"
    assert record["value"] == {"a": 1}
    assert set(record) == {
        *("tenure", "writeId", "schemaVersion", "version", "history", "deleted", "expiresAtMs", "value"),
    }


if __name__ == "__main__":
    try:
        answer = asyncio.run(contend(msgspec.json.decode(sys.stdin.buffer.readline(), type=Race)))
        print(msgspec.json.encode(answer).decode(), flush=True)
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

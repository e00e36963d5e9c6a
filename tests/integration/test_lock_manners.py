"""A lock in somebody else's process: threads, blocked and closed loops, forks, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenure.coordinator.lock import DistributedLock, LockKeeper
from tenure.coordinator.lock.records import lock_key
from tenure.errors import ForkedProcess
from tenure.store import Store, open_store
from tests.support.waiting import eventually

PATIENCE = 20.0


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tenure-locks"]


async def record(store: Store, name: str = "job") -> dict[str, Any]:
    stored = await store.get(lock_key(name))
    found: dict[str, Any] = json.loads(stored.body)  # type: ignore[union-attr]
    return found


@pytest.mark.req("DB-4")
@pytest.mark.parametrize("kind", ["directory", "ministack"])
async def test_code_that_blocks_does_not_cost_the_lock(kind: str, url_of: Callable[[str], str]) -> None:
    store = await open_store(url_of(kind))
    lock = DistributedLock(store, "job", ttl=2.0)
    async with lock as held:
        time.sleep(3.0)
        assert held.is_held()
        assert await lock.try_acquire() is None
    assert (await record(store))["released"] is True
    await lock.aclose()
    await eventually(lambda: not keepers())
    await store.aclose()


async def test_all_locks_of_a_keeper_share_one_thread(url_of: Callable[[str], str]) -> None:
    store = await open_store(url_of("memory"))
    keeper = LockKeeper()
    locks = [DistributedLock(store, f"job{i}", keeper=keeper) for i in range(5)]
    assert keepers() == [], "there is none before it is needed"
    held = [await lock.acquire() for lock in locks]
    (thread,) = keepers()
    assert thread.daemon
    await keeper.aclose()
    assert not any(each.is_held() for each in held)
    for i in range(5):
        assert (await record(store, f"job{i}"))["released"] is True
    await eventually(lambda: not keepers())
    await store.aclose()


@pytest.mark.req("DB-4")
async def test_a_lock_whose_loop_was_closed_is_released(url_of: Callable[[str], str]) -> None:
    url = url_of("directory")
    keeper = LockKeeper()

    async def acquire() -> Any:
        return await DistributedLock(await open_store(url), "job", keeper=keeper).acquire()

    held = await asyncio.to_thread(lambda: asyncio.run(acquire()))
    await eventually(lambda: not held.is_held())
    store = await open_store(url)
    async with asyncio.timeout(PATIENCE):
        while not (await record(store))["released"]:
            await asyncio.sleep(0.05)
    await keeper.aclose()
    await store.aclose()


@pytest.mark.req("DB-4")
async def test_at_the_end_of_the_interpreter_it_is_released(url_of: Callable[[str], str]) -> None:
    url = url_of("directory")
    source = """
import asyncio, sys
from tenure.coordinator.lock import DistributedLock
from tenure.store import open_store

async def main():
    await DistributedLock(await open_store(sys.argv[1]), "job", ttl=600).acquire()

asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", source, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    store = await open_store(url)
    assert (await record(store))["released"] is True
    await store.aclose()


@pytest.mark.req("DB-4")
def test_a_forked_child_holds_nothing(url_of: Callable[[str], str]) -> None:
    """In a program of its own: a test process has threads, and forking it makes Python warn."""
    source = """
import asyncio, os, sys
from tenure.coordinator.lock import DistributedLock
from tenure.errors import ForkedProcess
from tenure.store import open_store

async def main():
    lock = DistributedLock(await open_store(sys.argv[1]), "job", ttl=5)
    held = await lock.acquire()
    child = os.fork()
    if child == 0:
      try:
        answers = [held.is_held(), held.remaining(), held.time_to_wind_up()]
        for call in (held.release, lock.acquire, lock.try_acquire):
            try:
                call().send(None)
            except ForkedProcess:
                answers.append("forked")
        os._exit(0 if answers == [False, 0.0, 0.0, "forked", "forked", "forked"] else 1)
      finally:
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert held.is_held()
    assert await held.release()
    await lock.aclose()

asyncio.run(main())
"""
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", source, url_of("directory")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert issubclass(ForkedProcess, Exception)


@pytest.mark.req("DB-4")
async def test_an_acquisition_that_is_cancelled_on_another_thread_leaves_nothing_behind(
    url_of: Callable[[str], str],
) -> None:
    store = await open_store(url_of("memory"))
    lock = DistributedLock(store, "job", ttl=600)
    for turns in range(60):
        task = asyncio.create_task(lock.acquire())
        until_ns = time.monotonic_ns() + turns * 100_000
        while time.monotonic_ns() < until_ns:
            await asyncio.sleep(0)
        task.cancel()
        held = None
        try:
            held = await task
        except asyncio.CancelledError:
            pass
        if held is not None:
            await held.release()
        again = await lock.acquire(timeout=PATIENCE)
        assert await again.release()
    await lock.aclose()
    await store.aclose()

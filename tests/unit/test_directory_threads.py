"""A process that can start no more threads: its store says so, and nothing lands that was said to be given up."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from pathlib import Path

import pytest

from tenure.errors import NotFound, StoreUnavailable
from tenure.store import Applied, Unknown
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Place
from tenure.store.directory.store import THREADS


@pytest.fixture(params=["can't start new thread", "can't create new thread at interpreter shutdown"])
def no_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: threading.Thread) -> None:
        raise RuntimeError(request.param)

    monkeypatch.setattr(threading.Thread, "start", fails)


@pytest.mark.usefixtures("no_threads")
async def test_without_any_thread_nothing_happens_and_nothing_ever_will(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path, timeout=0.02)
    outcome = await store.create("a", b"1")
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, StoreUnavailable)
    assert "create 'a': no thread can be started, and none came free within 0.02 s" in str(outcome.error)
    for call in (store.put("b", b"1"), store.get("a"), store.delete("a"), anext(aiter(store.list()))):
        with pytest.raises(StoreUnavailable, match="no thread can be started"):
            await call
    monkeypatch.undo()
    store._timeout = 5
    for key in "ab":
        with pytest.raises(NotFound):  # the threads do the work in the order in which it came
            await store.get(key)
    await store.aclose()


async def test_a_thread_that_is_there_does_it_when_it_comes_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def write_new(self, place: Place, body: bytes) -> int:
            if body == b"slow":
                begun.set()
                assert gate.wait(10)
            return super().write_new(place, body)

    store = DirectoryStore(tmp_path, disk=SlowDisk())
    slow = asyncio.create_task(store.put("slow", b"slow"))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _fails)
        waiting = asyncio.create_task(store.create("k", b"1"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    gate.set()
    assert isinstance(await waiting, Applied)
    await slow
    await store.aclose()


async def test_of_what_was_given_up_while_the_disk_hangs_next_to_nothing_is_held(tmp_path: Path) -> None:
    gate = threading.Event()
    store = DirectoryStore(tmp_path, timeout=0.02)
    for _ in range(THREADS):
        store._threads.submit(gate.wait, 10)  # each is stuck in the kernel
    loop, body = asyncio.get_running_loop(), b"body" * 1000
    before = sys.getrefcount(loop), sys.getrefcount(body)
    for _ in range(10):
        with pytest.raises(StoreUnavailable):
            await store.put("k", body)
        assert isinstance(await store.create("k", body), Unknown)
    assert sys.getrefcount(body) < before[1] + 10  # and no garbage collector has to come by
    gc.collect()
    assert sys.getrefcount(loop) < before[0] + 10
    gate.set()
    await store.aclose()


async def test_a_pool_that_is_shut_down_is_no_trouble_of_the_store(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store._threads.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        await store.create("k", b"1")


def _fails(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")

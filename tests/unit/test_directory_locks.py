"""Locks between writers, and a holder that is frozen."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tenure.errors import StoreUnavailable
from tenure.store import Applied, Rejected, Unknown
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place
from tenure.store.directory.locks import STRIPES, stripe_of

PATIENCE = 0.03
STRIPE = f"{stripe_of('k'):02x}"


@contextmanager
def lock_held(root: Path, generation: int = 0) -> Iterator[None]:
    """As by a process that is frozen: the kernel keeps the lock, and nobody works behind it."""
    descriptor = os.open(root / "+locks" / f"{STRIPE}.{generation}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def generations(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "+locks").iterdir() if path.name.startswith(f"{STRIPE}."))


class FrozenDisk(Disk):
    """Stands still just before the rename, with the lock in its hands, until it is thawed."""

    def __init__(self) -> None:
        self.armed = True
        self.frozen, self.thaw = threading.Event(), threading.Event()
        self.failed_renames = 0

    def rename(self, source: Place, target: Place) -> None:
        if self.armed:
            self.armed = False
            self.frozen.set()
            assert self.thaw.wait(10)
        try:
            super().rename(source, target)
        except FileNotFoundError:
            self.failed_renames += 1
            raise


async def frozen(disk: FrozenDisk) -> None:
    assert await asyncio.to_thread(disk.frozen.wait, 5)


@pytest.mark.parametrize("verb", ["replace", "put", "delete"])
async def test_a_frozen_lock_is_passed_by(verb: str, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, lock_patience=PATIENCE)
    version = await store.put("k", b"1")
    with lock_held(tmp_path):
        if verb == "replace":
            assert isinstance(await store.replace("k", b"2", version), Applied)
        elif verb == "put":
            await store.put("k", b"2")
        else:
            await store.delete("k")
    assert generations(tmp_path) == [f"{STRIPE}.0", f"{STRIPE}.1"]
    assert (tmp_path / "k").exists() == (verb != "delete")


async def test_a_lock_that_is_given_back_in_time_is_waited_for(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, lock_patience=5.0)
    version = await store.put("k", b"1")
    with lock_held(tmp_path):
        writing = asyncio.create_task(store.replace("k", b"2", version))
        done, _ = await asyncio.wait([writing], timeout=0.02)
        assert not done
    assert isinstance(await writing, Applied)
    assert generations(tmp_path) == [f"{STRIPE}.0"]


async def test_a_create_needs_no_lock(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, lock_patience=5.0, timeout=1.0)
    with lock_held(tmp_path):
        assert isinstance(await store.create("k", b"1"), Applied)


async def test_other_stripes_are_not_held_up(tmp_path: Path) -> None:
    other = next(key for key in map(str, range(99)) if stripe_of(key) != stripe_of("k"))
    store = DirectoryStore(tmp_path, lock_patience=5.0, timeout=1.0)
    with lock_held(tmp_path):
        await store.put(other, b"1")


async def test_frozen_again_and_again(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, lock_patience=0.01)
    with lock_held(tmp_path, 0), lock_held(tmp_path, 1), lock_held(tmp_path, 2):
        await store.put("k", b"1")
    assert generations(tmp_path)[-1] == f"{STRIPE}.3"
    late_comer = DirectoryStore(tmp_path, lock_patience=5.0, timeout=1.0)
    with lock_held(tmp_path, 0):  # long since passed by
        await late_comer.put("k", b"2")


async def test_a_store_that_did_not_see_the_new_generation_moves_on_to_it(tmp_path: Path) -> None:
    slow, quick = DirectoryStore(tmp_path, lock_patience=5.0, timeout=1.0), DirectoryStore(tmp_path, lock_patience=0.01)
    await slow.put("k", b"1")
    with lock_held(tmp_path):
        await quick.put("k", b"2")
    with lock_held(tmp_path, 1):  # the old lock is free, and means nothing any more
        writing = asyncio.create_task(slow.put("k", b"3"))
        done, _ = await asyncio.wait([writing], timeout=0.03)
        assert not done
    await writing
    assert (await quick.get("k")).body == b"3"


async def test_a_frozen_replace_that_wakes_up_overwrites_nothing(tmp_path: Path) -> None:
    disk = FrozenDisk()
    sleeper = DirectoryStore(tmp_path, disk=disk, lock_patience=PATIENCE)
    awake = DirectoryStore(tmp_path, lock_patience=PATIENCE)
    created = await awake.create("k", b"1")
    assert isinstance(created, Applied)
    sleeping = asyncio.create_task(sleeper.replace("k", b"sleeper", created.version))
    await frozen(disk)
    assert isinstance(await awake.replace("k", b"awake", created.version), Applied)
    disk.thaw.set()
    assert await sleeping == Rejected()
    assert disk.failed_renames == 1
    assert (await awake.get("k")).body == b"awake"
    assert list((tmp_path / "+tmp").iterdir()) == []


async def test_a_frozen_put_that_wakes_up_starts_again(tmp_path: Path) -> None:
    disk = FrozenDisk()
    sleeper = DirectoryStore(tmp_path, disk=disk, lock_patience=PATIENCE)
    awake = DirectoryStore(tmp_path, lock_patience=PATIENCE)
    sleeping = asyncio.create_task(sleeper.put("k", b"sleeper"))
    await frozen(disk)
    between = await awake.put("k", b"awake")
    disk.thaw.set()
    version = await sleeping
    assert disk.failed_renames == 1
    assert int(version.e_tag, 16) > int(between.e_tag, 16)
    assert (await awake.get("k")).body == b"sleeper"


async def test_a_frozen_holder_whose_key_was_left_alone_still_succeeds(tmp_path: Path) -> None:
    neighbour = next(key for key in map(str, range(999)) if stripe_of(key) == stripe_of("k"))
    disk = FrozenDisk()
    sleeper = DirectoryStore(tmp_path, disk=disk, lock_patience=PATIENCE)
    awake = DirectoryStore(tmp_path, lock_patience=PATIENCE)
    version = await awake.put("k", b"1")
    sleeping = asyncio.create_task(sleeper.replace("k", b"2", version))
    await frozen(disk)
    await awake.put(neighbour, b"1")
    disk.thaw.set()
    assert isinstance(await sleeping, Applied)
    assert (await awake.get("k")).body == b"2"


async def test_a_thread_that_is_stuck_in_the_disk_holds_up_its_own_process_only_so_long(tmp_path: Path) -> None:
    disk = FrozenDisk()
    store = DirectoryStore(tmp_path, disk=disk, lock_patience=0.01)
    stuck = asyncio.create_task(store.put("k", b"1"))
    await frozen(disk)
    with pytest.raises(StoreUnavailable, match="put 'k': the disk has not finished an earlier write of this process"):
        await store.put("k", b"2")
    disk.thaw.set()
    await stuck


async def test_a_write_that_is_swept_away_each_time_says_that_nothing_was_written(tmp_path: Path) -> None:
    class SweptDisk(Disk):
        def rename(self, source: Place, target: Place) -> None:
            raise FileNotFoundError

        def link(self, source: Place, target: Place) -> None:
            if target.folder.name != "+tmp":
                raise FileNotFoundError
            super().link(source, target)

    version = await DirectoryStore(tmp_path).put("k", b"1")
    store = DirectoryStore(tmp_path, disk=SweptDisk())
    for call in (store.replace("k", b"2", version), store.create("j", b"2")):
        outcome = await call
        assert isinstance(outcome, Unknown)
        assert "started 20 times and was overtaken each time; nothing was written" in str(outcome.error)
    with pytest.raises(StoreUnavailable, match="put 'k': started 20 times"):
        await store.put("k", b"2")
    assert (await store.get("k")).body == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["+locks", "+tmp", "k"]


class StallingDisk(Disk):
    """Stops now and then, for longer than the others are patient."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.stalls = 0

    def sync_file(self, descriptor: int) -> None: ...

    def sync_folder(self, folder: Folder) -> None: ...

    def rename(self, source: Place, target: Place) -> None:
        if self._random.random() < 0.25:
            self.stalls += 1
            threading.Event().wait(0.012)
        super().rename(source, target)


@pytest.mark.parametrize("seed", range(3))
async def test_no_update_is_lost_among_writers_that_stall(seed: int, tmp_path: Path) -> None:
    disks = [StallingDisk(seed * 10 + number) for number in range(4)]
    stores = [DirectoryStore(tmp_path, disk=disk, lock_patience=0.003) for disk in disks]
    await stores[0].put("k", b"0")

    async def count_up(store: DirectoryStore) -> int:
        applied = 0
        while applied < 12:
            found = await store.get("k")
            outcome = await store.replace("k", b"%d" % (int(found.body) + 1), found.version)
            assert not isinstance(outcome, Unknown)
            applied += isinstance(outcome, Applied)
        return applied

    applied = sum(await asyncio.gather(*(count_up(store) for store in stores)))
    assert int((await stores[0].get("k")).body) == applied
    assert sum(disk.stalls for disk in disks) > 0
    assert len(generations(tmp_path)) > 1  # somebody was passed by


def test_stripes_are_spread() -> None:
    counts = [0] * STRIPES
    for number in range(6400):
        counts[stripe_of(f"workers/worker={number}.json")] += 1
    assert min(counts) > 40

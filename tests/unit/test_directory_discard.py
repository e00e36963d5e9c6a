"""Removing an object of a directory only if it has the expected version."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from random import Random

import pytest

from tenure.errors import NotFound
from tenure.store import Applied, Rejected, Stored, Unknown, Version
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place
from tenure.testing import SimulatedClock


async def create(store: DirectoryStore, key: str, body: bytes = b"x") -> Version:
    outcome = await store.create(key, body)
    assert isinstance(outcome, Applied)
    return outcome.version


@pytest.mark.req("DB-2")
async def test_versions_of_a_key_never_repeat_whatever_the_clock_does(tmp_path: Path) -> None:
    clock = SimulatedClock()
    seen: set[str] = set()
    for round_number in range(12):
        store = DirectoryStore(tmp_path, clock=clock)  # what is known has to be on the disk
        version = await create(store, "a/k")
        written = [version]
        if round_number % 2:
            outcome = await store.replace("a/k", b"y", version)
            assert isinstance(outcome, Applied)
            written.append(outcome.version)
        assert await store.discard("a/k", written[-1]) == Applied(written[-1])
        if round_number % 3 == 0:
            written.append(await store.put("a/k", b"z"))
            assert isinstance(await store.discard("a/k", written[-1]), Applied)
        assert not seen & {version.e_tag for version in written}
        seen |= {version.e_tag for version in written}
        clock.step_wall(-1e-9)
        await store.aclose()


async def test_nothing_is_left_of_what_was_discarded(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    version = await create(store, "a/b/k")
    assert isinstance(await store.discard("a/b/k", version), Applied)
    assert [entry async for entry in store.list()] == []
    assert list((tmp_path / "+tmp").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["+locks", "+tmp"]
    with pytest.raises(NotFound):
        await store.get("a/b/k")


async def test_what_a_killed_discarder_left_is_swept(tmp_path: Path) -> None:
    DirectoryStore(tmp_path)
    left = tmp_path / "+tmp" / "05.dead"
    left.mkdir()
    (left / "body").write_bytes(b"x")
    (left / "floor").write_bytes(b"")
    DirectoryStore(tmp_path)
    assert list((tmp_path / "+tmp").iterdir()) == []


class KilledAfter(Disk):
    """Renames so often, and then never again: as for a process that was killed in between."""

    def __init__(self, renames: int) -> None:
        self.renames = renames

    def rename(self, source: Place, target: Place) -> None:
        if self.renames == 0:
            raise KeyboardInterrupt
        self.renames -= 1
        super().rename(source, target)


@pytest.mark.req("DB-2")
@pytest.mark.parametrize("renames", [0, 1, 2])
def test_killed_between_any_two_steps_the_object_is_there_or_gone(tmp_path: Path, renames: int) -> None:
    store = DirectoryStore(tmp_path, disk=KilledAfter(renames))
    version = store._create("k", b"x").version  # type: ignore[union-attr]
    try:
        store._discard("k", version)
    except KeyboardInterrupt:
        assert renames < 2
    after = DirectoryStore(tmp_path)
    if renames < 2:
        found = after._get("k", None)
        assert isinstance(found, Stored)
        assert found == Stored(b"x", version)
        assert isinstance(after._discard("k", version), Applied)
    with pytest.raises(NotFound):
        after._get("k", None)
    again = after._create("k", b"y")
    assert isinstance(again, Applied)
    assert int(again.version.e_tag, 16) > int(version.e_tag, 16)


async def test_a_folder_that_is_swept_meanwhile_makes_it_start_again(tmp_path: Path) -> None:
    class Sweeps(Disk):
        swept = 0

        def remove_as_others_do(self, folder: Folder) -> None:
            with self.open_root(tmp_path / "+tmp") as temporary:
                self.remove(temporary / folder.name)

        def rename(self, source: Place, target: Place) -> None:
            if target.name == "body" and self.swept < 3:
                self.swept += 1
                self.remove_as_others_do(target.folder)
            super().rename(source, target)

    disk = Sweeps()
    store = DirectoryStore(tmp_path, disk=disk)
    version = await create(store, "k")
    assert isinstance(await store.discard("k", version), Applied)
    assert disk.swept == 3


async def test_a_discard_that_is_swept_each_time_says_so(tmp_path: Path) -> None:
    class Sweeps(Disk):
        def rename(self, source: Place, target: Place) -> None:
            if target.name == "body":
                raise FileNotFoundError
            super().rename(source, target)

    store = DirectoryStore(tmp_path, disk=Sweeps())
    version = await create(store, "k")
    outcome = await store.discard("k", version)
    assert isinstance(outcome, Unknown)
    assert "started 20 times" in str(outcome.error)
    found = await store.get("k")
    assert isinstance(found, Stored)


class StallingDisk(Disk):
    """Stops now and then, for longer than the others are patient."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.stalls = 0

    def sync_file(self, descriptor: int) -> None: ...

    def sync_folder(self, folder: Folder) -> None: ...

    def rename(self, source: Place, target: Place) -> None:
        self._stall()
        super().rename(source, target)

    def link(self, source: Place, target: Place) -> None:
        self._stall()
        super().link(source, target)

    def _stall(self) -> None:
        if self._random.random() < 0.2:
            self.stalls += 1
            threading.Event().wait(0.008)


@pytest.mark.req("DB-2")
@pytest.mark.parametrize("seed", range(3))
async def test_writers_that_stall_lose_no_write_to_a_discard(seed: int, tmp_path: Path) -> None:
    """Of each version exactly one fate is told: replaced, or discarded; and a version is given once."""
    disks = [StallingDisk(seed * 10 + number) for number in range(4)]
    stores = [DirectoryStore(tmp_path, disk=disk, lock_patience=0.003) for disk in disks]
    given: list[str] = []
    ended: list[str] = []

    async def work(store: DirectoryStore, dice: Random) -> None:
        for _ in range(25):
            try:
                found = await store.get("k")
            except NotFound:
                outcome = await store.create("k", b"1")
                assert not isinstance(outcome, Unknown)
                if isinstance(outcome, Applied):
                    given.append(outcome.version.e_tag)
                continue
            if dice.random() < 0.5:
                outcome = await store.replace("k", b"2", found.version)
                if isinstance(outcome, Applied):
                    given.append(outcome.version.e_tag)
                    ended.append(found.version.e_tag)
            else:
                outcome = await store.discard("k", found.version)
                if isinstance(outcome, Applied):
                    ended.append(found.version.e_tag)
            assert not isinstance(outcome, Unknown)

    await asyncio.gather(*(work(store, Random(seed * 100 + number)) for number, store in enumerate(stores)))
    assert len(given) == len(set(given))
    assert len(ended) == len(set(ended))
    left = set(given) - set(ended)
    try:
        assert left == {(await stores[0].get("k")).version.e_tag}
    except NotFound:
        assert left == set()
    assert sum(disk.stalls for disk in disks) > 0


@pytest.mark.req("DB-2")
async def test_only_the_expected_version(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    version = await create(store, "k")
    assert isinstance(await store.replace("k", b"y", version), Applied)
    assert isinstance(await store.discard("k", version), Rejected)
    assert isinstance(await store.discard("missing/k", version), Rejected)


@pytest.mark.parametrize("call", ["open_folder", "write_new", "open_lock"])
async def test_a_process_without_free_descriptors_leaves_nothing_behind(call: str, tmp_path: Path) -> None:
    class NoDescriptors(Disk):
        is_full = False

    def fails(self: NoDescriptors, place: Place, *arguments: object, **options: object) -> object:
        if self.is_full and (place.folder.name in ("+tmp", "+locks") or place.name == "floor"):
            raise OSError(errno.EMFILE, "Too many open files")
        return getattr(Disk, call)(self, place, *arguments, **options)

    setattr(NoDescriptors, call, fails)
    disk = NoDescriptors()
    store = DirectoryStore(tmp_path, disk=disk)
    version = await store.put("k", b"1")
    disk.is_full = True
    for _ in range(3):
        assert isinstance(await store.discard("k", version), Unknown)
    assert list((tmp_path / "+tmp").iterdir()) == []
    await store.aclose()

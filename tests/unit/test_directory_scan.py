"""A listing has every key that is there throughout, once, also while its folder is written to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import pytest

from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder
from tenure.testing import SimulatedClock

MEMORY = Path("/dev/shm")
COUNT = 400
LONG = "x" * 120
"""So that the names take more than the 32 KiB that are read at a time."""


class ShiftyDisk(Disk):
    """On which names move while they are read: `missed` says which are left out of a scan, by its number."""

    def __init__(self, root: Path) -> None:
        self.scans = 0
        self.missed: Callable[[int], set[str]] = lambda number: set()
        self.changes = True
        self.twice = False
        self._root = root

    @contextmanager
    def scan(self, folder: Folder) -> Iterator[Iterator[os.DirEntry[str]]]:
        with super().scan(folder) as found:
            if Path(folder.path) != self._root:
                yield found
                return
            self.scans += 1
            missed = self.missed(self.scans)
            entries = [each for each in found if each.name not in missed]
        if missed and self.changes:
            (self._root / "+tmp" / f"new{self.scans}").rename(self._root / min(missed))
        yield iter(entries * 2 if self.twice else entries)


@pytest.fixture
def disk(tmp_path: Path) -> ShiftyDisk:
    return ShiftyDisk(tmp_path)


@pytest.fixture
def clock() -> SimulatedClock:
    """Of another year than the folder's times."""
    return SimulatedClock()


@pytest.fixture
def store(tmp_path: Path, disk: ShiftyDisk, clock: SimulatedClock) -> DirectoryStore:
    store = DirectoryStore(tmp_path, disk=disk, clock=clock)
    for name in ("a", "b", "c", "d@/e"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for number in range(1, 9):
        (tmp_path / "+tmp" / f"new{number}").touch()
    sleep(0.02)  # the next change of the folder has another time
    return store


async def keys_of(store: DirectoryStore) -> list[str]:
    return [entry.key async for entry in store.list()]


async def test_a_folder_that_stands_still_is_read_once(store: DirectoryStore, disk: ShiftyDisk) -> None:
    assert await keys_of(store) == ["a", "b", "c", "d/e"]
    assert disk.scans == 1


async def test_what_moved_while_the_folder_was_read_is_found(store: DirectoryStore, disk: ShiftyDisk) -> None:
    disk.missed = lambda number: {"b"} if number == 1 else set()
    assert await keys_of(store) == ["a", "b", "c", "d/e"]


async def test_each_time_another_one_is_missed(store: DirectoryStore, disk: ShiftyDisk) -> None:
    disk.missed = lambda number: {"abc"[number % 3]}
    assert await keys_of(store) == ["a", "b", "c", "d/e"]


async def test_a_change_may_have_the_time_of_the_one_before(
    store: DirectoryStore, disk: ShiftyDisk, clock: SimulatedClock, tmp_path: Path
) -> None:
    disk.missed = lambda number: {"b"} if number == 1 else set()
    disk.changes = False  # as far as anybody can tell by the folder's time
    clock.step_wall((tmp_path.stat().st_ctime_ns - clock.read().wall_ns) / 1e9)
    assert await keys_of(store) == ["a", "b", "c", "d/e"]


async def test_a_folder_that_never_stands_still_is_read_so_often_and_no_more(
    store: DirectoryStore, disk: ShiftyDisk
) -> None:
    disk.missed = lambda number: {"b"}
    assert await keys_of(store) == ["a", "c", "d/e"]
    assert disk.scans == 3


async def test_what_was_removed_between_is_left_out(store: DirectoryStore, disk: ShiftyDisk, tmp_path: Path) -> None:
    def missed(number: int) -> set[str]:
        if number == 2:
            (tmp_path / "c").unlink()
        return {"b"} if number == 1 else set()

    disk.missed = missed
    assert await keys_of(store) == ["a", "b", "d/e"]


@pytest.mark.parametrize(("watched", "held"), [(20_000, 250_000), (1, 250_000), (1, 2)])
async def test_no_key_comes_twice(
    watched: int, held: int, store: DirectoryStore, disk: ShiftyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.directory.listing._WATCHED", watched)
    monkeypatch.setattr("tenure.store.directory.listing._NAMES_HELD", held)
    disk.twice = True
    assert await keys_of(store) == ["a", "b", "c", "d/e"]


async def test_a_folder_of_very_many_names_is_read_once(
    store: DirectoryStore, disk: ShiftyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.directory.listing._WATCHED", 3)
    disk.missed = lambda number: {"b"}
    assert await keys_of(store) == ["a", "c", "d/e"]
    assert disk.scans == 1


class BusyDisk(Disk):
    """Writes every tenth object while the names are read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begun = False

    @contextmanager
    def scan(self, folder: Folder) -> Iterator[Iterator[os.DirEntry[str]]]:
        with super().scan(folder) as found:
            yield self._while_read(found)

    def _while_read(self, found: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for number, each in enumerate(found):
            if number == 10 and not self._begun:
                self._begun = True
                for written in range(0, COUNT, 10):
                    new = self._root / "+tmp" / "new"
                    new.touch()
                    new.rename(self._root / name_of(written))
            yield each


def name_of(number: int) -> str:
    return f"n{number:05d}{LONG}"


@pytest.mark.skipif(not MEMORY.is_dir(), reason="no tmpfs, on which a rename moves a name")
async def test_a_file_system_on_which_a_rename_moves_the_name() -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as top:
        root = Path(top)
        store = DirectoryStore(root, disk=BusyDisk(root))
        for number in range(COUNT):
            (root / name_of(number)).touch()
        assert await keys_of(store) == [name_of(number) for number in range(COUNT)]
        await store.aclose()

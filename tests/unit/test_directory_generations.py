"""A frozen writer that was passed by can change nothing, even if whoever passed it by died on the way."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.errors import NotFound
from tenure.store import Applied, Outcome, Rejected, Stored, Unknown, Version
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place
from tenure.store.directory.layout import LOCKS, TEMPORARY
from tenure.store.directory.locks import StripedLocks, stripe_of
from tenure.store.directory.tree import Tree


async def race_with_a_frozen_discarder(root: Path) -> tuple[Outcome, bytes | None]:
    """What a discarder is told that was frozen after its comparison, and what is left of an object written since."""
    disk = FreezesAtRename(target="body")
    old = DirectoryStore(root, disk=disk)
    created = await old.create("lease", b"tombstone")
    assert isinstance(created, Applied)
    frozen = asyncio.ensure_future(old.discard("lease", created.version))
    await asyncio.to_thread(disk.frozen.wait, 10)
    (root / LOCKS / f"{stripe_of('lease'):02x}.1").touch()  # somebody passed it by, and was killed
    newcomer = DirectoryStore(root)
    assert isinstance(await newcomer.replace("lease", b"written again", created.version), Applied)
    disk.thaw.set()
    told = await frozen
    try:
        stored = await newcomer.get("lease")
        assert isinstance(stored, Stored)
        left = stored.body
    except NotFound:
        left = None
    await old.aclose()
    await newcomer.aclose()
    return told, left


class FreezesAtRename(Disk):
    """Stands still, once, with the lock held and the comparison made."""

    def __init__(self, target: str = "") -> None:
        self.frozen = threading.Event()
        self.thaw = threading.Event()
        self._target = target

    def rename(self, source: Place, target: Place) -> None:
        self._stand_still(target)
        super().rename(source, target)

    def unlink(self, place: Place) -> None:
        self._stand_still(place)
        super().unlink(place)

    def _stand_still(self, target: Place) -> None:
        if target.name.startswith(self._target) and not self.frozen.is_set():
            self.frozen.set()
            self.thaw.wait(10)


async def race_with_a_frozen_writer(root: Path) -> tuple[Outcome, Outcome, bytes]:
    """The frozen writer's outcome, the newcomer's, and what is stored."""
    disk = FreezesAtRename(target="lease")
    old = DirectoryStore(root, disk=disk)
    created = await old.create("lease", b"v1")
    assert isinstance(created, Applied)
    frozen = asyncio.ensure_future(old.replace("lease", b"frozen", created.version))
    await asyncio.to_thread(disk.frozen.wait, 10)
    # Somebody lost patience, started the next generation, and was killed before it could do anything else.
    (root / LOCKS / f"{stripe_of('lease'):02x}.1").touch()
    newcomer = DirectoryStore(root)
    won = await newcomer.replace("lease", b"newcomer", created.version)
    disk.thaw.set()
    lost = await frozen
    stored = await newcomer.get("lease")
    assert isinstance(stored, Stored)
    await old.aclose()
    await newcomer.aclose()
    return lost, won, stored.body


async def test_a_newcomer_disarms_a_frozen_writer(tmp_path: Path) -> None:
    lost, won, body = await race_with_a_frozen_writer(tmp_path)
    assert isinstance(won, Applied)
    assert isinstance(lost, Rejected)
    assert body == b"newcomer"


async def test_without_disarming_there_are_two_winners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the test above can fail."""
    monkeypatch.setattr(StripedLocks, "_disarm_earlier_holders", lambda *arguments: None)
    lost, won, body = await race_with_a_frozen_writer(tmp_path)
    assert isinstance(won, Applied)
    assert isinstance(lost, Applied)
    assert body == b"frozen"


@pytest.mark.req("DB-2")
async def test_a_frozen_discarder_that_was_passed_by_removes_nothing(tmp_path: Path) -> None:
    told, left = await race_with_a_frozen_discarder(tmp_path)
    assert left == b"written again"
    assert isinstance(told, Rejected)


async def test_a_discard_by_unlink_would_remove_what_was_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: compared under the lock, and then unlinked."""

    def unlinks(self: DirectoryStore, tree: Tree, key: str, own: Folder, target: Place, expected: Version) -> bool:
        with self._locks.hold(tree, stripe_of(key), own.name):
            if not self._has(target, expected):
                return False
            assert isinstance(self._disk, FreezesAtRename)
            self._disk._stand_still(own / "body")
            self._disk.unlink(target)
            return True

    monkeypatch.setattr(DirectoryStore, "_take_away", unlinks)
    told, left = await race_with_a_frozen_discarder(tmp_path)
    assert left is None
    assert isinstance(told, Applied)


async def test_without_disarming_a_frozen_discarder_removes_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StripedLocks, "_disarm_earlier_holders", lambda *arguments: None)
    told, left = await race_with_a_frozen_discarder(tmp_path)
    assert left is None
    assert isinstance(told, Applied)


# The directory may be removed and made again while processes have it open.


async def test_generations_of_a_directory_that_was_removed_count_no_more(tmp_path: Path) -> None:
    """Of two that replace the same version one wins, though one of them knew the directory before it was removed."""
    root = tmp_path / "root"
    one = DirectoryStore(root)
    (root / LOCKS / f"{stripe_of('k'):02x}.1").touch()
    await one.put("k", b"under generation 1")
    shutil.rmtree(root)

    disk = FreezesAtRename(target="k")
    two = DirectoryStore(root, disk=disk)
    created = await two.create("k", b"base")
    assert isinstance(created, Applied)
    slow = asyncio.ensure_future(two.replace("k", b"two", created.version))
    await asyncio.to_thread(disk.frozen.wait, 10)
    quick = asyncio.ensure_future(one.replace("k", b"one", created.version))
    done, _ = await asyncio.wait([quick], timeout=0.05)
    assert not done  # it waits for the same lock
    disk.thaw.set()
    assert isinstance(await slow, Applied)
    assert isinstance(await quick, Rejected)
    stored = await one.get("k")
    assert isinstance(stored, Stored)
    assert stored.body == b"two"
    assert [path.name for path in (root / LOCKS).iterdir()] == [f"{stripe_of('k'):02x}.0"]
    await one.aclose()
    await two.aclose()


async def test_who_was_frozen_in_the_new_directory_is_disarmed_again(tmp_path: Path) -> None:
    """That it was done under the same generation of a directory that was removed says nothing."""
    root = tmp_path / "root"
    newcomer = DirectoryStore(root)
    (root / LOCKS / f"{stripe_of('lease'):02x}.1").touch()
    await newcomer.put("lease", b"under generation 1")
    shutil.rmtree(root)

    disk = FreezesAtRename(target="lease")
    old = DirectoryStore(root, disk=disk)
    created = await old.create("lease", b"v1")
    assert isinstance(created, Applied)
    frozen = asyncio.ensure_future(old.replace("lease", b"frozen", created.version))
    await asyncio.to_thread(disk.frozen.wait, 10)
    (root / LOCKS / f"{stripe_of('lease'):02x}.1").touch()
    assert isinstance(await newcomer.replace("lease", b"newcomer", created.version), Applied)
    disk.thaw.set()
    assert isinstance(await frozen, Rejected)
    await old.aclose()
    await newcomer.aclose()


# The lock files may be removed while they are held.


def _folder(root: Path) -> None:
    shutil.rmtree(root / LOCKS)


def _file(root: Path) -> None:
    (root / LOCKS / f"{stripe_of('lease'):02x}.0").unlink()


def _moved(root: Path) -> None:
    (root / LOCKS).rename(root / "aside")


def _both(root: Path) -> None:
    shutil.rmtree(root / LOCKS)
    shutil.rmtree(root / TEMPORARY)


REMOVALS = pytest.mark.parametrize("remove", [_folder, _file, _moved, _both])


async def race_without_the_old_locks(
    root: Path, remove: Callable[[Path], None], *, is_known: bool
) -> tuple[Outcome, Outcome, bytes]:
    """The outcomes of one who was frozen with the lock in its hands, which was then removed, and of a newcomer."""
    disk = FreezesAtRename(target="lease")
    newcomer = DirectoryStore(root)
    await newcomer.put("lease", b"v0")
    old = DirectoryStore(root, disk=disk)
    disk.frozen.set()  # not yet
    base = await old.put("lease", b"v1")
    disk.frozen.clear()
    frozen = asyncio.ensure_future(old.replace("lease", b"frozen", base))
    await asyncio.to_thread(disk.frozen.wait, 10)
    remove(root)
    if not is_known:
        newcomer = DirectoryStore(root)
    won = await newcomer.replace("lease", b"newcomer", base)
    disk.thaw.set()
    lost = await frozen
    stored = await newcomer.get("lease")
    assert isinstance(stored, Stored)
    await old.aclose()
    await newcomer.aclose()
    return lost, won, stored.body


@REMOVALS
@pytest.mark.parametrize("is_known", [True, False], ids=["running", "started"])
async def test_who_holds_a_lock_that_was_removed_changes_nothing(
    remove: Callable[[Path], None], is_known: bool, tmp_path: Path
) -> None:
    """WA-9: of two that replace the same version one wins."""
    lost, won, body = await race_without_the_old_locks(tmp_path, remove, is_known=is_known)
    assert isinstance(won, Applied)
    assert isinstance(lost, Rejected)
    assert body == b"newcomer"


async def test_without_disarming_who_held_the_removed_lock_wins_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: the test above can fail."""
    monkeypatch.setattr(StripedLocks, "_disarm_earlier_holders", lambda *arguments: None)
    lost, won, body = await race_without_the_old_locks(tmp_path, _folder, is_known=True)
    assert isinstance(won, Applied)
    assert isinstance(lost, Applied)
    assert body == b"frozen"


class SlowToLock(FreezesAtRename):
    """Stands still, once, with the lock file open and before it is locked."""

    def rename(self, source: Place, target: Place) -> None:
        Disk.rename(self, source, target)

    def unlink(self, place: Place) -> None:
        Disk.unlink(self, place)

    def open_lock(self, place: Place, *, make: bool) -> tuple[int, os.stat_result]:
        opened = super().open_lock(place, make=make)
        self._stand_still(place)
        return opened


class SlowToWrite(SlowToLock):
    """Stands still, once, before its body is on the disk, and with the folder of the locks open."""

    def open_lock(self, place: Place, *, make: bool) -> tuple[int, os.stat_result]:
        return Disk.open_lock(self, place, make=make)

    def write_new(self, place: Place, body: bytes) -> int:
        self._stand_still(place)
        return super().write_new(place, body)


async def two_inside(root: Path, remove: Callable[[Path], None], slow: SlowToLock) -> bool:
    """Does somebody come in by a lock that was removed before it was taken, while another one is inside?"""
    quick = FreezesAtRename(target="lease")
    old, newcomer = DirectoryStore(root, disk=slow), DirectoryStore(root, disk=quick)
    slow.frozen.set()
    quick.frozen.set()
    await newcomer.put("lease", b"v0")
    await old.put("lease", b"v0")
    base = await newcomer.put("lease", b"v1")
    slow.frozen.clear()
    quick.frozen.clear()
    one = asyncio.ensure_future(old.replace("lease", b"old", base))
    await asyncio.to_thread(slow.frozen.wait, 10)
    remove(root)
    two = asyncio.ensure_future(newcomer.replace("lease", b"newcomer", base))
    await asyncio.to_thread(quick.frozen.wait, 10)
    slow.thaw.set()
    done, _ = await asyncio.wait([one], timeout=0.1)
    came_in = bool(done) and isinstance(one.result(), Applied)
    quick.thaw.set()
    outcomes = [type(outcome) for outcome in await asyncio.gather(one, two)]
    assert outcomes.count(Applied) == 1 or came_in
    await old.aclose()
    await newcomer.aclose()
    return came_in


@pytest.mark.parametrize("remove", [_folder, _file, _moved])
async def test_a_lock_that_was_removed_before_it_was_taken_lets_nobody_in(
    remove: Callable[[Path], None], tmp_path: Path
) -> None:
    """WA-9. Its temporary file is gone (disarmed), and then it waits for the lock that is there now."""
    assert not await two_inside(tmp_path, remove, SlowToLock())


@pytest.mark.parametrize("remove", [_folder, _file, _moved])
async def test_a_folder_of_locks_that_is_none_any_more_lets_nobody_in(
    remove: Callable[[Path], None], tmp_path: Path
) -> None:
    """WA-9. Its temporary file is newer than the disarming: what keeps it out is that its lock has lost its name."""
    assert not await two_inside(tmp_path, remove, SlowToWrite())


async def test_by_a_lock_without_a_name_two_come_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the test above can fail."""
    monkeypatch.setattr(StripedLocks, "_newest", lambda self, tree, stripe, generation, lock: generation)
    assert await two_inside(tmp_path, _moved, SlowToWrite())


async def test_a_lower_generation_that_was_removed_leads_nobody_astray(tmp_path: Path) -> None:
    """A cleaner that goes by age removes the oldest first: who never needed the second generation must find it."""
    stripe = f"{stripe_of('lease'):02x}"
    disk = FreezesAtRename(target="lease")
    disk.frozen.set()
    behind, ahead = DirectoryStore(tmp_path), DirectoryStore(tmp_path, disk=disk)
    base = await behind.put("lease", b"v1")
    for generation in (1, 2, 3):
        (tmp_path / LOCKS / f"{stripe}.{generation}").touch()
    base = await ahead.put("lease", b"v2")
    for generation in (0, 1, 2):
        (tmp_path / LOCKS / f"{stripe}.{generation}").unlink()
    disk.frozen.clear()
    one = asyncio.ensure_future(ahead.replace("lease", b"ahead", base))
    await asyncio.to_thread(disk.frozen.wait, 10)
    two = asyncio.ensure_future(behind.replace("lease", b"behind", base))
    done, _ = await asyncio.wait([two], timeout=0.05)
    assert not done  # it waits for the same lock
    disk.thaw.set()
    assert isinstance(await one, Applied)
    assert isinstance(await two, Rejected)
    await behind.aclose()
    await ahead.aclose()


async def test_many_that_start_at_once_do_not_all_disarm_one_another(tmp_path: Path) -> None:
    """One has done it for the lock file: a write of somebody who waits for the lock is not started again each time."""
    file = tmp_path / TEMPORARY / f"{stripe_of('lease'):02x}.somebody"
    for is_kept in (False, True, True):
        store = DirectoryStore(tmp_path)
        file.touch()
        descriptor = os.open(file, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        await store.put("lease", b"1")
        assert file.exists() == is_kept
        await store.aclose()
        os.close(descriptor)


async def test_no_increment_is_lost_while_everything_of_ours_is_removed(tmp_path: Path) -> None:
    """WA-9: three stores count by compare-and-swap, and somebody removes their folders all the time."""
    stores = [DirectoryStore(tmp_path) for _ in range(3)]
    await stores[0].put("n", b"0")
    added, over = 0, False

    async def count(store: DirectoryStore) -> None:
        nonlocal added
        while not over:
            stored = await store.get("n")
            assert isinstance(stored, Stored)
            outcome = await store.replace("n", b"%d" % (int(stored.body) + 1), stored.version)
            assert not isinstance(outcome, Unknown)
            added += isinstance(outcome, Applied)

    counting = [asyncio.ensure_future(count(store)) for store in stores]
    for number in range(100):
        shutil.rmtree(tmp_path / (LOCKS, TEMPORARY)[number % 2], ignore_errors=True)
        await asyncio.sleep(0.005)
    over = True
    await asyncio.gather(*counting)
    stored = await stores[0].get("n")
    assert isinstance(stored, Stored)
    assert int(stored.body) == added > 50
    for store in stores:
        await store.aclose()

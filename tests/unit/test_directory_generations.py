"""A frozen writer that was passed by can change nothing, even if whoever passed it by died on the way."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from tenure.errors import NotFound
from tenure.store import Applied, Outcome, Rejected, Stored, Version
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place
from tenure.store.directory.layout import LOCKS
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

"""The directory store's system calls: their order, and what becomes of it when one fails."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.errors import AccessDenied, StoreError, StoreUnavailable, StoreUnfit
from tenure.store import Applied, Outcome, Rejected, Unknown, Version
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place
from tenure.store.directory.layout import LOCKS, TEMPORARY
from tenure.testing import SimulatedClock


class RecordingDisk(Disk):
    """Notes every call that matters for durability, with the path it was made on."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[int, str] = {}
        self.calls: list[tuple[str, str]] = []

    def _name(self, there: Place | Folder) -> str:
        path = Path(there.path)
        if path.parent.name == "+tmp":
            return "+tmp/*"
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def write_new(self, place: Place, body: bytes) -> int:
        self.calls.append(("write_new", self._name(place)))
        descriptor = super().write_new(place, body)
        self._open[descriptor] = self._name(place)
        return descriptor

    def sync_file(self, descriptor: int) -> None:
        super().sync_file(descriptor)
        self.calls.append(("sync_file", self._open[descriptor]))

    def sync_folder(self, folder: Folder) -> None:
        super().sync_folder(folder)
        self.calls.append(("sync_folder", self._name(folder)))

    def rename(self, source: Place, target: Place) -> None:
        self.calls.append(("rename", self._name(target)))
        super().rename(source, target)

    def link(self, source: Place, target: Place) -> None:
        self.calls.append(("link", self._name(target)))
        super().link(source, target)


class FailingDisk(Disk):
    """Fails the named call with the given error, once `armed`; a failing write leaves half of the body."""

    def __init__(self, call: str, number: int) -> None:
        self.armed = False
        self._call = call
        self._error = OSError(number, os.strerror(number))

    def _perhaps_fail(self, call: str) -> None:
        if self.armed and call == self._call:
            raise self._error

    def write_new(self, place: Place, body: bytes) -> int:
        if self.armed and self._call == "write_new":
            Path(place.path).write_bytes(body[: len(body) // 2])
        self._perhaps_fail("write_new")
        return super().write_new(place, body)

    def stamp(self, descriptor: int, modified_ns: int) -> None:
        self._perhaps_fail("stamp")
        super().stamp(descriptor, modified_ns)

    def sync_file(self, descriptor: int) -> None:
        self._perhaps_fail("sync_file")
        super().sync_file(descriptor)

    def sync_folder(self, folder: Folder) -> None:
        self._perhaps_fail("sync_folder")
        super().sync_folder(folder)

    def rename(self, source: Place, target: Place) -> None:
        self._perhaps_fail("rename")
        super().rename(source, target)

    def link(self, source: Place, target: Place) -> None:
        self._perhaps_fail("link")
        super().link(source, target)

    def unlink(self, place: Place) -> None:
        if place.folder.name != "+tmp":
            self._perhaps_fail("unlink")
        super().unlink(place)


class GatedDisk(Disk):
    """Stands still in the named call until the gate is opened."""

    def __init__(self, call: str) -> None:
        self.armed = False
        self.reached, self.gate = threading.Event(), threading.Event()
        inner: Callable[..., object] = getattr(self, call)

        def gated(*arguments: object) -> object:
            if self.armed:
                self.reached.set()
                assert self.gate.wait(10)
            return inner(*arguments)

        setattr(self, call, gated)

    async def until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 5)


def temporaries(root: Path) -> list[str]:
    return [path.name for path in (root / "+tmp").iterdir()]


def applied(outcome: Outcome) -> Version:
    assert isinstance(outcome, Applied)
    return outcome.version


OWN = (LOCKS, TEMPORARY)
WRITE = [("write_new", "+tmp/*"), ("sync_file", "+tmp/*")]


async def test_a_replace_syncs_the_file_before_and_the_folder_after_the_rename(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = DirectoryStore(tmp_path, disk=disk)
    version = applied(await store.create("a/k", b"1"))
    disk.calls.clear()
    applied(await store.replace("a/k", b"2", version))
    assert disk.calls == [*WRITE, ("rename", "a@/k"), ("sync_folder", "a@")]


async def test_a_create_syncs_the_file_before_and_the_folder_after_the_link(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = DirectoryStore(tmp_path, disk=disk)
    applied(await store.create("a/j", b"1"))
    disk.calls.clear()
    applied(await store.create("a/k", b"1"))
    assert disk.calls == [*WRITE, ("link", "a@/k"), ("sync_folder", "a@")]


async def test_a_put_syncs_as_a_replace_does(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = DirectoryStore(tmp_path, disk=disk)
    disk.calls.clear()
    await store.put("k", b"1")
    assert disk.calls == [*WRITE, ("rename", "k"), ("sync_folder", ".")]


@pytest.mark.parametrize("verb", ["put", "create"])
async def test_new_folders_are_made_durable_from_the_top(verb: str, tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = DirectoryStore(tmp_path, disk=disk)
    disk.calls.clear()
    await getattr(store, verb)("a/b/c/k", b"1")
    synced = [path for call, path in disk.calls if call == "sync_folder"]
    assert synced == [".", "a@", "a@/b@", "a@/b@/c@"]
    assert disk.calls[-1] == ("sync_folder", "a@/b@/c@")


def test_a_new_store_is_itself_made_durable(tmp_path: Path) -> None:
    root = tmp_path / "new" / "store"
    disk = RecordingDisk(root)
    DirectoryStore(root, disk=disk)
    assert ("sync_folder", str(tmp_path)) in disk.calls
    assert ("sync_folder", str(tmp_path / "new")) in disk.calls


async def test_a_doomed_write_writes_nothing(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = DirectoryStore(tmp_path, disk=disk)
    await store.put("k", b"1")
    disk.calls.clear()
    assert await store.replace("k", b"2", Version("0")) == Rejected()
    assert await store.replace("missing", b"2", Version("0")) == Rejected()
    assert disk.calls == []
    assert await store.create("k", b"2") == Rejected()
    assert disk.calls == [("sync_folder", ".")]


@pytest.mark.parametrize("verb", ["create", "replace", "put"])
async def test_the_answer_waits_for_the_folder_to_be_synced(verb: str, tmp_path: Path) -> None:
    disk = GatedDisk("sync_folder")
    store = DirectoryStore(tmp_path, disk=disk)
    arguments: tuple[object, ...] = ("k", b"2")
    if verb == "replace":
        arguments = (*arguments, await store.put("k", b"1"))
    disk.armed = True
    writing = asyncio.create_task(getattr(store, verb)(*arguments))
    await disk.until_reached()
    assert (tmp_path / "k").read_bytes() == b"2"  # already in place, and not yet acknowledged
    done, _ = await asyncio.wait([writing], timeout=0.02)
    assert not done
    disk.gate.set()
    assert not isinstance(await writing, Unknown)


async def test_a_disk_that_does_not_answer_is_given_up_and_may_finish_later(tmp_path: Path) -> None:
    disk = GatedDisk("sync_file")
    store = DirectoryStore(tmp_path, disk=disk, timeout=0.02)
    disk.armed = True
    outcome = await store.create("k", b"1")
    assert isinstance(outcome, Unknown)
    assert str(outcome.error) == "create 'k': the disk did not answer within 0.02 s"
    assert not (tmp_path / "k").exists()
    disk.armed = False
    disk.gate.set()
    for _ in range(200):
        if (tmp_path / "k").exists():
            break
        await asyncio.sleep(0.005)
    assert (tmp_path / "k").read_bytes() == b"1"


SPACE, ACCESS, PLAIN = (
    "free some space on the disk of",
    "this user needs to read and write",
    r"Input/output error \(in /",
)


@pytest.mark.parametrize(
    ("call", "number", "meaning", "words", "landed"),
    [
        ("write_new", errno.ENOSPC, StoreUnavailable, SPACE, False),
        ("write_new", errno.EDQUOT, StoreUnavailable, SPACE, False),
        ("write_new", errno.EACCES, AccessDenied, ACCESS, False),
        ("write_new", errno.EROFS, AccessDenied, ACCESS, False),
        ("stamp", errno.EPERM, AccessDenied, ACCESS, False),
        ("sync_file", errno.EIO, StoreUnavailable, PLAIN, False),
        ("sync_file", errno.ENOSPC, StoreUnavailable, SPACE, False),
        ("place", errno.EIO, StoreUnavailable, PLAIN, False),
        ("place", errno.EACCES, AccessDenied, ACCESS, False),
        ("sync_folder", errno.EIO, StoreUnavailable, PLAIN, True),
    ],
)
@pytest.mark.parametrize("verb", ["create", "replace", "put"])
async def test_an_error_of_the_disk(
    verb: str, call: str, number: int, meaning: type[StoreError], words: str, landed: bool, tmp_path: Path
) -> None:
    if call == "place":
        call = "link" if verb == "create" else "rename"
    disk = FailingDisk(call, number)
    store = DirectoryStore(tmp_path, disk=disk)
    before = None if verb == "create" else await store.put("k", b"old body")
    disk.armed = True
    if verb == "put":
        with pytest.raises(meaning, match=f"put 'k': .*{words}"):
            await store.put("k", b"new body")
    else:
        outcome = await (store.create("k", b"new body") if before is None else store.replace("k", b"new body", before))
        assert isinstance(outcome, Unknown)
        assert type(outcome.error) is meaning
        with pytest.raises(meaning, match=f"{verb} 'k': .*{words}"):
            raise outcome.error
    disk.armed = False
    assert temporaries(tmp_path) == []
    if landed:
        assert (await store.get("k")).body == b"new body"
    elif before is None:
        assert not (tmp_path / "k").exists()
    else:
        assert (tmp_path / "k").read_bytes() == b"old body"
        assert (await store.get("k")).version == before
        assert isinstance(await store.replace("k", b"later", before), Applied)


async def test_an_error_while_deleting(tmp_path: Path) -> None:
    disk = FailingDisk("unlink", errno.EACCES)
    store = DirectoryStore(tmp_path, disk=disk)
    await store.put("k", b"1")
    disk.armed = True
    with pytest.raises(AccessDenied, match="delete 'k': Permission denied: this user needs to read and write /"):
        await store.delete("k")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_keeps_nobody_from_deleting(number: int, tmp_path: Path) -> None:
    class FullDisk(Disk):
        """Takes no new file, a lock's neither."""

        def open_lock(self, place: Place, *, make: bool) -> tuple[int, os.stat_result]:
            if self.status(place) is None:
                raise OSError(number, os.strerror(number))
            return super().open_lock(place, make=make)

    await DirectoryStore(tmp_path).create("folder/k", b"1")  # which takes no lock
    store = DirectoryStore(tmp_path, disk=FullDisk())
    await store.delete("folder/k", "folder/missing")
    assert not (tmp_path / "folder@").exists()
    outcome = await store.create("k", b"1")
    assert isinstance(outcome, Applied)
    outcome = await store.replace("k", b"2", outcome.version)
    assert isinstance(outcome, Unknown)  # nothing is replaced without the lock


# The store's own folders may be removed while it is in use.


@pytest.mark.parametrize(
    ("verb", "name"),
    [("delete", LOCKS), *((verb, name) for verb in ("put", "create", "replace", "discard") for name in OWN)],
)
async def test_a_store_makes_its_own_folders_again(verb: str, name: str, tmp_path: Path) -> None:
    """WA-9. Until 0.2.0 every write failed until the process was restarted."""
    store = DirectoryStore(tmp_path)
    version = await store.put("a/k", b"1")
    shutil.rmtree(tmp_path / name)
    call = {
        "put": lambda: store.put("a/k", b"2"),
        "create": lambda: store.create("a/new", b"2"),
        "replace": lambda: store.replace("a/k", b"2", version),
        "delete": lambda: store.delete("a/k"),
        "discard": lambda: store.discard("a/k", version),
    }[verb]

    assert not isinstance(await call(), Unknown | Rejected)
    assert (tmp_path / name).is_dir()
    assert list((tmp_path / "+tmp").iterdir()) == []
    await store.aclose()


@pytest.mark.parametrize("verb", ["put", "create", "replace", "delete", "discard"])
async def test_after_the_whole_directory_was_removed_a_store_is_empty_and_goes_on(verb: str, tmp_path: Path) -> None:
    """WA-9."""
    root = tmp_path / "root"
    store = DirectoryStore(root)
    version = await store.put("a/k", b"1")
    await store.put("a/k", b"2")  # under a lock that this process has known
    shutil.rmtree(root)
    if verb == "put":
        await store.put("a/k", b"2")
    elif verb == "create":
        assert isinstance(await store.create("a/k", b"2"), Applied)
    elif verb == "replace":
        assert await store.replace("a/k", b"2", version) == Rejected()
    elif verb == "discard":
        assert await store.discard("a/k", version) == Rejected()
    else:
        await store.delete("a/k")
    assert [entry.key async for entry in store.list()] == (["a/k"] if verb in ("put", "create") else [])
    await store.put("a/k", b"3")
    assert isinstance(await store.discard("a/k", (await store.get("a/k")).version), Applied)
    await store.aclose()


async def test_a_directory_whose_place_is_taken_by_a_file_says_so(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = DirectoryStore(root)
    shutil.rmtree(root)
    root.touch()
    with pytest.raises(StoreUnfit, match="it is not a directory"):
        await store.put("a/k", b"1")
    await store.aclose()


@pytest.mark.parametrize("verb", ["put", "create", "replace", "discard"])
async def test_own_folders_that_go_between_two_steps_of_a_write(verb: str, tmp_path: Path) -> None:
    """WA-9. The write starts again; the body is written into the folder that is there then."""

    class Removed(Disk):
        left = 0

        def _remove(self) -> None:
            if self.left:
                self.left -= 1
                for name in OWN:
                    shutil.rmtree(tmp_path / name)

        def write_new(self, place: Place, body: bytes) -> int:
            self._remove()
            return super().write_new(place, body)

        def open_lock(self, place: Place, *, make: bool) -> tuple[int, os.stat_result]:
            self._remove()
            return super().open_lock(place, make=make)

    disk = Removed()
    store = DirectoryStore(tmp_path, disk=disk)
    version = await store.put("k", b"1")
    disk.left = 3
    if verb == "put":
        await store.put("k", b"2")
    else:
        call = {
            "create": lambda: store.create("new", b"2"),
            "replace": lambda: store.replace("k", b"2", version),
            "discard": lambda: store.discard("k", version),
        }[verb]
        assert isinstance(await call(), Applied)
    assert disk.left == 0
    await store.aclose()


# Versions.


@pytest.mark.parametrize("step", [0.0, -3600.0, 5.0])
async def test_versions_rise_whatever_the_wall_clock_does(step: float, tmp_path: Path) -> None:
    clock = SimulatedClock()
    store = DirectoryStore(tmp_path, clock=clock)
    versions = [applied(await store.create("k", b"0"))]
    for number in range(1, 6):
        clock.step_wall(step)
        if number % 2:
            versions.append(applied(await store.replace("k", b"%d" % number, versions[-1])))
        else:
            versions.append(await store.put("k", b"%d" % number))
    numbers = [int(version.e_tag, 16) for version in versions]
    assert numbers == sorted(set(numbers))
    assert (await store.get("k")).version == versions[-1]
    for old in versions[:-1]:
        assert await store.replace("k", b"stale", old) == Rejected()
    (entry,) = [entry async for entry in store.list()]
    assert entry.version == versions[-1]


async def test_a_write_is_stamped_after_what_it_replaces_without_a_second_sync(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = DirectoryStore(tmp_path, clock=SimulatedClock(), disk=disk)
    version = await store.put("k", b"1")
    disk.calls.clear()
    applied(await store.replace("k", b"2", version))
    assert disk.calls == [*WRITE, ("rename", "k"), ("sync_folder", ".")]


async def test_a_version_that_was_moved_forward_is_durable_before_the_rename(tmp_path: Path) -> None:
    future_ns = 2_000_000_000 * 10**9

    class OvertakenDisk(RecordingDisk):
        def sync_file(self, descriptor: int) -> None:
            super().sync_file(descriptor)
            if (tmp_path / "k").exists():
                os.utime(tmp_path / "k", ns=(future_ns, future_ns))  # another writer, whose clock is ahead

    disk = OvertakenDisk(tmp_path)
    store = DirectoryStore(tmp_path, clock=SimulatedClock(), disk=disk)
    await store.put("k", b"1")
    disk.calls.clear()
    version = await store.put("k", b"2")
    assert disk.calls == [*WRITE, ("sync_file", "+tmp/*"), ("rename", "k"), ("sync_folder", ".")]
    assert int(version.e_tag, 16) == future_ns + 1
    assert (await store.get("k")).version == version


class PrunedBeforeSync(Disk):
    """A reader deletes what was just created, and its folder with it, before the writer has synced the folder."""

    def link(self, source: Place, target: Place) -> None:
        super().link(source, target)
        if target.folder.name == "inbox@":
            Path(target.path).unlink()
            Path(target.folder.path).rmdir()


async def test_a_create_that_was_deleted_at_once_still_happened(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, disk=PrunedBeforeSync())
    assert isinstance(await store.create("inbox/message", b"hello"), Applied)
    await store.aclose()

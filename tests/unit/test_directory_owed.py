"""What is said of an object is said after its folder was synced, also by the second who comes to it."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from tenure.errors import NotFound, StoreUnavailable
from tenure.store import Applied, Attempt, Rejected, Unknown, Version, commit
from tenure.store.directory import DirectoryStore, tree
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place


class UnsyncedDisk(Disk):
    """Fails to sync the folders that are named, or stands still there until `gate` is opened."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.slow = False
        self.reached, self.gate = threading.Event(), threading.Event()
        self.synced: list[str] = []

    def sync_folder(self, folder: Folder) -> None:
        if folder.name in self.failing:
            raise OSError(errno.EIO, "Input/output error")
        if self.slow:
            self.reached.set()
            assert self.gate.wait(10)
        super().sync_folder(folder)
        self.synced.append(folder.name)


@pytest.fixture
def disk() -> UnsyncedDisk:
    return UnsyncedDisk()


@pytest.fixture
async def store(tmp_path: Path, disk: UnsyncedDisk) -> DirectoryStore:
    store = DirectoryStore(tmp_path, disk=disk)
    await store.put("inbox/first", b"")
    disk.synced.clear()
    return store


async def test_a_create_that_is_sent_again_is_told_that_it_is_there_when_it_is_durable(
    store: DirectoryStore, disk: UnsyncedDisk
) -> None:
    disk.failing = {"inbox@"}
    for _ in range(2):
        assert isinstance(await store.create("inbox/k", b"message"), Unknown)
    disk.failing = set()
    assert await store.create("inbox/k", b"message") == Rejected()
    assert disk.synced == ["inbox@"]


async def test_a_create_that_comes_after_one_that_was_not_waited_for(tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    store = DirectoryStore(tmp_path, disk=disk, timeout=0.05)
    disk.slow = True
    assert isinstance(await store.create("k", b"message"), Unknown)
    assert isinstance(await store.create("k", b"message"), Unknown)  # not rejected while the disk stands still
    disk.gate.set()
    assert await store.create("k", b"message") == Rejected()


async def test_a_create_that_loses_the_race_at_the_last_moment(tmp_path: Path) -> None:
    class Overtaken(UnsyncedDisk):
        def link(self, source: Place, target: Place) -> None:
            if target.folder.name != "+tmp":
                Path(target.path).write_bytes(b"another's")
            super().link(source, target)

    disk = Overtaken()
    store = DirectoryStore(tmp_path, disk=disk)
    disk.synced.clear()
    assert await store.create("k", b"ours") == Rejected()
    assert disk.synced == [tmp_path.name]


async def test_a_delete_that_is_sent_again_syncs_what_the_first_has_done(
    store: DirectoryStore, disk: UnsyncedDisk
) -> None:
    disk.failing = {"inbox@"}
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.delete("inbox/first")
    with pytest.raises(StoreUnavailable):  # nor is it told that it is gone
        await store.get("inbox/first")
    disk.failing = set()
    await store.delete("inbox/first")
    assert disk.synced[0] == "inbox@"


class StubbornDisk(UnsyncedDisk):
    """Does not remove the file that is named."""

    stubborn = ""

    def unlink(self, place: Place) -> None:
        if place.name == self.stubborn:
            raise OSError(errno.EIO, "cannot be removed")
        super().unlink(place)


async def test_a_delete_that_fails_half_way_syncs_what_it_has_removed(tmp_path: Path) -> None:
    disk = StubbornDisk()
    store = DirectoryStore(tmp_path, disk=disk)
    for name in "xyz":
        await store.put(f"inbox/{name}", b"")
    disk.stubborn = "y"
    disk.synced.clear()
    with pytest.raises(StoreUnavailable, match="cannot be removed"):
        await store.delete("inbox/x", "inbox/y", "inbox/z")
    assert disk.synced == ["inbox@"]
    with pytest.raises(NotFound):
        await store.get("inbox/x")
    await store.get("inbox/z")
    assert disk.synced == ["inbox@"]


async def test_a_delete_that_fails_half_way_and_cannot_sync_owes_that(tmp_path: Path) -> None:
    disk = StubbornDisk()
    store = DirectoryStore(tmp_path, disk=disk)
    for name in "xy":
        await store.put(f"inbox/{name}", b"")
    disk.stubborn, disk.failing = "y", {"inbox@"}
    with pytest.raises(StoreUnavailable, match="cannot be removed"):  # the first error, not that of the sync
        await store.delete("inbox/x", "inbox/y")
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        await store.get("inbox/x")
    disk.failing = set()
    disk.synced.clear()
    with pytest.raises(NotFound):
        await store.get("inbox/x")
    assert disk.synced == ["inbox@"]


async def test_what_a_failed_write_left_is_read_when_it_is_durable(store: DirectoryStore, disk: UnsyncedDisk) -> None:
    disk.failing = {"inbox@"}
    with pytest.raises(StoreUnavailable):
        await store.put("inbox/k", b"new")
    for key in ("inbox/k", "inbox/first"):
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            await store.get(key)
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        [entry async for entry in store.list()]
    disk.failing = set()
    assert (await store.get("inbox/k")).body == b"new"
    assert disk.synced == ["inbox@"]
    await store.get("inbox/k")
    assert [entry.key async for entry in store.list()] == ["inbox/first", "inbox/k"]
    assert disk.synced == ["inbox@"]  # once


async def test_reads_of_other_folders_pay_nothing(store: DirectoryStore, disk: UnsyncedDisk) -> None:
    await store.put("other/k", b"1")
    disk.failing = {"inbox@"}
    with pytest.raises(StoreUnavailable):
        await store.put("inbox/k", b"new")
    disk.synced.clear()
    assert (await store.get("other/k")).body == b"1"
    assert disk.synced == []


async def test_a_write_that_comes_later_pays_as_well(store: DirectoryStore, disk: UnsyncedDisk) -> None:
    disk.failing = {"inbox@"}
    with pytest.raises(StoreUnavailable):
        await store.put("inbox/k", b"new")
    disk.failing = set()
    await store.put("inbox/other", b"")
    disk.failing = {"inbox@"}
    assert (await store.get("inbox/k")).body == b"new"


async def test_a_replace_is_not_found_to_have_been_applied_before_it_is_durable(
    store: DirectoryStore, disk: UnsyncedDisk
) -> None:
    disk.failing = {"inbox@"}
    expected = (await store.get("inbox/first")).version
    settled = await commit(
        store,
        Attempt("inbox/first", expected),
        lambda write_id: write_id.encode(),
        write_ids=lambda body: {body.decode()},
    )
    assert isinstance(settled.outcome, Unknown)
    disk.failing = set()
    await store.get("inbox/first")
    assert disk.synced == ["inbox@"]


async def test_writes_that_nobody_waits_for_are_remembered_only_until_they_are_over(tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    store = DirectoryStore(tmp_path, disk=disk)
    disk.slow = True
    for number in range(5):  # and nothing is read
        disk.reached.clear()
        disk.gate.clear()
        writing = asyncio.create_task(store.create(f"k{number}", b""))
        assert await asyncio.to_thread(disk.reached.wait, 5)
        writing.cancel()
        await asyncio.wait([writing])
        disk.gate.set()
        (job,) = store._owed._left
        while not job.is_over:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_was_not_waited_for_is_read_when_it_is_durable(cancelled: bool, tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    store = DirectoryStore(tmp_path, disk=disk, timeout=5 if cancelled else 0.05)
    disk.slow = True
    writing = asyncio.create_task(store.create("k", b"1"))
    assert await asyncio.to_thread(disk.reached.wait, 5)
    if cancelled:
        writing.cancel()
    await asyncio.wait([writing])
    store._timeout = 5  # only the write is to be given up
    reading = asyncio.create_task(store.get("k"))
    done, _ = await asyncio.wait([reading], timeout=0.02)
    assert not done
    disk.gate.set()
    assert (await reading).body == b"1"
    for _ in range(200):  # until the write is over
        disk.synced.clear()
        await store.get("k")
        if not disk.synced:
            break
        await asyncio.sleep(0.005)
    assert disk.synced == []


async def test_reads_sync_nothing_while_somebody_waits_for_a_write(tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    store = DirectoryStore(tmp_path, disk=disk)
    await store.put("k", b"1")
    disk.synced.clear()
    disk.slow = True
    writing = asyncio.create_task(store.put("j", b"2"))
    assert await asyncio.to_thread(disk.reached.wait, 5)
    assert (await store.get("k")).body == b"1"
    disk.gate.set()
    await writing
    assert disk.synced == [tmp_path.name]


async def test_a_disk_that_fails_in_very_many_folders_is_not_trusted_in_any(
    store: DirectoryStore, disk: UnsyncedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.directory.owed._MOST", 2)
    for name in "abc":
        await store.put(f"{name}/k", b"")
        disk.failing.add(f"{name}@")
        with pytest.raises(StoreUnavailable):
            await store.put(f"{name}/k", b"new")
    with pytest.raises(StoreUnavailable):
        await store.get("c/k")
    disk.failing = set()
    for name in "abc":
        disk.synced.clear()
        assert (await store.get(f"{name}/k")).body == b"new"
        assert disk.synced == [f"{name}@"]


async def test_a_folder_whose_maker_was_killed_is_made_durable_once(tmp_path: Path) -> None:
    (tmp_path / "a@" / "b@").mkdir(parents=True)
    disk = UnsyncedDisk()
    store = DirectoryStore(tmp_path, disk=disk)
    disk.synced.clear()
    assert isinstance(await store.create("a/b/k", b"1"), Applied)
    assert disk.synced == [tmp_path.name, "a@", "b@"]
    disk.synced.clear()
    await store.put("a/b/k", b"2")
    assert disk.synced == ["b@"]


def test_a_root_whose_maker_was_killed_is_made_durable(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    disk = UnsyncedDisk()
    DirectoryStore(tmp_path / "root", disk=disk)
    assert disk.synced[0] == tmp_path.name


def test_a_root_in_a_folder_that_cannot_be_synced_is_used_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    disk = UnsyncedDisk()
    disk.failing = {tmp_path.name}  # it is somebody else's
    DirectoryStore(tmp_path / "root", disk=disk)
    with pytest.raises(StoreUnavailable):
        DirectoryStore(tmp_path / "new", disk=disk)


async def test_a_folder_that_was_removed_and_made_again_is_another(tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    store, other = DirectoryStore(tmp_path, disk=disk), DirectoryStore(tmp_path)
    await store.put("a/k", b"1")
    await other.delete("a/k")
    assert not (tmp_path / "a@").exists()
    disk.synced.clear()
    await store.put("a/k", b"1")  # its inode is likely that of the old one
    assert disk.synced == [tmp_path.name, "a@"]


class ReusedInodes(UnsyncedDisk):
    """A folder that is made again has the inode of the one before it, as on ext4 nearly always."""

    looked_into = 0

    def identity(self, folder: Folder) -> tuple[int, int]:
        return 0, hash(folder.path)

    def any_name(self, folder: Folder) -> str | None:
        self.looked_into += 1
        return super().any_name(folder)


@pytest.mark.parametrize("left", ["a@", "a@/b@"])
async def test_a_folder_made_again_with_the_same_inode_is_not_taken_for_the_old_one(left: str, tmp_path: Path) -> None:
    disk = ReusedInodes()
    store, other = DirectoryStore(tmp_path, disk=disk), DirectoryStore(tmp_path)
    await store.put("a/b/k", b"1")
    await store.put("a/b/k", b"2")
    await other.delete("a/b/k")
    assert not (tmp_path / "a@").exists()
    if left == "a@/b@":
        await other.put("a/other", b"")
    (tmp_path / left).mkdir()  # by one who was killed before it synced the parent
    disk.synced.clear()
    await store.put("a/b/k", b"3")
    assert disk.synced == [*([tmp_path.name] if left == "a@" else []), "a@", "b@"]


async def test_a_folder_that_is_not_empty_costs_a_write_no_sync_and_is_not_read_each_time(tmp_path: Path) -> None:
    disk = ReusedInodes()
    store = DirectoryStore(tmp_path, disk=disk)
    await store.put("a/b/first", b"")
    disk.synced.clear()
    for number in range(5):
        await store.put(f"a/b/{number}", b"")
    assert disk.synced == ["b@"] * 5
    assert disk.looked_into == 2  # once into each of the two
    for gone, new in (("first 0 1 2 3", "last"), ("4", "last-of-all")):  # whichever was found there
        await store.delete(*(f"a/b/{name}" for name in gone.split()))
        disk.synced.clear()
        await store.put(f"a/b/{new}", b"")
        assert disk.synced == ["b@"]
    assert disk.looked_into in (3, 4)


async def test_folders_that_are_written_into_once_are_forgotten_and_those_in_use_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tree, "_LASTING", 8)
    disk = UnsyncedDisk()
    store = DirectoryStore(tmp_path, disk=disk)
    for second in range(30):
        await store.put(f"due/{second}/k", b"")
        disk.synced.clear()
        await store.put(f"log/{second}", b"")
        assert disk.synced[1:] == [] or second == 0, "it is known to be durable all the time"
    assert len(store._lasting) == 8
    disk.synced.clear()
    await store.put("due/0/k", b"1")  # forgotten: a sync more, and no other harm
    assert disk.synced == ["due@", "0@"]


async def test_a_folder_that_could_not_be_made_durable_is_tried_again(tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    store = DirectoryStore(tmp_path, disk=disk)
    disk.failing = {tmp_path.name}
    for _ in range(2):
        assert isinstance(await store.create("a/k", b"1"), Unknown)
    disk.failing = set()
    disk.synced.clear()
    assert isinstance(await store.create("a/k", b"1"), Applied)
    assert disk.synced == [tmp_path.name, "a@"]


async def test_a_floor_that_was_raised_before_is_durable_before_the_object_goes(tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    store = DirectoryStore(tmp_path, disk=disk)
    version: Version = await store.put("k", b"1")
    disk.failing = {"+locks"}
    for _ in range(2):
        assert isinstance(await store.discard("k", version), Unknown)
        assert (tmp_path / "k").exists()
    disk.failing = set()
    disk.synced.clear()
    assert isinstance(await store.discard("k", version), Applied)
    assert disk.synced == ["+locks", tmp_path.name]
    with pytest.raises(NotFound):
        await store.get("k")

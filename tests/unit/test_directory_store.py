"""What the directory store does with files: its own, those of the dead, and other people's."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import AccessDenied, BodyTooLarge, ForkedProcess, NotFound, StoreError, StoreUnfit
from tenure.store import Applied, NotModified, Version
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place
from tenure.store.directory.layout import file_of
from tenure.store.directory.locks import stripe_of
from tenure.store.protocol import MAX_BODY_BYTES
from tenure.testing import SimulatedClock

SEGMENTS = st.text("aAbB0-._=~", min_size=1, max_size=3).filter(lambda text: text not in (".", ".."))
KEYS = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)


class QuickDisk(Disk):
    def sync_file(self, descriptor: int) -> None: ...

    def sync_folder(self, folder: Folder) -> None: ...


async def listed(store: DirectoryStore, prefix: str = "", after: str | None = None) -> list[str]:
    return [entry.key async for entry in store.list(prefix, after=after)]


async def test_a_file_holds_exactly_the_body(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "new" / "store")
    await store.put("app/State.json", b"{}")
    assert (tmp_path / "new/store/app@/state.json+1").read_bytes() == b"{}"
    assert store.info.provider == "file"
    assert store.info.url == (tmp_path / "new/store").as_uri()


async def test_a_key_may_be_a_folder_as_well_and_case_counts(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    for number, key in enumerate(("a", "a/b", "A", "A/b", "a/B")):
        assert isinstance(await store.create(key, b"%d" % number), Applied)
    assert await listed(store) == ["A", "A/b", "a", "a/B", "a/b"]
    assert [(await store.get(key)).body for key in ("a", "a/b", "A", "A/b", "a/B")] == [b"0", b"1", b"2", b"3", b"4"]


async def test_missing_keys(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("a", b"")
    for key in ("b", "a/b", "b/c/d"):
        with pytest.raises(NotFound):
            await store.get(key)
    await store.delete("b", "a/b", "b/c/d")
    assert await listed(store, "a/") == []
    assert await listed(store, "nowhere/") == []


async def test_unless_spares_the_body(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    version = await store.put("k", b"1")
    assert await store.get("k", unless=version) == NotModified(version)
    assert (await store.get("k", unless=Version("0"))).body == b"1"


async def test_a_huge_file_of_another_program_is_not_read(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_BODY_BYTES + 1)
    with pytest.raises(BodyTooLarge, match="another program put it there"):
        await store.get("huge")


# Listing.


@settings(max_examples=40)
@given(st.sets(KEYS, max_size=12), st.data())
def test_a_listing_is_sorted_and_complete(keys: set[str], data: st.DataObject) -> None:
    folders = sorted({"/".join(key.split("/")[:depth]) + "/" for key in keys for depth in range(1, key.count("/") + 1)})
    prefix = data.draw(st.sampled_from(["", "", *folders, "zz/"]))
    after = data.draw(st.one_of(st.sampled_from([None, *sorted(keys)]), KEYS))

    async def check() -> None:
        store = DirectoryStore(Path(folder), disk=QuickDisk())
        for key in keys:
            await store.put(key, b"x")
        expected = [key for key in sorted(keys) if key.startswith(prefix) and (after is None or key > after)]
        assert await listed(store, prefix, after) == expected
        await store.aclose()

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        runner.run(check())


async def test_a_listing_over_many_pages(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    (tmp_path / "f@").mkdir()
    for number in range(2100):
        (tmp_path / "f@" / f"{number:05}").touch()
    keys = [f"f/{number:05}" for number in range(2100)]
    assert await listed(store) == keys
    assert await listed(store, "f/", after="f/00999") == keys[1000:]
    assert await listed(store, after="f/00999") == keys[1000:]


async def test_entries_say_what_is_there(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    version = await store.put("k", b"12345")
    (entry,) = [entry async for entry in store.list()]
    assert (entry.key, entry.version, entry.size) == ("k", version, 5)


async def test_modified_is_when_the_file_came_here(tmp_path: Path) -> None:
    """Not the version's time, which may be ahead of the clock after somebody set it back."""
    clock = SimulatedClock()
    clock.step_wall(10 * 365 * 86400)
    store = DirectoryStore(tmp_path, clock=clock)
    before = datetime.now(UTC) - timedelta(seconds=1)
    await store.put("k", b"")
    (entry,) = [entry async for entry in store.list()]
    assert before < entry.modified < before + timedelta(minutes=1)


async def test_files_and_folders_of_other_programs_are_left_out(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("k", b"")
    for name in ("README", "a b", "x+zz", "wrong@", "é", "#k#"):
        (tmp_path / name).write_text("mine")
    for name in ("backup", "lost+found", "Capital@", "@"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k").write_text("mine")
    assert await listed(store) == ["k"]
    await store.delete("k")
    assert (tmp_path / "README").read_text() == "mine"


# Deleting.


async def test_deleting_removes_folders_that_became_empty(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    for key in ("a/b/c/one", "a/b/two", "a"):
        await store.put(key, b"")
    await store.delete("a/b/c/one")
    assert not (tmp_path / "a@/b@/c@").exists()
    assert (tmp_path / "a@/b@/two").exists()
    await store.delete("a/b/two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["+locks", "+tmp", "a"]
    await store.delete("a")
    assert isinstance(await store.create("a/b/c/one", b""), Applied)


async def test_many_keys_at_once(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, disk=QuickDisk())
    (tmp_path / "f@").mkdir()
    keys = [f"f/{number:05}" for number in range(1200)]
    for key in keys:
        (tmp_path / "f@" / key[2:]).touch()
    await store.delete(*keys, "f/never-there")
    assert await listed(store) == []
    await store.delete()


async def test_many_deletes_are_shared_out_among_threads(tmp_path: Path) -> None:
    """In one thread a slow disk would not get through a thousand folders within a request's timeout."""
    meeting = threading.Barrier(2, timeout=20)
    keys = [f"{number}/f" for number in range(200)]
    apart = [tmp_path / file_of(key) for key in (keys[0], keys[100])]
    assert stripe_of(keys[0]) != stripe_of(keys[100])

    class MeetingDisk(QuickDisk):
        def unlink(self, place: Place) -> None:
            if Path(place.path) in apart:
                meeting.wait()
            super().unlink(place)

    store = DirectoryStore(tmp_path, disk=MeetingDisk(), timeout=30)
    for key in keys:
        (tmp_path / file_of(key)).parent.mkdir()
        (tmp_path / file_of(key)).touch()
    await store.delete(*keys)
    assert await listed(store) == []


# Opening and closing.


def test_temporary_files_of_the_dead_are_swept(tmp_path: Path) -> None:
    DirectoryStore(tmp_path)
    dead = tmp_path / "+tmp" / "00.dead"
    dead.write_bytes(b"half")
    DirectoryStore(tmp_path)
    assert not dead.exists()


async def test_temporary_files_of_the_living_are_spared(tmp_path: Path) -> None:
    reached, gate = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def sync_file(self, descriptor: int) -> None:
            if reached.is_set() or not armed:
                return
            reached.set()
            assert gate.wait(5)

    armed = False
    store = DirectoryStore(tmp_path, disk=SlowDisk())
    armed = True
    writing = asyncio.create_task(store.create("k", b"1"))
    assert await asyncio.to_thread(reached.wait, 5)
    DirectoryStore(tmp_path)
    assert len(list((tmp_path / "+tmp").iterdir())) == 1
    gate.set()
    assert isinstance(await writing, Applied)


def test_strange_files_among_the_locks_are_ignored(tmp_path: Path) -> None:
    DirectoryStore(tmp_path)
    for name in ("README", "zz.1", "ff.0", "00.x", "00.²", ".nfs0001", "notes.1"):
        (tmp_path / "+locks" / name).touch()
    DirectoryStore(tmp_path)


async def test_a_closed_store_raises(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.aclose()
    for call in (store.get("k"), store.put("k", b""), store.create("k", b""), store.replace("k", b"", Version("0"))):
        with pytest.raises(StoreError, match=f"the directory store {tmp_path} is closed: open it again"):
            await call
    with pytest.raises(StoreError, match="is closed"):
        await store.delete("k")
    with pytest.raises(StoreError, match="is closed"):
        await listed(store)


async def test_a_forked_child_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path)
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    for call in (store.get("k"), store.put("k", b""), store.create("k", b""), store.replace("k", b"", Version("0"))):
        with pytest.raises(ForkedProcess, match="open stores after the fork"):
            await call


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_way_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreUnfit, match="it is not a directory: name one, or a path that does not exist yet"):
        DirectoryStore(tmp_path / "file" / below)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_system_without_nanoseconds_is_unfit(tmp_path: Path) -> None:
    class CoarseDisk(Disk):
        def stamp(self, descriptor: int, modified_ns: int) -> None:
            super().stamp(descriptor, modified_ns // 10**9 * 10**9)

    with pytest.raises(StoreUnfit, match=r"does not keep times in nanoseconds.*use a folder on a local disk"):
        DirectoryStore(tmp_path, disk=CoarseDisk())


def test_a_file_system_without_hard_links_is_unfit(tmp_path: Path) -> None:
    class LinklessDisk(Disk):
        def link(self, source: Place, target: Place) -> None:
            raise PermissionError(1, "Operation not permitted")

    with pytest.raises(StoreUnfit, match=r"has no hard links \(Operation not permitted\)"):
        DirectoryStore(tmp_path, disk=LinklessDisk())


@pytest.mark.skipif(os.getuid() == 0, reason="root is never denied")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(AccessDenied, match="this user needs to read and write"):
        DirectoryStore(tmp_path / "store")


def test_a_denied_folder_is_named(tmp_path: Path) -> None:
    class DeniedDisk(Disk):
        def write_new(self, place: Place, body: bytes) -> int:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(AccessDenied, match=f"open: Permission denied: this user needs to read and write {tmp_path}"):
        DirectoryStore(tmp_path, disk=DeniedDisk())

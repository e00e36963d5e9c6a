"""Who can write a store's directory cannot have tenure read, write or remove anything outside of it.

They may put links, FIFOs and folders wherever they like, at any moment. Each test puts something of value outside, and
looks at the end that it is as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tenure.errors import BodyTooLarge, NotFound, StoreError, StoreUnfit
from tenure.store import Access, Applied, Outcome, Rejected, Stored, Unknown, Version, open_store
from tenure.store.directory import DirectoryStore
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder
from tenure.store.directory.layout import file_of
from tenure.store.directory.locks import stripe_of

SECRET = b"the private key of somebody else"
ANY = Version("0")
STRIPE = f"{stripe_of('k'):02x}"


class QuickDisk(Disk):
    def sync_file(self, descriptor: int) -> None: ...

    def sync_folder(self, folder: Folder) -> None: ...


class Outside:
    """A folder that tenure has no business in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "sub@").mkdir(parents=True)
        for name in ("k", "secret", "00.dead", "2400", "sub@/k"):
            (path / name).write_bytes(SECRET)
            os.utime(path / name, ns=(1_700_000_000_000_000_000, 1_700_000_000_000_000_000))
        self._before = self._look()

    def _look(self) -> list[tuple[str, int, int, bytes]]:
        """Every name, with what would change if it were written to, replaced or linked to."""
        return [
            (str(path), status.st_ino, status.st_mtime_ns, path.read_bytes() if stat.S_ISREG(status.st_mode) else b"")
            for path in [self.path, *sorted(self.path.rglob("*"))]  # a folder's time tells of names that came and went
            for status in [path.lstat()]
        ]

    def check_untouched(self) -> None:
        assert self._look() == self._before


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    outside = Outside(tmp_path / "outside")
    yield outside
    outside.check_untouched()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    DirectoryStore(root)
    return root


Planting = Callable[[Path, Path], object]


def plant_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "secret")


def plant_dangling_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "not-there-yet")


def plant_endless_device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def plant_fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def plant_socket(path: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket has at most 107 bytes
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def plant_folder(path: Path, outside: Path) -> None:
    path.mkdir()


NO_FILES = {
    "a symbolic link": plant_link,
    "a symbolic link that dangles": plant_dangling_link,
    "a symbolic link to a device": plant_endless_device,
    "a FIFO": plant_fifo,
    "a socket": plant_socket,
}


def refusal(kind: str, path: Path) -> str:
    kind = kind.removesuffix(" that dangles").removesuffix(" to a device")
    return f"{path} is unfit: it is {kind}, and tenure puts none there: remove it, or move it away"


async def refused(call: Awaitable[object]) -> str:
    """The error of a call that is refused, whether it raises or is told as an outcome; and soon."""
    try:
        async with asyncio.timeout(5):
            outcome = await call
    except StoreUnfit as error:
        return str(error)
    assert isinstance(outcome, Unknown)
    assert type(outcome.error) is StoreUnfit
    return str(outcome.error)


async def listed(store: DirectoryStore, prefix: str = "") -> list[str]:
    return [entry.key async for entry in store.list(prefix)]


def all_but_delete(store: DirectoryStore, key: str) -> list[Awaitable[object]]:
    return [
        store.get(key),
        store.get(key, unless=ANY),
        store.put(key, b"1"),
        store.create(key, b"1"),
        store.replace(key, b"1", ANY),
        store.discard(key, ANY),
    ]


# In the place of an object.


@pytest.mark.parametrize("key", ["k", "a/b/k"])
@pytest.mark.parametrize("kind", [*NO_FILES, "a directory"])
async def test_what_is_no_file_is_no_object(kind: str, key: str, root: Path, outside: Outside) -> None:
    store = DirectoryStore(root, timeout=2.0)
    path = root / file_of(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    NO_FILES.get(kind, plant_folder)(path, outside.path)
    for call in all_but_delete(store, key):
        assert await refused(call) == refusal(kind, path)
    assert await listed(store) == []
    assert path.lstat()  # it is left where it is, to be looked at
    assert list((root / "+tmp").iterdir()) == []
    await store.aclose()


@pytest.mark.parametrize("kind", NO_FILES)
async def test_a_delete_removes_the_name_and_nothing_behind_it(kind: str, root: Path, outside: Outside) -> None:
    store = DirectoryStore(root, timeout=2.0)
    NO_FILES[kind](root / "k", outside.path)
    await store.delete("k")
    assert not os.path.lexists(root / "k")
    with pytest.raises(NotFound):
        await store.get("k")
    assert isinstance(await store.create("k", b"1"), Applied)
    await store.aclose()


async def test_a_delete_says_that_a_directory_is_in_the_way(root: Path) -> None:
    store = DirectoryStore(root)
    (root / "k").mkdir()
    assert await refused(store.delete("k")) == refusal("a directory", root / "k")
    await store.aclose()


async def test_a_link_that_has_the_time_of_the_expected_version_is_no_object(root: Path, outside: Outside) -> None:
    """What a link leads to has a time, and the link itself has one: neither is a version."""
    store = DirectoryStore(root)
    (root / "k").symlink_to(outside.path / "secret")
    seen = Version(f"{(outside.path / 'secret').stat().st_mtime_ns:x}")
    own = Version(f"{(root / 'k').lstat().st_mtime_ns:x}")
    for version in (seen, own):
        for call in (store.replace("k", b"1", version), store.discard("k", version)):
            assert await refused(call) == refusal("a symbolic link", root / "k")
    await store.aclose()


async def test_a_read_only_store_follows_nothing(root: Path, outside: Outside) -> None:
    (root / "k").symlink_to(outside.path / "secret")
    (root / "a@").symlink_to(outside.path)
    async with open_store(root.as_uri(), access=Access.READ_ONLY) as store:
        for key, path in (("k", root / "k"), ("a/secret", root / "a@")):
            assert await refused(store.get(key)) == refusal("a symbolic link", path)
        assert [entry async for entry in store.list()] == []


# In the place of a folder.


@pytest.mark.parametrize(("folder", "key"), [("a@", "a/k"), ("a@", "a/sub/k"), ("a@/b@", "a/b/k"), ("a@", "a/b/new")])
async def test_a_link_in_the_place_of_a_folder(folder: str, key: str, root: Path, outside: Outside) -> None:
    store = DirectoryStore(root)
    (root / folder).parent.mkdir(exist_ok=True)
    (root / folder).symlink_to(outside.path)
    for call in [*all_but_delete(store, key), store.delete(key), store.delete("other", key)]:
        assert await refused(call) == refusal("a symbolic link", root / folder)
    assert await listed(store) == []
    assert await listed(store, "a/") == []
    assert await listed(store, "a/b/") == []
    assert (root / folder).is_symlink()
    await store.aclose()


async def test_a_folder_that_is_replaced_by_a_link_is_not_listed_any_further(root: Path, outside: Outside) -> None:
    store = DirectoryStore(root, disk=QuickDisk())
    (root / "a@").mkdir()
    (root / "a@" / "0000").touch()
    for number in range(1, 2500):
        os.link(root / "a@" / "0000", root / "a@" / f"{number:04}")
    rows = store.list("a/")
    assert (await anext(rows)).key == "a/0000"
    (root / "a@").rename(root / "aside")
    (root / "a@").symlink_to(outside.path)
    assert "a/2400" not in [entry.key async for entry in rows]
    await store.aclose()


@pytest.mark.parametrize("kind", ["a FIFO", "a socket"])
async def test_what_is_no_folder_at_all(kind: str, root: Path, outside: Outside) -> None:
    store = DirectoryStore(root)
    NO_FILES[kind](root / "a@", outside.path)
    for call in [*all_but_delete(store, "a/k"), store.delete("a/k")]:
        assert await refused(call) == refusal(kind, root / "a@")
    assert await listed(store) == []
    await store.aclose()


async def test_a_plain_file_in_the_place_of_a_folder_holds_nothing(root: Path) -> None:
    store = DirectoryStore(root)
    (root / "a@").write_bytes(SECRET)
    with pytest.raises(NotFound):
        await store.get("a/k")
    assert await store.replace("a/k", b"1", ANY) == Rejected()
    assert await store.discard("a/k", ANY) == Rejected()
    await store.delete("a/k")
    assert await listed(store, "a/") == []
    for call in (store.put("a/k", b"1"), store.create("a/k", b"1")):
        assert await refused(call) == refusal("a plain file", root / "a@")
    assert (root / "a@").read_bytes() == SECRET
    await store.aclose()


# Among the locks and the temporary files.


@pytest.mark.parametrize("name", ["+tmp", "+locks"])
@pytest.mark.parametrize("kind", ["a symbolic link", "a FIFO", "a plain file"])
def test_own_folders_that_are_none_are_refused_at_opening(name: str, kind: str, root: Path, outside: Outside) -> None:
    for path in (root / name).iterdir():
        path.unlink()
    (root / name).rmdir()
    if kind == "a symbolic link":
        (root / name).symlink_to(outside.path)
    elif kind == "a FIFO":
        os.mkfifo(root / name)
    else:
        (root / name).touch()
    with pytest.raises(StoreUnfit) as told:
        DirectoryStore(root)
    assert str(told.value) == refusal(kind, root / name)


@pytest.mark.parametrize("name", ["+tmp", "+locks"])
async def test_own_folders_that_become_links_are_refused(name: str, root: Path, outside: Outside) -> None:
    store = DirectoryStore(root)
    version = await store.put("k", b"1")
    (root / name).rename(root / "aside")
    (root / name).symlink_to(outside.path)
    calls = [store.put("k", b"2"), store.create("j", b"2"), store.replace("k", b"2", version)]
    for call in [*calls, store.discard("k", version)]:
        assert await refused(call) == refusal("a symbolic link", root / name)
    assert await store.get("k") == Stored(b"1", version)
    await store.aclose()


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["00.dead", f"{STRIPE}.dead", "anything"])
def test_opening_sweeps_what_is_no_temporary_file_by_its_name(
    kind: str, name: str, root: Path, outside: Outside
) -> None:
    NO_FILES[kind](root / "+tmp" / name, outside.path)
    (root / "+tmp" / "00.folder").symlink_to(outside.path)
    opening = threading.Thread(target=DirectoryStore, args=(root,), daemon=True)
    opening.start()
    opening.join(10)
    assert not opening.is_alive()
    assert list((root / "+tmp").iterdir()) == []


def test_a_swept_folder_is_emptied_of_names(root: Path, outside: Outside) -> None:
    left = root / "+tmp" / "05.dead"
    left.mkdir()
    (left / "body").symlink_to(outside.path / "secret")
    (left / "floor").symlink_to(outside.path)
    os.mkfifo(left / "fifo")
    DirectoryStore(root)
    assert list((root / "+tmp").iterdir()) == []


def test_a_folder_in_a_swept_folder_is_named(root: Path) -> None:
    (root / "+tmp" / "05.dead" / "deeper").mkdir(parents=True)
    with pytest.raises(StoreUnfit) as told:
        DirectoryStore(root)
    assert str(told.value) == refusal("a directory", root / "+tmp" / "05.dead" / "deeper")


async def test_a_new_generation_disarms_without_following(root: Path, outside: Outside) -> None:
    store = DirectoryStore(root)
    (root / "+locks" / f"{STRIPE}.1").touch()
    (root / "+tmp" / f"{STRIPE}.folder").symlink_to(outside.path)
    (root / "+tmp" / f"{STRIPE}.file").symlink_to(outside.path / "secret")
    os.mkfifo(root / "+tmp" / f"{STRIPE}.fifo")
    (root / "+tmp" / f"{STRIPE}.left").mkdir()
    (root / "+tmp" / f"{STRIPE}.left" / "body").symlink_to(outside.path / "secret")
    await store.put("k", b"1")
    assert list((root / "+tmp").iterdir()) == []
    await store.aclose()


@pytest.mark.parametrize("generation", [0, 1])
@pytest.mark.parametrize("kind", [*NO_FILES, "a directory"])
async def test_a_lock_file_that_is_none(kind: str, generation: int, root: Path, outside: Outside) -> None:
    lock = root / "+locks" / f"{STRIPE}.{generation}"
    NO_FILES.get(kind, plant_folder)(lock, outside.path)
    store = DirectoryStore(root, timeout=2.0)
    for call in (store.put("k", b"1"), store.delete("k")):
        assert await refused(call) == refusal(kind, lock)
    await store.aclose()


@pytest.mark.parametrize("kind", NO_FILES)
async def test_a_floor_that_is_none(kind: str, root: Path, outside: Outside) -> None:
    store = DirectoryStore(root)
    version = await store.put("k", b"1")
    floor = root / "+locks" / f"{STRIPE}.floor"
    NO_FILES[kind](floor, outside.path)
    for call in (store.put("k", b"2"), store.replace("k", b"2", version), store.discard("k", version)):
        assert await refused(call) == refusal(kind, floor)
    assert await store.get("k") == Stored(b"1", version)
    await store.aclose()


async def test_a_temporary_file_that_is_replaced_by_a_link_does_not_bring_in_what_it_leads_to(
    root: Path, outside: Outside
) -> None:
    class SwappingDisk(QuickDisk):
        armed = False

        def sync_file(self, descriptor: int) -> None:
            if self.armed:
                for path in (root / "+tmp").iterdir():
                    path.unlink()
                    path.symlink_to(outside.path / "secret")

    disk = SwappingDisk()
    store = DirectoryStore(root, disk=disk)
    disk.armed = True
    for number, call in enumerate((store.create, store.put)):
        await call(f"k{number}", b"1")
        assert await refused(store.get(f"k{number}")) == refusal("a symbolic link", root / f"k{number}")
    assert (outside.path / "secret").stat().st_nlink == 1
    await store.aclose()


# What holds beside.


async def test_the_root_may_be_a_link_or_lie_behind_one(tmp_path: Path) -> None:
    (tmp_path / "real" / "store").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "direct").symlink_to(tmp_path / "real" / "store")
    one, two = DirectoryStore(tmp_path / "link" / "store"), DirectoryStore(tmp_path / "direct")
    version = await one.put("a/k", b"1")
    assert await two.get("a/k") == Stored(b"1", version)
    assert isinstance(await two.discard("a/k", version), Applied)
    assert sorted(path.name for path in (tmp_path / "real" / "store").iterdir()) == ["+locks", "+tmp"]


async def test_a_root_that_is_removed_and_made_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = DirectoryStore(root)
    await store.put("a/k", b"1")
    root.rename(tmp_path / "away")
    with pytest.raises(NotFound):
        await store.get("a/k")
    assert await store.replace("a/k", b"2", ANY) == Rejected()
    assert await listed(store) == []
    version = await store.put("a/k", b"2")
    assert await store.get("a/k") == Stored(b"2", version)
    assert (tmp_path / "away/a@/k").read_bytes() == b"1"
    await store.aclose()


async def test_a_file_that_grows_while_it_is_read_is_read_no_further_than_the_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 300_000
    for module in ("tenure.store.directory.store", "tenure.store.guard"):
        monkeypatch.setattr(f"{module}.MAX_BODY_BYTES", limit)

    class GrowingDisk(QuickDisk):
        most_read = 0

        def read(self, descriptor: int, size: int, most: int) -> bytes:
            os.truncate(root / "k", limit * 4)
            body = super().read(descriptor, size, most)
            self.most_read = len(body)
            return body

    disk = GrowingDisk()
    store = DirectoryStore(root, disk=disk, timeout=60)
    (root / "k").write_bytes(b"small")
    with pytest.raises(BodyTooLarge, match="another program put it there"):
        await store.get("k")
    assert disk.most_read == limit + 1
    await store.aclose()


async def test_folders_deeper_than_any_key_do_not_stop_a_listing(root: Path) -> None:
    """Deeper than any path may be long, too: made as an attacker would, each in the one before."""
    store = DirectoryStore(root, disk=QuickDisk())
    await store.put("z", b"1")
    name, levels = "a" * 180 + "@", 30
    folder = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    assert await listed(store) == ["z"]
    await store.aclose()


def test_files_are_made_as_the_umask_says(root: Path) -> None:
    before = os.umask(0o027)
    try:
        store = DirectoryStore(root, disk=QuickDisk())
        store._put("a/k", b"1")
        store._create("a/j", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "a@/k").stat().st_mode) == stat.S_IMODE((root / "a@/j").stat().st_mode) == 0o640


# Races, and descriptors.


class Swapper(threading.Thread):
    """Keeps putting a link to the outside in the place of a folder, and the folder back."""

    def __init__(self, place: Path, outside: Path) -> None:
        super().__init__(daemon=True)
        self._place, self._outside = place, outside
        self._over = threading.Event()
        self.swaps = 0

    def run(self) -> None:
        while not self._over.wait(0.0002):
            with contextlib.suppress(OSError):  # the folder was pruned, or made again
                self._swap()

    def _swap(self) -> None:
        link, aside = (self._place.with_name(f"{self._place.name}.{what}.{self.swaps}") for what in ("link", "aside"))
        if not os.path.lexists(link):
            link.symlink_to(self._outside)
        self._place.rename(aside)
        self.swaps += 1
        link.rename(self._place)
        self._over.wait(0.0002)
        self._place.unlink()
        aside.rename(self._place)

    def stop(self) -> None:
        self._over.set()
        self.join()


@pytest.mark.parametrize("swapped", ["a@", "a@/sub@", "+tmp", "+locks"])
async def test_nothing_gets_out_while_a_folder_is_swapped_for_a_link(
    swapped: str, root: Path, outside: Outside
) -> None:
    store = DirectoryStore(root, disk=QuickDisk(), lock_patience=0.02)
    (root / "a@" / "sub@").mkdir(parents=True)
    swapper = Swapper(root / swapped, outside.path)
    swapper.start()
    clock = asyncio.get_running_loop().time
    begun, done = clock(), 0

    def is_over() -> bool:
        return clock() - begun > (1.2 if swapper.swaps > 50 and done > 50 else 20)

    async def work(number: int) -> None:
        nonlocal done
        while not is_over():
            for key in ("a/k", f"a/{number}", "a/sub/k", f"a/sub/{number}"):
                done += await _try_everything(store, key)

    await asyncio.gather(*(work(number) for number in range(4)))
    swapper.stop()
    assert swapper.swaps > 50
    assert done > 50  # some calls found the folder, and were answered
    await store.aclose()


async def _try_everything(store: DirectoryStore, key: str) -> int:
    """Each verb once; how many were done. What is read is never what lies outside."""
    done = 0
    version = ANY

    async def write(call: Awaitable[Outcome | Version | None]) -> Version | None:
        nonlocal done
        try:
            outcome = await call
        except StoreError:
            return None
        if isinstance(outcome, Unknown | Rejected):
            return None
        done += 1
        return outcome.version if isinstance(outcome, Applied) else outcome

    version = await write(store.put(key, b"1")) or version
    try:
        found = await store.get(key)
        assert isinstance(found, Stored)
        assert found.body != SECRET
        version = found.version
    except StoreError:
        pass
    version = await write(store.replace(key, b"2", version)) or version
    async for entry in store.list("a/"):
        assert entry.size != len(SECRET)
    await write(store.discard(key, version))
    await write(store.create(key, b"3"))
    await write(store.delete(key))
    return done


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no other way to count descriptors")
async def test_no_descriptor_is_left_open(root: Path, outside: Outside) -> None:
    class BrokenDisk(QuickDisk):
        """Fails each call in turn."""

        def __init__(self) -> None:
            self.failing = ""

        def __getattribute__(self, name: str) -> object:
            if name in CALLS and name == super().__getattribute__("failing"):
                return self._fail
            return super().__getattribute__(name)

        def _fail(self, *arguments: object) -> None:
            raise OSError(5, "Input/output error")

    disk = BrokenDisk()
    store = DirectoryStore(root, disk=disk)
    for number, plant in enumerate(NO_FILES.values()):
        plant(root / f"no-file-{number}", outside.path)
    (root / "b@").symlink_to(outside.path)
    (root / "c@").touch()
    keys = ["k", "a/b/k", "b/k", "c/k", *(f"no-file-{number}" for number in range(len(NO_FILES) - 1))]

    async def round_of_calls() -> None:
        for key in keys:
            calls = [*all_but_delete(store, key), store.get("not/there"), store.get(key, unless=ANY)]
            await asyncio.gather(
                *calls, store.delete(key) if "no-file" not in key else _nothing(), return_exceptions=True
            )
        with contextlib.suppress(StoreError):
            async for _ in store.list():
                break  # a listing that nobody reads to its end

    await round_of_calls()
    before = _descriptors()
    for failing in ("", *CALLS):
        disk.failing = failing
        await round_of_calls()
    disk.failing = ""
    for _ in range(20):
        await round_of_calls()
    (root / "+tmp" / "00.link").symlink_to(outside.path)
    os.mkfifo(root / "+tmp" / "00.fifo")
    DirectoryStore(root)
    assert _descriptors() <= before
    await store.aclose()


CALLS = (
    *("open_root", "open_again", "open_folder", "open_file", "open_lock", "read", "status", "mode", "write_new"),
    *("stamp", "rename", "link", "make_folder", "remove_folder", "try_lock", "names", "modified_ns", "identity"),
)


async def _nothing() -> None: ...


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))

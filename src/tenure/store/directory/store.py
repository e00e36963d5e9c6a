"""A store in a local directory, for one host.

Guarantee: `create` and `replace` are atomic among all threads and processes that use the directory; a body is old or
new, never torn, through SIGKILL at any instruction; an acknowledged write survives power loss (write, fsync of the
file, rename, fsync of the folder, in this order, before the answer).

Assumption: a local file system with hard links, advisory locks and times in nanoseconds, which is checked on opening.

Not guaranteed: that a network file system keeps these promises between hosts. It is refused unless asked for.

The version of an object is its file's modification time, which every write moves forward. A file's content is exactly
the body: `cat` shows it.

`discard` is as safe against frozen processes as `replace`. An unlink would not be: a process that has compared, was
frozen, and was passed by (locks.py) would remove what was written meanwhile. So the file is *renamed* into a temporary
folder of the one who discards. That folder exists before the lock is asked for, and whoever passes by a frozen holder
removes it: the rename then fails for want of its folder, as that of a frozen `replace` fails for want of its file. The
rename takes the object away atomically, whole and without a trace, so nothing but `discard` has to know of it: a create
links onto a name that is free. Killed before the rename, nothing happened; killed after it, the object is gone, and the
folder that it lies in is swept. That a key which comes back gets none of its old versions is the work of the stripe's
floor, which is raised before the rename: killed between the two, a floor that is too high harms nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.entropy import NewId, new_id
from tenure.errors import AccessDenied, BucketMissing, NotFound, StoreError, StoreUnavailable, StoreUnfit
from tenure.store.directory.disk import Disk
from tenure.store.directory.layout import LOCKS, TEMPORARY, file_of, fold, folder_of, segment_of
from tenure.store.directory.locks import StripedLocks, stripe_of
from tenure.store.guard import OpenGuard, check_body, check_size
from tenure.store.keys import MAX_SEGMENT_BYTES, check_after, check_key, check_prefix
from tenure.store.outcome import Applied, Entry, NotModified, Outcome, Rejected, Stored, Unknown, Version
from tenure.store.protocol import Access, StoreInfo

T = TypeVar("T")

THREADS = 16
_PAGE = 1000
_DELETES = 100
"""Keys that one thread deletes within a request's timeout: each may be the last of its folder, and take two syncs."""
_LISTING_PATIENCE = 12
"""A page may have to read a folder of a million names first, so it gets this many times a request's timeout."""
_NAMES_HELD = 250_000
"""Of one folder, at a time: of a million names in one none but these take memory, and it is read four times."""
_BEHIND = "~" * MAX_SEGMENT_BYTES
_RESTARTS = 20
"""How often a write starts again because its temporary file was swept away or its folder removed meanwhile."""


class _Temporary(msgspec.Struct):
    """A body that is on the disk, under a name of its own."""

    path: Path
    descriptor: int
    modified_ns: int


class DirectoryStore:
    def __init__(
        self,
        root: Path,
        *,
        access: Access = Access.READ_WRITE,
        timeout: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        draw_id: NewId = new_id,
        disk: Disk | None = None,
        lock_patience: float = 1.0,
    ) -> None:
        """Use the directory `root`, made if it is missing. Blocks for some milliseconds: call it in a thread.

        With `Access.READ_ONLY` nothing is made, swept or tried out, and the directory must exist.
        """
        self._root = root
        self._timeout = timeout
        self._clock = clock
        self._draw_id = draw_id
        self._disk = disk if disk is not None else Disk()
        self._temporary = root / TEMPORARY
        self._guard = OpenGuard(f"the directory store {root}")
        self.info = StoreInfo(
            provider="file", url=root.as_uri(), dialect={"versions": "modification time"}, conditional_delete=True
        )
        if access is Access.READ_WRITE:
            self._prepare(lock_patience)
        elif root.exists() and not root.is_dir():
            raise BucketMissing(f"{root} is not a directory: give the URL of one, file:///directory")
        elif not root.is_dir():
            raise BucketMissing(f"there is no directory {root}: create it, or correct the name")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tenure-file")

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        self._check(key)
        return await self._run("get", key, lambda: self._get(key, unless))

    async def put(self, key: str, body: bytes) -> Version:
        self._check(key, body)
        return await self._run("put", key, lambda: self._put(key, body))

    async def create(self, key: str, body: bytes) -> Outcome:
        self._check(key, body)
        return await self._conditional("create", key, lambda: self._create(key, body))

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        self._check(key, body)
        return await self._conditional("replace", key, lambda: self._replace(key, body, expected))

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        self._guard.check()
        check_prefix(prefix)
        check_after(after)
        rows = self._walk(self._root / folder_of(prefix), prefix, after or "")
        patience = self._timeout * _LISTING_PATIENCE
        while page := await self._run("list", prefix, lambda: list(islice(rows, _PAGE)), patience):
            for entry in page:
                yield entry

    async def delete(self, *keys: str) -> None:
        for key in keys:
            self._check(key)
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            batches = [page[first : first + _DELETES] for first in range(0, len(page), _DELETES)]
            await asyncio.gather(*(self._run("delete", each[0], partial(self._delete, each)) for each in batches))

    async def discard(self, key: str, expected: Version) -> Outcome:
        self._check(key)
        return await self._conditional("discard", key, lambda: self._discard(key, expected))

    async def aclose(self) -> None:
        self._guard.close()
        self._threads.shutdown(wait=False)

    # What follows blocks, and runs in this store's threads.

    def _prepare(self, lock_patience: float) -> None:
        try:
            self._make_root()
            for folder in (self._root / LOCKS, self._temporary):
                self._disk.make_folders(folder, Path(folder.anchor))  # durably: writes below are worth no more
            self._locks = StripedLocks(self._root / LOCKS, self._temporary, self._disk, lock_patience)
            self._sweep()
            if not any(self._check_file_system() for _ in range(_RESTARTS)):
                raise StoreUnavailable(f"{self._root}: too many processes are opening it at once: try again")
        except OSError as error:
            raise self._trouble("open", error) from error

    def _make_root(self) -> None:
        try:
            self._disk.make_folders(self._root, Path(self._root.anchor))
        except FileNotFoundError as error:  # of a file system that makes no folders, such as /proc
            why = f"the directory cannot be made ({error.strerror}): give one that can be written to"
            raise StoreUnfit(str(self._root), [why]) from error

    def _get(self, key: str, unless: Version | None) -> Stored | NotModified:
        try:
            with (self._root / file_of(key)).open("rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                version = _version(status.st_mtime_ns)
                if unless is not None and unless.matches(version):
                    return NotModified(version)
                check_size(key, status.st_size)
                return Stored(file.read(), version)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(key) from None

    def _put(self, key: str, body: bytes) -> Version:
        target = self._root / file_of(key)
        for _ in range(_RESTARTS):
            self._make_folders(target.parent)
            with self._temporary_file(key, body, later_than=self._newest_ns(key, target)) as temporary:
                if self._swap(key, temporary, target, expected=None):
                    self._sync_folder(target.parent)
                    return _version(temporary.modified_ns)
        raise StoreUnavailable(self._kept_starting_again("put", key))

    def _create(self, key: str, body: bytes) -> Outcome:
        target = self._root / file_of(key)
        for _ in range(_RESTARTS):
            if target.exists():
                return Rejected()
            floor_ns = _modified_ns(self._locks.floor(stripe_of(key)))
            with self._temporary_file(key, body, later_than=floor_ns) as temporary:
                try:
                    if floor_ns is None:
                        self._disk.link(temporary.path, target)
                    else:
                        self._link_above_floor(key, temporary, target)
                except FileExistsError:
                    return Rejected()
                except FileNotFoundError:  # the folder, or our file: see locks.py
                    self._make_folders(target.parent)
                    continue
                self._sync_folder(target.parent)
                return Applied(_version(temporary.modified_ns))
        return Unknown(StoreUnavailable(self._kept_starting_again("create", key)))

    def _replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        target = self._root / file_of(key)
        for _ in range(_RESTARTS):
            if not self._has(target, expected):
                return Rejected()  # spares a doomed write its fsync
            with self._temporary_file(key, body, later_than=self._newest_ns(key, target)) as temporary:
                if self._swap(key, temporary, target, expected):
                    self._sync_folder(target.parent)
                    return Applied(_version(temporary.modified_ns))
        return Unknown(StoreUnavailable(self._kept_starting_again("replace", key)))

    def _swap(self, key: str, temporary: _Temporary, target: Path, expected: Version | None) -> bool:
        """Rename the file over the target if it is as expected. False: nothing was changed, look again."""
        with self._locks.hold(stripe_of(key), temporary.path):
            if expected is not None and not self._has(target, expected):
                return False
            self._move_forward(temporary, self._newest_ns(key, target))
            try:
                self._disk.rename(temporary.path, target)
            except FileNotFoundError:
                return False
            return True

    def _link_above_floor(self, key: str, temporary: _Temporary, target: Path) -> None:
        """Link the file onto a name that is free, with a version that the key never had."""
        with self._locks.hold(stripe_of(key), temporary.path):
            self._move_forward(temporary, _modified_ns(self._locks.floor(stripe_of(key))))
            self._disk.link(temporary.path, target)

    def _move_forward(self, temporary: _Temporary, newest_ns: int | None) -> None:
        """Somebody may have written since we looked, or the wall clock gone back; versions must not."""
        if newest_ns is not None and temporary.modified_ns <= newest_ns:
            temporary.modified_ns = newest_ns + 1
            self._disk.stamp(temporary.descriptor, temporary.modified_ns)
            self._disk.sync_file(temporary.descriptor)

    def _newest_ns(self, key: str, target: Path) -> int | None:
        """What a new version of the key has to be later than."""
        current_ns, floor_ns = _modified_ns(target), _modified_ns(self._locks.floor(stripe_of(key)))
        return current_ns if floor_ns is None else max(current_ns or 0, floor_ns)

    def _discard(self, key: str, expected: Version) -> Outcome:
        target = self._root / file_of(key)
        for _ in range(_RESTARTS):
            if not self._has(target, expected):
                return Rejected()
            with contextlib.suppress(FileNotFoundError), self._temporary_folder(key) as folder:  # swept: start again
                if self._take_away(key, folder, target, expected):
                    self._sync_folder(target.parent)
                    self._prune(target.parent)
                    return Applied(expected)
        return Unknown(StoreUnavailable(self._kept_starting_again("discard", key)))

    def _take_away(self, key: str, folder: Path, target: Path, expected: Version) -> bool:
        """Rename the target into our folder if it is as expected. False: nothing was removed, look again."""
        stripe = stripe_of(key)
        with self._locks.hold(stripe, folder):
            current_ns = _modified_ns(target)
            if current_ns is None or not expected.matches(_version(current_ns)):
                return False
            floor = self._locks.floor(stripe)
            if (_modified_ns(floor) or 0) < current_ns:
                self._raise_floor(folder / "floor", floor, current_ns)
            try:
                self._disk.rename(target, folder / "body")
            except FileNotFoundError:
                return False
            return True

    def _raise_floor(self, own_file: Path, floor: Path, modified_ns: int) -> None:
        descriptor = self._disk.write_new(own_file, b"")
        try:
            self._disk.stamp(descriptor, modified_ns)
            self._disk.sync_file(descriptor)
        finally:
            self._disk.close(descriptor)
        self._disk.rename(own_file, floor)
        self._disk.sync_folder(floor.parent)

    def _make_folders(self, folder: Path) -> None:
        """Make a write's folders; if one is pruned meanwhile, the write finds out and starts again."""
        with contextlib.suppress(FileNotFoundError):
            self._disk.make_folders(folder, self._root)

    def _sync_folder(self, folder: Path) -> None:
        """Make a change durable. A folder that is gone was pruned: what we wrote has been deleted since."""
        with contextlib.suppress(FileNotFoundError):
            self._disk.sync_folder(folder)

    def _delete(self, keys: tuple[str, ...]) -> None:
        folders = set()
        for key in keys:
            target = self._root / file_of(key)
            with self._locks.hold(stripe_of(key), None), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._disk.unlink(target)
                folders.add(target.parent)
        for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
            self._sync_folder(folder)
            self._prune(folder)

    def _prune(self, folder: Path) -> None:
        """Remove folders that became empty; a write that needs one meanwhile makes it again."""
        with contextlib.suppress(OSError):
            while folder != self._root:
                folder.rmdir()
                folder = folder.parent

    def _walk(self, folder: Path, prefix: str, after: str) -> Iterator[Entry]:
        """What lies in a folder and below. So many names are held at a time; for more, the folder is read again."""
        base = str(folder) + "/"
        while segments := _first_names(folder, prefix, after):
            for segment in segments:
                below = prefix + segment
                if segment[-1] == "/":
                    yield from self._walk(folder / (fold(segment[:-1]) + "@"), below, after)
                elif entry := _entry(base + fold(segment), below):
                    yield entry
            if len(segments) < _NAMES_HELD:
                return
            # Behind all that lay in the last of them, if that was a folder: no character of a key is higher than ~.
            after = prefix + segments[-1] + (_BEHIND if segments[-1][-1] == "/" else "")

    @contextlib.contextmanager
    def _temporary_file(self, key: str, body: bytes, later_than: int | None = None) -> Iterator[_Temporary]:
        path = self._temporary / f"{stripe_of(key):02x}.{self._draw_id()}"
        modified_ns = max(self._clock.read().wall_ns, (later_than or 0) + 1)  # the wall clock may go back
        try:
            descriptor = self._disk.write_new(path, body)
            try:
                self._disk.try_lock(descriptor)  # tells sweepers that somebody is alive behind this file
                self._disk.stamp(descriptor, modified_ns)
                self._disk.sync_file(descriptor)
                yield _Temporary(path, descriptor, modified_ns)
            finally:
                self._disk.unlock(descriptor)
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)

    @contextlib.contextmanager
    def _temporary_folder(self, key: str) -> Iterator[Path]:
        path = self._temporary / f"{stripe_of(key):02x}.{self._draw_id()}"
        try:
            descriptor = self._disk.make_folder(path)
            try:
                self._disk.try_lock(descriptor)  # tells sweepers that somebody is alive behind this folder
                yield path
            finally:
                self._disk.unlock(descriptor)
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(path)

    def _sweep(self) -> None:
        """Remove what processes that died have left. Removing a file or folder too many is harmless: see locks.py."""
        for path in self._temporary.iterdir():
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    if self._disk.try_lock(descriptor):
                        self._disk.remove(path)
                finally:
                    self._disk.unlock(descriptor)

    def _check_file_system(self) -> bool:
        """Refuse a file system on which versions or creates would not work. False: our file was swept, try again."""
        reasons = []
        second = self._temporary / f"check.{self._draw_id()}"
        with self._temporary_file("check", b"") as temporary:
            self._disk.stamp(temporary.descriptor, odd_ns := temporary.modified_ns | 1)
            if os.fstat(temporary.descriptor).st_mtime_ns != odd_ns:
                reasons.append("its file system does not keep times in nanoseconds, which tenure uses as versions")
            try:
                self._disk.link(temporary.path, second)
                self._disk.unlink(second)
            except FileNotFoundError:
                return False
            except OSError as error:
                reasons.append(f"its file system has no hard links ({error.strerror})")
        if reasons:
            raise StoreUnfit(str(self._root), [*reasons, "use a folder on a local disk"])
        return True

    def _has(self, target: Path, expected: Version) -> bool:
        current_ns = _modified_ns(target)
        return current_ns is not None and expected.matches(_version(current_ns))

    # Back on the event loop.

    def _check(self, key: str, body: bytes = b"") -> None:
        self._guard.check()
        check_key(key)
        check_body(key, body)

    async def _conditional(self, verb: str, key: str, work: Callable[[], Outcome]) -> Outcome:
        try:
            return await self._run(verb, key, work)
        except StoreError as error:
            return Unknown(error)

    async def _run(self, verb: str, key: str, work: Callable[[], T], timeout: float | None = None) -> T:
        """Do `work` in a thread. When the caller stops waiting, a write goes on, and may land later."""
        timeout = self._timeout if timeout is None else timeout
        self._guard.check()  # a listing may go on for long
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        queued = self._threads.submit(_answer, loop, answer, work)
        alarm = loop.call_later(timeout, _give_up, answer)
        try:
            return await answer
        except _GaveUp:
            raise StoreUnavailable(f"{verb} {key!r}: the disk did not answer within {timeout:g} s") from None
        except (OSError, TimeoutError) as error:
            raise self._trouble(f"{verb} {key!r}", error) from error
        finally:
            alarm.cancel()
            queued.cancel()  # unless it has begun, it never shall: nobody waits for it any longer

    def _trouble(self, what: str, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return AccessDenied(f"{what}: {reason}: this user needs to read and write {self._root}")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreUnavailable(f"{what}: {reason}: free some space on the disk of {self._root}")
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            return StoreUnfit(str(self._root), ["it is not a directory: name one, or a path that does not exist yet"])
        return StoreUnavailable(f"{what}: {reason} (in {self._root})")

    def _kept_starting_again(self, verb: str, key: str) -> str:
        return f"{verb} {key!r}: started {_RESTARTS} times and was overtaken each time; nothing was written"


class _GaveUp(Exception):
    """The disk took too long."""


def _answer(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], work: Callable[[], T]) -> None:
    """In a thread: do `work`, and have the loop hear of it, in one step of it and without a future between (a third
    of the CPU of a read went into those)."""
    try:
        told = partial(_settle, answer, work())
    except BaseException as error:
        told = partial(_settle, answer, error=error)
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to ask
        loop.call_soon_threadsafe(told)


def _settle(answer: asyncio.Future[T], result: T | None = None, error: BaseException | None = None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)  # type: ignore[arg-type]
    else:
        answer.set_exception(error)


def _give_up(answer: asyncio.Future[T]) -> None:
    _settle(answer, error=_GaveUp())


def _first_names(folder: Path, prefix: str, after: str) -> list[str]:
    """The first segments below `prefix` that hold anything after `after`, in order; folders end in `/`."""
    found: list[str] = []
    highest: str | None = None
    try:
        with os.scandir(folder) as names:
            for each in names:
                name = each.name
                segment = segment_of(name) if name[-1] != "@" else segment_of(name[:-1])
                if segment is None:
                    continue
                if name[-1] == "@":
                    segment += "/"
                if highest is not None and segment > highest:
                    continue
                below = prefix + segment
                if below > after or (segment[-1] == "/" and after.startswith(below)):
                    found.append(segment)
                    if len(found) >= 2 * _NAMES_HELD:
                        found.sort()
                        del found[_NAMES_HELD:]
                        highest = found[-1]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found.sort()
    return found[:_NAMES_HELD]


def _version(modified_ns: int) -> Version:
    return Version(e_tag=f"{modified_ns:x}")


def _modified_ns(target: Path) -> int | None:
    try:
        return os.stat(target).st_mtime_ns  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None


def _entry(path: str, key: str) -> Entry | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None  # deleted since the folder was read
    if not stat.S_ISREG(status.st_mode):
        return None  # somebody else's folder
    # The version's time may be ahead of the clock, after somebody set it back; when the file came here is not.
    modified = datetime.fromtimestamp(status.st_ctime_ns / 1e9, UTC)
    return Entry(key=key, version=_version(status.st_mtime_ns), size=status.st_size, modified=modified)

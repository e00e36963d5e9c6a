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

Who can write the directory cannot have anything outside of it read, written or removed: no link below the root is
followed (folder.py). A link, FIFO, socket, device or directory that has the name of an object is no object. Listings
leave it out, as they do with all that is other people's; but it is not *absent* either, for nothing can be created in
its place, and who is told first that it is missing and then that it exists would try for ever. So every read and write
of it fails, and says what is to be removed; `delete` removes it, the link and not what it leads to. It is the same with
a link in the place of a folder, behind which `delete` too finds nothing of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.entropy import NewId, new_id
from tenure.errors import AccessDenied, BucketMissing, NotFound, StoreError, StoreUnavailable, StoreUnfit
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place
from tenure.store.directory.layout import folders_of, name_of
from tenure.store.directory.listing import PAGE, Listing, version_of
from tenure.store.directory.locks import StripedLocks, stripe_of
from tenure.store.directory.owed import Names, Owed
from tenure.store.directory.tree import Lasting, Missing, Tree
from tenure.store.guard import OpenGuard, check_body, check_size
from tenure.store.keys import check_after, check_key, check_prefix
from tenure.store.outcome import Applied, Entry, NotModified, Outcome, Rejected, Stored, Unknown, Version
from tenure.store.protocol import MAX_BODY_BYTES, Access, StoreInfo

T = TypeVar("T")

THREADS = 16
_DELETES = 100
"""Keys that one thread deletes within a request's timeout: each may be the last of its folder, and take two syncs."""
_LISTING_PATIENCE = 12
"""A page may have to read a folder of a million names first, so it gets this many times a request's timeout."""
_RESTARTS = 20
"""How often a write starts again because its temporary file was swept away or its folder removed meanwhile."""

_OVERTAKEN = (Missing, FileNotFoundError)
"""A folder on the way, an own folder or the temporary file was removed while something was being written."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_THREAD = "new thread"
"""In what Python says when the system gives it no more threads. A pool that is shut down raises the same exception."""


class _Temporary(msgspec.Struct):
    """A body that is on the disk, under a name of its own."""

    place: Place
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
        self._lasting = Lasting()
        self._owed = Owed()
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
        return await self._run("put", key, lambda: self._put(key, body), changes={folders_of(key)})

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
        rows = Listing(self._root, self._disk, self._owed, self._clock).entries(folders_of(prefix), prefix, after or "")
        patience = self._timeout * _LISTING_PATIENCE
        while page := await self._run("list", prefix, lambda: list(islice(rows, PAGE)), patience):
            for entry in page:
                yield entry

    async def delete(self, *keys: str) -> None:
        for key in keys:
            self._check(key)
        for start in range(0, len(keys), PAGE):
            page = keys[start : start + PAGE]
            batches = [page[first : first + _DELETES] for first in range(0, len(page), _DELETES)]
            await asyncio.gather(*(self._delete_batch(each) for each in batches))

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
            with self._tree() as tree:
                tree.make_own()
                self._locks = StripedLocks(tree, self._disk, lock_patience)
                self._sweep(tree)
                if not any(self._check_file_system(tree) for _ in range(_RESTARTS)):
                    raise StoreUnavailable(f"{self._root}: too many processes are opening it at once: try again")
        except OSError as error:
            raise self._trouble("open", error) from error

    def _make_root(self) -> None:
        try:
            self._disk.make_root(self._root)
        except FileNotFoundError as error:  # of a file system that makes no folders, such as /proc
            why = f"the directory cannot be made ({error.strerror}): give one that can be written to"
            raise StoreUnfit(str(self._root), [why]) from error

    def _tree(self) -> Tree:
        return Tree(self._root, self._disk, self._lasting)

    def _tree_to_write(self) -> Tree:
        """The root may have been removed since it was opened: it is made again, as opening it would."""
        try:
            return self._tree()
        except Missing:
            self._make_root()
            return self._tree()

    def _get(self, key: str, unless: Version | None) -> Stored | NotModified:
        names = folders_of(key)
        try:
            with self._tree() as tree, tree.open(names) as folder:
                try:
                    return self._read(key, folder / name_of(key), unless)
                finally:  # also if there is nothing: it may have been deleted
                    self._owed.pay(names, partial(self._disk.sync_folder, folder))
        except (FileNotFoundError, Missing):
            raise NotFound(key) from None

    def _read(self, key: str, place: Place, unless: Version | None) -> Stored | NotModified:
        descriptor, status = self._disk.open_file(place)
        try:
            version = version_of(status.st_mtime_ns)
            if unless is not None and unless.matches(version):
                return NotModified(version)
            check_size(key, status.st_size)
            body = self._disk.read(descriptor, status.st_size, MAX_BODY_BYTES + 1)
        finally:
            self._disk.close(descriptor)
        check_size(key, len(body))  # it may have grown since
        return Stored(body, version)

    def _put(self, key: str, body: bytes) -> Version:
        names = folders_of(key)
        for _ in range(_RESTARTS):
            with self._tree_to_write() as tree, contextlib.suppress(*_OVERTAKEN), tree.make(names) as folder:
                target = folder / name_of(key)
                newest_ns = self._newest_ns(tree, key, target)
                with self._temporary_file(tree, key, body, later_than=newest_ns) as temporary:
                    if self._swap(tree, key, temporary, target, expected=None):
                        self._sync_folder(names, folder)
                        return version_of(temporary.modified_ns)
        raise StoreUnavailable(self._kept_starting_again("put", key))

    def _create(self, key: str, body: bytes) -> Outcome:
        names = folders_of(key)
        for _ in range(_RESTARTS):
            with self._tree_to_write() as tree, contextlib.suppress(*_OVERTAKEN), tree.make(names) as folder:
                target = folder / name_of(key)
                if self._disk.modified_ns(target) is not None:
                    return self._is_there(names, folder)
                floor_ns = self._disk.modified_ns(self._locks.floor(tree, stripe_of(key)))
                with self._temporary_file(tree, key, body, later_than=floor_ns) as temporary:
                    try:
                        if floor_ns is None:
                            self._disk.link(temporary.place, target)
                        else:
                            self._link_above_floor(tree, key, temporary, target)
                    except FileExistsError:
                        return self._is_there(names, folder)
                    except FileNotFoundError:  # the folder, or our file: see locks.py
                        continue
                    self._sync_folder(names, folder)
                    return Applied(version_of(temporary.modified_ns))
        return Unknown(StoreUnavailable(self._kept_starting_again("create", key)))

    def _is_there(self, names: Names, folder: Folder) -> Rejected:
        """To who sends a create again, that the name is taken says that an earlier copy is durable. Whoever made the
        object, here or in another process, may not have come to that yet."""
        self._sync_folder(names, folder)
        return Rejected()

    def _replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        with contextlib.suppress(Missing):
            names = folders_of(key)
            for _ in range(_RESTARTS):
                with self._tree() as tree, tree.open(names) as folder, contextlib.suppress(FileNotFoundError):
                    target = folder / name_of(key)
                    if not self._has(target, expected):
                        return Rejected()  # spares a doomed write its fsync
                    newest_ns = self._newest_ns(tree, key, target)
                    with self._temporary_file(tree, key, body, later_than=newest_ns) as temporary:
                        if self._swap(tree, key, temporary, target, expected):
                            self._sync_folder(names, folder)
                            return Applied(version_of(temporary.modified_ns))
            return Unknown(StoreUnavailable(self._kept_starting_again("replace", key)))
        return Rejected()  # where there is no folder, there is no object

    def _swap(self, tree: Tree, key: str, temporary: _Temporary, target: Place, expected: Version | None) -> bool:
        """Rename the file over the target if it is as expected. False: nothing was changed, look again."""
        with self._locks.hold(tree, stripe_of(key), temporary.place.name):
            if expected is not None and not self._has(target, expected):
                return False
            self._move_forward(temporary, self._newest_ns(tree, key, target))
            try:
                self._disk.rename(temporary.place, target)
            except FileNotFoundError:
                return False
            return True

    def _link_above_floor(self, tree: Tree, key: str, temporary: _Temporary, target: Place) -> None:
        """Link the file onto a name that is free, with a version that the key never had."""
        stripe = stripe_of(key)
        with self._locks.hold(tree, stripe, temporary.place.name):
            self._move_forward(temporary, self._disk.modified_ns(self._locks.floor(tree, stripe)))
            self._disk.link(temporary.place, target)

    def _move_forward(self, temporary: _Temporary, newest_ns: int | None) -> None:
        """Somebody may have written since we looked, or the wall clock gone back; versions must not."""
        if newest_ns is not None and temporary.modified_ns <= newest_ns:
            temporary.modified_ns = newest_ns + 1
            self._disk.stamp(temporary.descriptor, temporary.modified_ns)
            self._disk.sync_file(temporary.descriptor)

    def _newest_ns(self, tree: Tree, key: str, target: Place) -> int | None:
        """What a new version of the key has to be later than."""
        current_ns = self._disk.modified_ns(target)
        floor_ns = self._disk.modified_ns(self._locks.floor(tree, stripe_of(key)))
        return current_ns if floor_ns is None else max(current_ns or 0, floor_ns)

    def _discard(self, key: str, expected: Version) -> Outcome:
        with contextlib.suppress(Missing):
            names = folders_of(key)
            for _ in range(_RESTARTS):
                with self._tree() as tree, tree.open(names) as folder:
                    target = folder / name_of(key)
                    if not self._has(target, expected):
                        return Rejected()
                    # Our own folder may be swept: start again.
                    with contextlib.suppress(FileNotFoundError), self._temporary_folder(tree, key) as own:
                        if self._take_away(tree, key, own, target, expected):
                            self._sync_folder(names, folder)
                            self._prune(tree, names)
                            return Applied(expected)
            return Unknown(StoreUnavailable(self._kept_starting_again("discard", key)))
        return Rejected()  # where there is no folder, there is no object

    def _take_away(self, tree: Tree, key: str, own: Folder, target: Place, expected: Version) -> bool:
        """Rename the target into our folder if it is as expected. False: nothing was removed, look again."""
        stripe = stripe_of(key)
        with self._locks.hold(tree, stripe, own.name):
            current_ns = self._disk.modified_ns(target)
            if current_ns is None or not expected.matches(version_of(current_ns)):
                return False
            floor = self._locks.floor(tree, stripe)
            if (self._disk.modified_ns(floor) or 0) < current_ns:
                self._raise_floor(own / "floor", floor, current_ns)
            tree.make_locks_last()
            self._disk.sync_folder(floor.folder)  # who raised it before may have been killed, or failed, before this
            try:
                self._disk.rename(target, own / "body")
            except FileNotFoundError:
                return False
            return True

    def _raise_floor(self, own_file: Place, floor: Place, modified_ns: int) -> None:
        descriptor = self._disk.write_new(own_file, b"")
        try:
            self._disk.stamp(descriptor, modified_ns)
            self._disk.sync_file(descriptor)
        finally:
            self._disk.close(descriptor)
        self._disk.rename(own_file, floor)

    def _sync_folder(self, names: Names, folder: Folder) -> None:
        """Make a change durable. A folder that is gone was pruned: what we wrote has been deleted since."""
        self._owed.sync(names, partial(self._disk.sync_folder, folder))

    def _delete(self, keys: tuple[str, ...]) -> None:
        by_folder: dict[tuple[str, ...], list[str]] = {}
        for key in keys:
            by_folder.setdefault(folders_of(key), []).append(key)
        with contextlib.suppress(Missing), self._tree() as tree:  # where there is no root, there is nothing
            for names in sorted(by_folder, key=len, reverse=True):  # a folder is empty after those in it
                with contextlib.suppress(Missing):
                    self._delete_in(tree, names, by_folder[names])

    def _delete_in(self, tree: Tree, names: tuple[str, ...], keys: Iterable[str]) -> None:
        changed = False
        with tree.open(names) as folder:
            try:
                for key in keys:
                    changed |= self._unlink(tree, key, folder / name_of(key))
            except BaseException:
                # Some may be gone by now. If this fails as well it is owed, and the first error is the one to tell.
                with contextlib.suppress(OSError):
                    self._sync_folder(names, folder)
                raise
            # Also if nothing was found: an earlier try may have removed it, and failed before this.
            self._sync_folder(names, folder)
        if changed:
            self._prune(tree, names)

    def _unlink(self, tree: Tree, key: str, target: Place) -> bool:
        """False: there was nothing to remove."""
        try:
            with self._locks.hold(tree, stripe_of(key), None):
                return self._remove_if_there(target)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            # The lock's file cannot be made, and who wants to make room must be able to. Without the lock a write that
            # is under way may come after this; but whoever deletes promises that there is none (locks.py).
            return self._remove_if_there(target)

    def _remove_if_there(self, target: Place) -> bool:
        try:
            self._disk.unlink(target)
        except FileNotFoundError:
            return False
        return True

    def _prune(self, tree: Tree, names: tuple[str, ...]) -> None:
        """Remove folders that became empty; a write that needs one meanwhile makes it again."""
        with contextlib.suppress(OSError, StoreUnfit):
            while names:
                with tree.open(names[:-1]) as parent:
                    self._disk.remove_folder(parent / names[-1])
                names = names[:-1]

    @contextlib.contextmanager
    def _temporary_file(self, tree: Tree, key: str, body: bytes, later_than: int | None = None) -> Iterator[_Temporary]:
        place = tree.temporary / f"{stripe_of(key):02x}.{self._draw_id()}"
        modified_ns = max(self._clock.read().wall_ns, (later_than or 0) + 1)  # the wall clock may go back
        try:
            descriptor = self._disk.write_new(place, body)
            try:
                self._disk.try_lock(descriptor)  # tells sweepers that somebody is alive behind this file
                self._disk.stamp(descriptor, modified_ns)
                self._disk.sync_file(descriptor)
                yield _Temporary(place, descriptor, modified_ns)
            finally:
                self._disk.unlock(descriptor)
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(place)

    @contextlib.contextmanager
    def _temporary_folder(self, tree: Tree, key: str) -> Iterator[Folder]:
        place = tree.temporary / f"{stripe_of(key):02x}.{self._draw_id()}"
        try:
            self._disk.make_folder(place)
            folder = self._disk.open_folder(place)
            try:
                self._disk.try_lock(folder.descriptor)  # tells sweepers that somebody is alive behind this folder
                yield folder
            finally:
                self._disk.unlock(folder.descriptor)
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(place)

    def _sweep(self, tree: Tree) -> None:
        """Remove what processes that died have left. Removing a file or folder too many is harmless: see locks.py."""
        for name in self._disk.names(tree.temporary):
            with contextlib.suppress(FileNotFoundError):
                self._sweep_away(tree.temporary / name)

    def _sweep_away(self, place: Place) -> None:
        descriptor = self._disk.open_left_over(place)
        if descriptor is None:
            self._disk.unlink(place)
            return
        try:
            if self._disk.try_lock(descriptor):
                self._disk.remove(place)
        finally:
            self._disk.unlock(descriptor)

    def _check_file_system(self, tree: Tree) -> bool:
        """Refuse a file system on which versions or creates would not work. False: our file was swept, try again."""
        reasons = []
        second = tree.temporary / f"check.{self._draw_id()}"
        with self._temporary_file(tree, "check", b"") as temporary:
            self._disk.stamp(temporary.descriptor, odd_ns := temporary.modified_ns | 1)
            if os.fstat(temporary.descriptor).st_mtime_ns != odd_ns:
                reasons.append("its file system does not keep times in nanoseconds, which tenure uses as versions")
            try:
                self._disk.link(temporary.place, second)
                self._disk.unlink(second)
            except FileNotFoundError:
                return False
            except OSError as error:
                reasons.append(f"its file system has no hard links ({error.strerror})")
        if reasons:
            raise StoreUnfit(str(self._root), [*reasons, "use a folder on a local disk"])
        return True

    def _has(self, target: Place, expected: Version) -> bool:
        current_ns = self._disk.modified_ns(target)
        return current_ns is not None and expected.matches(version_of(current_ns))

    # Back on the event loop.

    def _check(self, key: str, body: bytes = b"") -> None:
        self._guard.check()
        check_key(key)
        check_body(key, body)

    async def _conditional(self, verb: str, key: str, work: Callable[[], Outcome]) -> Outcome:
        try:
            return await self._run(verb, key, work, changes={folders_of(key)})
        except StoreError as error:
            return Unknown(error)

    async def _delete_batch(self, keys: tuple[str, ...]) -> None:
        await self._run("delete", keys[0], lambda: self._delete(keys), changes={folders_of(key) for key in keys})

    async def _run(
        self,
        verb: str,
        key: str,
        work: Callable[[], T],
        timeout: float | None = None,
        changes: Collection[Names] = (),
    ) -> T:
        """Do `work` in a thread. When the caller stops waiting, a write goes on, and may land later."""
        timeout = self._timeout if timeout is None else timeout
        self._guard.check()  # a listing may go on for long
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        job = _Job(work, changes, loop, answer)
        alarm = loop.call_later(timeout, _give_up, answer)
        why = "the disk did not answer"
        try:
            try:
                self._threads.submit(job.run)
            except RuntimeError as error:
                if _NO_THREAD not in str(error):
                    raise
                # By then it is queued already: a thread that is there does it when it comes free.
                why = "no thread can be started, and none came free"
            return await answer
        except _GaveUp:
            raise StoreUnavailable(f"{verb} {key!r}: {why} within {timeout:g} s") from None
        except (OSError, TimeoutError) as error:
            raise self._trouble(f"{verb} {key!r}", error) from error
        finally:
            alarm.cancel()
            del work  # its body: the answer's exception, if it has one, keeps this frame
            # Unless it has begun, it never shall: nobody waits for it any longer.
            if not job.withdraw() and changes and not job.is_over:
                self._owed.leave(job)

    def _trouble(self, what: str, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return AccessDenied(f"{what}: {reason}: this user needs to read and write {self._root}")
        if error.errno in _FULL:
            return StoreUnavailable(f"{what}: {reason}: free some space on the disk of {self._root}")
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            return StoreUnfit(str(self._root), ["it is not a directory: name one, or a path that does not exist yet"])
        return StoreUnavailable(f"{what}: {reason} (in {self._root})")

    def _kept_starting_again(self, verb: str, key: str) -> str:
        return f"{verb} {key!r}: started {_RESTARTS} times and was overtaken each time; nothing was written"


class _GaveUp(Exception):
    """The disk took too long."""


class _Job(Generic[T]):
    """Work for a thread, unless it is withdrawn before that has begun."""

    def __init__(
        self,
        work: Callable[[], T],
        folders: Collection[Names],
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[T],
    ) -> None:
        self._todo = [(work, loop, answer)]
        """Taken out by whoever comes first: the thread, or who withdraws it. While the disk hangs, what was withdrawn
        stays in the queue of the threads, and must hold no body there."""
        self.folders = folders
        self.is_over = False

    def withdraw(self) -> bool:
        """False: it has begun."""
        with contextlib.suppress(IndexError):
            self._todo.pop()
            return True
        return False

    def run(self) -> None:
        """In a thread: do it, and have the loop hear of it, in one step of it and without a future between (a third of
        the CPU of a read went into those)."""
        try:
            work, loop, answer = self._todo.pop()
        except IndexError:
            return
        try:
            told = partial(_settle, answer, work())
        except BaseException as error:
            told = partial(_settle, answer, error=error)
        self.is_over = True
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

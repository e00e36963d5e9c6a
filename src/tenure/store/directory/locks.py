"""One lock for each of 64 stripes of keys, among all threads and processes that use a directory.

The kernel drops a lock when its holder dies, so none is ever stuck. A holder that is *frozen* (SIGSTOP) keeps its lock;
it is passed by:

- What a holder may do under the lock is rename (or link) its own temporary file over the target, or rename the target
  into its own temporary folder; and that file or folder exists before the lock is asked for.
- Who has waited for longer than `patience` starts the stripe's next generation: a new lock file.
- Whoever acts under a generation that is not the first has, since it got that generation's lock for the first time,
  removed every temporary file and folder of the stripe but its own. When the frozen holder wakes, its rename fails
  because one of its two names is gone: it knows that it changed nothing, and starts again under the new generation.
  (The one who started the generation cannot do this for all: it may be killed before it has.) That the holder has its
  folder open helps it nothing: a folder that was removed takes nothing in.
- Who gets a lock looks whether a newer generation exists, and moves there if so. So of the holders of an old
  generation only one that looked before the new one was started can still act, and its file existed by then and is
  gone.
- A folder goes when it is empty: what a holder moved into it until then was removed before anybody acted under the new
  generation, and nothing can be moved into it afterwards.

Lock files may be removed while they are held: by `rm -rf`, with their folder, or one by one by a cleaner that goes by
age, the oldest first. Who comes next makes them again, and two could be inside: one holds a lock that has no name any
more. The same two rules stop it:

- Who gets a lock looks whether the lock's *name* still leads to it, through the root and not through the folder that it
  has open (which may have been removed, or moved away); if not, it starts again with what is there.
- Who acts under a lock file that is new to it looks for the newest generation in the folder, not just for the next one,
  and disarms everybody else as above. For the first generation one process does that for all, and then marks the lock
  file (a byte of length): many that start at once would go on removing each other's files. The mark is worth nothing to
  a process that has worked under another lock file before.

So whoever holds a removed lock had looked before the new one was made; its temporary file existed by then, and is gone.
A removed folder takes nothing in and gives nothing out, so a removed `+tmp` disarms whoever had a file there. What is
not covered: a `+tmp` that is *moved* away while somebody is frozen, for the files in it live on; and that the newest
generation's lock file alone is removed while its holder is frozen.

An unconditional delete unlinks under the lock, which is *not* safe in this way; it need not be, because whoever calls
it promises that the key is never written again. So where a full disk has no room for a lock file, it does without.

Each stripe has a floor, a file whose time is that of the newest version that was ever discarded there. It too is
changed only by a holder's rename of its own temporary file. Once there is one, a create takes the lock and is stamped
above it, so that a key that comes back has no version that it had before. (A create that was under way before the first
discard of its stripe goes by the wall clock, in nanoseconds; so does one after the floor's file was removed.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterable, Iterator
from zlib import crc32

from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place
from tenure.store.directory.layout import LOCKS, TEMPORARY
from tenure.store.directory.tree import Tree

STRIPES = 64
_FIRST_WAIT = 0.00005
_LONGEST_WAIT = 0.002
_STARTS = 1000
"""How often a lock is looked for: each is one generation, or one that was removed meanwhile."""
_LOCK_FILE = re.compile(r"([0-3][0-9a-f])\.([0-9]+)")  # stripe and generation


def stripe_of(key: str) -> int:
    return crc32(key.encode()) % STRIPES


class StripedLocks:
    def __init__(self, tree: Tree, disk: Disk, patience: float = 1.0) -> None:
        """`tree` is asked for the generations that there are; later calls bring their own."""
        self._disk = disk
        self._patience = patience
        self._threads = [threading.Lock() for _ in range(STRIPES)]  # spares threads of one process the polling
        self._generation = [0] * STRIPES
        # The lock file (device, inode, time) under which this process has removed others' files.
        self._disarmed: list[tuple[int, int, int] | None] = [None] * STRIPES
        for stripe, generation in _generations(disk.names(tree.locks)):
            self._generation[stripe] = max(self._generation[stripe], generation)

    def floor(self, tree: Tree, stripe: int) -> Place:
        """The file whose modification time no new object of the stripe may be at or below, if there is one."""
        return tree.locks / f"{stripe:02x}.floor"

    @contextlib.contextmanager
    def hold(self, tree: Tree, stripe: int, own_name: str | None) -> Iterator[None]:
        """Hold the stripe's lock; `own_name` is that of the temporary file or folder that this holder uses, if any."""
        mine = self._threads[stripe]
        if not mine.acquire(timeout=5 * self._patience):
            # Another thread of this process works here; if it is stuck in the kernel, so is the disk.
            raise TimeoutError("the disk has not finished an earlier write of this process")
        try:
            descriptor = self._acquire(tree, stripe, own_name)
            try:
                yield
            finally:
                self._disk.unlock(descriptor)
        finally:
            mine.release()

    def _acquire(self, tree: Tree, stripe: int, own_name: str | None) -> int:
        for _ in range(_STARTS):
            try:
                descriptor = self._try_to_acquire(tree, stripe, own_name)
            except FileNotFoundError:
                # No process removes a lock file or its folder: somebody did, and the generations begin again.
                self._generation[stripe] = 0
                tree.look_again(LOCKS)
                continue
            if descriptor is not None:
                return descriptor
        raise TimeoutError("its lock files are removed as fast as they are made")

    def _try_to_acquire(self, tree: Tree, stripe: int, own_name: str | None) -> int | None:
        """None: there is a newer generation. Raises `FileNotFoundError` if this one's file is gone."""
        generation = self._generation[stripe]
        descriptor, _ = self._disk.open_lock(_lock_file(tree.locks, stripe, generation), make=generation == 0)
        try:
            if not self._wait_for(descriptor):
                self._start(tree, stripe, generation + 1)
                newest = generation + 1
            else:
                status = self._disk.status_of(descriptor)
                newest = self._newest(tree, stripe, generation, status)
                if newest == generation:
                    self._disarm_earlier_holders(tree, stripe, generation, descriptor, own_name)
                    return descriptor
        except BaseException:
            self._disk.unlock(descriptor)
            raise
        self._disk.unlock(descriptor)
        self._generation[stripe] = newest
        return None

    def _newest(self, tree: Tree, stripe: int, generation: int, lock: os.stat_result) -> int:
        """The newest generation, by what has the folder's name now. Raises `FileNotFoundError` if the lock that is held
        is not in there."""
        with tree.own_by_name(LOCKS) as folder:
            named = self._disk.status(_lock_file(folder, stripe, generation))
            if named is None or (named.st_dev, named.st_ino) != (lock.st_dev, lock.st_ino):
                raise FileNotFoundError(errno.ENOENT, "the lock file was removed")
            if self._disarmed[stripe] == _identity(lock):
                is_there = self._disk.status(_lock_file(folder, stripe, generation + 1)) is not None
                return generation + is_there
            found = _generations(self._disk.names(folder))
            return max((number for each, number in found if each == stripe), default=generation)

    def _wait_for(self, descriptor: int) -> bool:
        waited, pause = 0.0, _FIRST_WAIT
        while not self._disk.try_lock(descriptor):
            if waited >= self._patience:
                return False
            self._disk.wait(pause)
            waited += pause
            pause = min(pause * 2, _LONGEST_WAIT)
        return True

    def _start(self, tree: Tree, stripe: int, generation: int) -> None:
        self._disk.close(self._disk.open_lock(_lock_file(tree.locks, stripe, generation), make=True)[0])

    def _disarm_earlier_holders(
        self, tree: Tree, stripe: int, generation: int, descriptor: int, own_name: str | None
    ) -> None:
        """Make sure that whoever holds an earlier lock can no longer change anything.

        Once for each lock file, not for each number: a directory that was removed and made again counts anew. A lock
        file is written to at most once, by the first that holds it and before it is known to anybody, so its time tells
        it from a later one with the same inode.
        """
        lock = self._disk.status_of(descriptor)
        known = self._disarmed[stripe]
        if known == _identity(lock):
            return
        is_marked = generation == 0 and lock.st_size > 0
        if known is not None or not is_marked:
            # By its name: who removed the locks may have removed this folder too since this tree has opened it.
            with contextlib.suppress(FileNotFoundError), tree.own_by_name(TEMPORARY) as temporary:
                for name in self._disk.names(temporary):
                    if name.startswith(f"{stripe:02x}.") and name != own_name:
                        with contextlib.suppress(FileNotFoundError):
                            self._disk.remove(temporary / name)
            if generation == 0 and not is_marked:
                with contextlib.suppress(OSError):  # each process does it for itself then
                    self._disk.mark(descriptor)
                lock = self._disk.status_of(descriptor)
        self._disarmed[stripe] = _identity(lock)


def _identity(lock: os.stat_result) -> tuple[int, int, int]:
    return lock.st_dev, lock.st_ino, lock.st_ctime_ns


def _generations(names: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Of lock files: stripe and generation."""
    for name in names:
        if ours := _LOCK_FILE.fullmatch(name):
            yield int(ours[1], 16), int(ours[2])


def _lock_file(folder: Folder, stripe: int, generation: int) -> Place:
    return folder / f"{stripe:02x}.{generation}"

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

An unconditional delete unlinks under the lock, which is *not* safe in this way; it need not be, because whoever calls
it promises that the key is never written again. So where a full disk has no room for a lock file, it does without.

Each stripe has a floor, a file whose time is that of the newest version that was ever discarded there. It too is
changed only by a holder's rename of its own temporary file. Once there is one, a create takes the lock and is stamped
above it, so that a key that comes back has no version that it had before. (A create that was under way before the first
discard of its stripe goes by the wall clock, in nanoseconds.)
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from zlib import crc32

from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Place
from tenure.store.directory.tree import Tree

STRIPES = 64
_FIRST_WAIT = 0.00005
_LONGEST_WAIT = 0.002
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
        for name in disk.names(tree.locks):
            if ours := _LOCK_FILE.fullmatch(name):
                stripe, generation = int(ours[1], 16), int(ours[2])
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
        while True:
            generation = self._generation[stripe]
            try:
                descriptor, status = self._disk.open_lock(_lock_file(tree, stripe, generation), make=generation == 0)
            except FileNotFoundError:
                if generation == 0:
                    raise
                # No generation's file is ever removed: the directory was, and made again. Its generations begin anew.
                self._generation[stripe] = 0
                continue
            try:
                if not self._wait_for(descriptor):
                    self._start(tree, stripe, generation + 1)
                elif self._disk.status(_lock_file(tree, stripe, generation + 1)) is None:
                    if generation > 0:
                        self._disarm_earlier_holders(tree, stripe, status, own_name)
                    return descriptor
            except BaseException:
                self._disk.unlock(descriptor)
                raise
            self._disk.unlock(descriptor)
            self._generation[stripe] = generation + 1

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
        self._disk.close(self._disk.open_lock(_lock_file(tree, stripe, generation), make=True)[0])

    def _disarm_earlier_holders(self, tree: Tree, stripe: int, lock: os.stat_result, own_name: str | None) -> None:
        """Make sure that whoever holds an earlier generation's lock can no longer change anything.

        Once for each lock file, not for each number: a directory that was removed and made again counts anew. Nothing
        is ever written to a lock file, so its time is that of its making, and tells it from one with the same inode.
        """
        identity = lock.st_dev, lock.st_ino, lock.st_ctime_ns
        if self._disarmed[stripe] == identity:
            return
        for name in self._disk.names(tree.temporary):
            if name.startswith(f"{stripe:02x}.") and name != own_name:
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(tree.temporary / name)
        self._disarmed[stripe] = identity


def _lock_file(tree: Tree, stripe: int, generation: int) -> Place:
    return tree.locks / f"{stripe:02x}.{generation}"

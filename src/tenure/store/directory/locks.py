"""One lock for each of 64 stripes of keys, among all threads and processes that use a directory.

The kernel drops a lock when its holder dies, so none is ever stuck. A holder that is *frozen* (SIGSTOP) keeps its lock;
it is passed by:

- What a holder may do under the lock is rename its own temporary file over the target, and that file exists before the
  lock is asked for.
- Who has waited for longer than `patience` starts the stripe's next generation: a new lock file. Then it removes every
  temporary file of the stripe but its own. When the frozen holder wakes, its rename fails because its file is gone: it
  knows that it changed nothing, and starts again under the new generation.
- Who gets a lock looks whether a newer generation exists, and moves there if so. So of the holders of an old
  generation only one that looked before the new one was started can still act, and its file existed by then and is
  gone.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from tenure.store.directory.disk import Disk

STRIPES = 64
_FIRST_WAIT = 0.00005
_LONGEST_WAIT = 0.002


def stripe_of(key: str) -> int:
    return crc32(key.encode()) % STRIPES


class StripedLocks:
    def __init__(self, folder: Path, temporary: Path, disk: Disk, patience: float = 1.0) -> None:
        self._folder = folder
        self._temporary = temporary
        self._disk = disk
        self._patience = patience
        self._threads = [threading.Lock() for _ in range(STRIPES)]  # spares threads of one process the polling
        self._generation = [0] * STRIPES
        for path in folder.iterdir():
            stripe, _, generation = path.name.partition(".")
            if generation.isdigit():
                self._generation[int(stripe, 16)] = max(self._generation[int(stripe, 16)], int(generation))

    @contextlib.contextmanager
    def hold(self, stripe: int, own_file: Path | None) -> Iterator[None]:
        """Hold the stripe's lock; `own_file` is the temporary file that this holder will rename, if it has one."""
        mine = self._threads[stripe]
        if not mine.acquire(timeout=5 * self._patience):
            # Another thread of this process works here; if it is stuck in the kernel, so is the disk.
            raise TimeoutError("the disk has not finished an earlier write of this process")
        try:
            descriptor = self._acquire(stripe, own_file)
            try:
                yield
            finally:
                self._disk.close(descriptor)
        finally:
            mine.release()

    def _acquire(self, stripe: int, own_file: Path | None) -> int:
        while True:
            generation = self._generation[stripe]
            descriptor = os.open(self._path(stripe, generation), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            locked = False
            try:
                locked = self._wait_for(descriptor)
                if locked and not self._path(stripe, generation + 1).exists():
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            if not locked:
                self._pass_by(stripe, generation, own_file)
            os.close(descriptor)
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

    def _pass_by(self, stripe: int, generation: int, own_file: Path | None) -> None:
        """Start the next generation, then make sure that whoever holds this one can no longer change anything."""
        os.close(os.open(self._path(stripe, generation + 1), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        for path in self._temporary.glob(f"{stripe:02x}.*"):
            if path != own_file:
                with contextlib.suppress(FileNotFoundError):
                    self._disk.unlink(path)

    def _path(self, stripe: int, generation: int) -> Path:
        return self._folder / f"{stripe:02x}.{generation}"

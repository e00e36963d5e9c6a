"""The system calls of the directory store, in one object, so that tests can watch their order and make them fail."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from pathlib import Path

# On Darwin fsync leaves the data in the drive's own cache, and this does not.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)

_EMPTYINGS = 5


class Disk:
    def write_new(self, path: Path, body: bytes) -> int:
        """Write a file that must not exist, and leave it open."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            view = memoryview(body)
            while view:
                view = view[os.write(descriptor, view) :]
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def stamp(self, descriptor: int, modified_ns: int) -> None:
        os.utime(descriptor, ns=(modified_ns, modified_ns))

    def sync_file(self, descriptor: int) -> None:
        if _FULL_SYNC is not None:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        else:
            os.fsync(descriptor)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable: a rename is on the disk only after this."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Atomically: readers see the old file or the new one."""
        os.rename(source, target)  # noqa: PTH104 - Path.rename hides which system call this is

    def link(self, source: Path, target: Path) -> None:
        """Atomically, and only if `target` does not exist."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)  # noqa: PTH108

    def make_folder(self, path: Path) -> int:
        """Make a folder that must not exist, and leave it open."""
        path.mkdir()
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def remove(self, path: Path) -> None:
        """Remove a temporary file or folder. Its owner may put something into a folder meanwhile, once."""
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            self.unlink(path)
            return
        for _ in range(_EMPTYINGS):
            for name in os.listdir(path):  # noqa: PTH208
                with contextlib.suppress(FileNotFoundError):
                    self.unlink(path / name)
            try:
                path.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            else:
                return
        raise OSError(errno.ENOTEMPTY, f"{path.name} is being filled as fast as it is emptied")

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def try_lock(self, descriptor: int) -> bool:
        """Take an exclusive lock that the kernel drops when the last copy of the descriptor closes, also by SIGKILL."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, descriptor: int) -> None:
        """Drop the lock at once, and close: a child that was forked meanwhile has a copy of the descriptor."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        self.close(descriptor)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def make_folders(self, folder: Path, root: Path) -> None:
        """Make `folder` and its parents up to `root`, durably."""
        if folder == root or folder.is_dir():
            return
        self.make_folders(folder.parent, root)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        self.sync_folder(folder.parent)

"""The system calls of the directory store, in one object, so that tests can watch their order and make them fail.

None of them follows a symbolic link, except that which opens the root: see folder.py. Nor does any wait for the other
end of a FIFO, which somebody may have put in a file's place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tenure.store.directory.folder import Folder, Place, stranger

# On Darwin fsync leaves the data in the drive's own cache, and this does not.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EMLINK})
"""What systems say when asked to open as a folder what is none, or is a link."""
_NO_FILE = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EOPNOTSUPP, errno.EISDIR})
"""What they say of a link, a socket, a device or a folder that is to be opened as a file."""
_NO_FULL_SYNC = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY})
"""What Darwin says of a full sync on a file system that has none."""
_READ_AT_ONCE = 64 * 1024
_EMPTYINGS = 5


class Disk:
    def open_root(self, path: Path) -> Folder:
        """By its path, links and all: it is the one place that the user has named."""
        return Folder(os.open(path, _FOLDER), str(path))

    def open_again(self, folder: Folder) -> Folder:
        return Folder(os.dup(folder.descriptor), folder.path)

    def open_folder(self, place: Place) -> Folder:
        """Raises `NotADirectoryError` for a plain file, and `StoreUnfit` for a link or whatever else is no folder."""
        try:
            descriptor = os.open(place.name, _FOLDER | os.O_NOFOLLOW, dir_fd=place.folder.descriptor)
        except OSError as error:
            if error.errno in _NO_FOLDER and not stat.S_ISREG(mode := self.mode(place)) and not stat.S_ISDIR(mode):
                raise stranger(place, mode) from error
            raise
        return Folder(descriptor, place.path)

    def identity(self, folder: Folder) -> tuple[int, int]:
        status = os.fstat(folder.descriptor)
        return status.st_dev, status.st_ino

    def open_file(self, place: Place) -> tuple[int, os.stat_result]:
        """Open a plain file for reading. Raises `StoreUnfit` for anything else."""
        return self._open_plain(place, os.O_RDONLY)

    def open_lock(self, place: Place, *, make: bool) -> tuple[int, os.stat_result]:
        """Open a file to be locked. Raises `StoreUnfit` for anything else that has its name."""
        return self._open_plain(place, os.O_RDWR | (os.O_CREAT if make else 0))

    def open_left_over(self, place: Place) -> int | None:
        """Open a temporary file or folder. None: it is neither, so no process of ours is behind it."""
        try:
            descriptor = os.open(place.name, os.O_RDONLY | _FILE, dir_fd=place.folder.descriptor)
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            return descriptor
        os.close(descriptor)
        return None

    def read(self, descriptor: int, size: int, most: int) -> bytes:
        """All of a file that had `size` bytes a moment ago, but no more than `most`: it may be growing."""
        parts: list[bytes] = []
        left, at_once = most, size + 1
        while left and (part := os.read(descriptor, min(left, at_once))):
            parts.append(part)
            left, at_once = left - len(part), _READ_AT_ONCE
        return b"".join(parts)

    def mode(self, place: Place) -> int:
        return os.stat(place.name, dir_fd=place.folder.descriptor, follow_symlinks=False).st_mode

    def status(self, place: Place) -> os.stat_result | None:
        """Of a file, or of the link itself; None if there is nothing."""
        try:
            return os.stat(place.name, dir_fd=place.folder.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def modified_ns(self, place: Place) -> int | None:
        """Of a plain file; None if there is nothing. Raises `StoreUnfit` for anything else."""
        status = self.status(place)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise stranger(place, status.st_mode)
        return status.st_mtime_ns

    def names(self, folder: Folder) -> list[str]:
        return os.listdir(folder.descriptor)  # noqa: PTH208

    def scan(self, folder: Folder) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """The names in a folder, one by one, however many there are."""
        return os.scandir(folder.descriptor)

    def any_name(self, folder: Folder) -> str | None:
        """One of the names in a folder; None if it is empty."""
        with self.scan(folder) as found:
            return next((each.name for each in found), None)

    def changed_ns(self, folder: Folder) -> int:
        """When a name in a folder was last made, removed or renamed: not what is written into the files."""
        return os.fstat(folder.descriptor).st_ctime_ns

    def write_new(self, place: Place, body: bytes) -> int:
        """Write a file that must not exist, and leave it open."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
        descriptor = os.open(place.name, flags, 0o666, dir_fd=place.folder.descriptor)
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
        _sync(descriptor)

    def sync_folder(self, folder: Folder) -> None:
        """Make the names in a folder durable: a rename is on the disk only after this."""
        _sync(folder.descriptor)

    def rename(self, source: Place, target: Place) -> None:
        """Atomically: readers see the old file or the new one. A folder that was removed takes nothing more."""
        os.rename(source.name, target.name, src_dir_fd=source.folder.descriptor, dst_dir_fd=target.folder.descriptor)

    def link(self, source: Place, target: Place) -> None:
        """Atomically, and only if `target` does not exist."""
        os.link(
            source.name,
            target.name,
            src_dir_fd=source.folder.descriptor,
            dst_dir_fd=target.folder.descriptor,
            follow_symlinks=False,
        )

    def unlink(self, place: Place) -> None:
        """Remove a name: of a link the link itself, never what it leads to."""
        try:
            os.unlink(place.name, dir_fd=place.folder.descriptor)
        except (IsADirectoryError, PermissionError) as error:  # what Linux says of a folder, and what Darwin does
            if stat.S_ISDIR(mode := self.mode(place)):
                raise stranger(place, mode) from error
            raise

    def make_folder(self, place: Place) -> None:
        """Make a folder that must not exist."""
        os.mkdir(place.name, dir_fd=place.folder.descriptor)

    def remove_folder(self, place: Place) -> None:
        """Remove a folder that must be empty."""
        os.rmdir(place.name, dir_fd=place.folder.descriptor)

    def remove(self, place: Place) -> None:
        """Remove a temporary file or folder. Its owner may put something into a folder meanwhile, once.

        Whatever is put in its place between two of these steps, none of them follows it.
        """
        if not stat.S_ISDIR(self.mode(place)):
            self.unlink(place)
            return
        for _ in range(_EMPTYINGS):
            # First of all: an empty one can be removed where no descriptor is left to look into it.
            try:
                self.remove_folder(place)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            else:
                return
            with self.open_folder(place) as folder:
                for name in self.names(folder):
                    with contextlib.suppress(FileNotFoundError):
                        self.unlink(folder / name)
        raise OSError(errno.ENOTEMPTY, f"{place.name} is being filled as fast as it is emptied")

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def mark(self, descriptor: int) -> None:
        """Make an empty file one byte long, which needs no room on the disk."""
        os.ftruncate(descriptor, 1)

    def status_of(self, descriptor: int) -> os.stat_result:
        return os.fstat(descriptor)

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

    def make_root(self, path: Path) -> None:
        """Make the root and its parents, durably."""
        if path.is_dir():
            # Its maker may have been killed before it came to this. The parent may be somebody else's, and not for us.
            with contextlib.suppress(OSError):
                self._sync_parent(path)
            return
        self.make_root(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        self._sync_parent(path)

    def _sync_parent(self, path: Path) -> None:
        with self.open_root(path.parent) as parent:
            self.sync_folder(parent)

    def _open_plain(self, place: Place, flags: int) -> tuple[int, os.stat_result]:
        try:
            descriptor = os.open(place.name, flags | _FILE, 0o666, dir_fd=place.folder.descriptor)
        except OSError as error:
            if error.errno in _NO_FILE and not stat.S_ISREG(mode := self.mode(place)):
                raise stranger(place, mode) from error
            raise
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise stranger(place, status.st_mode)
        return descriptor, status


def _sync(descriptor: int) -> None:
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(descriptor)

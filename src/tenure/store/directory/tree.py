"""The store's directory, open for the time of one operation, and the one way from its root to a folder of a key."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder, Place, stranger
from tenure.store.directory.layout import LOCKS, TEMPORARY

_LASTING = 500
"""Folders that a process remembers as durable, of those that it used last: some are written into once only, such as the
index of what expires in one second. One that it has forgotten costs a sync more."""


class Missing(OSError):
    """A folder on the way to a key is not there, or a plain file has its name."""


class _Known(msgspec.Struct):
    identity: tuple[int, int]
    content: str | None = None
    """The name of something that lay in it: to look whether it is still there costs less than to look what is."""


class Lasting:
    """The folders that this process knows to be durable, by path and inode, as long as they are not empty.

    A folder that exists need not be: its maker may have been killed before it had synced the folder's parent. So a
    process does that itself, once, before it writes the first object into a folder.

    An empty one is not trusted, though it was known: others may have removed it and made it again with the same inode,
    and been killed before their sync. One that is not empty is durable: whoever put the first thing there had found it
    empty, and so synced its parent; and had it open from then on, so that it was the same folder all the time.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        """Who was used last is last."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def knows(self, path: str, folder: Folder, disk: Disk) -> bool:
        with self._lock:
            known = self._known.pop(path, None)
            if known is not None:
                self._known[path] = known
        if known is None or known.identity != disk.identity(folder):
            return False
        content = known.content  # other threads may change it meanwhile
        if content is None or disk.status(folder / content) is None:
            content = known.content = disk.any_name(folder)
        return content is not None

    def add(self, path: str, identity: tuple[int, int]) -> None:
        with self._lock:
            self._known.pop(path, None)
            self._known[path] = _Known(identity)
            if len(self._known) > _LASTING:
                del self._known[next(iter(self._known))]


class Tree:
    """The root and the store's own folders, open until the end of the `with` that a tree is to be used in.

    The root is opened by its path each time, and may lie behind links: it is the user's own word, and what was removed
    and made again meanwhile is found. Nothing below it is ever followed.

    A store's own folder that was removed (by a cleaner of temporary files, say) is made again. That is safe for the
    temporary files, of which any may go at any time, and for the locks by the rules in locks.py.
    """

    def __init__(self, root: Path, disk: Disk, lasting: Lasting | None = None) -> None:
        """Raises `Missing` if there is no root."""
        self._disk = disk
        self._lasting = lasting if lasting is not None else Lasting()
        self._own: dict[str, Folder] = {}
        try:
            self._root = disk.open_root(root)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Missing(error.errno, error.strerror) from error

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in (*self._own.values(), self._root):
            folder.close()

    @property
    def locks(self) -> Folder:
        """Raises `Missing`, as `temporary` does, if the root was removed."""
        return self._own_folder(LOCKS)

    @property
    def temporary(self) -> Folder:
        return self._own_folder(TEMPORARY)

    def open(self, names: Sequence[str]) -> Folder:
        """The folder of so many names below the root, for the caller to close. Raises `Missing`."""
        try:
            return self._walk(names, self._disk.open_folder)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Missing(error.errno, error.strerror) from error

    def make(self, names: Sequence[str]) -> Folder:
        """The same, made durably where it is missing. Raises `Missing` if it is removed while it is being made."""
        try:
            return self._walk(names, self._open_or_make)
        except FileNotFoundError as error:
            raise Missing(error.errno, error.strerror) from error

    def own_by_name(self, name: str) -> Folder:
        """What has the name of an own folder *now*, for the caller to close: `locks` and `temporary` stay with what had
        it when this tree first used them. Raises `FileNotFoundError`."""
        return self._open_folder(self._root / name)

    def look_again(self, name: str) -> None:
        """Forget an own folder, which may have been removed: the next use opens what has its name by then."""
        folder = self._own.pop(name, None)
        if folder is not None:
            folder.close()

    def make_locks_last(self) -> None:
        """Who made that folder again may have been killed before the sync, and a floor is worth no more than it is."""
        self._make_last(self._root / LOCKS, self.locks)

    def make_own(self) -> None:
        """Make the store's own folders durably: what is written into them is worth no more than they are."""
        for name in (LOCKS, TEMPORARY):
            self._own[name] = self._open_or_make(self._root / name)

    def _walk(self, names: Sequence[str], step: Callable[[Place], Folder]) -> Folder:
        folder = self._disk.open_again(self._root)
        for name in names:
            with folder:  # the parent, which is needed no longer
                folder = step(folder / name)
        return folder

    def _open_or_make(self, place: Place) -> Folder:
        try:
            folder = self._open_folder(place)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                self._disk.make_folder(place)
            folder = self._open_folder(place)
        try:
            self._make_last(place, folder)
        except BaseException:
            folder.close()
            raise
        return folder

    def _make_last(self, place: Place, folder: Folder) -> None:
        if not self._lasting.knows(place.path, folder, self._disk):
            self._disk.sync_folder(place.folder)
            self._lasting.add(place.path, self._disk.identity(folder))

    def _own_folder(self, name: str) -> Folder:
        folder = self._own.get(name)
        if folder is None:
            try:
                folder = self._open_folder(self._root / name)
            except FileNotFoundError:
                folder = self._make_again(self._root / name)
            self._own[name] = folder
        return folder

    def _make_again(self, place: Place) -> Folder:
        try:
            return self._open_or_make(place)
        except FileNotFoundError as error:
            raise Missing(error.errno, f"{self._root.path} was removed") from error

    def _open_folder(self, place: Place) -> Folder:
        """A folder that something is to be written into: a plain file with its name is in the way."""
        try:
            return self._disk.open_folder(place)
        except NotADirectoryError as error:
            raise stranger(place, self._disk.mode(place)) from error

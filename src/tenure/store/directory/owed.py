"""The folders whose sync this process owes: a change there can be seen, and would be lost with the power.

A sync that failed, or that the caller did not wait for, leaves such a change behind. Who reads it back would take for
durable what is not: that a name is taken already, that an object is there, that one is gone. So nothing is said of what
lies in the folder before it is synced. Another process cannot know of it, and reads what it sees.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from typing import Protocol

Names = tuple[str, ...]
"""Those of the folders that lead to a key, from the root on."""

_MOST = 1000
"""Folders that are remembered one by one. With more, the disk is broken, and every read pays."""


class Change(Protocol):
    """A write that is done in a thread."""

    folders: Collection[Names]
    is_over: bool


class Owed:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: list[Change] = []
        self._failed: dict[Names, object] = {}
        self._everywhere = False

    def leave(self, change: Change) -> None:
        """Nobody waits for it any longer. Until it is over, it may change its folders at any moment."""
        with self._lock:
            self._left = [*self._unfinished(), change]

    def pay(self, names: Names, sync: Callable[[], None]) -> None:
        """Sync the folder if that is owed: to be called after what is told of it was looked at."""
        if self._left or self._failed or self._everywhere:  # else not even a lock is taken: nearly always
            with self._lock:
                self._left = self._unfinished()
                is_owed = self._everywhere or names in self._failed
                is_owed = is_owed or any(names in change.folders for change in self._left)
            if is_owed:
                self.sync(names, sync)

    def _unfinished(self) -> list[Change]:
        return [change for change in self._left if not change.is_over]

    def sync(self, names: Names, sync: Callable[[], None]) -> None:
        """Sync the folder, which is owed if that fails."""
        before = self._failed.get(names)
        try:
            with contextlib.suppress(FileNotFoundError):  # the folder is gone, as a file system in user space may say
                sync()
        except BaseException:
            with self._lock:
                self._everywhere = self._everywhere or len(self._failed) >= _MOST
                if not self._everywhere:
                    self._failed[names] = object()
            raise
        with self._lock:
            if self._failed.get(names) is before:  # else another one failed meanwhile, for a change that came later
                self._failed.pop(names, None)

"""What lies in a directory store, in the order of its keys, however much it is."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice
from pathlib import Path

from tenure.errors import StoreUnfit
from tenure.store.directory.disk import Disk
from tenure.store.directory.folder import Folder
from tenure.store.directory.layout import fold, segment_of
from tenure.store.directory.owed import Owed
from tenure.store.directory.tree import Missing, Tree
from tenure.store.keys import MAX_KEY_BYTES, MAX_SEGMENT_BYTES
from tenure.store.outcome import Entry, Version

PAGE = 1000
_NAMES_HELD = 250_000
"""Of one folder, at a time: of a million names in one none but these take memory, and it is read four times."""
_BEHIND = "~" * MAX_SEGMENT_BYTES


class Listing:
    """What is no file or folder of ours is left out: a link as well, wherever it leads.

    No folder stays open while the caller is busy with what it was given, however deep this has gone.
    """

    def __init__(self, root: Path, disk: Disk, owed: Owed) -> None:
        self._root = root
        self._disk = disk
        self._owed = owed

    def entries(self, names: tuple[str, ...], prefix: str, after: str) -> Iterator[Entry]:
        """What lies in a folder and below. So many names are held at a time; for more, the folder is read again."""
        while segments := self._segments(names, prefix, after):
            for are_folders, run in groupby(segments, _is_folder):
                if are_folders:
                    for segment in run:
                        yield from self.entries((*names, fold(segment[:-1]) + "@"), prefix + segment, after)
                else:
                    while page := list(islice(run, PAGE)):
                        yield from self._files(names, prefix, page)
            if len(segments) < _NAMES_HELD:
                return
            # Behind all that lay in the last of them, if that was a folder: no character of a key is higher than ~.
            after = prefix + segments[-1] + (_BEHIND if _is_folder(segments[-1]) else "")

    def _segments(self, names: tuple[str, ...], prefix: str, after: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError, Missing, StoreUnfit), self._open(names) as folder:
            return _first_segments(folder, prefix, after)
        return []

    def _files(self, names: tuple[str, ...], prefix: str, segments: list[str]) -> list[Entry]:
        """Those that have not been deleted since the folder was read."""
        with contextlib.suppress(Missing, StoreUnfit), self._open(names) as folder:
            found = ((prefix + segment, self._disk.status(folder / fold(segment))) for segment in segments)
            return [_entry(key, status) for key, status in found if status and stat.S_ISREG(status.st_mode)]
        return []

    @contextlib.contextmanager
    def _open(self, names: tuple[str, ...]) -> Iterator[Folder]:
        with Tree(self._root, self._disk) as tree, tree.open(names) as folder:
            yield folder
            self._owed.pay(names, partial(self._disk.sync_folder, folder))


def version_of(modified_ns: int) -> Version:
    return Version(e_tag=f"{modified_ns:x}")


def _is_folder(segment: str) -> bool:
    return segment[-1] == "/"


def _first_segments(folder: Folder, prefix: str, after: str) -> list[str]:
    """The first segments below `prefix` that hold anything after `after`, in order; folders end in `/`."""
    found: list[str] = []
    highest: str | None = None
    longest = MAX_KEY_BYTES - len(prefix)  # others may have made folders that are deeper than any key
    with os.scandir(folder.descriptor) as names:
        for each in names:
            name = each.name
            segment = segment_of(name) if name[-1] != "@" else segment_of(name[:-1])
            if segment is None or len(segment) > longest:
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
    found.sort()
    return found[:_NAMES_HELD]


def _entry(key: str, status: os.stat_result) -> Entry:
    # The version's time may be ahead of the clock, after somebody set it back; when the file came here is not.
    modified = datetime.fromtimestamp(status.st_ctime_ns / 1e9, UTC)
    return Entry(key=key, version=version_of(status.st_mtime_ns), size=status.st_size, modified=modified)

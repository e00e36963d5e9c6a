"""What lies in a directory store, in the order of its keys, however much it is."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice
from pathlib import Path

from tenure.clock import SYSTEM_CLOCK, Clock
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
_SCANS = 3
_WATCHED = 20_000
"""Names in one folder up to which it is read again if it changed meanwhile; they are held for that long."""
_TICK_NS = 20_000_000
"""Two changes within so short a time may have the same time on file: the kernel's clock of files stands still between
ticks, of which there are at least a hundred a second."""
_BEHIND = "~" * MAX_SEGMENT_BYTES


class Listing:
    """What was there throughout is found, also while it is written. A folder is read in several steps, and on some file
    systems (tmpfs) a rename onto a name moves it: behind what is read, or before it. So a folder that changed meanwhile
    is read again, and all that was found counts; what is gone is noticed when its file is looked at. That ends after
    some times, for a busy folder never stands still, and a name would have to be written in each of them to be missed.
    Folders with very many names are read once.

    What is no file or folder of ours is left out: a link as well, wherever it leads.

    No folder stays open while the caller is busy with what it was given, however deep this has gone.
    """

    def __init__(self, root: Path, disk: Disk, owed: Owed, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = root
        self._disk = disk
        self._owed = owed
        self._clock = clock

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
            first = _First(prefix, after)
            for _ in range(_SCANS):
                before_ns = self._disk.changed_ns(folder)
                is_recent = abs(self._clock.read().wall_ns - before_ns) < _TICK_NS
                with self._disk.scan(folder) as found:
                    first.add(found)
                if first.are_many or (not is_recent and self._disk.changed_ns(folder) == before_ns):
                    break
            return first.in_order()
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


class _First:
    """The first segments below `prefix` that hold anything after `after`, each once, in order. Folders end in `/`."""

    def __init__(self, prefix: str, after: str) -> None:
        self._prefix = prefix
        self._after = after
        self._found: list[str] = []
        self._highest: str | None = None
        """Of those that are kept, once there were too many."""
        self._seen: set[str] | None = set()

    @property
    def are_many(self) -> bool:
        return self._seen is None

    def add(self, names: Iterable[os.DirEntry[str]]) -> None:
        prefix, after, found, seen = self._prefix, self._after, self._found, self._seen
        longest = MAX_KEY_BYTES - len(prefix)  # others may have made folders that are deeper than any key
        for each in names:
            name = each.name
            if seen is not None:
                if name in seen:
                    continue
                seen.add(name)
                if len(seen) > _WATCHED:
                    seen = self._seen = None
            segment = segment_of(name) if name[-1] != "@" else segment_of(name[:-1])
            if segment is None or len(segment) > longest:
                continue
            if name[-1] == "@":
                segment += "/"
            if self._highest is not None and segment > self._highest:
                continue
            below = prefix + segment
            if below > after or (segment[-1] == "/" and after.startswith(below)):
                found.append(segment)
                if len(found) >= 2 * _NAMES_HELD:
                    self._keep_the_first()

    def in_order(self) -> list[str]:
        self._keep_the_first()
        return self._found

    def _keep_the_first(self) -> None:
        found = self._found
        found.sort()
        if self.are_many:  # else none is there twice
            found[:] = [segment for segment, _ in groupby(found)]
        if len(found) > _NAMES_HELD:
            del found[_NAMES_HELD:]
            self._highest = found[-1]


def _entry(key: str, status: os.stat_result) -> Entry:
    # The version's time may be ahead of the clock, after somebody set it back; when the file came here is not.
    modified = datetime.fromtimestamp(status.st_ctime_ns / 1e9, UTC)
    return Entry(key=key, version=version_of(status.st_mtime_ns), size=status.st_size, modified=modified)

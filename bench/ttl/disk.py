"""What lies on the disk, and how it goes away again."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

_THREADS = 16
_PIECE = 500


def on_disk(folder: Path) -> dict[str, int]:
    """What lies below a folder."""
    objects = size = blocks = 0
    waiting = [os.fspath(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as found:
            for each in found:
                if each.is_dir(follow_symlinks=False):
                    waiting.append(each.path)
                    continue
                status = each.stat(follow_symlinks=False)
                objects += 1
                size += status.st_size
                blocks += status.st_blocks
    return {"objects": objects, "bytes": size, "bytes_on_disk": blocks * 512}


def files_in(folder: Path) -> int:
    """How many names are in one folder; none if it is gone, since a store removes those that are empty."""
    try:
        with os.scandir(folder) as found:
            return sum(1 for _ in found)
    except FileNotFoundError:
        return 0


def remove(folder: Path) -> None:
    """Many files at a time: a file system that tells the disk of each block that is free waits for it."""
    files = _files_below(folder)
    with ThreadPoolExecutor(_THREADS) as threads:
        while piece := list(islice(files, _THREADS * _PIECE)):
            list(threads.map(_unlink, [piece[first : first + _PIECE] for first in range(0, len(piece), _PIECE)]))
    shutil.rmtree(folder, ignore_errors=True)


def _files_below(folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(parent, name)


def _unlink(paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)

"""So many at a time, among processes that share a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def slot(folder: Path, places: int, pause: float = 0.05) -> Iterator[int]:
    """Waits for one of the places and has it, until the block or the process ends, however it ends."""
    while True:
        for number in range(places):
            file = os.open(folder / f"slot-{number}", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                try:
                    yield number
                finally:
                    # Closing would not do: a child that was forked meanwhile may have the file open as well.
                    fcntl.flock(file, fcntl.LOCK_UN)
                return
            finally:
                os.close(file)
        time.sleep(pause)

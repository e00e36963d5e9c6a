"""When each message was sent and handled, in memory that all processes of one measurement share.

Used by our processes and the peers' alike, so that all of them pay the same for being measured: a handler marks its
message and reads the clock once. Needs nothing but Python, since peers run in an environment of their own.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from pathlib import Path

BODY_BYTES = 200
_EMPTY = len(json.dumps({"n": 0, "pad": ""}, separators=(",", ":"))) - 1


def body_of(number: int) -> dict[str, object]:
    """A message that has 200 bytes as compact JSON."""
    return {"n": number, "pad": "x" * (BODY_BYTES - _EMPTY - len(str(number)))}


class Marks:
    """`times[n]`: handled at; `sent[n]`: enqueued, or due to be; `seen[n]`: how often it was handled."""

    def __init__(self, folder: Path, count: int = 0) -> None:
        self.folder = folder
        if count:
            folder.mkdir(parents=True, exist_ok=True)
            for name, size in (("seen", 1), ("times", 8), ("sent", 8)):
                with (folder / name).open("wb") as file:
                    file.truncate(count * size)
        self.seen = self._map("seen")
        self.times = memoryview(self._map("times")).cast("d")
        self.sent = memoryview(self._map("sent")).cast("d")

    def _map(self, name: str) -> mmap.mmap:
        descriptor = os.open(self.folder / name, os.O_RDWR)
        try:
            return mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)

    def handled(self, number: int) -> None:
        seen = self.seen
        times = seen[number]
        if times < 255:
            seen[number] = times + 1
        if not times:
            self.times[number] = time.monotonic()

    def missing(self, first: int, count: int) -> int:
        """How many of these were not handled yet."""
        return self.seen[first : first + count].count(0)

    def again(self, first: int, count: int) -> int:
        """How often one of these was handled once more."""
        return sum(self.seen[first : first + count]) - count

    def wait(self, first: int, count: int, seconds: float) -> bool:
        """Until all of these were handled; False if that takes longer."""
        deadline = time.monotonic() + seconds
        while self.missing(first, count):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

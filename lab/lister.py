"""Lists a directory store and says what that took: `python -m lab.lister DIRECTORY [PREFIX]`.

In a process of its own, because the highest use of memory is known for whole processes only.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import msgspec

from tenure.store import open_store


class Listing(msgspec.Struct, frozen=True):
    keys: int
    in_order: bool
    size: int
    """Bytes of all objects together."""
    first_seconds: float
    """Until the first entry came."""
    seconds: float
    megabytes: float
    """The highest use of memory of the whole process."""


async def take(url: str, prefix: str) -> Listing:
    async with open_store(url) as store:
        started = time.monotonic()
        keys = size = 0
        first, last, in_order = 0.0, "", True
        async for entry in store.list(prefix):
            first = first or time.monotonic() - started
            in_order &= entry.key > last
            last = entry.key
            keys += 1
            size += entry.size
        seconds = time.monotonic() - started
    return Listing(keys, in_order, size, first, seconds, peak_megabytes())


def peak_megabytes() -> float:
    """Not by getrusage: Linux starts its count, through fork and exec, with what the *parent* had in use."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    url, prefix = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    print(msgspec.json.encode(asyncio.run(take(url, prefix))).decode())

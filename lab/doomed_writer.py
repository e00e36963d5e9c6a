"""A writer on a directory store, to be killed at any instant: `python -m lab.doomed_writer DIRECTORY`.

The process stays and forks a writer for each line on its standard input, `SEED`, because starting Python anew would
take longer than the writer is to live. Everything is said on standard output, a line at a time:

    writer PID            the writer was forked
    try TASK KEY VERB N   it is about to send body number N
    done TASK KEY VERB N  that was acknowledged: said before anything else is sent by the same task
    gone PID              it is dead, and has been waited for

A body is `N LENGTH CRC PADDING`, so that one that is torn or mixed shows.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import zlib
from itertools import count
from pathlib import Path

from tenure.errors import NotFound
from tenure.store.directory import DirectoryStore
from tenure.store.outcome import Applied

TASKS = 3
KEYS_EACH = 4
LIFE_SECONDS = 30


def keys_of(task: int) -> list[str]:
    """No two tasks share a key, so that of each key at most one write is in doubt. Stripes and folders are shared."""
    return [f"t{task}/key-{number}" for number in range(KEYS_EACH)]


def body_of(number: int) -> bytes:
    padding = random.Random(number).randbytes(20 * (number % 1000))
    return b"%d %d %d " % (number, len(padding), zlib.crc32(padding)) + padding


def number_of(body: bytes) -> int:
    """The number of a whole body; ValueError for any other."""
    number, length, crc, padding = body.split(b" ", 3)
    if len(padding) != int(length) or zlib.crc32(padding) != int(crc):
        raise ValueError(f"torn: {body[:60]!r}")
    return int(number)


async def write(root: Path, seed: int) -> None:
    store = DirectoryStore(root)
    numbers = count(seed * 1_000_000)
    await asyncio.gather(*(_task(store, task, random.Random(f"{seed}.{task}"), numbers) for task in range(TASKS)))


async def _task(store: DirectoryStore, task: int, dice: random.Random, numbers: count[int]) -> None:
    while True:
        key, number = dice.choice(keys_of(task)), next(numbers)
        verb = dice.choice(("put", "replace", "create", "delete"))
        body = body_of(number)
        try:
            version = (await store.get(key)).version
        except NotFound:
            version = None
        if verb == "replace" and version is None:
            verb = "create"
        elif verb == "create" and version is not None:
            verb = "replace"
        _say(f"try {task} {key} {verb} {number}")
        if verb == "put":
            await store.put(key, body)
        elif verb == "delete":
            await store.delete(key)
        elif version is None:
            assert isinstance(await store.create(key, body), Applied)
        else:
            assert isinstance(await store.replace(key, body, version), Applied)
        _say(f"done {task} {key} {verb} {number}")


def _say(line: str) -> None:
    os.write(1, line.encode() + b"\n")  # one call, so that a line is said whole or not at all


def main() -> None:
    root = Path(sys.argv[1])
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                asyncio.run(asyncio.wait_for(write(root, int(line)), LIFE_SECONDS))
            finally:
                os._exit(1)
        _say(f"writer {child}")
        os.waitpid(child, 0)
        _say(f"gone {child}")


if __name__ == "__main__":
    main()

"""Writers that count up one object by compare-and-swap: no increment may be lost, and none may be counted twice.

As a process (`python -m lab.incrementer`) it reads one JSON line, a `Task`, opens the store, says `ready`, waits for a
line to begin, and answers with one JSON line, a `Tally`. The URL comes by standard input, because it holds secrets.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Collection
from random import Random

import msgspec

from tenure.entropy import new_id
from tenure.errors import StoreError
from tenure.store import Applied, Attempt, Rejected, Remembers, Store, Stored, commit, open_store

KEY = "counter"


class Counter(msgspec.Struct, frozen=True):
    """Remembers every write that can still be in doubt: a writer has one under way at a time, and its last is here."""

    value: int = 0
    last: dict[str, str] = {}
    """The id of each writer's last increment."""


class Task(msgspec.Struct, frozen=True):
    url: str
    writers: int
    seconds: float


class Tally(msgspec.Struct):
    applied: int = 0
    settled: int = 0
    """Of those applied: whose first answer was not decisive."""
    rejected: int = 0
    unknown: int = 0
    """Not settled: these may or may not be in the final value."""
    values: list[int] = []
    """What each applied increment counted up to."""
    elapsed: float = 0.0

    def add(self, other: Tally) -> None:
        self.applied += other.applied
        self.settled += other.settled
        self.rejected += other.rejected
        self.unknown += other.unknown
        self.values += other.values
        self.elapsed = max(self.elapsed, other.elapsed)


async def prepare(store: Store) -> None:
    await store.create(KEY, msgspec.json.encode(Counter()))


async def total(store: Store) -> int:
    return (await _read(store))[0].value


async def count_up(
    store: Store,
    writer: str,
    tally: Tally,
    *,
    until: float = float("inf"),
    at_most: int | None = None,
    dice: Random | None = None,
) -> None:
    """Increment until `until` (on the monotonic clock) or `at_most` times.

    With `dice` a writer hesitates now and then, so that a fault that comes at regular intervals does not always meet
    the same one of several writers that have fallen into step.
    """
    done = 0
    while time.monotonic() < until and (at_most is None or done < at_most):
        await asyncio.sleep(0)  # a store in memory never waits, and would let one writer do all of it
        try:
            counter, stored = await _read(store)
        except StoreError:
            continue

        def compose(write_id: str, counter: Counter = counter) -> bytes:
            return msgspec.json.encode(Counter(counter.value + 1, {**counter.last, writer: write_id}))

        sent: list[str] = []

        def draw_id(sent: list[str] = sent) -> str:
            sent.append(new_id())
            return sent[-1]

        await asyncio.sleep(dice.uniform(0, 0.004) if dice else 0)
        settled = await commit(
            store,
            Attempt(KEY, stored.version),
            compose,
            write_ids=_write_ids,
            remembers=Remembers.EVERY_WRITE,
            draw_id=draw_id,
            tries=8,
        )
        if isinstance(settled.outcome, Applied):
            done += 1
            tally.applied += 1
            tally.settled += settled.stored is not None or len(sent) > 1
            tally.values.append(counter.value + 1)
        elif isinstance(settled.outcome, Rejected):
            tally.rejected += 1
        else:
            tally.unknown += 1


async def _read(store: Store) -> tuple[Counter, Stored]:
    found = await store.get(KEY)
    assert isinstance(found, Stored)
    return msgspec.json.decode(found.body, type=Counter), found


def _write_ids(body: bytes) -> Collection[str]:
    return msgspec.json.decode(body, type=Counter).last.values()


async def serve() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    async with open_store(task.url, timeout=20) as store:
        print("ready", flush=True)
        sys.stdin.buffer.readline()
        tally, started = Tally(), time.monotonic()
        names = [f"{os.getpid()}-{number}" for number in range(task.writers)]
        await asyncio.gather(*(count_up(store, name, tally, until=started + task.seconds) for name in names))
        tally.elapsed = time.monotonic() - started
        print(msgspec.json.encode(tally).decode(), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(serve())
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

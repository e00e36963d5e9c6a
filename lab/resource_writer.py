"""Processes that write one record of a resource, and say what they were told.

`python -m lab.resource_writer` reads one JSON line, a `Task`, opens the store, says `ready`, waits for a line to begin,
and answers with one JSON line, a `Tally`. The URL comes by standard input, because it holds secrets.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from random import Random
from typing import Any

import msgspec

from tenure.database.ids import key_of
from tenure.database.resource import Resource
from tenure.errors import Conflict, RecordNotFound, StoreUnavailable, WriteUnknown
from tenure.store import Outcome, Prefixed, Store, Unknown, Version, open_store

NAME, ID = "races", "one"


class Task(msgspec.Struct, frozen=True):
    url: str
    work: str
    """`update` or `churn`."""
    share: int
    """How many successes are wanted of this process."""
    seed: int
    late_deletes: bool = False
    blind_deletes: bool = False
    """The broken variant: tombstones are removed by a plain DELETE, whoever may write there meanwhile."""
    seconds: float = 120.0


class Tally(msgspec.Struct):
    inserted: list[int] = []
    """The versions of acknowledged inserts."""
    updated: list[int] = []
    deleted: list[int] = []
    """The versions of the records that acknowledged deletes deleted."""
    told: dict[str, int] = {}
    late: int = 0
    """Requests to remove an object that landed after their caller had been told that nothing is known."""
    elapsed: float = 0.0


class LateRemovals(Prefixed):
    """Whatever removes an object lands up to 0.2 s after its caller was told that nothing is known."""

    def __init__(self, inner: Store, dice: Random) -> None:
        super().__init__(inner, "")
        self._dice = dice
        self._landing: set[asyncio.Task[None]] = set()
        self.landed = 0

    async def delete(self, *keys: str) -> None:
        self._land_later(self.inner.delete(*keys))
        raise StoreUnavailable("delete: no answer (injected)")

    async def discard(self, key: str, expected: Version) -> Outcome:
        self._land_later(self.inner.discard(key, expected))
        return Unknown(StoreUnavailable("discard: no answer (injected)"))

    async def drain(self) -> None:
        while self._landing:
            await asyncio.gather(*self._landing)

    def _land_later(self, request: Any) -> None:
        async def land() -> None:
            await asyncio.sleep(self._dice.uniform(0, 0.2))
            await request
            self.landed += 1

        task = asyncio.ensure_future(land())
        self._landing.add(task)
        task.add_done_callback(self._landing.discard)


async def update(things: Resource[dict[str, Any]], task: Task, dice: Random, tally: Tally) -> None:
    """Count up by `if_version` until our share is done."""
    told: Counter[str] = Counter()
    until = time.monotonic() + task.seconds
    while len(tally.updated) < task.share and time.monotonic() < until:
        record = await things.get(ID)
        try:
            written = await things.update(ID, {"n": record.data["n"] + 1}, if_version=record.version)
            tally.updated.append(written.version)
        except Conflict:
            told["conflict"] += 1
            await asyncio.sleep(dice.uniform(0, 0.02))
        except WriteUnknown:
            told["unknown"] += 1
    tally.told = dict(told)


async def churn(things: Resource[dict[str, Any]], task: Task, dice: Random, tally: Tally) -> None:
    """Insert and delete one id until our share of inserts was acknowledged."""
    told: Counter[str] = Counter()
    until = time.monotonic() + task.seconds
    while len(tally.inserted) < task.share and time.monotonic() < until:
        await asyncio.sleep(dice.uniform(0, 0.01))
        try:
            if dice.random() < 0.5:
                tally.inserted.append((await things.insert({"by": task.seed}, id=ID)).version)
            else:
                version = (await things.get(ID)).version
                await asyncio.sleep(dice.uniform(0, 0.005))
                await things.delete(ID, if_version=version)
                tally.deleted.append(version)
        except (Conflict, RecordNotFound):
            told["no"] += 1
        except WriteUnknown:
            told["unknown"] += 1
    tally.told = dict(told)


async def _remove_blindly(self: Any, id: str, written: Any) -> None:
    await self._store.delete(key_of(self.name, id))


async def serve() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    dice = Random(task.seed)
    if task.blind_deletes:
        Resource._remove = _remove_blindly  # type: ignore[method-assign]
    async with open_store(task.url, timeout=20) as opened:
        late = LateRemovals(opened, dice)
        things: Resource[dict[str, Any]] = Resource(late if task.late_deletes else opened, NAME)
        print("ready", flush=True)
        sys.stdin.buffer.readline()
        tally, started = Tally(), time.monotonic()
        await (update if task.work == "update" else churn)(things, task, dice, tally)
        tally.elapsed = time.monotonic() - started
        await late.drain()
        tally.late = late.landed
        print(msgspec.json.encode(tally).decode(), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(serve())
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

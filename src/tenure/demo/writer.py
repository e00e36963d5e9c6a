"""A process of the demo: `python -m tenure.demo.writer URL COUNT` counts one object up, `COUNT` times.

Prints a line for each acknowledged step, so that whoever started it knows what must not be lost.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from tenure.store import Applied, Attempt, NotModified, Remembers, Store, Unknown, commit, open_store

KEY = "demo/counter.json"
_REMEMBERED = 64  # others would have to write as often between a write and its read-back to make it doubtful


class Counter(msgspec.Struct, frozen=True, rename="camel"):
    """A number, and who wrote it: the last write ids settle what became of a write whose answer was lost."""

    value: int
    write_ids: list[str]
    schema_version: int = 1


def ids_in(body: bytes) -> list[str]:
    try:
        return msgspec.json.decode(body, type=Counter).write_ids
    except msgspec.DecodeError:
        return []


async def count_up(store: Store) -> int:
    """Add one, exactly once; returns the number that this call made."""
    while True:
        stored = await store.get(KEY)
        assert not isinstance(stored, NotModified)
        seen = msgspec.json.decode(stored.body, type=Counter)

        def plus_one(write_id: str, seen: Counter = seen) -> bytes:
            ids = [write_id, *seen.write_ids[: _REMEMBERED - 1]]
            return msgspec.json.encode(Counter(value=seen.value + 1, write_ids=ids))

        settled = await commit(
            store, Attempt(KEY, stored.version), plus_one, write_ids=ids_in, remembers=Remembers.EVERY_WRITE
        )
        if isinstance(settled.outcome, Unknown):
            raise settled.outcome.error  # counting on might count twice
        if isinstance(settled.outcome, Applied):
            return seen.value + 1


async def main(url: str, count: int) -> None:
    async with open_store(url) as store:
        for _ in range(count):
            print(await count_up(store), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))

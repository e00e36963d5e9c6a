"""One process of ours: `python -m bench.counters.node '{"url": …}'`. It obeys (`bench.queue.obey`)."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.queue.node import orders
from bench.queue.obey import say
from bench.ttl.meter import SortedMeter
from tenure import CoordinatorConfig, Database
from tenure.plugins.counters import EventualConsistencyPlugin

RESOURCE = "pages"
FIELD = "views"
_SEED_BATCH = 200


def id_of(number: int) -> str:
    return f"page-{number:06d}"


class Process:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    async def run(self) -> None:
        # Only how soon a process first looks for a leader differs from what comes by default, and what `settings` says.
        config = CoordinatorConfig(startup_jitter_max=0.0, takeover_delay=0.05, worker_id=self.options["worker"])
        async with Database(self.options["url"], timeout=30.0) as db:
            self.db = db
            self.meter = SortedMeter.watch(db, RESOURCE, plugin=EventualConsistencyPlugin.slug)
            self.records = db.resource(RESOURCE)
            settings = self.options.get("settings", {})
            self.counters = EventualConsistencyPlugin(RESOURCE, [FIELD], config=config, **settings)
            await db.use_plugin(self.counters)
            say(ready=True)
            async for order in orders():
                answer = await getattr(self, order.pop("do"))(**order)
                say(**answer)

    async def look(self) -> dict[str, Any]:
        """What this process has used so far."""
        usages = self.meter.usages()
        return {
            "leads": self.counters.is_leading,
            "requests": self.meter.requests(),
            "bytes_sent": sum(usage.bytes_sent for usage in usages),
            "bytes_received": sum(usage.bytes_received for usage in usages),
            "cpu": time.process_time(),
        }

    async def stats(self) -> dict[str, Any]:
        stats = await self.counters.stats()
        return {"inbox": stats.inbox, "records": stats.records, "calls": stats.calls, "pending": stats.pending}

    async def seed(self, count: int) -> dict[str, Any]:
        """Have so many records."""
        for start in range(0, count, _SEED_BATCH):
            numbers = range(start, min(start + _SEED_BATCH, count))
            bodies = [{"title": f"page {number}", FIELD: 0} for number in numbers]
            await self.records.insert_many(bodies, ids=[id_of(number) for number in numbers])
        return {"count": count}

    async def add(self, seconds: float, callers: int, records: int) -> dict[str, Any]:
        """`add`s of 1 to so many records in turn, for so long, by so many callers, who await each of their calls."""
        ids = [id_of(number) for number in range(records)]
        add = self.counters.add
        began, cpu = time.monotonic(), time.process_time()
        until, turn = began + seconds, itertools.count()

        async def call() -> None:
            while time.monotonic() < until:
                await add(ids[next(turn) % records], FIELD)

        await asyncio.gather(*(call() for _ in range(callers)))
        return {"began": began, "ended": time.monotonic(), "cpu": time.process_time() - cpu, "count": next(turn)}

    async def touch(self, count: int, step: int = 1, first: int = 0) -> dict[str, Any]:
        """Add 1 to each of so many records, all at once: to the first, and so many further on each time."""
        numbers = range(first, first + count * step, step)
        await asyncio.gather(*(self.counters.add(id_of(number), FIELD) for number in numbers))
        return {"count": count}

    async def consolidate(self, timeout: float) -> dict[str, Any]:
        began = time.monotonic()
        await self.counters.consolidate(timeout=timeout)
        return {"began": began, "ended": time.monotonic()}

    async def total(self, records: int) -> dict[str, Any]:
        """What stands in all of them together, as whoever reads them finds it."""
        total = 0
        for start in range(0, records, _SEED_BATCH):
            numbers = range(start, min(start + _SEED_BATCH, records))
            found = await asyncio.gather(*(self.records.get(id_of(number)) for number in numbers))
            total += sum(record.data.get(FIELD, 0) for record in found)
        return {"total": total}

    async def one_by_one(self, what: str, times: int) -> dict[str, Any]:
        """Milliseconds of each call of one caller, who is alone."""
        counters = self.counters
        calls: dict[str, Callable[[str], Awaitable[Any]]] = {
            "add": lambda id: counters.add(id, FIELD),
            "add, sync": lambda id: counters.add(id, FIELD, mode="sync"),
            "get": lambda id: counters.get(id, FIELD),
            "get, consistent": lambda id: counters.get(id, FIELD, consistent=True),
        }
        call, samples = calls[what], []
        await call(id_of(0))  # what is done once, such as reading a snapshot, is done by now
        for number in range(times):
            began = time.monotonic()
            await call(id_of(number % 100))
            samples.append(round((time.monotonic() - began) * 1000, 3))
        return {"samples_ms": samples}


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(Process(json.loads(sys.argv[1])).run())

"""One process of ours: `python -m bench.coordination.node '{"role": "worker" | "first", "url": …}'`. It obeys.

A worker has a database, a coordinator and plugins of its own. Fleets that are larger than this machine has room for
have several workers in a process, which share nothing but that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections import Counter
from typing import Any

from bench.queue.node import orders
from bench.queue.obey import say
from tenure import CoordinatorConfig, CoordinatorPlugin, Database


class Nothing(CoordinatorPlugin):
    """Takes part in the election, and has no work: so that only coordination is counted."""

    async def coordinator_work(self) -> None:
        return


async def work(options: dict[str, Any]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        databases = [await _worker(stack, options, worker_id) for worker_id in options["workers"]]
        say(ready=True)
        async for _ in orders():
            coordinators = [await database.get_global_coordinator() for database in databases]
            requests: Counter[str] = Counter()
            for database in databases:
                for verb, outcomes in database.usage().requests.items():
                    requests[verb] += sum(outcomes.values())
            say(
                leads=sum(coordinator.is_leader() for coordinator in coordinators),
                epoch=max(coordinator.get_epoch() for coordinator in coordinators),
                requests=requests,
            )


async def _worker(stack: contextlib.AsyncExitStack, options: dict[str, Any], worker_id: str) -> Database:
    database = await stack.enter_async_context(Database(options["url"], worker_id=worker_id))
    config = CoordinatorConfig(heartbeat_interval=options["heartbeat"], membership=options["membership"])
    for number in range(options["plugins"]):
        await database.use_plugin(Nothing(config=config), f"nothing-{number}")
    return database


async def first(options: dict[str, Any]) -> None:
    """From an empty bucket to a leader, by a coordinator without plugins."""
    began = time.monotonic()
    async with Database(options["url"]) as database:
        connected = time.monotonic()
        config = CoordinatorConfig(heartbeat_interval=options["heartbeat"], startup_jitter_max=0.0)
        coordinator = await database.get_global_coordinator(config=config)
        starting = asyncio.create_task(coordinator.start())
        while not coordinator.is_leader():
            await asyncio.sleep(0.005)
        say(connect=connected - began, lead=time.monotonic() - connected)
        await starting


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    given = json.loads(sys.argv[1])
    asyncio.run({"worker": work, "first": first}[given["role"]](given))

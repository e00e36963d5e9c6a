"""A worker that does nothing but belong to its fleet, as a user would write it. It ends when its input does."""

from __future__ import annotations

import asyncio
import json
import sys

import tenure
from bench.idle import NEEDLESS


async def main(url: str, worker_id: str) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    async with tenure.Database(url) as database:
        config = tenure.CoordinatorConfig(worker_id=worker_id)
        coordinator = await database.get_global_coordinator(config=config)
        await coordinator.start()
        while await coordinator.get_leader() is None:
            await asyncio.sleep(0.1)
        print(json.dumps({"leads": coordinator.is_leader()}), flush=True)
        await over.wait()
        leads = coordinator.is_leader()
        beats = coordinator.get_metrics().heartbeat_count
    needless = [name for name in NEEDLESS if name in sys.modules]
    print(json.dumps({"leads": leads, "heartbeats": beats, "needless_modules": needless}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

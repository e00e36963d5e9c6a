"""One process of a fleet for the browser to look at: it stands for election and takes part in queues, a schedule,
counters and supervised children.

    python -m tests.browser.member URL NAME [--queue NAME]... [--lease SECONDS] [--work] [--fill]

With `--fill` nobody handles what is in the queues, and each second some messages are added.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
from typing import Any

from tenure import (
    Child,
    CoordinatorCandidate,
    CoordinatorConfig,
    Database,
    EventualConsistencyPlugin,
    Message,
    Run,
    S3QueuePlugin,
    SchedulerPlugin,
    cron,
    every,
)


async def handle(message: Message) -> None:
    """Some messages cannot be handled, and become dead letters."""
    await asyncio.sleep(0.05)
    if isinstance(message.body, dict) and message.body.get("poison"):
        raise ValueError("this address does not exist")


async def mailer() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    await asyncio.sleep(1)
    raise RuntimeError("connection to mx.example.org refused")


async def fill(queues: list[S3QueuePlugin]) -> None:
    """Never as many in one as in the next, and each second some more in a fifth of them."""
    for at, queue in enumerate(queues):
        await queue.enqueue_many([{"number": number} for number in range(1 + at * at % 97)])
    for second in itertools.count():
        for queue in queues[second % 5 :: 5]:
            await queue.enqueue({"second": second})
        await asyncio.sleep(1)


async def main(url: str, name: str, queues: list[str], lease: float, works: bool, fills: bool) -> None:
    config = CoordinatorConfig.for_lease(lease, startup_jitter_max=0)
    common: dict[str, Any] = {"namespace": "default", "config": config}
    async with Database(url, worker_id=name) as db:
        coordinator = await db.get_global_coordinator("default", config=config)
        await coordinator.start()
        pace = {"tick_interval": 1.0, "load_interval": 1.0, "poll_interval": 1.0} if fills else {}
        plugins = [S3QueuePlugin(each, max_attempts=2, **pace, **common) for each in queues]
        for plugin in plugins:
            if not fills:
                plugin.handler(handle, concurrency=4)
            await db.use_plugin(plugin)
        if works:
            await db.use_plugin(_schedule(common))
            await db.use_plugin(EventualConsistencyPlugin("pages", ["views"], interval=1, **common))
            children = [Child("mailer", mailer), Child("importer", failing)]
            await db.use_plugin(CoordinatorCandidate(children, config=config))
        print("ready", flush=True)
        if fills:
            await fill(plugins)
        await asyncio.Event().wait()


def _schedule(common: dict[str, Any]) -> SchedulerPlugin:
    schedule = SchedulerPlugin(**common)

    @schedule.job(every(20), id="refresh-cache")
    async def refresh(run: Run) -> None:
        await asyncio.sleep(0.2)

    @schedule.job(every(45), id="sync-inventory")
    async def sync(run: Run) -> None:
        raise ConnectionError("inventory.example.org refused the connection")

    @schedule.job(cron("30 2 * * *", timezone="Europe/Berlin"), id="nightly-report")
    async def nightly(run: Run) -> None:
        await asyncio.sleep(1)

    return schedule


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--queue", action="append", default=[])
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--work", action="store_true")
    parser.add_argument("--fill", action="store_true")
    given = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(given.url, given.name, given.queue, given.lease, given.work, given.fill))

"""A process that takes part in everything, goes once through all that it can ask of a store, and then stays.

    python -m tests.integration.all_parts URL NAME [--lease SECONDS]

It says `led` once it leads and every part has begun, and `done` after its round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import Any

from tenure import (
    Child,
    Command,
    CoordinatorCandidate,
    CoordinatorConfig,
    CoordinatorPlugin,
    Database,
    EventualConsistencyPlugin,
    Message,
    Run,
    S3QueuePlugin,
    SchedulerPlugin,
    TTLPlugin,
    every,
)
from tenure.plugins.cluster_health import ClusterHealth
from tenure.plugins.poll import CommandCheck, PollOrchestrator, PollSchedule, PollWorker, read_jobs, read_results
from tests.support.waiting import eventually

CHECKS = [PollSchedule("check", CommandCheck("true"), every=1)]
PATIENCE = 90.0


class Own(CoordinatorPlugin):
    slug = "own"

    async def on_become_coordinator(self) -> None:
        await self.storage.set("epoch", self.epoch)


def handle(message: Message) -> None:
    """Also what `tenure queue work` is given. Some messages cannot be handled, and become dead letters."""
    if message.body == "poison":
        raise ValueError("not this one")


def schedule(config: CoordinatorConfig) -> SchedulerPlugin:
    scheduler = SchedulerPlugin(config=config)

    @scheduler.job(every(1), id="often")
    async def often(run: Run) -> None:
        pass

    return scheduler


async def use_resources(db: Database) -> None:
    records = db.resource("things")
    for id in "abc":
        await records.insert({"n": 0}, id=id)
    found = await records.update("a", {"n": 1})
    await records.patch("a", {"n": 2}, if_version=found.version)
    await records.delete("b")
    assert await records.exists("c")
    assert await records.count() == 2
    assert len((await records.list()).records) == 2


async def use_storage(own: Own) -> None:
    storage = own.storage
    await storage.set_many({"one": 1, "two": 2})
    assert await storage.set_if_not_exists("three", 3, ttl=60) is not None
    assert (await storage.list()).entries
    await storage.delete_many(["one", "two"])
    await storage.sweep()
    lead = own.lead
    assert lead is not None
    await lead.put("report", b"first")
    assert await lead.claim("report") == b"first"
    await lead.delete("report")


async def use_locks(db: Database, lease: float) -> None:
    async with db.lock("turn", ttl=lease) as held:
        held.ensure()
        await asyncio.sleep(lease / 2)  # it is renewed
    async with db.lock("turn", ttl=lease, timeout=30):
        pass


async def use_queue(queue: S3QueuePlugin) -> None:
    await queue.enqueue_many([{"number": number} for number in range(20)])
    kept = await queue.enqueue({"number": 20}, ordering_key="one", dedup_key="once")
    assert await queue.result(kept, timeout=PATIENCE) is None
    await queue.enqueue("poison")

    async def dead() -> bool:
        return bool(await queue.dead_letters())

    await eventually(dead, pause=0.2)


async def use_ttl(db: Database, ttl: TTLPlugin) -> None:
    sessions = db.resource("sessions")
    for id in ("short", "long"):
        await sessions.insert({}, id=id)
    await ttl.persist("long")

    async def expired() -> bool:
        return not await sessions.exists("short")

    await eventually(expired, pause=0.2)
    await ttl.run_cleanup()
    await ttl.reindex()


async def use_counters(db: Database, counters: EventualConsistencyPlugin) -> None:
    await db.resource("pages").insert({}, id="home")
    for _ in range(3):
        await counters.add("home", "views")
    await counters.consolidate("home", timeout=PATIENCE)
    assert await counters.get("home", "views", consistent=True) == 3
    await counters.recalculate("home", timeout=PATIENCE)


async def use_schedule(scheduler: SchedulerPlugin) -> None:
    async def ran() -> bool:
        return bool(await scheduler.history("often"))

    await eventually(ran, pause=0.2)
    await scheduler.run_now("often", within=PATIENCE)


async def use_polls(db: Database) -> None:
    async def counted() -> bool:
        return any(each.total for each in (await read_results(db)).values())

    await eventually(counted, pause=0.2)
    assert await read_jobs(db)


async def main(url: str, name: str, lease: float) -> None:
    config = CoordinatorConfig.for_lease(lease, startup_jitter_max=0)
    common: dict[str, Any] = {"config": config}
    queue = S3QueuePlugin("emails", max_attempts=1, result_retention=60, **common)
    queue.on_message(handle, blocking="inline")
    scheduler, ttl = schedule(config), TTLPlugin("sessions", ttl=1, tick=1, **common)
    counters, own = EventualConsistencyPlugin("pages", ["views"], interval=1, **common), Own(**common)
    children = [
        Child("poll", PollOrchestrator(CHECKS, tick=0.2, sweep_interval=2, keep_jobs=2)),
        Child("health", ClusterHealth(1.0)),
        Child("program", Command("sleep", "1000")),
    ]
    async with Database(url, worker_id=name) as db:
        for plugin in (queue, scheduler, ttl, counters, own):
            await db.use_plugin(plugin)
        candidate = await db.use_plugin(CoordinatorCandidate(children, **common))
        worker = PollWorker(db, candidate.coordinator, CHECKS, poll_interval=0.2)
        await worker.start()
        try:

            async def leads() -> bool:
                return own.lead is not None and await candidate.children() is not None

            await eventually(leads, pause=0.2)
            print("led", flush=True)
            await asyncio.gather(
                use_resources(db),
                use_storage(own),
                use_locks(db, lease),
                use_queue(queue),
                use_ttl(db, ttl),
                use_counters(db, counters),
                use_schedule(scheduler),
                use_polls(db),
            )
            print("done", flush=True)
            await asyncio.Event().wait()
        finally:
            await worker.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--lease", type=float, default=3.0, metavar="SECONDS")
    given = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(given.url, given.name, given.lease))

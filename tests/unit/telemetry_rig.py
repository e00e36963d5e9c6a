"""A process with one of everything, and what a scrape of it gives."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

import tenure
from tenure import CoordinatorConfig, Database
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin, every
from tenure.plugins.supervisor import Child, Context, CoordinatorCandidate
from tenure.plugins.ttl import TTLPlugin
from tenure.telemetry.prometheus import registry_of
from tests.support.waiting import eventually

SWIFT = CoordinatorConfig(
    heartbeat_interval=0.25,
    heartbeat_jitter=0.0,
    lease_timeout=3.0,
    startup_jitter_max=0,
    takeover_delay=0,
    standby_watch_interval=0.25,
    min_epoch_duration=0,
    drain_timeout=2.0,
)
_numbers = itertools.count()


def nowhere() -> str:
    """A store of its own: those in memory are shared by name."""
    return f"memory://telemetry-{next(_numbers)}"


class Process(msgspec.Struct):
    db: Database
    queue: S3QueuePlugin
    scheduler: SchedulerPlugin
    ttl: TTLPlugin
    counters: EventualConsistencyPlugin
    handled: list[Message] = []
    runs: list[tenure.Run] = []

    @property
    def plugins(self) -> tuple[Any, ...]:
        return (self.queue, self.scheduler, self.ttl, self.counters)


@asynccontextmanager
async def process(**settings: Any) -> AsyncIterator[Process]:
    """It leads, and every plugin has caught up."""
    config = SWIFT.replace(**settings)
    handled: list[Message] = []
    runs: list[tenure.Run] = []
    async with Database(nowhere(), worker_id="one") as db:
        queue = S3QueuePlugin("emails", config=config)

        @queue.handler
        async def handle(message: Message) -> None:
            handled.append(message)
            if message.body == "bad":
                raise tenure.Reject("no such address")

        scheduler = SchedulerPlugin(config=config)

        @scheduler.job(every(3600), id="report")
        async def report(run: tenure.Run) -> None:
            runs.append(run)

        async def child(context: Context) -> None:
            await asyncio.Event().wait()

        ttl = TTLPlugin("sessions", ttl=3600, config=config)
        counters = EventualConsistencyPlugin("pages", ["views"], config=config)
        for plugin in (queue, scheduler, ttl, counters):
            await db.use_plugin(plugin)
        candidate = CoordinatorCandidate([Child("mailer", child)], namespace="default", config=config, takeover_delay=0)
        await db.use_plugin(candidate)
        made = Process(db, queue, scheduler, ttl, counters, handled, runs)
        await eventually(lambda: all(plugin.is_leading for plugin in made.plugins) and candidate.supervisor.status())
        yield made


async def worked() -> tuple[str, str]:
    """What a scrape gives after everything was used: as text, and as OpenMetrics."""
    async with process() as it, it.db.lock("nightly"):
        await it.queue.enqueue("good")
        await it.queue.enqueue("bad")
        await it.counters.add("home", "views")
        await it.scheduler.run_now("report")
        await it.ttl.run_cleanup()
        coordinator = await it.db.get_global_coordinator()
        await eventually(lambda: it.runs and len(it.handled) == 2 and coordinator.get_metrics().heartbeat_count >= 10)
        await eventually(lambda: (led := it.queue.glance().led) is not None and led.dead == 1 and led.totals.done == 1)
        registry = registry_of(it.db)
        return texts(registry)


def texts(registry: CollectorRegistry) -> tuple[str, str]:
    return generate_latest(registry).decode(), generate_openmetrics(registry).decode()


@functools.cache
def scraped() -> tuple[str, str]:
    return asyncio.run(worked())

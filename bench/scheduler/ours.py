"""One process of ours that leads: `python -m bench.scheduler.ours '{"url": …}'`. Prints what it measured as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

from bench.scheduler.jobs import JobSpec, busy_jobs, many_jobs
from bench.scheduler.watch import Watch, memory_bytes, told_to_go_on
from tenure import CoordinatorConfig, Database, Run, SchedulerPlugin, cron, every
from tenure.ledger import Item, LogEntry, Situation
from tenure.plugins.scheduler.clerk import ScheduleClerk
from tenure.plugins.scheduler.leading import ScheduleLeading

BASE = datetime(2026, 1, 1, tzinfo=UTC)


def declare(scheduler: SchedulerPlugin, jobs: list[JobSpec]) -> None:
    for job in jobs:
        if job.period:
            start = datetime.fromtimestamp(BASE.timestamp() + job.offset, UTC)
            scheduler.declare(job.id, every(job.period), function="note", start=start)
        else:
            scheduler.declare(job.id, cron(job.cron, timezone=job.zone), function="note")


def timed(watch: Watch) -> None:
    """Note how long a tick keeps the loop: what is decided, and what is begun."""
    decide, committed = ScheduleClerk.decide, ScheduleClerk.committed

    def timed_decide(self: ScheduleClerk, items: list[Item], situation: Situation) -> bytes | None:
        began = time.perf_counter()
        decided = decide(self, items, situation)
        if decided is not None:
            watch.ticks.append(time.perf_counter() - began)
        return decided

    def timed_committed(self: ScheduleClerk, entry: LogEntry, items: list[Item]) -> Any:
        began = time.perf_counter()
        superfluous = committed(self, entry, items)
        watch.ticks[-1] += time.perf_counter() - began
        return superfluous

    ScheduleClerk.decide = timed_decide  # type: ignore[method-assign, assignment]
    ScheduleClerk.committed = timed_committed  # type: ignore[method-assign, assignment]


async def measure(options: dict[str, Any]) -> dict[str, Any]:
    jobs = busy_jobs(options["busy"]) if options.get("busy") else many_jobs(options["jobs"])
    memory = memory_bytes()
    watch = Watch()
    timed(watch)
    began = time.monotonic()
    # Only how soon a process first looks for a leader differs from what comes by default.
    scheduler = SchedulerPlugin(config=CoordinatorConfig(startup_jitter_max=0.0))

    @scheduler.function("note")
    async def note(run: Run) -> None:
        watch.began(run.scheduled.timestamp(), is_periodic=run.job[0] != "c")

    declare(scheduler, jobs)
    declared = time.monotonic() - began
    async with Database(options["url"], timeout=30.0) as db:

        def spent() -> dict[str, int]:
            return {verb: sum(outcomes.values()) for verb, outcomes in db.usage().requests.items()}

        def entries() -> int:
            clerk = leading.term if (leading := scheduler._leading) is not None else None
            return clerk.state.seq if clerk is not None else 0

        await db.use_plugin(scheduler)
        while not scheduler.is_leading:
            await asyncio.sleep(0.002)
        led = time.monotonic() - began
        while not all_known(scheduler, len(jobs)):
            await asyncio.sleep(0.002)
        known = time.monotonic() - began
        await told_to_go_on(started=known)
        await asyncio.sleep(options["settle"])
        found = await watch.window(jobs, options["seconds"], spent)
        cpu = await watch.cpu(options["cpu_seconds"], entries)
        stats = await scheduler.stats()
        return {
            "start": {"declared": declared, "leads": led, "all_next_fires_known": known},
            "window": found,
            "cpu": cpu,
            "memory_bytes": memory_bytes() - memory,
            "outcomes": {
                name: getattr(stats, name)
                for name in ("fired", "failed", "skipped_overlap", "missed_window", "coalesced", "interruptions")
            },
        }


def all_known(scheduler: SchedulerPlugin, jobs: int) -> bool:
    """Is every job in the log, and when each is due next known?"""
    leading = scheduler._leading
    assert isinstance(leading, ScheduleLeading)
    clerk = leading.clerk
    return clerk is not None and len(clerk.machine.jobs) == jobs and not clerk.due.is_behind


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    print(json.dumps(asyncio.run(measure(json.loads(sys.argv[1])))), flush=True)

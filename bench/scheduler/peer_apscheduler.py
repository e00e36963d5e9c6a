"""APScheduler 3, on an event loop: `python -m bench.scheduler.peer_apscheduler '{"store": "memory"}'`.

It decides in one process: there is no failover, and two that share a job store run everything twice.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

from apscheduler.events import EVENT_JOB_SUBMITTED  # type: ignore[import-not-found]
from apscheduler.executors.asyncio import AsyncIOExecutor  # type: ignore[import-not-found]
from apscheduler.jobstores.memory import MemoryJobStore  # type: ignore[import-not-found]
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore  # type: ignore[import-not-found]
from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-not-found]
from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-not-found]
from apscheduler.triggers.interval import IntervalTrigger  # type: ignore[import-not-found]
from sqlalchemy import create_engine, event  # type: ignore[import-not-found]

from bench.scheduler import peer_apscheduler as this
from bench.scheduler.jobs import JobSpec, busy_jobs, many_jobs
from bench.scheduler.watch import Watch, memory_bytes, told_to_go_on

BASE = datetime(2026, 1, 1, tzinfo=UTC)
watch = Watch()
due: dict[str, float] = {}
"""By job: when the run that was submitted last was meant to be."""


async def note(job: str) -> None:
    watch.began(due[job], is_periodic=job[0] != "c")


def submitted(told: Any) -> None:
    """Before the run begins: that is a task of the same loop."""
    due[told.job_id] = told.scheduled_run_times[-1].timestamp()


def trigger_of(job: JobSpec) -> Any:
    if job.period:
        start = datetime.fromtimestamp(BASE.timestamp() + job.offset, UTC)
        return IntervalTrigger(seconds=job.period, start_date=start, timezone=UTC)
    return CronTrigger.from_crontab(job.cron, timezone=job.zone)


def store_of(options: dict[str, Any]) -> Any:
    if options["store"] == "memory":
        return MemoryJobStore()
    engine = create_engine(f"sqlite:///{options['file']}")

    def set_up(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(engine, "connect", set_up)
    return SQLAlchemyJobStore(engine=engine)


class Timed(AsyncIOScheduler):  # type: ignore[misc]
    """Notes how long a tick keeps the loop."""

    ticks = 0

    def _process_jobs(self) -> Any:
        began = time.perf_counter()
        wait = super()._process_jobs()
        watch.ticks.append(time.perf_counter() - began)
        self.ticks += 1
        return wait


async def measure(options: dict[str, Any]) -> dict[str, Any]:
    jobs = busy_jobs(options["busy"]) if options.get("busy") else many_jobs(options["jobs"])
    memory = memory_bytes()
    began = time.monotonic()
    scheduler = Timed(
        jobstores={"default": store_of(options)},
        executors={"default": AsyncIOExecutor()},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 30},
        timezone=UTC,
    )
    scheduler.add_listener(submitted, EVENT_JOB_SUBMITTED)
    for job in jobs:
        scheduler.add_job(note, trigger_of(job), args=[job.id], id=job.id)
    declared = time.monotonic() - began
    scheduler.start()
    known = time.monotonic() - began
    await told_to_go_on(started=known)
    await asyncio.sleep(options["settle"])
    found = await watch.window(jobs, options["seconds"], dict)
    cpu = await watch.cpu(options["cpu_seconds"], lambda: scheduler.ticks)
    return {
        "start": {"declared": declared, "all_next_fires_known": known},
        "window": found,
        "cpu": cpu,
        "memory_bytes": memory_bytes() - memory,
    }


if __name__ == "__main__":
    # What a job store keeps is the name of a function in a module, and that is not the one that is run.
    print(json.dumps(asyncio.run(this.measure(json.loads(sys.argv[1])))), flush=True)

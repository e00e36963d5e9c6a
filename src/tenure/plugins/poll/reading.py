"""What any worker can read about polling, without taking part in it."""

from __future__ import annotations

import logging

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.given import shown
from tenure.database import Database
from tenure.entropy import new_id
from tenure.errors import ConfigError
from tenure.plugins.poll.book import Held, PollBook
from tenure.plugins.poll.job import Job, is_schedule_name, parse_job_id
from tenure.plugins.poll.summary import Summary

_log = logging.getLogger("tenure.poll")
MAX_JOBS_READ = 1000


async def read_results(database: Database, name: str = "default") -> dict[str, Summary]:
    """The results of every schedule, by its name. What cannot be read is left out, and logged."""
    book = _book(database, name)
    found: dict[str, Summary] = {}
    for schedule in await book.schedules_with_results():
        summary, version = await book.summary(schedule)
        if isinstance(summary, Summary):
            if version is not None:
                found[schedule] = summary
        else:
            _log.warning("the results of schedule %r cannot be read: %s", schedule, summary)
    return found


async def read_jobs(
    database: Database, name: str = "default", *, schedule: str | None = None, limit: int = 100
) -> list[Job]:
    """The newest `limit` jobs of each schedule (or of the one), oldest first: the open one and those that are kept."""
    if schedule is not None and not is_schedule_name(schedule):
        raise ConfigError(f"schedule is {shown(schedule)}: that cannot be the name of one")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MAX_JOBS_READ:
        raise ConfigError(f"limit is {shown(limit)}: give a number from 1 to {MAX_JOBS_READ}")
    book = _book(database, name)
    numbers: dict[str, list[str]] = {}
    for job_id in await book.job_ids():
        parsed = parse_job_id(job_id)
        if parsed is not None and schedule in (None, parsed[0]):
            numbers.setdefault(parsed[0], []).append(job_id)
    jobs: list[Job] = []
    for named, job_ids in numbers.items():
        summary, _ = await book.summary(named)
        first_kept = summary.first_kept if isinstance(summary, Summary) else 1
        for job_id in job_ids[-limit:]:
            held = await book.look(job_id)
            if isinstance(held, Held) and held.job.number >= first_kept:
                jobs.append(held.job)
    return jobs


def _book(database: Database, name: str) -> PollBook:
    clock: Clock = SYSTEM_CLOCK
    return PollBook(database.store, name, clock=clock, draw_id=new_id)

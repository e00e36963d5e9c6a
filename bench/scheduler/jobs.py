"""The jobs, the same ones for whoever is measured. Nothing but Python is needed: peers have their own environment."""

from __future__ import annotations

import math
from typing import NamedTuple

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Tokyo",
)
MINUTE = 60.0


class JobSpec(NamedTuple):
    id: str
    period: float = 0.0
    """Seconds; 0: by cron."""
    offset: float = 0.0
    """Seconds after the full minute, of the first one."""
    cron: str = ""
    zone: str = "UTC"


def many_jobs(count: int) -> list[JobSpec]:
    """Seven of ten every minute, evenly spread over it; the others by cron: every five minutes, hourly, on workdays."""
    every = count * 7 // 10
    jobs = [JobSpec(f"every-{n}", MINUTE, round(n * MINUTE / every, 3)) for n in range(every)]
    for n in range(count - every):
        minute, hour, zone = n % 60, n // 60 % 24, ZONES[n % len(ZONES)]
        text = (f"{n // 3 % 5}-59/5 * * * *", f"{minute} * * * *", f"{minute} {hour} * * MON-FRI")[n % 3]
        jobs.append(JobSpec(f"cron-{n}", cron=text, zone=zone))
    return jobs


def busy_jobs(count: int) -> list[JobSpec]:
    """Each on every full second."""
    return [JobSpec(f"busy-{n}", 1.0) for n in range(count)]


def expected(jobs: list[JobSpec], low: float, high: float) -> int:
    """Instants of the jobs that have a period, from `low` to before `high`, in seconds since 1970."""
    return sum(_up_to(job, high) - _up_to(job, low) for job in jobs if job.period)


def _up_to(job: JobSpec, moment: float) -> int:
    """Instants before this one, of all times: a count that is good for differences only."""
    return math.ceil((moment - job.offset) / job.period)

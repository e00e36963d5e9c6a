"""Jobs that fire at their times, decided once each by the leader."""

from tenure.plugins.scheduler.job import (
    Dst,
    Interrupted,
    Job,
    Misfire,
    Origin,
    Overlap,
    at,
    cron,
    every,
)

__all__ = [
    "Dst",
    "Interrupted",
    "Job",
    "Misfire",
    "Origin",
    "Overlap",
    "at",
    "cron",
    "every",
]

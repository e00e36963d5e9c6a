"""Jobs that fire at their times, decided once each by the leader: `SchedulerPlugin`."""

from tenure.plugins.scheduler.commands import CommandPolicy
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
from tenure.plugins.scheduler.looking import JobView, OccurrenceRecord, ScheduleStats
from tenure.plugins.scheduler.plugin import SchedulerPlugin
from tenure.plugins.scheduler.records import Outcome, State
from tenure.plugins.scheduler.run import Run
from tenure.plugins.scheduler.timetable import Fire

__all__ = [
    "CommandPolicy",
    "Dst",
    "Fire",
    "Interrupted",
    "Job",
    "JobView",
    "Misfire",
    "OccurrenceRecord",
    "Origin",
    "Outcome",
    "Overlap",
    "Run",
    "ScheduleStats",
    "SchedulerPlugin",
    "State",
    "at",
    "cron",
    "every",
]

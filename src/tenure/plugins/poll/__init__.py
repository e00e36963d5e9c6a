"""Service checks, scheduled by the leader and run by whichever worker is available."""

from tenure.plugins.poll.checks import CommandCheck, HttpCheck, TcpCheck
from tenure.plugins.poll.events import JobCompleted, JobDispatched, JobFailed
from tenure.plugins.poll.job import CheckResult, Failure, Job, JobState
from tenure.plugins.poll.orchestrator import PollOrchestrator, PollStatus
from tenure.plugins.poll.reading import read_jobs, read_results
from tenure.plugins.poll.schedule import Anywhere, Check, InPartition, On, PollSchedule, Run, Verdict
from tenure.plugins.poll.summary import Outcome, Summary
from tenure.plugins.poll.worker import PollWorker, WorkerStatus

__all__ = [
    "Anywhere",
    "Check",
    "CheckResult",
    "CommandCheck",
    "Failure",
    "HttpCheck",
    "InPartition",
    "Job",
    "JobCompleted",
    "JobDispatched",
    "JobFailed",
    "JobState",
    "On",
    "Outcome",
    "PollOrchestrator",
    "PollSchedule",
    "PollStatus",
    "PollWorker",
    "Run",
    "Summary",
    "TcpCheck",
    "Verdict",
    "WorkerStatus",
    "read_jobs",
    "read_results",
]

"""Histories of polling that no single mistake of the product leads to."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.plugins.poll.job import CheckResult, Job, JobState
from tenure.simulate.polling_judge import FOLDER, PollingJudge
from tenure.testing import SimulatedBucket, World
from tenure.testing.bucket import Write
from tenure.testing.checkers import Judge

from .checks import plants


def job(**fields: Any) -> bytes:
    known = {"write_id": "w1", "schedule": "web", "number": 1, "fingerprint": "f", "timeout_ms": 1000, "epoch": 2}
    return msgspec.json.encode(Job(**{**known, **fields}))


ENDED = job(state=JobState.COMPLETED, result=CheckResult(True, 1.0))


def judged(*bodies: bytes | None) -> Judge:
    """The record of a job, as its processes wrote it one after another."""
    with World(1) as world:
        judge, bucket = Judge(world), SimulatedBucket(world)
        polling = PollingJudge(world, bucket, judge)
        old: bytes | None = None
        for body in bodies:
            polling._written(Write(0.0, f"{FOLDER}jobs/web-0000000001.json", old, body, "a", "replace"))
            old = body
        return judge


@plants("polling", "ghost")
def a_job_that_ended_and_went_goes_on() -> Judge:
    return judged(ENDED, None, job(), job(state=JobState.DISPATCHING, worker_id="a", uid="u", token=1))


@plants("polling", "job")
def a_job_is_written_that_cannot_be_read() -> Judge:
    return judged(job(), b"{}")


@plants("polling", "job-epoch")
def a_leader_of_an_earlier_epoch_changes_a_job() -> Judge:
    return judged(job(epoch=3), job(epoch=2))


@plants("polling", "left-open")
def a_job_is_left_open_when_there_is_a_newer_one() -> Judge:
    with World(1) as world:
        judge, bucket = Judge(world), SimulatedBucket(world)
        polling = PollingJudge(world, bucket, judge)
        for number in (1, 2):
            key = f"{FOLDER}jobs/web-{number:010d}.json"
            polling._written(Write(0.0, key, None, job(number=number), "a", "create"))
        polling.check_end(["web"])
        return judge

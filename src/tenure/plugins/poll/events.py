"""What the leader's side of polling reports. The results in the bucket are the record; these are advice."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenure.plugins.poll.job import Job


class JobDispatched(msgspec.Struct, frozen=True):
    """A worker was asked to run it."""

    name: ClassVar[str] = "plg:poll:job-dispatched"
    job: Job


class JobCompleted(msgspec.Struct, frozen=True):
    """The check gave an answer: `job.result`."""

    name: ClassVar[str] = "plg:poll:job-completed"
    job: Job


class JobFailed(msgspec.Struct, frozen=True):
    """There is none: `job.failure` and `job.detail` say why."""

    name: ClassVar[str] = "plg:poll:job-failed"
    job: Job

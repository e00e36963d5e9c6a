"""One run of one check, from the wish to its end. Pure: what happened is handed in.

    pending ──▶ dispatching ──▶ running ──▶ completed
       │          │  ↺ another worker  │
       └──────────┴───────────────────┴──▶ failed (NO_WORKER, TIMEOUT, EXECUTION_ERROR)

Guarantee: a final state never changes, and `running` is entered once. So a job ends in one state, and its check is
begun at most once, if every change of the record is a compare-and-swap of what `advance` gave.

Not guaranteed: that the check of a job which was given up on does not run. Its worker may have been cut off.
"""

from __future__ import annotations

import enum
import re
from typing import Annotated, Literal, TypeAlias

import msgspec

from tenure.election.records import MAX_EPOCH, Count, Damage, Id, Name, Record, Text, TooNew, decode
from tenure.store.url import redact

MAX_JOB_BYTES = 16 * 1024
MAX_DETAIL_BYTES = 1024
MAX_ATTEMPTS = 100
MAX_NUMBER = 10**10 - 1
MAX_SCHEDULE_NAME = 64

_SCHEDULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_JOB_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63})-([0-9]{10})")

Epoch = Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH)]
Token = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
ScheduleName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Detail = Annotated[str, msgspec.Meta(max_length=MAX_DETAIL_BYTES)]
TOKENS_PER_EPOCH = 1 << 20


class JobState(enum.Enum):
    PENDING = "pending"
    """Due, and no worker has it."""
    DISPATCHING = "dispatching"
    """Meant for one worker, which has not begun."""
    RUNNING = "running"
    COMPLETED = "completed"
    """The check ran and gave an answer: `result.ok` says which."""
    FAILED = "failed"
    """There is no answer from the check in time: `failure` says why."""

    @property
    def final(self) -> bool:
        return self in (JobState.COMPLETED, JobState.FAILED)


class Failure(enum.Enum):
    """Why there was no answer."""

    NO_WORKER = "NO_WORKER"
    """No available worker fitted the schedule."""
    TIMEOUT = "TIMEOUT"
    """The check took longer than it may (then there is a result, not ok), or its worker was not heard of again."""
    EXECUTION_ERROR = "EXECUTION_ERROR"
    """The check could not be run."""


class CheckResult(msgspec.Struct, frozen=True, rename="camel"):
    """What was measured. True if the check was `ok`."""

    ok: bool
    latency_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    detail: Detail = ""

    def __bool__(self) -> bool:
        return self.ok


class Job(Record, frozen=True, kw_only=True, rename="camel"):
    """`jobs/{schedule}-{number}.json`. Times of day are for people."""

    schedule: ScheduleName
    number: Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBER)]
    """One more than that of the job before; never used twice."""
    fingerprint: Id
    """Of the check's definition, which itself is never written down."""
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=24 * 3600 * 1000)]
    state: JobState = JobState.PENDING
    epoch: Epoch
    """Of the leader that answers for it now. 0: nobody was elected."""
    worker_id: Name | None = None
    uid: Id | None = None
    """The process start that it is meant for."""
    token: Token = 0
    """Rises with every dispatch of this schedule, under whichever leader."""
    attempt: Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPTS)] = 0
    """How often it was dispatched."""
    created_ms: Count = 0
    """Milliseconds since 1970 on its leader's wall clock."""
    dispatched_at: Text = ""
    started_at: Text = ""
    ended_at: Text = ""
    ended_by: Literal["worker", "leader"] | None = None
    failure: Failure | None = None
    detail: Detail = ""
    result: CheckResult | None = None

    @property
    def id(self) -> str:
        return job_id(self.schedule, self.number)

    @property
    def timeout(self) -> float:
        return self.timeout_ms / 1000


# What may happen to a job


class Assigned(msgspec.Struct, frozen=True):
    """The leader means it for this worker."""

    epoch: int
    worker_id: str
    uid: str
    token: int
    at: str = ""


class Adopted(msgspec.Struct, frozen=True):
    """A new leader answers for it from now on."""

    epoch: int


class GivenUp(msgspec.Struct, frozen=True):
    """The leader ends it."""

    epoch: int
    failure: Failure
    detail: str
    at: str = ""


class Started(msgspec.Struct, frozen=True):
    """Its worker begins."""

    uid: str
    token: int
    at: str = ""


class Declined(msgspec.Struct, frozen=True):
    """Its worker cannot run it."""

    uid: str
    token: int
    detail: str
    at: str = ""


class Reported(msgspec.Struct, frozen=True):
    """Its worker is done. `failure` is `None` if the check gave an answer."""

    uid: str
    token: int
    result: CheckResult | None
    failure: Failure | None = None
    detail: str = ""
    at: str = ""


LeaderEvent: TypeAlias = Assigned | Adopted | GivenUp
WorkerEvent: TypeAlias = Started | Declined | Reported
Event: TypeAlias = LeaderEvent | WorkerEvent


class Refusal(msgspec.Struct, frozen=True):
    """It cannot happen any more, or not to this job."""

    reason: Literal["final", "newer-epoch", "not-yours", "wrong-state", "gone", "unreadable"]


def advance(job: Job, event: Event) -> Job | Refusal:
    """The job after `event`, or why not."""
    if job.state.final:
        return Refusal("final")
    if isinstance(event, Assigned | Adopted | GivenUp):
        return Refusal("newer-epoch") if event.epoch < job.epoch else _by_leader(job, event)
    if event.uid != job.uid or event.token != job.token or job.state is JobState.PENDING:
        return Refusal("not-yours")
    return _by_worker(job, event)


def shows(job: Job, event: Event) -> bool:
    """Does the record prove that this very event has happened? For a write whose answer was lost."""
    match event:
        case Assigned(uid=uid, token=token):
            return job.uid == uid and job.token == token
        case Adopted(epoch=epoch):
            return job.epoch == epoch
        case GivenUp(epoch=epoch, failure=failure):
            return job.ended_by == "leader" and job.epoch == epoch and job.failure is failure
        case Started(uid=uid, token=token):
            return job.state is JobState.RUNNING and job.uid == uid and job.token == token
        case Declined(uid=uid, token=token) | Reported(uid=uid, token=token):
            return job.ended_by == "worker" and job.uid == uid and job.token == token


def _by_leader(job: Job, event: LeaderEvent) -> Job | Refusal:
    change = msgspec.structs.replace
    if isinstance(event, Adopted):
        return change(job, epoch=event.epoch)
    if isinstance(event, Assigned):
        # Out of `running` there is no way to another worker: the first may be at it.
        if job.state is JobState.RUNNING or event.token <= job.token or job.attempt >= MAX_ATTEMPTS:
            return Refusal("wrong-state")
        return change(
            job,
            state=JobState.DISPATCHING,
            epoch=event.epoch,
            worker_id=event.worker_id,
            uid=event.uid,
            token=event.token,
            attempt=job.attempt + 1,
            dispatched_at=event.at,
        )
    if (event.failure is Failure.NO_WORKER) != (job.state is JobState.PENDING):
        return Refusal("wrong-state")
    return change(
        job,
        state=JobState.FAILED,
        epoch=event.epoch,
        failure=event.failure,
        detail=bounded(event.detail),
        ended_at=event.at,
        ended_by="leader",
    )


def _by_worker(job: Job, event: WorkerEvent) -> Job | Refusal:
    change = msgspec.structs.replace
    if isinstance(event, Started):
        if job.state is not JobState.DISPATCHING:
            return Refusal("wrong-state")
        return change(job, state=JobState.RUNNING, started_at=event.at)
    if isinstance(event, Declined):
        if job.state is not JobState.DISPATCHING:
            return Refusal("wrong-state")
        failure: Failure | None = Failure.EXECUTION_ERROR
        result = None
    else:
        if job.state is not JobState.RUNNING or (event.result is None and event.failure is None):
            return Refusal("wrong-state")
        failure, result = event.failure, event.result
    return change(
        job,
        state=JobState.COMPLETED if failure is None else JobState.FAILED,
        failure=failure,
        detail=bounded(event.detail),
        result=None if result is None else change(result, detail=bounded(result.detail)),
        ended_at=event.at,
        ended_by="worker",
    )


# Names and bytes


def job_id(schedule: str, number: int) -> str:
    return f"{schedule}-{number:010d}"


def parse_job_id(text: str) -> tuple[str, int] | None:
    """Schedule and number; `None` if it is not the id of a job."""
    found = _JOB_ID.fullmatch(text)
    if found is None or not int(found[2]):
        return None
    return found[1], int(found[2])


def is_schedule_name(text: object) -> bool:
    return isinstance(text, str) and _SCHEDULE_NAME.fullmatch(text) is not None


def next_token(epoch: int, last: int) -> int:
    """Higher than `last`, and than every token of an earlier epoch."""
    return max(epoch * TOKENS_PER_EPOCH, last) + 1


def decode_job(expected_id: str, body: bytes) -> Job | Damage | TooNew:
    """The job in `body`, which must be the one that its key names. Never raises."""
    job = decode(body, Job, MAX_JOB_BYTES)
    if not isinstance(job, Job):
        return job
    if job.id != expected_id:
        return Damage(f"it says that it is job {job.id}")
    if job.state in (JobState.DISPATCHING, JobState.RUNNING) and (job.uid is None or job.worker_id is None):
        return Damage(f"{job.state.value}, and nobody has it")
    if (job.state is JobState.FAILED) != (job.failure is not None):
        return Damage("failed without a reason, or the reverse")
    if job.state is JobState.COMPLETED and job.result is None:
        return Damage("completed without a result")
    return job


def bounded(text: str, limit: int = MAX_DETAIL_BYTES) -> str:
    """Fit for a record: printable, without what may be a secret, at most `limit` bytes and characters."""
    shown = "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in redact(text[: 4 * limit]))
    return shown.encode(errors="replace")[:limit].decode(errors="ignore")

"""The definition of a job: when it fires, what it does, and what happens when things do not go as planned.

    job_from("nightly", cron("0 3 * * *", timezone="Europe/Berlin"), function="nightly", retries=3, timeout=600)

A `Job` is plain data: it is written into the log as JSON, in whole milliseconds, and read back by every process. One
that was made here has been checked; one that comes from the bucket is checked by `decode_job` or `check_job`, and what
does not fit is `DamagedJob`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack

import msgspec

from tenure.election.records import told
from tenure.errors import ConfigError, Damaged
from tenure.plugins.scheduler.schedule import (
    LONGEST_PERIOD_MS,
    At,
    Cron,
    Dst,
    Every,
    Instant,
    Schedule,
    at,
    check_schedule,
    cron,
    every,
    expand,
    instant_of,
)
from tenure.plugins.scheduler.target import (
    TARGET_OPTIONS,
    CommandTarget,
    FunctionTarget,
    QueueTarget,
    Target,
    change_target,
    check_target,
    target_from,
)

__all__ = [
    "At",
    "CommandTarget",
    "Cron",
    "DamagedJob",
    "Dst",
    "Every",
    "FunctionTarget",
    "Interrupted",
    "Job",
    "JobOptions",
    "Misfire",
    "Origin",
    "Overlap",
    "QueueTarget",
    "Schedule",
    "Target",
    "at",
    "change_job",
    "check_job",
    "check_job_id",
    "cron",
    "decode_job",
    "encode_job",
    "every",
    "job_from",
    "same_job",
    "same_timetable",
]

MAX_JOB_BYTES = 64 * 1024
MAX_ID_CHARACTERS = 128
_DAY = 86_400_000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


class DamagedJob(Damaged):
    """What is stored is no job, or not one that can be followed here. It is left as it is."""


class Misfire(enum.Enum):
    """What becomes of an occurrence that is decided later than `misfire_grace` after its time."""

    SKIP = "skip"
    """It does not fire."""
    FIRE_ONCE = "fire-once"
    """The newest of them fires, the older ones are `coalesced` into it."""
    FIRE_ALL = "fire-all"
    """The newest `catch_up` of them fire, one after the other."""


class Overlap(enum.Enum):
    """What becomes of an occurrence whose time comes while a run of the same job is still open."""

    SKIP = "skip"
    """It does not fire."""
    QUEUE_ONE = "queue-one"
    """One waits until the run has ended; further ones do not fire."""
    ALLOW = "allow"
    """It fires, up to `max_running` at once."""


class Interrupted(enum.Enum):
    """What becomes of a run that was cut short because its leader died or lost its lease."""

    RERUN = "rerun"
    """It is begun again by the next leader: what it did is done twice, or once and a half."""
    ABANDON = "abandon"
    """It stays as it is: what it did may be half done."""


class Origin(enum.Enum):
    CODE = "code"
    """Declared in code: the code of the process that leads says what it is."""
    STORED = "stored"
    """Added at run time: it is what is stored, until somebody changes it."""


class Job(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, rename="camel"):
    """Milliseconds. Every bound is in `_DURATIONS` and `_COUNTS`, and in the types that the bucket's data must fit."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARACTERS)]
    schedule: Schedule
    target: Target
    origin: Origin = Origin.CODE
    enabled: bool = True
    jitter_ms: Annotated[int, msgspec.Meta(ge=0, le=_DAY)] = 0
    """Each occurrence is late by up to this, by an amount that is always the same for it."""
    start_ms: Instant | None = None
    """Nothing is before this ..."""
    end_ms: Instant | None = None
    """... and nothing at this or later."""
    misfire: Misfire = Misfire.FIRE_ONCE
    misfire_grace_ms: Annotated[int, msgspec.Meta(ge=0, le=7 * _DAY)] = 30_000
    """What is decided within this is on time."""
    misfire_window_ms: Annotated[int, msgspec.Meta(ge=1000, le=LONGEST_PERIOD_MS)] = _DAY
    """What is older never fires."""
    catch_up: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    """Of `Misfire.FIRE_ALL`."""
    overlap: Overlap = Overlap.SKIP
    max_running: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """Of `Overlap.ALLOW`."""
    interrupted: Interrupted = Interrupted.RERUN
    max_interruptions: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    """After more than so many, a run is not begun again."""
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=30 * _DAY)] = 0
    """0: none."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    backoff_ms: Annotated[int, msgspec.Meta(ge=0, le=_DAY)] = 1000
    """Before the first retry; doubled for each further one ..."""
    max_backoff_ms: Annotated[int, msgspec.Meta(ge=0, le=30 * _DAY)] = 300_000
    """... up to this."""
    history: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    """Records of occurrences that are kept."""


class JobOptions(TypedDict, total=False):
    """What may be said of a job besides its id and schedule. Durations are seconds, or a `timedelta`.

    Exactly one of `function`, `queue` and `command`; the options after each go with it.
    """

    function: str
    payload: Any
    queue: str
    body: Any
    priority: int
    ordering_key: str | None
    delay: float | timedelta
    max_attempts: int | None
    visibility_timeout: float | timedelta | None
    headers: Mapping[str, str] | None
    command: Sequence[str]
    cwd: str | Path | None
    terminate_within: float | timedelta

    enabled: bool
    jitter: float | timedelta
    start: datetime | None
    end: datetime | None
    misfire: Misfire | str
    misfire_grace: float | timedelta
    misfire_window: float | timedelta
    catch_up: int
    overlap: Overlap | str
    max_running: int
    interrupted: Interrupted | str
    max_interruptions: int
    timeout: float | timedelta
    retries: int
    backoff: float | timedelta
    max_backoff: float | timedelta
    history: int


_DURATIONS = {
    "jitter": (0, _DAY),
    "misfire_grace": (0, 7 * _DAY),
    "misfire_window": (1000, LONGEST_PERIOD_MS),
    "timeout": (0, 30 * _DAY),
    "backoff": (0, _DAY),
    "max_backoff": (0, 30 * _DAY),
}
_COUNTS = {
    "catch_up": (1, 10_000),
    "max_running": (1, 1000),
    "max_interruptions": (0, 1000),
    "retries": (0, 1000),
    "history": (1, 10_000),
}
_POLICIES: dict[str, type[enum.Enum]] = {"misfire": Misfire, "overlap": Overlap, "interrupted": Interrupted}
_MOMENTS = ("start", "end")


def job_from(id: str, schedule: Schedule, *, origin: Origin = Origin.CODE, **options: Unpack[JobOptions]) -> Job:
    """A job as a user gives it. Raises `ConfigError` that names the option, its value and what would be right."""
    given = dict(options)
    _check_known(given)
    return check_job(Job(id=id, schedule=schedule, target=target_from(given), origin=origin, **_fields_from(given)))


def change_job(job: Job, schedule: Schedule | None = None, **options: Unpack[JobOptions]) -> Job:
    """The same job with some options changed. Naming another kind of target makes a new one."""
    given = dict(options)
    _check_known(given)
    changes = _fields_from(given)
    if any(option in TARGET_OPTIONS for option in given):
        changes["target"] = change_target(job.target, given)
    if schedule is not None:
        changes["schedule"] = schedule
    return check_job(msgspec.structs.replace(job, **changes))


def check_job(job: Job) -> Job:
    """Give back a job that can be followed here; otherwise a `ConfigError` says what is wrong with it.

    Assumes that its numbers are within their bounds, as those of a job that was made or decoded here are.
    """
    check_job_id(job.id)
    check_schedule(job.schedule)
    check_target(job.target)
    if not isinstance(job.origin, Origin):
        raise ConfigError(f"origin is {job.origin!r:.80}: give Origin.CODE or Origin.STORED")
    if job.start_ms is not None and job.end_ms is not None and job.end_ms <= job.start_ms:
        raise ConfigError(f"end of job {job.id!r} is not after its start: it would never fire")
    if isinstance(job.schedule, At):
        moment = job.schedule.at_ms
        if (job.start_ms is not None and moment < job.start_ms) or (job.end_ms is not None and moment >= job.end_ms):
            raise ConfigError(f"at of job {job.id!r} is not between its start and end: leave start and end out")
    if job.misfire_window_ms < job.misfire_grace_ms:
        raise ConfigError(
            f"misfire_window is {job.misfire_window_ms / 1000:g} s and misfire_grace {job.misfire_grace_ms / 1000:g} s:"
            " what is on time must not be too old; give a window of at least the grace"
        )
    size = len(encode_job(job))
    if size > MAX_JOB_BYTES:
        raise ConfigError(
            f"job {job.id!r} takes {size:,} bytes, and the limit is {MAX_JOB_BYTES:,}: put large data under a key of "
            "your own, and give its name"
        )
    return job


def check_job_id(id: str) -> str:
    if not isinstance(id, str) or len(id) > MAX_ID_CHARACTERS or not _ID.fullmatch(id):
        raise ConfigError(
            f"id is {id!r:.140}: give 1 to {MAX_ID_CHARACTERS} of A-Z a-z 0-9 . _ : -, beginning with a letter or "
            "a digit"
        )
    return id


def encode_job(job: Job) -> bytes:
    """The same bytes for equal definitions."""
    try:
        return msgspec.json.encode(job, order="deterministic")
    except (TypeError, ValueError) as error:  # half of a surrogate pair is no text
        raise ConfigError(f"job {job.id!r} cannot be written as JSON ({error})") from None


def decode_job(data: bytes | msgspec.Raw) -> Job:
    """A job that can be followed here. Raises `DamagedJob` for anything else."""
    if len(data) > 2 * MAX_JOB_BYTES:
        raise DamagedJob(f"a job of {len(data):,} bytes: there is none over {MAX_JOB_BYTES:,}")
    try:
        return check_job(_DECODER.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigError) as error:
        raise DamagedJob(f"a job cannot be followed: {told(error)}") from None


_DECODER = msgspec.json.Decoder(Job)


def same_job(one: Job, other: Job) -> bool:
    """Do they say the same? Stricter than `==`, for which 1, 1.0 and True in a payload are the same."""
    return encode_job(one) == encode_job(other)


def same_timetable(one: Job, other: Job) -> bool:
    """Do they fire at the same instants, given the same anchor?"""
    return (one.start_ms, one.end_ms) == (other.start_ms, other.end_ms) and _told(one.schedule) == _told(other.schedule)


def _told(schedule: Schedule) -> Schedule:
    if isinstance(schedule, Cron):
        return msgspec.structs.replace(schedule, text=expand(schedule.text).upper())
    return schedule


def _check_known(options: Mapping[str, object]) -> None:
    for name in options:
        if name not in JobOptions.__annotations__:
            known = ", ".join(sorted(JobOptions.__annotations__))
            raise ConfigError(f"there is no option {name!r} of a job: there are {known}")


def _fields_from(options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job by the options that were given, but for its target."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name in _DURATIONS:
            fields[f"{name}_ms"] = _duration(name, value)
        elif name in _COUNTS:
            fields[name] = _count(name, value)
        elif name in _POLICIES:
            fields[name] = _policy(name, value)
        elif name in _MOMENTS:
            fields[f"{name}_ms"] = instant_of(name, value) if value is not None else None
        elif name == "enabled":
            if not isinstance(value, bool):
                raise ConfigError(f"enabled is {value!r:.80}: give True or False")
            fields[name] = value
    return fields


def _duration(name: str, value: Any) -> int:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    least, most = _DURATIONS[name]
    if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number * 1000 <= most:
        raise ConfigError(
            f"{name} is {value!r:.80}: give seconds from {least / 1000:g} to {most // 1000:,}, or a timedelta"
        )
    return max(1, round(number * 1000)) if number else 0


def _count(name: str, value: Any) -> int:
    low, high = _COUNTS[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r:.80}: give a whole number from {low:,} to {high:,}")
    return value


def _policy(name: str, value: Any) -> enum.Enum:
    kind = _POLICIES[name]
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(repr(each.value) for each in kind)
        raise ConfigError(f"{name} is {value!r:.80}: give one of {choices}") from None

"""Which check runs how often, and where.

PollSchedule("website", HttpCheck("https://example.org/health"), every=30)
PollSchedule("db-dc1", TcpCheck("db.dc1", 5432), every=10, assign=InPartition("dc1"))

Leader and workers are given the same list. What is written into the bucket is a schedule's name and its fingerprint:
never a URL, a header or a command. A worker runs what its own code says, and nothing that it read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import msgspec

from tenure.coordinator.given import check_instance, shown
from tenure.coordinator.layout import MAX_WORKER_ID_CHARACTERS, check_name
from tenure.errors import ConfigError
from tenure.plugins.poll.job import MAX_SCHEDULE_NAME, is_schedule_name

MAX_SCHEDULES = 1000
MAX_PARTITION_CHARACTERS = 64
LONGEST = 24 * 3600.0


class Verdict(msgspec.Struct, frozen=True):
    """What a check found; true if it is `ok`. `detail` is for people, and is stored: at most 1 KB of it."""

    ok: bool
    detail: str = ""

    def __bool__(self) -> bool:
        return bool(self.ok)


class Run(msgspec.Struct, frozen=True):
    """Under what a check runs. `token` rises with every dispatch of its schedule, on whichever worker."""

    job_id: str
    schedule: str
    token: int
    epoch: int
    timeout: float


class Check(Protocol):
    """Anything that can be asked whether a service is well.

    `run` is cancelled at the timeout. What it raises is an `EXECUTION_ERROR`: a service that is down is a `Verdict`.
    """

    def definition(self) -> dict[str, Any]:
        """What makes two checks the same, as JSON values, and without secrets: it is hashed, and the hash stored."""
        ...

    async def run(self, run: Run) -> Verdict: ...


class Anywhere(msgspec.Struct, frozen=True):
    """On any worker."""

    def __str__(self) -> str:
        return "any worker"


class InPartition(msgspec.Struct, frozen=True):
    """On a worker that registered with this partition."""

    partition: str

    def __post_init__(self) -> None:
        check_name("partition", self.partition, MAX_PARTITION_CHARACTERS)

    def __str__(self) -> str:
        return f"a worker in partition {self.partition!r}"


class On(msgspec.Struct, frozen=True):
    """On this worker and no other."""

    worker_id: str

    def __post_init__(self) -> None:
        check_name("worker_id", self.worker_id, MAX_WORKER_ID_CHARACTERS)

    def __str__(self) -> str:
        return f"worker {self.worker_id!r}"


Assignment: TypeAlias = Anywhere | InPartition | On


class PollSchedule(msgspec.Struct, frozen=True):
    """One check, run every so many seconds; never twice at once."""

    name: str
    """Letters, digits and `_ . -`. Its results are kept under this name."""
    check: Check
    every: float
    """Seconds from one start to the next. A job that is still open then is not overtaken: the next starts after it."""
    assign: Assignment = Anywhere()
    timeout: float = 10.0
    """Seconds that the check may take."""

    def __post_init__(self) -> None:
        if not is_schedule_name(self.name):
            raise ConfigError(
                f"name of the schedule is {shown(self.name)}: give 1 to {MAX_SCHEDULE_NAME} letters, digits and _ . -, "
                "beginning with a letter or digit"
            )
        for method in ("definition", "run"):
            if not callable(getattr(self.check, method, None)):
                raise ConfigError(
                    f"check of schedule {self.name!r} is {self.check!r}: give an HttpCheck, TcpCheck, CommandCheck, or "
                    "an object with definition() and run()"
                )
        if not isinstance(self.assign, Anywhere | InPartition | On):
            raise ConfigError(
                f"assign of schedule {self.name!r} is {self.assign!r}: give Anywhere(), InPartition('dc1') or "
                "On('worker-id')"
            )
        check_seconds(f"every of schedule {self.name!r}", self.every, least=1.0)
        check_seconds(f"timeout of schedule {self.name!r}", self.timeout, least=0.1, most=3600.0)
        self.fingerprint  # noqa: B018 - a definition that cannot be hashed is refused here

    @property
    def fingerprint(self) -> str:
        """Of what runs. 64 bits of a hash: who guesses a definition can confirm it, so secrets stay out of it."""
        try:
            definition = msgspec.json.encode([self.check.definition(), self.timeout], order="deterministic")
        except (TypeError, msgspec.MsgspecError) as error:
            raise ConfigError(
                f"the definition of the check of schedule {self.name!r} is not JSON: {error}; give text, numbers, "
                "lists and dictionaries"
            ) from None
        return hashlib.sha256(definition).hexdigest()[:16]


def check_seconds(what: str, value: object, *, least: float, most: float = LONGEST) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"{what} is {shown(value)}: give seconds, at least {least:g} and at most {most:g}")
    return float(value)


def check_count(what: str, value: object, *, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} is {shown(value)}: give a whole number, at least {least} and at most {most}")
    return value


def by_name(schedules: Iterable[PollSchedule]) -> dict[str, PollSchedule]:
    """The schedules under their names, each of which may be given once."""
    found: dict[str, PollSchedule] = {}
    check_instance("schedules", schedules, Iterable)
    for schedule in schedules:
        if not isinstance(schedule, PollSchedule):
            raise ConfigError(f"schedules has {schedule!r}: give a list of PollSchedule")
        if schedule.name in found:
            raise ConfigError(f"schedule {schedule.name!r} is given twice: names must differ")
        found[schedule.name] = schedule
    if len(found) > MAX_SCHEDULES:
        raise ConfigError(f"{len(found)} schedules are given, and the limit is {MAX_SCHEDULES}")
    return found

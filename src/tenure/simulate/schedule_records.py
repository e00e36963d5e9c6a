"""What the judge of a schedule writes down: jobs, occurrences and runs, as the log has them."""

from __future__ import annotations

import msgspec

from tenure.plugins.scheduler.job import FunctionTarget, Job, Origin
from tenure.plugins.scheduler.records import Fired, Outcome, State
from tenure.simulate.schedule_rules import Decision, first_after


class Code(msgspec.Struct):
    """What the code of one host has: functions, and jobs that it may declare."""

    functions: frozenset[str]
    jobs: dict[str, list[Job]]
    """By id: as that host's versions of the code have it."""

    def has(self, job: Job) -> bool:
        if job.origin is Origin.CODE and job.id not in self.jobs:
            return False
        return not isinstance(job.target, FunctionTarget) or job.target.name in self.functions


class Moment(msgspec.Struct, frozen=True):
    """One entry that counts."""

    seq: int
    epoch: int
    time_ms: int
    """As its leader saw the store's clock."""
    certain_ms: int
    """What the store's clock had certainly reached by then."""
    true_ms: int
    """The store's clock when the entry was created."""
    worker: str


class Booked:
    """A job, as the log has defined it."""

    __slots__ = ("anchor", "crowded", "decided", "decisions", "job", "paused", "since")

    def __init__(self, job: Job, anchor: int, decided: int, since: int) -> None:
        self.job = job
        self.anchor = anchor
        self.decided = decided
        self.paused = False
        self.since = since
        """The store's clock when it was last defined, or resumed."""
        self.decisions: list[Decision] = []
        """Of the entry that is being read."""
        self.crowded = False
        """It allowed more at once than it does now, and those are not over."""

    def undecided(self) -> int | None:
        return first_after(self.job, self.anchor, self.decided)


class Ran:
    """An occurrence that fired."""

    __slots__ = (
        *("epoch", "failures", "finished", "fired", "instant", "interruptions", "job", "manual", "number", "orphaned"),
        *("outcome", "retry", "sends", "state", "timeouts", "tokens", "workers"),
    )

    def __init__(self, event: Fired, moment: Moment) -> None:
        self.number = event.number
        self.job = event.job
        self.instant = event.scheduled_ms
        self.manual = event.manual
        self.fired = moment.true_ms
        self.finished = 0
        self.state = State.WAITING
        self.outcome = Outcome.FIRED
        self.tokens: list[int] = []
        self.workers: list[str] = []
        self.timeouts: list[int] = []
        self.sends = False
        """Its last attempt puts a message on a queue."""
        self.epoch = 0
        self.failures = 0
        self.interruptions = 0
        self.retry = 0
        self.orphaned = False

    @property
    def name(self) -> str:
        return f"{self.job}#{self.manual}" if self.manual else f"{self.job}@{self.instant}"

    @property
    def token(self) -> int:
        return self.tokens[-1]


class Finished(msgspec.Struct, frozen=True):
    """What is over: a run, or instants that were passed over."""

    number: int
    first: int
    last: int
    count: int
    outcome: Outcome
    head: int
    """Of several in a row that were passed over for the same reason: the first one's number."""

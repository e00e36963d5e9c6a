"""What the log of a schedule says: the events of its entries, and the record of each occurrence.

The key of an occurrence is (job, scheduled instant), without jitter; a run that somebody asked for by hand has an id of
its own instead (`manual`). Within the log each has a number, by which later events name it.

Every entry holds its events in the order in which they were decided. They are applied one by one, by the leader while
it decides and by everybody else when they read them: so there is one way for the state to change.

What there may be a hundred thousand of is plain data without cycles: it is kept from Python's garbage collection
(`gc=False`), which would otherwise walk through all of it, and hold up the loop.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from tenure.plugins.ledgered import image
from tenure.plugins.scheduler.job import Job

MAX_ERROR_CHARACTERS = 1000


class Outcome(enum.Enum):
    """What was decided on an occurrence, and what became of it."""

    FIRED = "fired"
    """It fired; its `state` says how far it has come."""
    SKIPPED_OVERLAP = "skipped-overlap"
    MISSED_WINDOW = "missed-window"
    COALESCED = "coalesced"
    """A newer one fired in its place."""
    INTERRUPTED = "interrupted"
    """It fired, was cut short, and is not begun again."""
    FAILED = "failed"
    """It fired, and failed for good."""


PASSED = (Outcome.SKIPPED_OVERLAP, Outcome.MISSED_WINDOW, Outcome.COALESCED)
"""Those that never run."""


class State(enum.Enum):
    """How far an occurrence that fired has come."""

    WAITING = "waiting"
    """Until another run of the job has ended, or it is resumed."""
    RUNNING = "running"
    BACKING_OFF = "backing-off"
    """It failed, and is tried again at `retry_ms`."""
    CUT_SHORT = "cut-short"
    """Its leader's term ended while it ran: the next one decides on it."""
    DONE = "done"


class Occurrence(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """The one record of an occurrence, or of several in a row that were passed over for the same reason."""

    number: int
    job: str
    scheduled_ms: int
    decided_ms: int
    outcome: Outcome = Outcome.FIRED
    state: State = State.DONE
    started_ms: int = 0
    """Its last attempt."""
    finished_ms: int = 0
    epoch: int = 0
    """Of the leader that decided on it, or began it last ..."""
    worker: str = ""
    """... and its name."""
    token: int = 0
    """The log number of the entry that began its last attempt: rises with every attempt."""
    attempts: int = 0
    """How often it was begun."""
    failures: int = 0
    interruptions: int = 0
    error: str = ""
    manual: str = ""
    """Of a run that was asked for by hand."""
    to_ms: int = 0
    """Of several in a row: the last one's instant ..."""
    count: int = 1
    """... and how many they are."""
    retry_ms: int = 0
    orphaned: bool = False
    """Its job was removed: it is not tried again."""

    @property
    def run(self) -> str:
        return run_name(self.job, self.scheduled_ms, self.manual)

    @property
    def last_ms(self) -> int:
        return self.to_ms or self.scheduled_ms


def run_name(job: str, scheduled_ms: int, manual: str = "") -> str:
    """What an occurrence is called outside the log; the same through all of its attempts."""
    return f"{job}#{manual}" if manual else f"{job}@{scheduled_ms}"


class JobState(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """A job, and where it stands."""

    job: Job
    anchor_ms: int
    """What an `every` without a start is counted from."""
    decided_ms: int
    """Every instant up to this is decided; the search for the next begins here."""
    revision: int = 1
    paused: bool = False
    last: int = 0
    """The occurrence that was decided last."""
    added_ms: int = 0
    changed_ms: int = 0


class Totals(msgspec.Struct, rename="camel"):
    """Occurrences since the schedule exists, those in a row each counted."""

    fired: int = 0
    """Decided to fire; of these ..."""
    succeeded: int = 0
    failed: int = 0
    interrupted: int = 0
    """... these are over, and the others open."""
    skipped_overlap: int = 0
    missed_window: int = 0
    coalesced: int = 0
    retries: int = 0
    interruptions: int = 0
    """Runs that were cut short."""
    manual: int = 0
    """Of those that fired."""


# Events


class Defined(msgspec.Struct, frozen=True, array_like=True, tag="defined"):
    """A job is added, or is from here on another. All of the old one's instants up to now are decided."""

    job: Job
    anchor_ms: int
    decided_ms: int
    by: str = ""


class Removed(msgspec.Struct, frozen=True, array_like=True, tag="removed"):
    """What runs of it goes on; what waits, or was to be tried again, is `interrupted`."""

    job: str
    by: str = ""


class Paused(msgspec.Struct, frozen=True, array_like=True, tag="paused"):
    job: str
    """Empty: everything."""
    by: str = ""


class Resumed(msgspec.Struct, frozen=True, array_like=True, tag="resumed"):
    job: str
    """Empty: everything, but for jobs that are paused by themselves."""
    decided_ms: int
    """Instants up to here passed while it was paused, and are no occurrences."""
    by: str = ""


class Fired(msgspec.Struct, frozen=True, array_like=True, tag="fired"):
    number: int
    job: str
    scheduled_ms: int
    begins: bool
    """At once; otherwise it waits."""
    manual: str = ""


class Passed(msgspec.Struct, frozen=True, array_like=True, tag="passed"):
    """An occurrence, or several in a row, will not run. `outcome` is one of `PASSED`."""

    number: int
    job: str
    scheduled_ms: int
    outcome: Outcome
    to_ms: int = 0
    count: int = 1
    manual: str = ""

    @property
    def last_ms(self) -> int:
        return self.to_ms or self.scheduled_ms


class Begun(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """Another attempt, or the first of one that waited."""

    number: int


class Succeeded(msgspec.Struct, frozen=True, array_like=True, tag="succeeded"):
    number: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    number: int
    error: str
    retry_ms: int = 0
    """When it is tried again; 0: not at all."""


class CutShort(msgspec.Struct, frozen=True, array_like=True, tag="cut-short"):
    """A run whose leader's term ended is decided on."""

    number: int
    again: bool
    counts: bool = True
    """As an interruption: sending a message once more does not."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """A command is not followed. For who gave it: which one of which batch."""

    uid: str
    number: int
    index: int
    reason: str
    rest: bool = False
    """And with it all that come after it in its batch."""


Event: TypeAlias = (
    Defined | Removed | Paused | Resumed | Fired | Passed | Begun | Succeeded | Failed | CutShort | Refused
)


class Work(msgspec.Struct, frozen=True):
    """The events of one entry."""

    worker: str
    """Who leads."""
    events: tuple[Event, ...]


decode_work = msgspec.json.Decoder(Work).decode


# Snapshots


class Frame(image.Frame, rename="camel", kw_only=True):
    paused: bool
    last: int
    totals: Totals


class Contents(msgspec.Struct, omit_defaults=True):
    """All that is in the other chunks, each of which holds some of one field."""

    jobs: list[JobState] = []
    open: list[Occurrence] = []
    history: list[Occurrence] = []

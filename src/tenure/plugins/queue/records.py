"""What the log of a queue says: the events of its entries, and what they are about."""

from __future__ import annotations

import msgspec

from tenure.plugins.queue.wire import Piece

MAX_SEGMENT_MESSAGES = 2**20
"""More than a leader can put into one: each takes two bytes of an inbox object, and a segment has about a megabyte."""
MAX_TICKET_MESSAGES = 100_000
"""Fifty times as many as a leader gives out together. Whoever reads a ticket has something to do for each of them."""


class Run(msgspec.Struct, array_like=True, gc=False):
    """Messages `low` up to before `high` of a segment."""

    segment: str
    low: int
    high: int
    at_ms: int
    """When they were enqueued, on the store's clock: with the priority, this is their place in the queue."""
    due_ms: int = 0
    """Not before this."""
    priority: int = 0
    attempt: int = 1
    """Which one the next delivery is."""
    key: str = ""
    visibility_ms: int = 0
    max_attempts: int = 0
    order: int = 0
    """Its place among those of its ordering key."""

    @property
    def count(self) -> int:
        return self.high - self.low

    def part(self, low: int, high: int) -> Run:
        return msgspec.structs.replace(self, low=low, high=high)

    def check(self) -> int:
        """How many they are. Raises `ValueError` if no segment can hold these: a number in a log costs whoever wrote
        it nothing, and whoever reads it as much as it says."""
        if not 0 <= self.low <= self.high <= MAX_SEGMENT_MESSAGES:
            raise ValueError(f"there are no messages {self.low} to {self.high} in a segment")
        return self.high - self.low


class Ticket(msgspec.Struct, array_like=True):
    """Messages that one worker may handle until the deadline."""

    id: str
    uid: str
    seq: int
    """Of the entry that published it: the fencing token."""
    deadline_ms: int
    visibility_ms: int
    runs: list[Run]
    extended: int = 0
    """The entry that set its deadline last, if that was not the one that published it."""

    def __post_init__(self) -> None:
        if (count := sum([run.check() for run in self.runs])) > MAX_TICKET_MESSAGES:
            raise ValueError(f"a ticket of {count:,} messages: none has over {MAX_TICKET_MESSAGES:,}")

    @property
    def count(self) -> int:
        return sum(run.high - run.low for run in self.runs)


class Note(msgspec.Struct, array_like=True, frozen=True):
    """One failed attempt."""

    attempt: int
    at_ms: int
    worker: str
    error: str


class Retry(msgspec.Struct, array_like=True, frozen=True):
    """A message goes back to the queue, to be tried again."""

    segment: str
    index: int
    due_ms: int
    error: str
    counts: bool = True
    """As an attempt."""
    in_place: bool = True
    """Of an ordering key: before those behind it, which wait for it."""


class Bury(msgspec.Struct, array_like=True, frozen=True):
    """A message is dead."""

    segment: str
    index: int
    reason: str
    error: str


class Settled(msgspec.Struct, omit_defaults=True):
    """What was decided on a worker's report, or on a ticket that has lapsed."""

    ticket: str
    all_done: bool = False
    done: list[Piece] = []
    retry: list[Retry] = []
    dead: list[Bury] = []
    back: list[Piece] = []
    lapsed: bool = False
    """Nobody reported: all that is left goes back, as another attempt ..."""
    due_ms: int = 0
    """... not before this, but for those in `dead`."""
    deadline_ms: int = 0
    """Extended until then."""


class Joined(msgspec.Struct, array_like=True, frozen=True):
    uid: str
    name: str
    capacity: int
    since: int = 0
    held: list[str] = []


class Control(msgspec.Struct, array_like=True, frozen=True):
    op: str
    refs: list[str] = []
    by: str = ""


class Work(msgspec.Struct, omit_defaults=True):
    """The events of one entry, in the order in which they are applied."""

    shift: int = 0
    """Deadlines of the entry before this one are so many milliseconds later: it took that long to be written."""
    control: list[Control] = []
    segments: dict[str, int] = {}
    """New ones, and how many messages they hold that count."""
    arrived: list[Run] = []
    dedup: dict[str, int] = {}
    """Digests, and until when (ms)."""
    duplicates: int = 0
    purged: int = 0
    """Of what arrived, before a purge in the same entry."""
    settled: list[Settled] = []
    """By reports ..."""
    joined: list[Joined] = []
    left: list[str] = []
    lapsed: list[Settled] = []
    """... and for want of them."""
    tickets: list[Ticket] = []


class Published(msgspec.Struct):
    """The part of `Work` that a worker reads."""

    shift: int = 0
    settled: list[Settled] = []
    lapsed: list[Settled] = []
    tickets: list[Ticket] = []


class Dead(msgspec.Struct, array_like=True):
    run: Run
    reason: str
    at_ms: int
    history: list[Note]

    def __post_init__(self) -> None:
        if self.run.check() != 1:
            raise ValueError(f"a dead letter of {self.run.count:,} messages: each is one")


class Worker(msgspec.Struct):
    name: str
    capacity: int
    held: int = 0
    """Messages in its open tickets."""


class Totals(msgspec.Struct):
    enqueued: int = 0
    done: int = 0
    failed: int = 0
    lapsed: int = 0
    died: int = 0
    duplicates: int = 0
    purged: int = 0


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """What there had been by then, so that rates can be told."""

    time_ms: int
    enqueued: int
    done: int


def ref_of(segment: str, index: int) -> str:
    return f"{segment}:{index}"


def parse_ref(ref: str) -> tuple[str, int]:
    """Whatever a person gives; what is no reference refers to nothing."""
    segment, _, index = ref.rpartition(":")
    return segment, int(index) if index.isascii() and index.isdigit() and len(index) < 12 else -1

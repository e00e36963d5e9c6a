"""What the log of counters says, and what the state holds. Typed: bytes of a bucket are untrusted."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

Rows = dict[str, dict[str, list[Any]]]
"""By field and record: cells, as they are written."""


class Level(enum.Enum):
    """How long a time a page of history is about."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    ALL = "all"
    """Everything before the oldest month that is kept."""


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """When something was folded: the beginnings of its hour, day and month in the time zone of the counters.

    Milliseconds of the store's clock. The leader says it, so that every process goes by the same calendar.
    """

    hour_ms: int
    day_ms: int
    month_ms: int


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A part of a page: an object with the cells of some records."""

    key: str
    first: str
    """The lowest id in it; ids are sorted within a page."""
    last: str
    rows: int
    sha256: str


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was folded in an hour, a day, a month, or before: cells by record and field."""

    level: Level
    moment: Moment
    """Of what is the oldest in it."""
    number: int
    """Of the entry that sealed it: later pages have higher ones."""
    chunks: list[Chunk] = []


class Sealed(msgspec.Struct, frozen=True):
    """Cells that are to become a page: nothing more is put to them."""

    number: int
    moment: Moment
    rows: Rows


class Sum(msgspec.Struct, array_like=True):
    """Calls and amounts of one field, of all records together."""

    adds: int = 0
    added: Any = 0
    subs: int = 0
    subbed: Any = 0
    sets: int = 0


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that is not answered yet."""

    op: str
    id: str
    at_ms: int
    through: int = 0
    """Everything that was acknowledged before it was asked for is folded by this entry, or before; 0: not yet."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    request: str
    values: dict[str, Any] = {}
    """Of a recalculation: totals as they are now ..."""
    former: dict[str, Any] = {}
    """... and those that were not right."""
    refused: str = ""


class Work(msgspec.Struct, omit_defaults=True):
    """The events of one entry, in the order in which they are applied."""

    ledger: str = ""
    """Names this log, so that watermarks of another one are not taken for its own; said once."""
    fields: dict[str, str] = {}
    """How fields are counted that were not known before."""
    applied: dict[str, int] = {}
    """By record: what was folded up to this number is in it."""
    forgotten: int = 0
    """So many of the oldest `op_id`s are not remembered any more."""
    moment: Moment | None = None
    """Of what is folded."""
    rows: Rows = {}
    ops: list[str] = []
    """`op_id`s that are in the rows ..."""
    duplicates: int = 0
    """... and calls that are not, for theirs had been seen."""
    asked: dict[str, Asked] = {}
    covered: list[str] = []
    """Requests: everything that was acknowledged before they were asked for is folded now."""
    answered: list[Answer] = []
    seal: bool = False
    """What was folded so far is closed, to become a page."""
    paged: list[Page] = []
    """Pages of what was sealed, by their numbers."""
    merged: list[Page] = []
    """Each takes the place of the pages whose numbers `replaced` names."""
    replaced: list[list[int]] = []


def decode_work(events: bytes) -> Work:
    return _work.decode(events)


_work = msgspec.json.Decoder(Work)

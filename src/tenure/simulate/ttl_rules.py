"""What the judge of records that expire writes down: the rules, calls of processes, index entries and decisions."""

from __future__ import annotations

import enum
import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from tenure.database.records import Envelope
from tenure.store import decode_name

SLOT_MS = 1000
"""An index entry may come due so much later than its record."""
_MILLISECONDS_FROM = 100_000_000_000


class Told(enum.Enum):
    """What a caller knows at the end of its call."""

    DONE = "done"
    NO = "refused"
    """It did not happen, and never will."""
    UNKNOWN = "unknown"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One resource, and how its records expire."""

    name: str
    ttl: float | None = None
    field: str | None = None
    strategy: str = "hard-delete"
    soft_field: str = "deleted_at"
    archive: str | None = None
    longest_call: float = 3.0
    """Seconds after which a callback has failed: the leader goes on when all of a sweep are over."""

    def is_marked(self, envelope: Envelope) -> bool:
        """Was it deleted, and is still there?"""
        return self.strategy == "soft-delete" and envelope.data.get(self.soft_field) is not None

    def expiry_of(self, envelope: Envelope) -> int | None:
        """In milliseconds on the store's clock; `None` if it does not expire."""
        if envelope.deleted or self.is_marked(envelope):
            return None
        if self.field is None:
            at: int | None = envelope.reserved.get("ttl", {}).get("at")
            return at
        value = envelope.data.get(self.field)
        return None if value is None else _milliseconds(value) + math.ceil((self.ttl or 0.0) * 1000)


class Act(msgspec.Struct):
    """One call that a process made."""

    verb: str
    resource: str
    id: str | None
    began: float
    lasts: float | None = None
    """For how long the record shall be there from now on, if this says so."""
    keeps: bool = False
    """The record shall not expire."""
    at_last_instant: bool = False
    is_strange: bool = False
    """Made past the plugin: by a process that does not have it."""
    landed: list[tuple[str, int]] = []
    """Id and version of each write of it ..."""
    expiries: list[int | None] = []
    """... and when the record expires by it."""
    told: Told | None = None

    @property
    def is_insert(self) -> bool:
        return self.verb.startswith("insert")


class Decision(msgspec.Struct):
    """A record that expired, where more has to be done than to delete it."""

    id: str
    version: int
    data: dict[str, Any]
    expiry_ms: int
    at: float
    by: str
    write_id: str
    archived: bool = False
    token: int | None = None
    """Of the call with the highest one."""
    called_by: str = ""
    successes: int = 0
    """Callbacks that came to a good end."""
    settled_at: float | None = None


class Entry(msgspec.Struct):
    """An entry of the index."""

    slot_ms: int
    ids: tuple[str, ...]
    written_at: float
    served: int = 0
    """How many records that named it have expired."""


def parse_entry(name: str, body: bytes, at: float) -> tuple[str, Entry]:
    """`due/{slot}/{nonce}.{id}`, or `due/{slot}/{nonce}` with many ids: as records call it, and what it says."""
    _, slot, last = name.split("/")
    nonce, dot, id = last.partition(".")
    ids = (decode_name(id),) if dot else tuple(msgspec.json.decode(body)["ids"])
    return f"{slot}/{nonce}{dot}", Entry(int(slot), ids, at)


def entry_of(envelope: Envelope) -> str:
    """The entry that a record names."""
    name: str = envelope.reserved.get("ttl", {}).get("entry", "")
    return name


def pending_of(envelope: Envelope) -> dict[str, Any]:
    """What is still to be done for records that have expired under this id, by index entry."""
    pending: dict[str, Any] = envelope.reserved.get("ttl", {}).get("pending", {})
    return pending


def kept_of(envelope: Envelope) -> dict[str, Any]:
    """What belongs to the record itself, and ends with it."""
    return {name: value for name, value in envelope.reserved.get("ttl", {}).items() if name != "pending"}


def iso(store_ms: float) -> str:
    return datetime.fromtimestamp(store_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _milliseconds(value: Any) -> int:
    if isinstance(value, str):
        return round(datetime.fromisoformat(value).timestamp() * 1000)
    number = float(value)
    return math.ceil(number if number >= _MILLISECONDS_FROM else number * 1000)

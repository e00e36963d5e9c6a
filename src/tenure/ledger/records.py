"""What lies in a ledger, as typed records. Bytes from a bucket are untrusted: what does not fit is `Damage`."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

from tenure.election.records import SCHEMA_VERSION, Count, Damage, Epoch, Id, Record, Text, TooNew, decode
from tenure.errors import LedgerHalted
from tenure.ledger.config import MAX_CHUNKS, MAX_ENTRY_BYTES
from tenure.ledger.layout import MAX_SEQ, chunks_of

Seq = Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQ)]
T = TypeVar("T")
NOTHING = msgspec.Raw(b"null")
MAX_NAMESPACE = 200


class Kind(enum.Enum):
    TERM = "term"
    """A leader begins: entries of lower epochs that come after this one are void."""
    WORK = "work"


class Rejection(msgspec.Struct, frozen=True, rename="camel"):
    """An inbox object that was decided not to be folded. Its bytes are kept in `damaged/`."""

    key: Text
    reason: Text


class LogEntry(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="log", omit_defaults=True):
    """One decision of one leader: `log/{seq}`, created once and never changed."""

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    """A factory, so that `omit_defaults` leaves it in. Entries of 0.2's forerunners have none, and are of version 1."""
    seq: Seq
    epoch: Epoch
    time_ms: Count
    """Plugin time: the store's clock, never before that of the entry before."""
    kind: Kind = Kind.WORK
    machine: Count = 0
    """Of a term's first entry: the version of the state machine that its leader runs ..."""
    doubt_ms: Count = 0
    """... by how much `time_ms` may be too early ..."""
    namespace: Annotated[str, msgspec.Meta(max_length=MAX_NAMESPACE)] = ""
    """... and whose election made it the leader."""
    folded: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """By producer: the numbers of the batches that this entry folds, or rejects ..."""
    skipped: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """... and those that it gave up on: should they still land, they come too late."""
    resumed: dict[str, int] = msgspec.field(default_factory=dict)
    """Producers that had been forgotten, and the number up to which all of theirs was folded before that."""
    rejected: tuple[Rejection, ...] = ()
    forgotten: tuple[Id, ...] = ()
    """Producers that are remembered no longer ..."""
    horizon: Count = 0
    """... and the log number below which strangers are not believed any more."""
    events: msgspec.Raw = NOTHING
    """What the plugin decided."""

    @property
    def decided(self) -> bytes | None:
        """`events`, if there are any."""
        events = bytes(self.events)
        return None if events == b"null" else events

    def decided_as(self, decode: Callable[[bytes], T]) -> T | None:
        """The same, as the plugin writes it. Raises `LedgerHalted` if it is something else."""
        if (events := self.decided) is None:
            return None
        try:
            return decode(events)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LedgerHalted(f"what entry {self.seq} decides cannot be read: {str(error)[:200]}") from None


class Chunk(msgspec.Struct, frozen=True, rename="camel"):
    key: Text
    size: Count
    sha256: Text


class Manifest(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="snapshot"):
    """The state after entry `seq`: `snapshots/{seq}`, created once its chunks are there."""

    seq: Seq
    epoch: Epoch
    time_ms: Count
    machine: Count
    chunks: Annotated[tuple[Chunk, ...], msgspec.Meta(max_length=MAX_CHUNKS)]


def decode_entry(body: bytes, seq: int) -> LogEntry | Damage | TooNew:
    entry = decode(body, LogEntry, MAX_ENTRY_BYTES)
    if isinstance(entry, LogEntry) and entry.seq != seq:
        return Damage(f"it says that it is entry {entry.seq}")
    return entry


def decode_manifest(body: bytes, seq: int) -> Manifest | Damage | TooNew:
    manifest = decode(body, Manifest, MAX_ENTRY_BYTES)
    if not isinstance(manifest, Manifest):
        return manifest
    if manifest.seq != seq:
        return Damage(f"it says that it is the snapshot of entry {manifest.seq}")
    # All that it names is fetched and held at once: a listing of the chunks must tell how much that is.
    keys = {chunk.key for chunk in manifest.chunks}
    if len(keys) < len(manifest.chunks):
        return Damage("it names a chunk twice")
    own = chunks_of(seq)
    if any(not key.startswith(own) or "/" in key[len(own) :] for key in keys):
        return Damage("it names what is no chunk of its own")
    return manifest


def checksum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()

"""What is stored for a record, and what is given back of it.

Bytes from a bucket are untrusted: `decode` gives an envelope that keeps its invariants, or says what is wrong.

A body whose length is one less than a multiple of 512 is a tombstone, any other a record: spaces at its end make it so.
Listings give lengths, so that tombstones are left out of them, and of counts, without reading every object.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from tenure.store.outcome import NeverABool

SCHEMA_VERSION = 1
MAX_RESERVED_BYTES = 256 * 1024
MAX_ENVELOPE_BYTES = 32 * 1024 * 1024
"""A stored record over this is another program's."""
RECENT_WRITES = 16
"""A write that others have overwritten is still recognised as applied until this many came after it."""
MAX_VERSION = 2**53
"""Every JSON reader keeps integers up to here."""
_TOMBSTONES = 512

D = TypeVar("D")
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=64)]
VersionNumber = Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One object: a record, or the tombstone of one."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    version: VersionNumber
    """One more with each write to the key, tombstones included."""
    first_version: VersionNumber
    """The version with which the object was created: says how far back `recent_writes` reaches."""
    write_id: Id
    recent_writes: Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=RECENT_WRITES)]
    """The ids of the last writes, newest last, `write_id` included."""
    first_write_id: Text = ""
    """The write that created the object. An insert that cannot find itself here, nor anywhere else, did not happen."""
    created_at: Text = ""
    updated_at: Text = ""
    """For people: nothing is decided by them."""
    deleted: bool = False
    data: dict[str, Any]
    reserved: dict[str, Any] = {}
    """What plugins keep with the key: carried along by every write, through deletion and re-insertion."""
    schema_version: int = SCHEMA_VERSION

    def remembers_all_since(self, version: int) -> bool:
        """Is every write that came after `version` among the recent ones?"""
        return 0 <= self.version - version <= len(self.recent_writes)

    @property
    def remembers_its_creation(self) -> bool:
        """Can be told which write created the object?"""
        return bool(self.first_write_id) or self.remembers_all_since(self.first_version - 1)

    @property
    def is_unborn(self) -> bool:
        """Was there never a record? Then it only keeps what plugins have to say of the key."""
        return self.deleted and not self.created_at

    def followed_by(self, write_id: str, at: str, **changes: Any) -> Envelope:
        """What comes after this one, written under `write_id`."""
        recent = (*self.recent_writes, write_id)[-RECENT_WRITES:]
        changes = {"updated_at": at, **changes}
        return msgspec.structs.replace(
            self, version=self.version + 1, write_id=write_id, recent_writes=recent, **changes
        )


class Record(msgspec.Struct, Generic[D], frozen=True):
    """A record as it was read or written. `data` is an instance of the resource's schema, or a dict without one."""

    id: str
    version: int
    data: D
    created_at: str = ""
    updated_at: str = ""
    reserved: dict[str, Any] = {}


class SetAside(msgspec.Struct, frozen=True):
    """A stored object that cannot be given back as a record."""

    id: str
    reason: str


class Page(msgspec.Struct, NeverABool, Generic[D], frozen=True):
    """Some of a resource's records, in the order of their keys; `list(after=page.next)` goes on."""

    instead: ClassVar[str] = "not true or false: ask for its `records`, and go on while `next` is not None"

    records: tuple[Record[D], ...]
    next: str | None = None
    """`None`: there are no more. A page may hold fewer records than asked for and still have a next one."""
    damaged: tuple[SetAside, ...] = ()
    """What was set aside because it is no record, or does not fit the schema."""


class Inserted(msgspec.Struct, NeverABool, Generic[D], frozen=True):
    """What became of one of many: exactly one of `record` and `error` is there."""

    instead: ClassVar[str] = "not true or false: look at its `error`, which may be WriteUnknown"

    index: int
    id: str
    record: Record[D] | None = None
    error: Exception | None = None
    """`WriteUnknown`: it may be there all the same."""


def encode(envelope: Envelope) -> bytes:
    body = msgspec.json.encode(envelope)
    if envelope.deleted:
        return body + b" " * (_TOMBSTONES - 1 - len(body) % _TOMBSTONES)
    return body + b" " if is_tombstone_size(len(body)) else body


def decode(body: bytes, id: str) -> Envelope | str:
    """The envelope of the record `id`, or what is wrong with it."""
    if len(body) > MAX_ENVELOPE_BYTES:
        return f"it has {len(body):,} bytes, and no record has over {MAX_ENVELOPE_BYTES:,}"
    try:
        found = _Form.decode(body)
        if found.schema_version > SCHEMA_VERSION:
            return f"a newer tenure wrote it (schemaVersion {found.schema_version}): update this process"
        envelope = _Envelope.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return f"it is no record: {str(error)[:200]}"
    if envelope.id != id:
        return f"it says that it is the record {envelope.id[:80]!r}: somebody copied it here"
    if envelope.version >= MAX_VERSION:
        return f"its version is {envelope.version}, after which there is none"
    if envelope.recent_writes[-1] != envelope.write_id or envelope.first_version > envelope.version:
        return "its version and write ids contradict each other"
    return envelope


def write_ids(body: bytes) -> tuple[str, ...]:
    """The ids of the writes that a body proves, for `settle`."""
    try:
        envelope = _Envelope.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()
    return (envelope.first_write_id, *envelope.recent_writes)


def is_tombstone_size(size: int) -> bool:
    return size % _TOMBSTONES == _TOMBSTONES - 1


class _FormOnly(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int


_Form = msgspec.json.Decoder(_FormOnly)
_Envelope = msgspec.json.Decoder(Envelope)

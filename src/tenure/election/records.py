"""What is written in the bucket about who leads, as typed records.

Bytes from a bucket are untrusted: `decode_state` gives a record that keeps its invariants, or says what is wrong.
Names in JSON are camelCase, durations are integer milliseconds, and times of day are ISO 8601 and for people only:
nothing is ever decided by them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec

SCHEMA_VERSION = 1
MAX_RECORD_BYTES = 64 * 1024
"""A lease, term, worker or metadata record over this is another program's."""
MAX_MEMBERS_BYTES = 8 * 1024 * 1024
MAX_LEASE_MS = 24 * 3600 * 1000
MAX_EPOCH = 10**18

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=512)]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=MAX_EPOCH)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=MAX_LEASE_MS)]


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What every object of ours carries: which form it has, and which write made it."""

    write_id: Id
    """Fresh for each write. Versions may be hashes of the content, so without it two writes might look alike."""
    schema_version: int = SCHEMA_VERSION


class Handoff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request from outside to the leader of one epoch (E-6)."""

    request_id: Id
    epoch: Epoch
    by: Text
    to: Name | None = None
    """Who should lead next; `None`: whoever is first in rank."""
    forced: bool = False
    """Also inside `min_epoch_duration`."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The leader's answer to a request that it does not follow."""

    request_id: Id
    reason: Text


class State(Record, frozen=True, kw_only=True, rename="camel"):
    """The lease of a namespace: `state.json`, changed by compare-and-swap alone."""

    leader_id: Name | None
    """`None`: released; whoever comes first may have it."""
    uid: Id | None
    """The process start that holds it: a worker id may be reused, this never is."""
    epoch: Epoch
    grant_id: Id
    """Fixed for the term."""
    leader_write_id: Id
    """The last write by the leader. Followers time this one: an outsider's request must not look like a renewal."""
    lease_duration_ms: Milliseconds
    renewals: Count
    lease_expires_at: Text = ""
    elected_at: Text = ""
    mandate_ends_at: Text = ""
    previous_leader: Name | None = None
    successor: Name | None = None
    """Of a released lease: who may take it at once."""
    pinned: bool = False
    """It came by transfer: better priority alone does not end it before the mandate does."""
    handoff: Handoff | None = None
    refusal: Refusal | None = None
    members_version: Count = 0
    """Moves when `members.json` changes, so that followers read that only then."""

    @property
    def released(self) -> bool:
        return self.leader_id is None

    @property
    def lease_seconds(self) -> float:
        return self.lease_duration_ms / 1000

    def request(self) -> Handoff | None:
        """The request to this term; one that names another epoch is not for it."""
        return self.handoff if self.handoff is not None and self.handoff.epoch == self.epoch else None


class Term(Record, frozen=True, kw_only=True, rename="camel"):
    """One leadership that was granted: `terms/{epoch}.json`, created once and never changed."""

    epoch: Epoch
    leader_id: Name | None
    uid: Id | None
    grant_id: Id
    elected_at: Text = ""
    previous_leader: Name | None = None
    unconfirmed: bool = False
    """Recorded by its successor: the winner never got as far, and so never led."""
    after_damage: bool = False
    """The lease was rebuilt above the history, so numbers below may be missing."""


class Worker(Record, frozen=True, kw_only=True, rename="camel"):
    """One member of the fleet: `workers/worker={id}.json`, rewritten at each heartbeat by its owner."""

    worker_id: Name
    uid: Id
    ordinal: Annotated[int, msgspec.Meta(ge=1, le=2**62)]
    """One more than that of the process which had this id before: the newer start wins."""
    registered_at: Text = ""
    last_heartbeat: Text = ""
    is_coordinator: bool = False
    epoch: Count = 0
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 0
    healthy: bool = True
    eligible: bool = True
    """False: a member that never stands for election."""
    pulse: Text = ""
    """How it is, for people: see `tenure.coordinator.pulse`. Always of one length."""
    pad: Text = ""
    """Differs in length from one start to the next: a listing shows sizes, so the leader sees that a process with the
    same id is a new one without reading every record at every heartbeat."""


class Member(msgspec.Struct, frozen=True, rename="camel"):
    """A live worker, as the leader sees it."""

    worker_id: Name
    uid: Id
    priority: int = 0
    eligible: bool = True


class Members(Record, frozen=True, kw_only=True, rename="camel"):
    """Who is alive: `members.json`, written by the leader when that changes."""

    epoch: Epoch
    version: Count
    members: Annotated[tuple[Member, ...], msgspec.Meta(max_length=100_000)]


class Metadata(Record, frozen=True, kw_only=True, rename="camel"):
    """What every process of a namespace must agree on, and what its founder was set to: `metadata.json`."""

    created_at: Text = ""
    drift: Annotated[float, msgspec.Meta(ge=0.0, le=0.1)]
    longest_lease_ms: Milliseconds
    trim_delay_ms: Annotated[int, msgspec.Meta(ge=1, le=10 * MAX_LEASE_MS)]
    timing: dict[str, int] = {}
    """Milliseconds by the name of the setting. Workers may differ here; they are told."""


class Damage(msgspec.Struct, frozen=True):
    """The lease cannot be what it should be. Somebody unknown may hold it."""

    reason: str
    history: int | None = None
    """The highest epoch on record when it was found so; `None` if nobody looked yet."""
    lease: float = 0.0
    """Seconds that it claims to hold for, if that can be read."""


class TooNew(msgspec.Struct, frozen=True):
    """Written by a newer tenure: not ours to judge, and never overwritten."""

    schema_version: int


class _Stamp(msgspec.Struct, rename="camel"):
    schema_version: int


R = TypeVar("R", bound=Record)


def encode(record: Record) -> bytes:
    return msgspec.json.encode(record)


def decode(body: bytes, kind: type[R], limit: int = MAX_RECORD_BYTES) -> R | Damage | TooNew:
    """The record in `body`, or what is wrong with it. Never raises."""
    if len(body) > limit:
        newer = _newer(body) if len(body) <= MAX_MEMBERS_BYTES else None  # a newer form may well be longer
        return newer if newer is not None else Damage(f"{len(body):,} bytes, and no record of ours is over {limit:,}")
    try:
        record = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        newer = _newer(body)
        return newer if newer is not None else unreadable(error)
    if record.schema_version > SCHEMA_VERSION:
        return TooNew(record.schema_version)
    if record.schema_version < 1:
        return Damage(f"schemaVersion is {record.schema_version}")
    return record


def unreadable(error: Exception) -> Damage:
    return Damage(f"unreadable: {told(error)}")


def told(error: Exception) -> str:
    """msgspec quotes what it did not expect as it stands in the bucket. That goes to logs and terminals, and must not
    forge a line there."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(error)[:200])


def decode_state(body: bytes) -> State | Damage | TooNew:
    state = decode(body, State)
    if not isinstance(state, State):
        return state
    if (state.leader_id is None) != (state.uid is None):
        return Damage("leaderId and uid must both be there, or neither")
    return state


def newer(body: bytes) -> int | None:
    """The `schemaVersion` of an object, if it is above ours."""
    found = _newer(body)
    return found.schema_version if found is not None else None


def _newer(body: bytes) -> TooNew | None:
    """A newer form may differ in any field but this one."""
    try:
        stamp = msgspec.json.decode(body, type=_Stamp)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return TooNew(stamp.schema_version) if stamp.schema_version > SCHEMA_VERSION else None


def time_of_day(wall_ns: int) -> str:
    """For people. Years that no calendar holds come from a broken clock, which must not break anything else."""
    try:
        return datetime.fromtimestamp(wall_ns // 1_000_000 / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""

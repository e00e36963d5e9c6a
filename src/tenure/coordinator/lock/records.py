"""What is written in the bucket about a lock: one record per name, changed by compare-and-swap alone, never deleted.

Without the record nobody knows which fencing tokens were given out; so it stays when the lock is free.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tenure.coordinator.layout import check_name
from tenure.election.records import Damage, Id, Record, TooNew, decode
from tenure.store import encode_name

LOCKS = "plugin=locks/"
MAX_NAME_CHARACTERS = 128
MAX_OWNER_CHARACTERS = 200
MAX_TTL_SECONDS = 3600.0
MAX_TOKEN = 10**18

Owner = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_OWNER_CHARACTERS)]
LockName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Token = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKEN)]
TtlMs = Annotated[int, msgspec.Meta(ge=1, le=round(MAX_TTL_SECONDS * 1000))]


class LockRecord(Record, frozen=True, kw_only=True, rename="camel"):
    """`plugin=locks/lock={name}.json`."""

    name: LockName
    """As in its key: a record that was copied to another place is not taken for that place's own."""
    uid: Id
    """The acquisition that was granted it, and no other: two tasks of one process are two."""
    owner: Owner
    """For people."""
    token: Token
    """One more with every grant."""
    holder_write_id: Id
    """The last write by the holder. Waiters time this one: whoever else touches the record has not renewed it."""
    ttl_ms: TtlMs
    released: bool = False
    """Whoever comes first may have it."""
    over_lapsed: bool = False
    """This grant was taken from a holder that had not released it."""

    @property
    def ttl_seconds(self) -> float:
        return self.ttl_ms / 1000


def lock_key(name: str) -> str:
    """Raises `ConfigError` if no lock can have this name."""
    return f"{LOCKS}lock={encode_name(check_name('name', name, MAX_NAME_CHARACTERS))}.json"


def decode_lock(body: bytes, name: str) -> LockRecord | Damage | TooNew:
    """The record of the lock `name`, or what is wrong with it. Never raises."""
    record = decode(body, LockRecord)
    if isinstance(record, LockRecord) and record.name != name:
        return Damage(f"it is the record of another lock, {record.name!r}")
    return record

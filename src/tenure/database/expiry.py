"""When a record expires, as it is kept with the record: `reserved["ttl"]`.

The time and the name of its index entry belong to the record, and end with it: a tombstone does not keep them, and a
record that is inserted over one does not inherit them, whoever writes it. What is still to be done for an expired
record (`pending`) belongs to the key: it is carried along by every write, through deletion and re-insertion.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

TTL = "ttl"
"""Its name among the reserved fields."""
_PENDING = "pending"

Milliseconds = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
Short = Annotated[str, msgspec.Meta(max_length=256)]


class Pending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that has expired and is gone, and what is to be done with its data."""

    how: Short
    """`archive` or `callback`."""
    to: Short = ""
    """The resource that it is archived in."""
    data: dict[str, Any]
    version: int
    write: Short
    """The write id of the version that has expired: no other record ever has it."""
    at: Milliseconds
    """When it expired, on the store's clock."""
    created: Short = ""


class Expiry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept about one key."""

    at: Milliseconds | None = None
    """On the store's clock. `None`: the record does not expire ..."""
    entry: Short = ""
    """The index entry that leads to it."""
    keep: bool = False
    """... because somebody said so."""
    pending: dict[str, Pending] = {}
    """By the name of the index entry that leads to it."""


NONE = Expiry()


def expiry_of(reserved: dict[str, Any]) -> Expiry | str:
    """What the reserved fields say, or what is wrong with them."""
    found = reserved.get(TTL)
    if found is None:
        return NONE
    try:
        return msgspec.convert(found, Expiry)
    except (msgspec.ValidationError, RecursionError) as error:
        return f"reserved.{TTL} is not readable: {str(error)[:200]}"


def with_expiry(reserved: dict[str, Any], expiry: Expiry) -> dict[str, Any]:
    """The reserved fields, with this in them; without anything if there is nothing to keep."""
    others = {name: value for name, value in reserved.items() if name != TTL}
    return others if expiry == NONE else {**others, TTL: msgspec.to_builtins(expiry)}


def ended(reserved: dict[str, Any]) -> dict[str, Any]:
    """The reserved fields of a key whose record has ended: what belonged to the record is gone."""
    found = reserved.get(TTL)
    if found is None:
        return reserved
    others = {name: value for name, value in reserved.items() if name != TTL}
    pending = found.get(_PENDING) if isinstance(found, dict) else None
    return {**others, TTL: {_PENDING: pending}} if pending else others


def carried(former: dict[str, Any], reserved: dict[str, Any]) -> dict[str, Any]:
    """`reserved` with the expiry of `former`: whoever changes reserved fields leaves this one alone."""
    others = {name: value for name, value in reserved.items() if name != TTL}
    return {**others, TTL: former[TTL]} if TTL in former else others

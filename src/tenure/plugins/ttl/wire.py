"""What lies in the inbox of a TTL: requests, as JSON. All of it is untrusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from tenure.ledger import InboxName, Lot, Place

SCHEMA = 1
CLEANUP = "cleanup"

Small = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=256)]


class Unreadable(Exception):
    """Not what a process of ours writes."""


class TooNew(Exception):
    """Written by a newer tenure."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """From a person, or a program."""

    op: Text
    id: Id
    by: Text = ""


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One inbox object."""

    schema: int
    after: int
    skipped: Annotated[list[Small], msgspec.Meta(max_length=100)] = []
    ahead: Annotated[list[Small], msgspec.Meta(max_length=1000)] = []
    requests: Annotated[list[Request], msgspec.Meta(max_length=100_000)] = []


class _Schema(msgspec.Struct):
    schema: int


def compose(name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
    requests = [lot.payload for lot in lots]
    return msgspec.json.encode(Letter(SCHEMA, place.after, list(place.skipped), list(place.ahead), requests))


def read_letter(body: bytes) -> Letter:
    """Raises `Unreadable` or `TooNew`."""
    try:
        schema = msgspec.json.decode(body, type=_Schema).schema
        if schema > SCHEMA:
            raise TooNew(f"it is of schema {schema}, and this process knows {SCHEMA}: update it")
        if schema < 1:
            raise Unreadable(f"its schema is {schema}")
        return msgspec.json.decode(body, type=Letter)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"it is not readable: {str(error)[:200]}") from None

"""What lies in a schedule's inbox: commands, from any worker. All of it is untrusted: what does not fit is set aside.

Only the frame of a batch is judged when it is read. What a command says is judged when it is decided on, so that one
that cannot be followed is refused by itself, and its caller told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from tenure.ledger import InboxName, Lot, Place, Poison, TooNewLetter

SCHEMA = 1
MAX_COMMANDS = 10_000
ADD, UPDATE, REMOVE, PAUSE, RESUME, RUN_NOW = "add", "update", "remove", "pause", "resume", "run-now"
OVERHEAD = 200
"""Bytes that a command takes, besides its job and its changes."""

Small = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
NOTHING = msgspec.Raw(b"null")


class Command(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    op: Annotated[str, msgspec.Meta(max_length=64)]
    id: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Of a job; empty, where that may be: all of them."""
    job: msgspec.Raw = NOTHING
    """What is added."""
    changes: dict[str, Any] = {}
    """Fields of `Job`, as they are stored."""
    replace: bool = False
    """Of `add`: a job that is there already is changed."""
    run: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The id of a run by hand."""
    by: Annotated[str, msgspec.Meta(max_length=256)] = ""


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    schema: int
    after: int
    skipped: Annotated[list[Small], msgspec.Meta(max_length=100)] = []
    ahead: Annotated[list[Small], msgspec.Meta(max_length=1000)] = []
    commands: Annotated[list[Command], msgspec.Meta(max_length=MAX_COMMANDS)] = []


class _Schema(msgspec.Struct):
    schema: int


_batch = msgspec.json.Decoder(Batch)


def compose(name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
    """The body of one batch: a lot is a command."""
    commands = [lot.payload for lot in lots]
    return msgspec.json.encode(Batch(SCHEMA, place.after, list(place.skipped), list(place.ahead), commands))


def read_batch(body: bytes) -> Batch:
    """Raises `Poison` for what no producer of ours has written, and `TooNewLetter` for a newer one's."""
    try:
        batch = _batch.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if (schema := _schema_of(body)) > SCHEMA:
            raise _too_new(schema) from None
        raise Poison(f"it is no batch of commands: {str(error)[:200]}") from None
    if batch.schema > SCHEMA:
        raise _too_new(batch.schema)
    if batch.schema < 1:
        raise Poison(f"its schema is {batch.schema}")
    return batch


def _schema_of(body: bytes) -> int:
    try:
        return msgspec.json.decode(body, type=_Schema).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0


def _too_new(schema: int) -> TooNewLetter:
    return TooNewLetter(f"it is of schema {schema}, and this process knows {SCHEMA}: update it")

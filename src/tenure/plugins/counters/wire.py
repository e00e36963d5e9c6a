"""What lies in the inbox of counters: amounts and requests. All of it is untrusted: what does not fit is set aside.

A batch says of each field how it is counted, so that a leader which does not know the field yet can still count it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

import msgspec

from tenure.database.ids import check_id
from tenure.ledger import InboxName, Lot, Place, Poison, TooNewLetter
from tenure.plugins.counters.cell import Cell, cell_from, cells_from
from tenure.plugins.counters.fields import MAX_FIELD_CHARACTERS, check_path
from tenure.plugins.counters.group import Group
from tenure.plugins.counters.numbers import Counter, Kind, counter_of

SCHEMA = 1
MAX_REQUESTS = 10_000
LARGEST_ROW = 10**60
"""Far above what all calls of a batch can give: sums of what is beyond it could not be written down."""
_MANY_DIGITS = b"0" * 60
_AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_PLAIN_IDS = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}(?:\n(?!\Z)|\Z))*")
CONSOLIDATE, RECALCULATE = "consolidate", "recalculate"
MAX_ID_CHARACTERS = 256
MAX_OP_ID_CHARACTERS = 128
REQUEST_BYTES = 500

Small = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Id = Annotated[str, msgspec.Meta(max_length=MAX_ID_CHARACTERS)]
RecordId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARACTERS)]
Field = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_FIELD_CHARACTERS)]


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """From somebody who waits for an answer."""

    request: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    op: Annotated[str, msgspec.Meta(max_length=64)]
    id: Id = ""
    """Of a record; empty: all of them."""


class _Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One inbox object."""

    schema: int
    after: int
    skipped: Annotated[list[Small], msgspec.Meta(max_length=100)] = []
    ahead: Annotated[list[Small], msgspec.Meta(max_length=1000)] = []
    fields: Annotated[dict[Field, str], msgspec.Meta(max_length=1000)] = {}
    """How each is counted: `int:sum`."""
    rows: dict[Field, dict[RecordId, list[Any]]] = {}
    ops: list[tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=128)], Field, RecordId, list[Any]]] = []
    """What has an `op_id`: each by itself, in order, after the rows."""
    requests: Annotated[list[Request], msgspec.Meta(max_length=MAX_REQUESTS)] = []
    urgent: list[RecordId] = []
    """Somebody waits until these are consolidated."""


class Letter(msgspec.Struct, frozen=True):
    """One inbox object, as it is folded."""

    counters: dict[str, Counter]
    rows: dict[str, dict[str, Cell]]
    """By field and record."""
    ops: list[tuple[str, str, str, Cell]]
    """`op_id`, field, record, and what it does."""
    requests: list[Request]
    urgent: list[str]


class _Schema(msgspec.Struct):
    schema: int


def compose(name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
    """The body of a batch. The groups in it are closed by this: what comes later goes into others."""
    fields: dict[str, str] = {}
    groups: list[Group] = []
    requests: list[Request] = []
    for lot in lots:
        if isinstance(lot.payload, Group):
            lot.payload.closed = True
            groups.append(lot.payload)
        else:
            requests.append(lot.payload)
    whole = groups[0] if len(groups) == 1 else _together(groups)
    rows = {}
    for field, cells in whole.rows.items():
        fields[field] = whole.counters[field].word
        rows[field] = {id: cell.plain() for id, cell in cells.items()}
    for _, field, _, _ in whole.ops:
        fields[field] = whole.counters[field].word
    ops = [(op_id, field, id, cell.plain()) for op_id, field, id, cell in whole.ops]
    letter = _Letter(
        SCHEMA,
        place.after,
        list(place.skipped),
        list(place.ahead),
        fields,
        rows,
        ops,
        requests,
        list(whole.urgent),
    )
    return msgspec.json.encode(letter)


def _together(groups: Iterable[Group]) -> Group:
    whole = Group()
    for group in groups:
        whole.take(group)
    return whole


def read_letter(body: bytes) -> tuple[Place, Letter]:
    """Raises `Poison` or `TooNewLetter`."""
    try:
        schema = _schema.decode(body).schema
        if schema > SCHEMA:
            raise TooNewLetter(f"it is of schema {schema}, and this process knows {SCHEMA}: update it")
        if schema < 1:
            raise Poison(f"its schema is {schema}")
        letter = _letter.decode(body)
        is_long = _MANY_DIGITS in body.translate(_AS_ZERO)
        counters = {field: _known(field, word) for field, word in letter.fields.items()}
        rows = {}
        for field, cells in letter.rows.items():
            counter = _counter_for(counters, field)
            rows[field] = cells_from(counter, cells)
            if is_long:
                _check_size(counter, rows[field].values())
            _check_ids(cells)
        ops = [
            (op_id, field, id, cell_from(_counter_for(counters, field), row)) for op_id, field, id, row in letter.ops
        ]
        if is_long:
            for _, field, _, cell in ops:
                _check_size(counters[field], [cell])
        _check_ids([id for _, _, id, _ in ops])
        _check_ids([request.id for request in letter.requests if request.id])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise Poison(f"it is not readable: {str(error)[:200]}") from None
    place = Place(letter.after, letter.skipped, letter.ahead)
    return place, Letter(counters, rows, ops, letter.requests, letter.urgent)


def _check_ids(ids: Collection[str]) -> None:
    """Raises `ValueError` if one is no record's. All at once: there are many, and nearly always they are plain."""
    joined = "\n".join(ids)
    if joined.count("\n") >= max(1, len(ids)) or not _PLAIN_IDS.fullmatch(joined):
        for id in ids:
            check_id(id)


def _check_size(counter: Counter, cells: Iterable[Cell]) -> None:
    if counter.kind is not Kind.FLOAT:
        for cell in cells:
            for number in (cell.added, cell.subbed, cell.base, cell.net):
                if number is not None and not -LARGEST_ROW < number < LARGEST_ROW:
                    raise ValueError("a row has a number that no calls can have given")


def _known(field: str, word: str) -> Counter:
    check_path(field)
    counter = counter_of(word)
    if counter is None:
        raise TooNewLetter(f"it counts {field!r:.80} as {word!r:.80}, which this process does not know: update it")
    return counter


def _counter_for(counters: dict[str, Counter], field: str) -> Counter:
    counter = counters.get(field)
    if counter is None:
        raise ValueError(f"it does not say how {field!r:.80} is counted")
    return counter


_schema = msgspec.json.Decoder(_Schema)
_letter = msgspec.json.Decoder(_Letter)

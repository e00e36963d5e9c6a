"""The state of counters as it goes into a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tenure.plugins.counters.records import Asked, Level, Moment, Page, Rows, Sealed, Sum
from tenure.plugins.ledgered import image

Row = list[Any]
LARGEST = 32 * 1024 * 1024
"""Bytes of what was sealed, as it is written: beyond that it is cut, well before an object cannot hold it."""
MAX_CELLS = 50_000
"""Of one piece: at most some 550 bytes each."""


class Frame(image.Frame, kw_only=True, rename="camel"):
    ledger: str
    counters: dict[str, str]
    moment: Moment | None
    calls: int
    applied: int
    duplicates: int
    seq: int
    time_ms: int
    epoch: int


class OfferImage(msgspec.Struct, array_like=True):
    number: int
    cells: dict[str, Row]
    first: int = 0


class WaitingImage(msgspec.Struct, array_like=True):
    id: str
    since_ms: int
    offered: list[OfferImage]
    rest: OfferImage | None = None


class Contents(msgspec.Struct, omit_defaults=True):
    waiting: list[WaitingImage] = []
    op_ids: list[tuple[str, int]] = []
    asked: list[tuple[str, Asked]] = []
    tally: list[tuple[str, dict[str, Row]]] = []
    sealed: list[Sealed] = []
    pages: list[Page] = []
    sums: list[tuple[Level, int, dict[str, Sum]]] = []
    pieces: list[Sealed] = []
    """Of what was sealed and is too large: several under one number, none of which is in `sealed`. An older process
    refuses a snapshot that has some; it would take each for all of its number, and lose the others."""


def shared_out(sealed: Iterable[Sealed]) -> tuple[list[Sealed], list[Sealed]]:
    """What goes into a snapshot as it is, and the pieces of what is too large for that."""
    whole: list[Sealed] = []
    pieces: list[Sealed] = []
    for each in sealed:
        if len(msgspec.json.encode(each)) <= LARGEST:
            whole.append(each)
        else:
            pieces += _pieces(each)
    return whole, pieces


def _pieces(sealed: Sealed) -> Iterator[Sealed]:
    rows: Rows = {}
    count = 0
    for field, cells in sealed.rows.items():
        for id, cell in cells.items():
            rows.setdefault(field, {})[id] = cell
            count += 1
            if count >= MAX_CELLS:
                yield Sealed(sealed.number, sealed.moment, rows)
                rows, count = {}, 0
    if rows:
        yield Sealed(sealed.number, sealed.moment, rows)


def joined(parts: Iterable[Sealed]) -> list[Sealed]:
    """What was in pieces, as it was, oldest first."""
    whole: list[Sealed] = []
    for part in sorted(parts, key=lambda each: each.number):
        if whole and whole[-1].number == part.number:
            for field, cells in part.rows.items():
                whole[-1].rows.setdefault(field, {}).update(cells)
        else:
            whole.append(part)
    return whole

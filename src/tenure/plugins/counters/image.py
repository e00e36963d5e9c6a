"""The state of counters as it goes into a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tenure.plugins.counters.records import Asked, Level, Moment, Page, Rows, Sealed, Sum
from tenure.plugins.ledgered import image

Row = list[Any]
MAX_CELLS = 50_000
"""Of one piece of what was sealed: at most some 550 bytes each."""


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


def parts_of(sealed: Sealed) -> Iterator[Sealed]:
    """In pieces, under one number: all of it may be larger than an object can be."""
    if sum(map(len, sealed.rows.values())) <= MAX_CELLS:
        yield sealed
        return
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
    """What was in pieces, as it was."""
    whole: list[Sealed] = []
    for part in parts:
        if whole and whole[-1].number == part.number:
            for field, cells in part.rows.items():
                whole[-1].rows.setdefault(field, {}).update(cells)
        else:
            whole.append(part)
    return whole

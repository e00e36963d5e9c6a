"""The state of counters as it goes into a snapshot."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.plugins.counters.records import Asked, Level, Moment, Page, Sealed, Sum
from tenure.plugins.ledgered import image

Row = list[Any]


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

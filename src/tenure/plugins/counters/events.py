"""What counters tell those who listen: `counters.on("plg:eventual-consistency:consolidated", handler)`."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec


class Consolidated(msgspec.Struct, frozen=True):
    """What was folded is in its records: `records` of them were written, `failed` could not be, and are tried again."""

    name: ClassVar[str] = "consolidated"
    resource: str
    epoch: int
    records: int
    failed: int
    seconds: float


class ApplyFailed(msgspec.Struct, frozen=True):
    """A record cannot be brought up to date. What belongs to it waits, and is counted when it can be."""

    name: ClassVar[str] = "apply-failed"
    resource: str
    id: str
    reason: str


class FieldHidden(msgspec.Struct, frozen=True):
    """A total is counted, and cannot be shown in its record: something on the way to the field is no object."""

    name: ClassVar[str] = "field-hidden"
    resource: str
    id: str
    field: str


class RecordRecalculated(msgspec.Struct, frozen=True):
    """Totals were compared with history; `former` are those that were not right, and are now."""

    name: ClassVar[str] = "recalculated"
    resource: str
    id: str
    totals: dict[str, Any]
    former: dict[str, Any]

"""What is counted of a record, as it is kept with the record: `reserved["counters"]`.

It belongs to the key and not to the record: a tombstone keeps it, and an insert over one carries it. The watermark, up
to which amounts are in the totals, must never be lost while the totals are kept, nor the other way round: both are in
one object, and every write carries it along.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

COUNTERS = "counters"
"""Its name among the reserved fields."""

Short = Annotated[str, msgspec.Meta(max_length=256)]
Stored = int | float | str


class Counted(msgspec.Struct, frozen=True, omit_defaults=True):
    """By one plugin instance."""

    ledger: Short
    """The ledger that the watermark belongs to."""
    through: Annotated[int, msgspec.Meta(ge=0)]
    """The watermark: every amount that was folded up to this entry is in the totals."""
    totals: dict[str, Stored] = {}
    """By field: exact."""
    starts: dict[str, Stored] = {}
    """What the fields held before the first amount."""


def counted_of(reserved: dict[str, Any], name: str) -> Counted | str | None:
    """What is kept for the plugin instance of this name; `None`: nothing; or what is wrong with it."""
    found = reserved.get(COUNTERS)
    if found is None:
        return None
    if not isinstance(found, dict):
        return f"reserved.{COUNTERS} is no object"
    if name not in found:
        return None
    try:
        return msgspec.convert(found[name], Counted)
    except (msgspec.ValidationError, RecursionError) as error:
        return f"reserved.{COUNTERS}.{name[:80]} is not readable: {str(error)[:200]}"


def with_counted(reserved: dict[str, Any], name: str, counted: Counted) -> dict[str, Any]:
    others = reserved.get(COUNTERS)
    kept = others if isinstance(others, dict) else {}
    return {**reserved, COUNTERS: {**kept, name: msgspec.to_builtins(counted)}}


def still_counted(former: dict[str, Any], reserved: dict[str, Any]) -> dict[str, Any]:
    """`reserved` with what was counted of `former`: whoever changes reserved fields leaves this one alone."""
    others = {name: value for name, value in reserved.items() if name != COUNTERS}
    return {**others, COUNTERS: former[COUNTERS]} if COUNTERS in former else others

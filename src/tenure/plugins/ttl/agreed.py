"""What all processes of a TTL must have in common: a record's safety depends on it.

A writer sends a record within a quarter of the quarantine after its index entry, and the leader keeps an entry without
a record for all of it. If the two meant different times, a record could outlive the entry that leads to it. So the
first process writes down what it was given, and every other compares before it does anything.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tenure.election.records import Record
from tenure.entropy import NewId
from tenure.errors import ConfigConflict
from tenure.ledger.agreed import first_written
from tenure.store import Store

SETTINGS = "settings.json"


class Agreed(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="ttl"):
    quarantine_ms: Annotated[int, msgspec.Meta(ge=1)]


async def agree(store: Store, quarantine: float, *, resource: str, draw_id: NewId) -> None:
    """Raises `ConfigConflict` if the others have another quarantine, and `StoreError` if that cannot be known."""
    ours = Agreed(write_id=draw_id(), quarantine_ms=round(quarantine * 1000))
    theirs = await first_written(store, SETTINGS, ours, what=f"the TTL of {resource!r}")
    if theirs.quarantine_ms != ours.quarantine_ms:
        raise ConfigConflict(
            f"quarantine is {quarantine:g} s here, and {theirs.quarantine_ms / 1000:g} s where the TTL of "
            f"{resource!r} was used first: give the same in every process. To change it stop all of them, and "
            f"remove plugin=ttl/name={resource}/{SETTINGS}"
        )

"""What all processes of a TTL must have in common: a record's safety depends on it.

A writer sends a record within a quarter of the quarantine after its index entry, and the leader keeps an entry without
a record for all of it. If the two meant different times, a record could outlive the entry that leads to it. So the
first process writes down what it was given, and every other compares before it does anything.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tenure.election.records import Damage, Record, TooNew, decode, encode
from tenure.entropy import NewId
from tenure.errors import ConfigConflict, Damaged, NotFound, SchemaTooNew, StoreUnavailable
from tenure.store import Rejected, Store, Stored, Unknown

SETTINGS = "settings.json"
_TRIES = 3


class Agreed(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="ttl"):
    quarantine_ms: Annotated[int, msgspec.Meta(ge=1)]


async def agree(store: Store, quarantine: float, *, resource: str, draw_id: NewId) -> None:
    """Raises `ConfigConflict` if the others have another quarantine, and `StoreError` if that cannot be known."""
    ours = Agreed(write_id=draw_id(), quarantine_ms=round(quarantine * 1000))
    doubt: Unknown | None = None
    for _ in range(_TRIES):
        theirs = await _read(store, resource)
        if theirs is not None:
            if theirs.quarantine_ms != ours.quarantine_ms:
                raise ConfigConflict(
                    f"quarantine is {quarantine:g} s here, and {theirs.quarantine_ms / 1000:g} s where the TTL of "
                    f"{resource!r} was used first: give the same in every process. To change it stop all of them, and "
                    f"remove plugin=ttl/name={resource}/{SETTINGS}"
                )
            return
        outcome = await store.create(SETTINGS, encode(ours))
        if isinstance(outcome, Unknown):
            doubt = outcome
        elif not isinstance(outcome, Rejected):
            return
    raise doubt.error if doubt is not None else StoreUnavailable(f"{SETTINGS} comes and goes: who removes it?")


async def _read(store: Store, resource: str) -> Agreed | None:
    try:
        stored = await store.get(SETTINGS)
    except NotFound:
        return None
    assert isinstance(stored, Stored)
    agreed = decode(stored.body, Agreed)
    if isinstance(agreed, TooNew):
        raise SchemaTooNew(
            f"{SETTINGS} of the TTL of {resource!r} was written by a newer tenure (schemaVersion "
            f"{agreed.schema_version}): update this process"
        )
    if isinstance(agreed, Damage):
        raise Damaged(
            f"{SETTINGS} of the TTL of {resource!r} is damaged ({agreed.reason}): stop every process that uses it, "
            "remove the object, and start them again"
        )
    return agreed

"""What all processes of a ledger must have in common, written down by the first of them.

A leader forgets a silent producer after `retention`, and believes nothing of a stranger that is older than what it has
forgotten. So a producer has to know how long it is remembered: one that believes in a longer time would have a batch
set aside that its callers count as written.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from tenure.election.records import Damage, Record, TooNew, decode, encode
from tenure.entropy import NewId
from tenure.errors import ConfigConflict, Damaged, NotFound, SchemaTooNew, StoreUnavailable
from tenure.ledger.config import LedgerConfig
from tenure.store import Rejected, Store, Stored, Unknown

LEDGER = "ledger.json"
_TRIES = 3

R = TypeVar("R", bound=Record)


class AgreedLedger(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="ledger"):
    retention_ms: Annotated[int, msgspec.Meta(ge=1)]


async def agreed_ledger(
    store: Store, config: LedgerConfig, *, is_given: bool, what: str, draw_id: NewId
) -> LedgerConfig:
    """`config` with what the ledger was first used with. `is_given`: by the user, who is told if it differs.

    Raises `ConfigConflict`, and `StoreError` if it cannot be known.
    """
    ours = AgreedLedger(write_id=draw_id(), retention_ms=round(config.retention * 1000))
    theirs = await first_written(store, LEDGER, ours, what=what)
    if theirs.retention_ms == ours.retention_ms:
        return config
    retention = theirs.retention_ms / 1000
    if is_given:
        raise ConfigConflict(
            f"retention is {config.retention:g} s here, and {retention:g} s where {what} was used first: give the same "
            f"in every process, or no `ledger` at all. To change it stop all of them, and remove its {LEDGER}"
        )
    return config.remembered_for(retention)


async def first_written(store: Store, key: str, ours: R, *, what: str) -> R:
    """What the first process wrote under this key, which is `ours` if that is this one."""
    doubt: Unknown | None = None
    for _ in range(_TRIES):
        found = await read_agreed(store, key, type(ours), what)
        if found is not None:
            return found[0]
        outcome = await store.create(key, encode(ours))
        if isinstance(outcome, Unknown):
            doubt = outcome
        elif not isinstance(outcome, Rejected):
            return ours
    raise doubt.error if doubt is not None else StoreUnavailable(f"{key} of {what} comes and goes: who removes it?")


async def read_agreed(store: Store, key: str, kind: type[R], what: str) -> tuple[R, Stored] | None:
    """What is there, and as it is stored; `None`: nothing is. Raises if it cannot be used."""
    try:
        stored = await store.get(key)
    except NotFound:
        return None
    assert isinstance(stored, Stored)
    agreed = decode(stored.body, kind)
    if isinstance(agreed, TooNew):
        raise SchemaTooNew(
            f"{key} of {what} was written by a newer tenure (schemaVersion {agreed.schema_version}): update this "
            "process"
        )
    if isinstance(agreed, Damage):
        raise Damaged(
            f"{key} of {what} is damaged ({agreed.reason}): stop every process that uses it, remove the object, and "
            "start them again"
        )
    return agreed, stored

"""What all processes of a ledger must have in common, written down by the first of them.

A leader forgets a silent producer after `retention`, and believes nothing of a stranger that is older than what it has
forgotten. So a producer has to know how long it is remembered: one that believes in a longer time would have a batch
set aside that its callers count as written.

A leader trims the log after `trim_delay`, and who reads along believes what it finds for as long (L-4). One that
believed in a longer time than the leader would take a ghost for an entry, and a log that was trimmed for one that ends.
Who only sends may be there before anybody who reads: then it is said later, and before anybody leads.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from tenure.election.records import Damage, Record, TooNew, decode, encode
from tenure.entropy import NewId
from tenure.errors import BodyTooLarge, ConfigConflict, Damaged, NotFound, SchemaTooNew, StoreUnavailable
from tenure.ledger.config import USUAL_TRIM_DELAY, LedgerConfig
from tenure.store import Rejected, Store, Stored, Unknown

LEDGER = "ledger.json"
_TRIES = 3
_UNTOLD = 0.1
"""Seconds. Too short for a pause between two looks: whoever believes for so long looks up what is told by then."""
_USUAL = LedgerConfig()
"""By which older leaders went, who said nothing."""

R = TypeVar("R", bound=Record)


class AgreedLedger(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="ledger"):
    retention_ms: Annotated[int, msgspec.Meta(ge=1)]
    trim_delay_ms: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """`None`: nobody has used it yet who reads the log, or an older tenure was the first."""


async def agreed_ledger(
    store: Store,
    config: LedgerConfig,
    *,
    is_given: bool,
    reads: bool = False,
    usual_trim_delay: float = USUAL_TRIM_DELAY,
    what: str,
    draw_id: NewId,
) -> LedgerConfig:
    """`config` with what the ledger was first used with. `is_given`: by the user, who is told if it differs. `reads`:
    this process reads the log, and may come to lead; who only sends has no say in how long entries are kept.
    `usual_trim_delay`: if neither the user says how long that is, nor anybody has before.

    Raises `ConfigConflict`, and `StoreError` if it cannot be known.
    """
    trim_delay = config.trim_delay if config.trim_delay is not None else usual_trim_delay
    ours = AgreedLedger(
        write_id=draw_id(),
        retention_ms=round(config.retention * 1000),
        trim_delay_ms=round(trim_delay * 1000) if reads else None,
    )
    theirs = await first_written(store, LEDGER, ours, what=what)
    if ours.trim_delay_ms is not None and theirs.trim_delay_ms is None:
        theirs = await _with_trim_delay(store, ours.trim_delay_ms, what, draw_id)
    if theirs.retention_ms != ours.retention_ms:
        if is_given:
            raise _conflict("retention", config.retention, theirs.retention_ms, what)
        config = config.remembered_for(theirs.retention_ms / 1000)
    delay_ms = theirs.trim_delay_ms
    is_said = is_given and reads and config.trim_delay is not None
    if is_said and delay_ms is not None and delay_ms != ours.trim_delay_ms:
        raise _conflict("trim_delay", trim_delay, delay_ms, what)
    return _trimmed_after(config, theirs)


async def ledger_of_onlooker(store: Store) -> LedgerConfig:
    """For who reads a ledger and takes no part in it. What cannot be known is not relied upon: such a reader reads
    anew, which costs more, and is right."""
    try:
        found = await read_agreed(store, LEDGER, AgreedLedger, "the ledger")
    except (Damaged, SchemaTooNew, BodyTooLarge):
        found = None
    return _trimmed_after(LedgerConfig(), found[0] if found is not None else None)


def _trimmed_after(config: LedgerConfig, agreed: AgreedLedger | None) -> LedgerConfig:
    told = agreed.trim_delay_ms if agreed is not None else None
    return msgspec.structs.replace(config, trim_delay=_UNTOLD if told is None else told / 1000)


class Trust:
    """For how long it is believed what was read of a log (L-4)."""

    def __init__(self, store: Store, config: LedgerConfig) -> None:
        self._store = store
        self._config = config

    async def holds(self, elapsed: float) -> bool:
        """`elapsed`: from the sending of the poll that last found nothing until something was read, which was before
        this call. Raises `StoreError` if it cannot be known."""
        if elapsed < self._believed_for:
            return True
        if self._config.trim_delay != _UNTOLD:
            return False
        try:
            found = await read_agreed(self._store, LEDGER, AgreedLedger, "the ledger")
        except (Damaged, SchemaTooNew, BodyTooLarge):
            return False
        self._config = _trimmed_after(self._config, found[0] if found is not None else None)
        # Still untold: nobody has begun to lead who would have said it, nor trimmed anything.
        return elapsed < (_USUAL.trusted_for if self._config.trim_delay == _UNTOLD else self._believed_for)

    @property
    def _believed_for(self) -> float:
        """Never for longer than was usual: an older leader trims by that, whatever is agreed on."""
        return min(self._config.trusted_for, _USUAL.trusted_for)


async def _with_trim_delay(store: Store, trim_delay_ms: int, what: str, draw_id: NewId) -> AgreedLedger:
    """Write down what nobody has said yet, unless somebody does meanwhile."""
    doubt: Unknown | None = None
    for _ in range(_TRIES):
        found = await read_agreed(store, LEDGER, AgreedLedger, what)
        if found is None:
            break
        theirs, stored = found
        if theirs.trim_delay_ms is not None:
            return theirs
        more = msgspec.structs.replace(theirs, write_id=draw_id(), trim_delay_ms=trim_delay_ms)
        outcome = await store.replace(LEDGER, encode(more), stored.version)
        if isinstance(outcome, Unknown):
            doubt = outcome
        elif not isinstance(outcome, Rejected):
            return more
    raise doubt.error if doubt is not None else StoreUnavailable(f"{LEDGER} of {what} comes and goes: who removes it?")


def _conflict(field: str, ours: float, theirs_ms: int, what: str) -> ConfigConflict:
    return ConfigConflict(
        f"{field} is {ours:g} s here, and {theirs_ms / 1000:g} s where {what} was used first: give the same in every "
        f"process, or no `ledger` at all. To change it stop all of them, and remove its {LEDGER}"
    )


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

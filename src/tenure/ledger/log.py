"""Reading the log, and adding to it (L-2)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import aclosing
from typing import Protocol

import msgspec

from tenure.clock import Clock
from tenure.election.records import Damage, TooNew, encode
from tenure.entropy import NewId
from tenure.errors import BodyTooLarge, LeadershipLost, LedgerDamaged, NotFound, SchemaTooNew
from tenure.ledger.layout import LOG_NAMES, SNAPSHOT_NAMES, log_key, parse_number
from tenure.ledger.records import LogEntry, decode_entry
from tenure.store import Applied, Attempt, Rejected, Remembers, Store, Stored, commit, ours, settle

_PAUSE = 0.1


class Tenancy(Protocol):
    """What a ledger asks of a leadership: `Lead` has it."""

    @property
    def epoch(self) -> int: ...

    def remaining(self) -> float: ...

    def ensure(self, seconds: float = 0.0) -> None: ...


class Superseded(LeadershipLost):
    """A newer leader has written to the log."""


class _WriteId(msgspec.Struct, rename="camel"):
    write_id: str


async def read_entry(store: Store, seq: int) -> LogEntry | None:
    """The entry, or `None` if there is none of that number. Raises if what is there is no entry."""
    try:
        stored = await store.get(log_key(seq))
    except NotFound:
        return None
    except BodyTooLarge as error:
        raise _too_large(error) from None
    assert isinstance(stored, Stored)
    return _checked(stored.body, seq)


def _too_large(error: BodyTooLarge) -> LedgerDamaged:
    return LedgerDamaged(f"{error}; nothing is decided until then")


def _checked(body: bytes, seq: int) -> LogEntry:
    entry = decode_entry(body, seq)
    if isinstance(entry, TooNew):
        raise SchemaTooNew(
            f"{log_key(seq)} was written by a newer tenure (schemaVersion {entry.schema_version}): update this process"
        )
    if isinstance(entry, Damage):
        raise LedgerDamaged(
            f"{log_key(seq)} is damaged ({entry.reason}): put it back from a backup; nothing is decided until then"
        )
    return entry


class WrittenAlready(LedgerDamaged):
    """The entry is of our own epoch, and we did not write it. Or not since we began: whoever leads may have begun on
    this ledger before, in the same term, and been cut short."""


async def append(
    store: Store, lead: Tenancy, seq: int, compose: Callable[[str], LogEntry], *, clock: Clock, draw_id: NewId
) -> LogEntry:
    """Create entry `seq`; gives what lies there afterwards, which is ours unless its epoch is lower.

    Raises `Superseded` for one of a newer leader, `WrittenAlready` for one of our own epoch that is not ours, and
    `LeadershipLost` if the lease is not valid *after* the create came back: an entry whose number was already trimmed
    can be created once more, but only by somebody who has not led for long.
    """
    attempt = Attempt(log_key(seq), None)

    def body(write_id: str) -> bytes:
        return encode(compose(write_id))

    lead.ensure()
    settled = await commit(
        store,
        attempt,
        body,
        write_ids=_write_ids,
        remembers=Remembers.EVERY_WRITE,
        draw_id=draw_id,
        clock=clock,
        within=lead.remaining(),
    )
    while not isinstance(settled.outcome, Applied | Rejected):
        if isinstance(settled.outcome.error, BodyTooLarge):
            raise _too_large(settled.outcome.error)  # asked again, it would be the same
        lead.ensure()
        await clock.sleep(_PAUSE)
        lead.ensure()
        settled = await settle(
            store,
            attempt,
            write_ids=_write_ids,
            remembers=Remembers.EVERY_WRITE,
            resend=body,
            draw_id=draw_id,
            clock=clock,
            within=lead.remaining(),
        )
    lead.ensure()
    if isinstance(settled.outcome, Applied):
        assert settled.write_id is not None
        return compose(settled.write_id)
    assert settled.stored is not None
    entry = _checked(settled.stored.body, seq)
    if entry.epoch > lead.epoch:
        raise Superseded(f"the leader of epoch {entry.epoch} has written {log_key(seq)}: epoch {lead.epoch} is over")
    if entry.epoch == lead.epoch:
        raise WrittenAlready(f"{log_key(seq)} says that it is of epoch {entry.epoch}, whose leader did not write it")
    return entry


def _write_ids(body: bytes) -> Collection[str]:
    try:
        return (msgspec.json.decode(body, type=_WriteId).write_id,)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


async def first_after(store: Store, seq: int) -> int | None:
    """The number of the first entry above `seq` that a listing shows."""
    async with aclosing(ours(store, LOG_NAMES, after=log_key(seq))) as rows:
        async for entry in rows:
            number = parse_number(entry.key)
            if number is not None:
                return number
    return None


async def log_end(store: Store) -> int:
    """The highest number in the log; 0 if there is none. Two listings."""
    return max(await log_ends(store))


async def log_ends(store: Store) -> tuple[int, int]:
    """The highest number of a snapshot, and of an entry after it; 0 if there is none."""
    newest = highest = 0
    async for entry in ours(store, SNAPSHOT_NAMES):
        newest = max(newest, parse_number(entry.key) or 0)
    async for entry in ours(store, LOG_NAMES, after=log_key(newest)):
        highest = max(highest, parse_number(entry.key) or 0)
    return newest, highest

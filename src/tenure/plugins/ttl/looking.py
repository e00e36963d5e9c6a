"""A TTL as anybody sees it who can read the bucket: no leader is asked, and nothing is written."""

from __future__ import annotations

import logging
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec

from tenure.election.records import SCHEMA_VERSION, newer
from tenure.errors import BodyTooLarge, NotFound
from tenure.ledger import LedgerState
from tenure.ledger.catchup import catch_up
from tenure.plugins.ledgered import Onlooker
from tenure.plugins.ttl.records import Cleanup, Counts
from tenure.plugins.ttl.rules import moment_of
from tenure.plugins.ttl.state import TTLMachine
from tenure.store import Store, Stored, numbered, ours

_log = logging.getLogger("tenure.ttl")

FAILED = "failed/"


class TTLStats(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a TTL. A crash of a leader may have lost the counts of its last cleanup, and nothing else."""

    resource: str
    totals: Counts
    """Of all cleanups; `waiting` and `read` are of single ones alone."""
    cleanups: int
    """That did something, or were asked for."""
    last: Cleanup | None
    calling: int
    """Callbacks that were begun, and have not succeeded yet."""
    asked: int
    """Cleanups that were asked for, and have not ended."""
    seq: int
    epoch: int

    @property
    def last_at(self) -> datetime | None:
        return None if self.last is None else moment_of(self.last.at_ms)


class FailedCallback(msgspec.Struct, frozen=True, kw_only=True):
    """A record that expired, and whose callback failed for good."""

    resource: str
    id: str
    data: dict[str, Any]
    version: int
    expired_ms: int
    attempts: int
    error: str


async def read_state(store: Store) -> LedgerState:
    """From the newest snapshot and the log after that."""
    state = LedgerState(TTLMachine())
    await catch_up(store, state, Onlooker())
    return state


def stats_of(resource: str, state: LedgerState) -> TTLStats:
    machine = state.machine
    assert isinstance(machine, TTLMachine)
    return TTLStats(
        resource=resource,
        totals=machine.totals,
        cleanups=machine.runs,
        last=machine.cleanups[-1] if machine.cleanups else None,
        calling=len(machine.trials),
        asked=len(machine.asked),
        seq=state.seq,
        epoch=state.epoch,
    )


def encode_failed(failed: FailedCallback) -> bytes:
    return msgspec.json.encode({"schemaVersion": SCHEMA_VERSION, **msgspec.structs.asdict(failed)})


async def failed_callbacks(store: Store, limit: int) -> list[FailedCallback]:
    """Oldest first. What a newer tenure wrote is told of, and left out."""
    found: list[FailedCallback] = []
    too_new = 0
    async with aclosing(ours(store, numbered(FAILED))) as rows:
        async for row in rows:
            if len(found) >= limit:
                break
            try:
                stored = await store.get(row.key)
            except (NotFound, BodyTooLarge):
                continue
            assert isinstance(stored, Stored)
            if newer(stored.body) is not None:
                too_new += 1
            elif (failed := decode_failed(stored.body)) is not None:
                found.append(failed)
    if too_new:
        _log.warning("%s failed callbacks are on record by a newer tenure: update this process to see them", too_new)
    return found


def decode_failed(body: bytes) -> FailedCallback | None:
    """`None`: it is no such record."""
    try:
        return msgspec.json.decode(body, type=FailedCallback)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

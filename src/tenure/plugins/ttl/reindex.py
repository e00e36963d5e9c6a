"""A deliberate walk over every record of a resource: those that expire, and that no index entry leads to, get one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec

from tenure.database.expiry import expiry_of
from tenure.database.resource import Resource
from tenure.errors import Damaged, RecordError, RecordNotFound, StoreError
from tenure.plugins.ttl.guard import TTLGuard
from tenure.plugins.ttl.index import slot_in
from tenure.plugins.ttl.judge import ROUNDED_MS
from tenure.plugins.ttl.rules import BadTime
from tenure.store import Entry

_AT_ONCE = 16


class Reindexed(msgspec.Struct):
    """What was found, and done."""

    records: int = 0
    indexed: int = 0
    """Had no index entry, or not the right one, and have it now."""
    damaged: int = 0
    """Cannot be read, or hold no time where one should be: left as they are."""


async def reindex(resource: Resource[Any], guard: TTLGuard, *, anew: bool) -> Reindexed:
    """Raises `StoreError` if the walk was cut short; what was done until then is done."""
    result = Reindexed()
    waiting: asyncio.Queue[tuple[str, Entry] | None] = asyncio.Queue(maxsize=4 * _AT_ONCE)

    async def walk() -> None:
        async with aclosing(resource.entries()) as rows:
            async for row in rows:
                await waiting.put(row)
        for _ in range(_AT_ONCE):
            await waiting.put(None)

    async def work() -> None:
        while (row := await waiting.get()) is not None:
            result.records += 1
            try:
                if await _see_to(resource, guard, *row, anew=anew):
                    result.indexed += 1
            except RecordNotFound:
                pass  # it was deleted meanwhile
            except StoreError:
                raise
            except (BadTime, Damaged, RecordError):
                result.damaged += 1

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(walk())
            for _ in range(_AT_ONCE):
                group.create_task(work())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return result


async def _see_to(resource: Resource[Any], guard: TTLGuard, id: str, row: Entry, *, anew: bool) -> bool:
    found = await resource.find(id)
    if found is None or found.envelope.deleted:
        return False
    rules, envelope = guard.rules, found.envelope
    expiry = expiry_of(envelope.reserved)
    kept = None if isinstance(expiry, str) else expiry
    is_named = kept is not None and slot_in(kept.entry) is not None
    if rules.by_field:
        at_ms = rules.at_by_field(envelope.data)
        is_right = kept is not None and (kept.at == at_ms if at_ms is not None else not kept.entry)
    elif rules.is_soft_deleted(envelope.data) or (kept is not None and kept.keep):
        return False
    else:
        assert rules.ttl_ms is not None
        at_ms = kept.at if kept is not None else None
        if at_ms is None and row.version.matches(found.version):
            at_ms = round(row.modified.timestamp() * 1000) + ROUNDED_MS + rules.ttl_ms
        elif at_ms is None:
            at_ms = rules.from_now(await guard.now())  # written since it was listed
        is_right = True
    if is_right and (at_ms is None or (is_named and not anew)):
        return False
    await resource.amend(id, guard.cover(id, at_ms=at_ms, anew=True))
    return True

"""Removes what is deleted and still takes up room.

- Tombstones of records; none that keeps something in `reserved`.
- Tombstones of plugin storages, and entries of theirs that have expired, if they have been so for a day.
- Scratch objects that are over a day old: what an interrupted `tenure doctor`, or look at the store's clock, has left.

Guarantee: nothing else is removed. On a store with a conditional delete it is safe at any time.

Assumption elsewhere: *no process writes to the resources and storages meanwhile*, none was frozen while it did, and
none goes on afterwards with what it sent before. A plain DELETE removes what is there when it lands.

Age is judged by the store's clock, which is asked by writing; a dry run writes nothing, and goes by this host's.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.database.ids import RESOURCES, parse_key
from tenure.database.records import decode, is_tombstone_size
from tenure.database.storage import MAX_RECORD_BYTES, PLUGINS, StorageRecord, is_leftover, is_storage_key
from tenure.database.time import StoreTime
from tenure.election.records import TooNew
from tenure.election.records import decode as decode_record
from tenure.errors import BodyTooLarge, NotFound, StoreError
from tenure.store import Applied, Entry, Rejected, Store, Stored, Unknown, Version
from tenure.store.scratch import SCRATCH_FOLDERS

AGE = 24 * 3600.0
"""Seconds for which scratch objects, and what is left in a storage, are spared."""
_ROUNDED = 1.0  # listings may show whole seconds
_BATCH = 100
_SCRATCH_BATCH = 1000
_NAMED = 100

OnProgress = Callable[[str, int], object]
"""Called with what is being done, and how many objects were seen."""


class Collected(msgspec.Struct, frozen=True):
    """What was found and removed; with `dry_run`, what would be. True if it is `ok`."""

    url: str
    dry_run: bool
    conditional: bool
    """By conditional delete, which is safe while others write."""
    records: int
    """Living records seen, which were left alone."""
    tombstones: int
    removed: int
    kept: int
    """Tombstones that keep something in `reserved`, and what was written over meanwhile."""
    storage_leftovers: int
    """Tombstones and expired entries of plugin storages that are over a day old."""
    storage_removed: int
    scratch_removed: int
    failed: int
    damaged: tuple[str, ...]
    """Keys, up to a hundred, of objects that look like tombstones, or lie in a storage, and are no records."""

    @property
    def ok(self) -> bool:
        return not self.failed and not self.damaged

    def __bool__(self) -> bool:
        return self.ok


class Collector:
    """One run over one store."""

    def __init__(
        self, store: Store, *, dry_run: bool, clock: Clock = SYSTEM_CLOCK, progress: OnProgress | None = None
    ) -> None:
        self._store = store
        self._dry_run = dry_run
        self._clock = clock
        self._progress = progress if progress is not None else lambda step, seen: None
        self._records = self._tombstones = self._removed = self._kept = self._scratch = self._failed = 0
        self._leftovers = self._storage_removed = 0
        self._damaged: list[str] = []
        self._batch: list[tuple[str, Version]] = []

    async def run(self) -> Collected:
        await self._collect_tombstones()
        before = await self._now() - AGE
        await self._collect_storage(before)
        for folder in SCRATCH_FOLDERS:
            await self._collect_scratch(folder, before)
        return Collected(
            url=self._store.info.url,
            dry_run=self._dry_run,
            conditional=self._store.info.conditional_delete,
            records=self._records,
            tombstones=self._tombstones,
            removed=self._removed,
            kept=self._kept,
            storage_leftovers=self._leftovers,
            storage_removed=self._storage_removed,
            scratch_removed=self._scratch,
            failed=self._failed,
            damaged=tuple(self._damaged),
        )

    async def _collect_tombstones(self) -> None:
        seen = 0
        async with contextlib.aclosing(self._entries(RESOURCES)) as entries:
            async for entry in entries:
                seen += 1
                self._progress("records", seen)
                await self._examine(entry)
                if len(self._batch) >= _BATCH:
                    self._removed += await self._remove_batch()
        self._removed += await self._remove_batch()

    async def _collect_storage(self, before: float) -> None:
        seen = 0
        async with contextlib.aclosing(self._entries(PLUGINS)) as entries:
            async for entry in entries:
                if is_storage_key(entry.key):
                    seen += 1
                    self._progress("storages", seen)
                    if _is_older(entry, before):
                        await self._examine_storage(entry, before)
                if len(self._batch) >= _BATCH:
                    self._storage_removed += await self._remove_batch()
        self._storage_removed += await self._remove_batch()

    async def _entries(self, beginning: str) -> AsyncGenerator[Entry, None]:
        """All whose keys begin so: no folder's name, so that a listing is gone through from there."""
        async with contextlib.aclosing(cast(Any, self._store.list("", after=beginning))) as entries:
            async for entry in entries:
                if not entry.key.startswith(beginning):
                    break
                yield entry

    async def _examine(self, entry: Entry) -> None:
        parsed = parse_key(entry.key)
        if parsed is None:
            return
        if not is_tombstone_size(entry.size):
            self._records += 1
            return
        stored = await self._read(entry.key)
        if stored is None:
            return
        envelope = decode(stored.body, parsed[1])
        if isinstance(envelope, str):
            self._name_damaged(entry.key)
        elif not envelope.deleted:
            self._records += 1  # it was written again since it was listed
        else:
            self._tombstones += 1
            if envelope.reserved:
                self._kept += 1
            else:
                self._batch.append((entry.key, stored.version))

    async def _examine_storage(self, entry: Entry, before: float) -> None:
        if entry.size > MAX_RECORD_BYTES:
            self._name_damaged(entry.key)
            return
        stored = await self._read(entry.key)
        if stored is None or not entry.version.matches(stored.version):
            return  # written since it was listed, so it is not old
        record = decode_record(stored.body, StorageRecord, MAX_RECORD_BYTES)
        if isinstance(record, StorageRecord):
            if is_leftover(record, before):
                self._leftovers += 1
                self._batch.append((entry.key, stored.version))
        elif not isinstance(record, TooNew):
            self._name_damaged(entry.key)

    async def _read(self, key: str) -> Stored | None:
        """`None`: it is gone, or another program's, which is noted."""
        try:
            stored = await self._store.get(key)
        except NotFound:
            return None
        except BodyTooLarge:
            self._name_damaged(key)
            return None
        assert isinstance(stored, Stored)
        return stored

    def _name_damaged(self, key: str) -> None:
        if len(self._damaged) < _NAMED:
            self._damaged.append(key)

    async def _remove_batch(self) -> int:
        """Gives how many were removed; the others are counted as kept or failed."""
        batch, self._batch = self._batch, []
        if self._dry_run or not batch:
            return len(batch)
        if self._store.info.conditional_delete:
            removed = 0
            for key, version in batch:
                outcome = await self._store.discard(key, version)
                removed += isinstance(outcome, Applied)
                self._kept += isinstance(outcome, Rejected)  # written over meanwhile
                self._failed += isinstance(outcome, Unknown)
            return removed
        try:
            await self._store.delete(*(key for key, _ in batch))
        except StoreError:
            self._failed += len(batch)
            return 0
        return len(batch)

    async def _now(self) -> float:
        if self._dry_run:
            return self._clock.read().wall_ns / 1e9
        return await StoreTime(self._store, clock=self._clock).now()

    async def _collect_scratch(self, folder: str, before: float) -> None:
        """Whoever finds such an object may remove it; the age spares those that are being used just now."""
        old: list[str] = []
        seen = 0
        async for entry in self._store.list(folder):
            if _is_older(entry, before):
                old.append(entry.key)
            if len(old) >= _SCRATCH_BATCH:
                seen += len(old)
                self._progress("scratch", seen)
                await self._remove_scratch(old)
                old = []
        self._progress("scratch", seen + len(old))
        await self._remove_scratch(old)

    async def _remove_scratch(self, old: list[str]) -> None:
        if old and not self._dry_run:
            try:
                await self._store.delete(*old)
            except StoreError:
                self._failed += len(old)
                return
        self._scratch += len(old)


def _is_older(entry: Entry, moment: float) -> bool:
    return entry.modified.timestamp() + _ROUNDED < moment


async def collect(
    store: Store, *, dry_run: bool = False, clock: Clock = SYSTEM_CLOCK, progress: OnProgress | None = None
) -> Collected:
    """Remove what is deleted and still takes up room at `store`; `dry_run` only counts it."""
    return await Collector(store, dry_run=dry_run, clock=clock, progress=progress).run()

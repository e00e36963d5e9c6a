"""Removes what is deleted and still takes up room: tombstones of records, and what `tenure doctor` left behind.

Guarantee: only tombstones are removed, and none that keeps something in `reserved`. On a store with a conditional
delete it is safe at any time.

Assumption elsewhere: *no process writes to the resources meanwhile*, none was frozen while it did, and none goes on
afterwards with what it sent before. A plain DELETE removes what is there when it lands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.database.ids import RESOURCES, parse_key
from tenure.database.records import decode, is_tombstone_size
from tenure.errors import NotFound, StoreError
from tenure.store import Applied, Entry, Store, Stored, Version
from tenure.store.scratch import DOCTOR_FOLDER, PROBE_FOLDER, RACE_FOLDER

SCRATCH_AGE = timedelta(days=1)
_SCRATCH = (PROBE_FOLDER, RACE_FOLDER, DOCTOR_FOLDER)
_BATCH = 100
_NAMED = 100

OnProgress = Callable[[str, int], object]
"""Called with what is being done, and how many objects were seen."""


class Collected(msgspec.Struct, frozen=True):
    """What was found and removed; with `dry_run`, what would be."""

    url: str
    dry_run: bool
    conditional: bool
    """By conditional delete, which is safe while others write."""
    records: int
    """Living records seen, which were left alone."""
    tombstones: int
    removed: int
    kept: int
    """Tombstones that keep something in `reserved`, or that were written over meanwhile."""
    scratch_removed: int
    failed: int
    damaged: tuple[str, ...]
    """Keys, up to a hundred, of objects that look like tombstones and are none."""

    @property
    def ok(self) -> bool:
        return not self.failed and not self.damaged


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
        self._damaged: list[str] = []
        self._batch: list[tuple[str, Version]] = []

    async def run(self) -> Collected:
        await self._collect_tombstones()
        for folder in _SCRATCH:
            await self._collect_scratch(folder)
        return Collected(
            url=self._store.info.url,
            dry_run=self._dry_run,
            conditional=self._store.info.conditional_delete,
            records=self._records,
            tombstones=self._tombstones,
            removed=self._removed,
            kept=self._kept,
            scratch_removed=self._scratch,
            failed=self._failed,
            damaged=tuple(self._damaged),
        )

    async def _collect_tombstones(self) -> None:
        seen = 0
        async with contextlib.aclosing(cast(Any, self._store.list("", after=RESOURCES))) as entries:
            async for entry in entries:
                if not entry.key.startswith(RESOURCES):
                    break
                seen += 1
                self._progress("records", seen)
                await self._examine(entry)
        await self._remove_batch()

    async def _examine(self, entry: Entry) -> None:
        parsed = parse_key(entry.key)
        if parsed is None:
            return
        if not is_tombstone_size(entry.size):
            self._records += 1
            return
        try:
            stored = await self._store.get(entry.key)
        except NotFound:
            return
        assert isinstance(stored, Stored)
        envelope = decode(stored.body, parsed[1])
        if isinstance(envelope, str):
            self._damaged += [entry.key] if len(self._damaged) < _NAMED else []
        elif not envelope.deleted:
            self._records += 1  # it was written again since it was listed
        else:
            self._tombstones += 1
            if envelope.reserved:
                self._kept += 1
            else:
                self._batch.append((entry.key, stored.version))
        if len(self._batch) >= _BATCH:
            await self._remove_batch()

    async def _remove_batch(self) -> None:
        batch, self._batch = self._batch, []
        if self._dry_run or not batch:
            self._removed += len(batch)
        elif self._store.info.conditional_delete:
            for key, version in batch:
                outcome = await self._store.discard(key, version)
                if isinstance(outcome, Applied):
                    self._removed += 1
                else:
                    self._kept += 1  # written over, or not decided: the next run sees
        else:
            try:
                await self._store.delete(*(key for key, _ in batch))
                self._removed += len(batch)
            except StoreError:
                self._failed += len(batch)

    async def _collect_scratch(self, folder: str) -> None:
        """Whoever finds such an object may remove it; the age spares those that are being used just now."""
        now = datetime.fromtimestamp(self._clock.read().wall_ns / 1e9, UTC)
        old = [entry.key async for entry in self._store.list(folder) if now - entry.modified > SCRATCH_AGE]
        self._progress("scratch", len(old))
        if old and not self._dry_run:
            try:
                await self._store.delete(*old)
            except StoreError:
                self._failed += len(old)
                return
        self._scratch += len(old)


async def collect(
    store: Store, *, dry_run: bool = False, clock: Clock = SYSTEM_CLOCK, progress: OnProgress | None = None
) -> Collected:
    """Remove the tombstones of every resource at `store`, and old scratch objects; `dry_run` only counts them."""
    return await Collector(store, dry_run=dry_run, clock=clock, progress=progress).run()

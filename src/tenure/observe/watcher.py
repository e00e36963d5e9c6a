"""Looks at a namespace again and again without taking part in it: the hands of `tenure watch` and of the dashboard.

The lease is asked for at each look, with the version that is known; the workers are listed after every fifth look, and
a record's body is read only where its length changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from tenure.clock import Clock
from tenure.coordinator.layout import STATE
from tenure.coordinator.reading import DEFAULT_WORKER_TIMEOUT, list_newest, read_entries, read_worker_timeout
from tenure.election.records import Worker, decode_state
from tenure.election.sight import Absent
from tenure.errors import AccessDenied, BucketMissing, CredentialsNotFound, NotFound, StoreError
from tenure.observe.view import (
    Change,
    Seen,
    View,
    WorkerRow,
    see_answer,
    see_failure,
    see_lease,
    see_same_lease,
    see_workers,
)
from tenure.store import Entry, NotModified, Store, Version
from tenure.store.metered import Metered

MAX_WORKERS_WATCHED = 1000
MAX_WORKERS_LISTED = 20_000
"""Of all records the newest: what a listing shows beyond is counted, and forgotten."""
LOOKS_PER_LISTING = 5
LONGEST_PAUSE = 30.0
HOPELESS = (AccessDenied, BucketMissing, CredentialsNotFound)
"""At the first look these are a mistake in what was asked; later they may pass."""

Tell = Callable[[Change], None]


class Watcher:
    """Looks again and again, folds what it sees, and tells of changes."""

    def __init__(
        self,
        store: Metered,
        namespace: str,
        interval: float,
        clock: Clock,
        tell: Tell,
        *,
        max_workers: int = MAX_WORKERS_WATCHED,
    ) -> None:
        """`run` looks each `interval` seconds. Whoever has a pace of his own calls the looks themselves."""
        self.meter = store
        self.view = View(namespace)
        self.started = clock.read()
        self._store: Store = store
        self._interval = interval
        self._clock = clock
        self._tell = tell
        self._max_workers = max_workers
        self._version: Version | None = None
        self._looks = 0
        self._bodies: dict[str, tuple[int, Worker]] = {}
        self._unreadable: dict[str, str] = {}
        """What is no record, by key, with the mark of what was read: it is not read again until it changes."""

    async def run(self) -> None:
        """Until cancelled. Raises only at the first look, and only for what waiting will not mend."""
        while True:
            try:
                await self._look()
                self.answered()
            except HOPELESS as error:
                if self._looks == 0:
                    raise
                self.failed(error)
            except StoreError as error:
                self.failed(error)
            self._looks += 1
            backoff = 2 ** min(self.view.failures, 10)
            await self._clock.sleep(max(self._interval, min(LONGEST_PAUSE, self._interval * backoff)))

    async def _look(self) -> None:
        epoch = self.view.epoch
        await self.look_at_lease()
        if self.view.workers is None:
            await self.look_at_timeout()
        if self.view.workers is None or self.view.epoch != epoch or self._looks % LOOKS_PER_LISTING == 0:
            await self.look_at_workers()

    async def look_at_timeout(self) -> None:
        """After how long a worker is silent, as the namespace was founded. Raises `StoreError`."""
        timeout = await read_worker_timeout(self._store) or DEFAULT_WORKER_TIMEOUT
        self.view = msgspec.structs.replace(self.view, worker_timeout=timeout)

    async def look_at_lease(self) -> None:
        """One GET, which is answered without a body if nothing was written. Raises `StoreError`."""
        try:
            stored = await self._store.get(STATE, unless=self._version)
        except NotFound:
            self._version = None
            self._fold(see_lease(self.view, Absent(), None, self._clock.read()))
            return
        now = self._clock.read()
        if isinstance(stored, NotModified):
            self._fold(see_same_lease(self.view, now))
            return
        self._version = stored.version
        self._fold(see_lease(self.view, decode_state(stored.body), stored.version, now))

    async def look_at_workers(self) -> None:
        """One listing; a body is read only where its length changed, as it does when a process starts, becomes
        unhealthy or leads."""
        listed = await list_newest(self._store, MAX_WORKERS_LISTED)
        entries = {entry.key: entry for entry in sorted(listed.newest, key=_key)}
        now = self._clock.read()
        for key in self._bodies.keys() - entries.keys():
            del self._bodies[key]
        self._unreadable = {
            key: mark for key, mark in self._unreadable.items() if key in entries and _mark(entries[key]) == mark
        }
        stale = [entry for entry in entries.values() if self._is_stale(entry)]
        room = self._max_workers - len(self._bodies)
        new = sorted((entry for entry in stale if entry.key not in self._bodies), key=_modified, reverse=True)[:room]
        changed = [entry for entry in stale if entry.key in self._bodies]
        read, unreadable = await read_entries(self._store, [*changed, *new])
        for entry, worker in read:
            self._bodies[entry.key] = (entry.size, worker)
        for key in unreadable:
            self._bodies.pop(key, None)
            self._unreadable[key] = _mark(entries[key])
        newest = max((entries[key].modified for key in self._bodies), default=None)
        rows = [
            WorkerRow(worker, _mark(entries[key]), (newest - entries[key].modified).total_seconds())
            for key, (_, worker) in self._bodies.items()
            if newest is not None
        ]
        not_read = listed.left_out + len(entries) - len(self._bodies) - len(self._unreadable)
        others = tuple(sorted([*self._unreadable, *listed.others]))
        self._fold(see_workers(self.view, rows, max(0, not_read), now, others))

    def _is_stale(self, entry: Entry) -> bool:
        if entry.key in self._unreadable:
            return False
        known = self._bodies.get(entry.key)
        return known is None or known[0] != entry.size

    def answered(self) -> None:
        self._fold(see_answer(self.view, self._clock.read()))

    def failed(self, error: Exception) -> None:
        """The store did not answer a look."""
        self._fold(see_failure(self.view, str(error), self._clock.read()))

    def _fold(self, seen: Seen) -> None:
        self.view, changes = seen
        for change in changes:
            self._tell(change)


def _key(entry: Entry) -> str:
    return entry.key


def _modified(entry: Entry) -> datetime:
    return entry.modified


def _mark(entry: Entry) -> str:
    return f"{entry.version.e_tag} {entry.version.generation} {entry.modified.isoformat()}"

"""`tenure watch`: see the election as it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime

import click
import msgspec
from rich.console import Console
from rich.live import Live

from tenure.cli.durations import between
from tenure.cli.place import open_namespace, placed
from tenure.cli.running import run_until_stopped
from tenure.cli.screen import Footing, draw, is_drawable
from tenure.cli.text import json_text, printable
from tenure.cli.view import (
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
from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.layout import STATE, WORKERS
from tenure.coordinator.reading import DEFAULT_WORKER_TIMEOUT, is_of_a_size, read_entries, read_worker_timeout
from tenure.election.records import Worker, decode_state
from tenure.election.sight import Absent
from tenure.errors import AccessDenied, BucketMissing, CredentialsNotFound, NotFound, StoreError
from tenure.store import Access, Entry, NotModified, Store, Version
from tenure.store.metered import Metered
from tenure.store.url import parse_url

MAX_WORKERS_WATCHED = 1000
MAX_CHANGES_KEPT = 500
_LOOKS_PER_LISTING = 5
_LONGEST_PAUSE = 30.0
_FRAMES_PER_SECOND = 8
_TICK = 0.25
_SECONDS_BEFORE_COST = 10.0
_HOPELESS = (AccessDenied, BucketMissing, CredentialsNotFound)
"""At the first look these are a mistake in what was asked; later they may pass."""

Tell = Callable[[Change], None]


@click.command(short_help="See the election as it goes on.")
@placed
@click.option(
    "--interval",
    type=between(0.1, 3600),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="Between two looks at the lease; at workers after every fifth.",
)
@click.option("--for", "lasting", type=between(0.1, 7 * 86400), metavar="DURATION", help="End after so long, e.g. 30s.")
@click.option("--json", "as_json", is_flag=True, help="Print each change as one JSON object on a line of its own.")
def watch(url: str, namespace: str, interval: float, lasting: float | None, as_json: bool) -> int:
    """Watch who leads at URL, and what changes.

    A live view on a terminal, a line for each change elsewhere. Only reads; a store that does not answer is asked again
    until it does. Ctrl-C ends it, with exit code 0; 2: the store cannot be looked at.
    """
    try:
        run_until_stopped(_watch(url, namespace, interval, lasting, as_json))
    except click.Abort:
        pass  # how a view ends
    except BrokenPipeError:
        _discard_output()
    return 0


async def _watch(url: str, namespace: str, interval: float, lasting: float | None, as_json: bool) -> None:
    clock = SYSTEM_CLOCK
    async with open_namespace(url, namespace, Access.READ_ONLY) as store:
        if as_json:
            teller: Lines | Screen = Lines(lambda change: json_text(change, indent=None))
        elif sys.stdout.isatty() and is_drawable(sys.stdout.encoding):
            teller = Screen(parse_url(url).shown, interval, clock)
        else:
            teller = Lines(_line)
        watcher = Watcher(Metered(store), namespace, interval, clock, teller.tell)
        with teller.shown(watcher):
            looking = asyncio.ensure_future(watcher.run())
            try:
                await _until_done(looking, teller, lasting, clock)
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)


async def _until_done(
    looking: asyncio.Future[None], teller: Lines | Screen, lasting: float | None, clock: Clock
) -> None:
    started = clock.read()
    while True:
        elapsed = clock.read().leader_elapsed(started)
        if lasting is not None and elapsed >= lasting:
            return
        if _reader_is_gone():
            raise BrokenPipeError
        teller.tick()
        tick = teller.every if lasting is None else min(teller.every, lasting - elapsed)
        pause = asyncio.ensure_future(clock.sleep(tick))
        await asyncio.wait((looking, pause), return_when=asyncio.FIRST_COMPLETED)
        pause.cancel()
        if looking.done():
            looking.result()
            return


class Watcher:
    """Looks again and again, folds what it sees, and tells of changes."""

    def __init__(self, store: Metered, namespace: str, interval: float, clock: Clock, tell: Tell) -> None:
        self.meter = store
        self.view = View(namespace)
        self.started = clock.read()
        self._store: Store = store
        self._interval = interval
        self._clock = clock
        self._tell = tell
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
                self._fold(see_answer(self.view, self._clock.read()))
            except _HOPELESS as error:
                if self._looks == 0:
                    raise
                self._failed(error)
            except StoreError as error:
                self._failed(error)
            self._looks += 1
            backoff = 2 ** min(self.view.failures, 10)
            await self._clock.sleep(max(self._interval, min(_LONGEST_PAUSE, self._interval * backoff)))

    async def _look(self) -> None:
        epoch = self.view.epoch
        await self._look_at_lease()
        if self.view.workers is None:
            timeout = await read_worker_timeout(self._store) or DEFAULT_WORKER_TIMEOUT
            self.view = msgspec.structs.replace(self.view, worker_timeout=timeout)
        if self.view.workers is None or self.view.epoch != epoch or self._looks % _LOOKS_PER_LISTING == 0:
            await self._look_at_workers()

    async def _look_at_lease(self) -> None:
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

    async def _look_at_workers(self) -> None:
        """One listing; a body is read only where its length changed, as it does when a process starts, becomes
        unhealthy or leads."""
        listed = {entry.key: entry async for entry in self._store.list(WORKERS)}
        entries = {key: entry for key, entry in listed.items() if is_of_a_size(entry)}
        now = self._clock.read()
        for key in self._bodies.keys() - entries.keys():
            del self._bodies[key]
        self._unreadable = {
            key: mark for key, mark in self._unreadable.items() if key in entries and _mark(entries[key]) == mark
        }
        stale = [entry for entry in entries.values() if self._is_stale(entry)]
        room = MAX_WORKERS_WATCHED - len(self._bodies)
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
        not_read = len(entries) - len(self._bodies) - len(self._unreadable)
        others = tuple(sorted([*self._unreadable, *(listed.keys() - entries.keys())]))
        self._fold(see_workers(self.view, rows, max(0, not_read), now, others))

    def _is_stale(self, entry: Entry) -> bool:
        if entry.key in self._unreadable:
            return False
        known = self._bodies.get(entry.key)
        return known is None or known[0] != entry.size

    def _failed(self, error: StoreError) -> None:
        self._fold(see_failure(self.view, str(error), self._clock.read()))

    def _fold(self, seen: Seen) -> None:
        self.view, changes = seen
        for change in changes:
            self._tell(change)


def _modified(entry: Entry) -> datetime:
    return entry.modified


def _mark(entry: Entry) -> str:
    return f"{entry.version.e_tag} {entry.version.generation} {entry.modified.isoformat()}"


class Lines:
    """A line for each change, written at once."""

    every = _TICK

    def __init__(self, line: Callable[[Change], str]) -> None:
        self._line = line

    def tell(self, change: Change) -> None:
        click.echo(self._line(change))
        sys.stdout.flush()

    def tick(self) -> None:
        pass

    def shown(self, watcher: Watcher) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Screen:
    """The live view. What it showed of changes is left on the terminal at the end."""

    every = 1 / _FRAMES_PER_SECOND

    def __init__(self, place: str, interval: float, clock: Clock) -> None:
        self._place = place
        self._interval = interval
        self._clock = clock
        self._changes: deque[Change] = deque(maxlen=MAX_CHANGES_KEPT)
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._watcher: Watcher | None = None

    def tell(self, change: Change) -> None:
        self._changes.append(change)

    @contextlib.contextmanager
    def shown(self, watcher: Watcher) -> Iterator[None]:
        self._watcher = watcher
        try:
            with Live(console=self._console, screen=True, auto_refresh=False) as self._live:
                yield
        finally:
            for change in self._changes:
                click.echo(_line(change))

    def tick(self) -> None:
        assert self._live is not None
        assert self._watcher is not None
        now = self._clock.read()
        usage = self._watcher.meter.usage()
        elapsed = now.follower_elapsed(self._watcher.started)
        footing = Footing(
            requests=usage.total,
            usd_per_hour=usage.usd / elapsed * 3600 if elapsed >= _SECONDS_BEFORE_COST else None,
            interval=self._interval,
        )
        size = self._console.size
        frame = draw(
            self._watcher.view, self._place, tuple(self._changes), footing, now, width=size.width, height=size.height
        )
        self._live.update(frame, refresh=True)


def _line(change: Change) -> str:
    return f"{change.at}  {change.kind.value:<17} {printable(change.detail)}"


def _reader_is_gone() -> bool:
    """A view may say nothing for hours; whoever read it may have left meanwhile (`| head -1`)."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def _discard_output() -> None:
    """What is still buffered would fail again at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

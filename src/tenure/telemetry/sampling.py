"""One look at everything that a process knows of itself, for whoever exports it.

Guarantee: no request is made, nothing is changed, and it may be asked from any thread, also while the program's event
loop stands still: then the figures of plugins are the last ones, and `tenure_plugins_read_age_seconds` says how old.

Plugins live on their loop, and are read there: it is asked to, and answers between two things that it does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future

from tenure.clock import Reading
from tenure.database import Database
from tenure.errors import ConfigError, ForkedProcess
from tenure.telemetry import catalogue as its
from tenure.telemetry.catalogue import Sample
from tenure.telemetry.coordinators import coordinator_samples, store_samples
from tenure.telemetry.limits import MAX_VALUES, Limits
from tenure.telemetry.plugins import plugin_samples

_log = logging.getLogger("tenure.telemetry")

PATIENCE = 0.5
"""Seconds for which the loop of the plugins is waited for."""


class Sampler:
    """`database`: a `Database`, or one of `tenure.blocking`. `max_values`: of each label; see `Limits`."""

    def __init__(self, database: object, *, max_values: int = MAX_VALUES, patience: float = PATIENCE) -> None:
        found = getattr(database, "underlying", database)  # a blocking database has one
        if not isinstance(found, Database):
            raise ConfigError(f"database is {database!r}: give a tenure.Database, or one of tenure.blocking")
        self.database = found
        self._limits = Limits(max_values)
        self._patience = patience
        self._lock = threading.Lock()
        self._plugins: list[Sample] = []
        self._read_at: Reading | None = None
        self._errors: Counter[str] = Counter()

    def sample(self) -> list[Sample]:
        """From any thread."""
        return self._limits.apply(self._everything())

    def _everything(self) -> Iterator[Sample]:
        told = list(store_samples(self.database))
        if not told:
            return  # it is not connected
        yield from told
        for coordinator in self.database.coordinators.values():
            try:
                yield from list(coordinator_samples(coordinator))
            except ForkedProcess:
                continue  # a forked child has nothing to tell of what its parent runs
        self._ask_loop()
        with self._lock:
            samples, read_at, errors = self._plugins, self._read_at, dict(self._errors)
        if read_at is not None:
            age = self.database.clock.read().leader_elapsed(read_at)
            yield Sample(its.PLUGINS_READ_AGE, (), max(0.0, age))
        yield from samples
        for slug, count in errors.items():
            yield Sample(its.TELEMETRY_ERRORS, (slug,), float(count))

    # Plugins

    def _ask_loop(self) -> None:
        loop = self.database.loop
        if loop is None or loop.is_closed():
            return
        if _running_loop() is loop:
            self._read()
            return
        answered: Future[None] = Future()

        def read() -> None:
            self._read()
            answered.set_result(None)

        try:
            if loop.is_running():
                loop.call_soon_threadsafe(read)
                answered.result(self._patience)
        except (RuntimeError, TimeoutError):
            _log.debug("the loop of %r does not answer: its plugins are told as they were", self.database)

    def _read(self) -> None:
        """Where they live."""
        found: list[Sample] = []
        failed: Counter[str] = Counter()
        for (slug, name), plugin in self.database.plugins.items():
            failed[slug] += 0
            try:
                found += list(plugin_samples(plugin))
            except Exception:  # one that cannot be read, maybe somebody's own, must not hide the others
                failed[slug] += 1
                _log.debug("plugin %r of kind %r could not be read", name, slug, exc_info=True)
        with self._lock:
            self._plugins, self._read_at = found, self.database.clock.read()
            self._errors.update(failed)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

"""Counters, for threads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import overload

from tenure.blocking.coordinator import without_loop
from tenure.blocking.portal import Portal
from tenure.coordinator.events import Handler, Subscription
from tenure.plugins.counters import (
    Bucket,
    Counter,
    CounterSettings,
    CounterStats,
    EventualConsistencyPlugin,
    Mode,
    Period,
    Recalculated,
    Top,
)
from tenure.plugins.counters.numbers import Number
from tenure.plugins.counters.plugin import TIMEOUT


class Counters:
    """The counters of a resource, by an `EventualConsistencyPlugin`, for threads. Made by `Database.use_plugin()`; see
    the plugin for what it promises.

    Any thread may call it. Calls of several threads that come together share one request, as those of tasks do. A call
    that Ctrl-C interrupts may have happened or not, as one that raised `WriteUnknown`: with an `op_id` it can be made
    again.
    """

    def __init__(self, portal: Portal, plugin: EventualConsistencyPlugin) -> None:
        self._portal = portal
        self._plugin = plugin

    def __repr__(self) -> str:
        return f"<blocking Counters of {self.resource!r}>"

    @property
    def name(self) -> str:
        return self._plugin.name

    @property
    def resource(self) -> str:
        return self._plugin.resource

    @property
    def fields(self) -> dict[str, Counter]:
        return self._plugin.fields

    @property
    def settings(self) -> CounterSettings:
        return self._plugin.settings

    @property
    def is_leading(self) -> bool:
        """Does this process consolidate, now, and has it caught up?"""
        return self._plugin.is_leading

    # Counting

    def add(
        self,
        id: str,
        field: str,
        amount: Number = 1,
        *,
        op_id: str | None = None,
        mode: Mode | str | None = None,
        timeout: float | timedelta = TIMEOUT,
    ) -> None:
        """Count an amount. Returns when it is durable; with `mode="sync"` when it is in the record, for which it waits
        up to `timeout` (`RequestNotAnswered`: it is counted all the same).

        Raises `WriteUnknown` if the store does not say whether it was written: with an `op_id` it can be given again.
        """
        self._portal.call(lambda: self._plugin.add(id, field, amount, op_id=op_id, mode=mode, timeout=timeout))

    def sub(
        self,
        id: str,
        field: str,
        amount: Number = 1,
        *,
        op_id: str | None = None,
        mode: Mode | str | None = None,
        timeout: float | timedelta = TIMEOUT,
    ) -> None:
        """Count an amount backwards. As `add`; for fields that are added up."""
        self._portal.call(lambda: self._plugin.sub(id, field, amount, op_id=op_id, mode=mode, timeout=timeout))

    def set(
        self,
        id: str,
        field: str,
        value: Number,
        *,
        op_id: str | None = None,
        mode: Mode | str | None = None,
        timeout: float | timedelta = TIMEOUT,
    ) -> None:
        """Have the total be this, after all calls that have returned before; those that come later count on from it."""
        self._portal.call(lambda: self._plugin.set(id, field, value, op_id=op_id, mode=mode, timeout=timeout))

    # Looking

    @overload
    def get(self, id: str, field: str, *, consistent: bool = False) -> Number | None: ...
    @overload
    def get(self, id: str, field: None = None, *, consistent: bool = False) -> dict[str, Number | None]: ...
    def get(
        self, id: str, field: str | None = None, *, consistent: bool = False
    ) -> Number | dict[str, Number | None] | None:
        """The total of one field, or of all: as it stands in the record; with `consistent=True` with every amount whose
        call had returned before, each once."""
        if field is None:
            return self._portal.call(lambda: self._plugin.get(id, consistent=consistent))
        return self._portal.call(lambda: self._plugin.get(id, field, consistent=consistent))

    def history(
        self, id: str | None, field: str, *, period: Period | str = Period.DAY, limit: int = 100
    ) -> list[Bucket]:
        """What was added, subtracted and set by hour, day, week or month, newest first; with `None` of all records."""
        return self._portal.call(lambda: self._plugin.history(id, field, period=period, limit=limit))

    def top(
        self, field: str, limit: int = 10, *, period: Period | str = Period.ALL, at: datetime | None = None
    ) -> list[Top]:
        """The records with the largest amounts: ever, or of the hour, day, week or month that `at` is in."""
        return self._portal.call(lambda: self._plugin.top(field, limit, period=period, at=at))

    def stats(self) -> CounterStats:
        """What is under way, and what was counted so far."""
        return self._portal.call(self._plugin.stats)

    # Asking the leader

    def consolidate(self, id: str | None = None, *, timeout: float | timedelta = TIMEOUT) -> None:
        """Have everything that was acknowledged before this call written to its record, or to one record.

        Raises `RequestNotAnswered` if that was not done in time.
        """
        self._portal.call(lambda: self._plugin.consolidate(id, timeout=timeout))

    def recalculate(self, id: str, *, timeout: float | timedelta = TIMEOUT) -> Recalculated:
        """Work out the totals of an id from its history, and put them right where they differ."""
        return self._portal.call(lambda: self._plugin.recalculate(id, timeout=timeout))

    # Being told

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)` for every event called `name`, as `Coordinator.on` does, on a thread of tenure's."""
        self._portal.check()
        return without_loop(lambda: self._plugin.on(name, handler))

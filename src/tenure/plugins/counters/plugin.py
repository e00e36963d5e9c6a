"""Counters that count exactly once.

    pages = db.resource("pages")
    counters = await db.use_plugin(EventualConsistencyPlugin("pages", fields=["views", "stats.likes"]))

    await counters.add("home", "views")                    # returns when it is durable
    await counters.get("home", "views")                    # as it stands in the record
    await counters.get("home", "views", consistent=True)   # with everything that was acknowledged before this call

Guarantee: an amount whose call returned is counted exactly once in the total of its id and field, whatever crashes, and
also while other code changes the same record, deletes it or inserts it again: totals belong to the id. A call that
raised `WriteUnknown` is counted once or not at all; with an `op_id` it can be made again. `set` takes its place among
the `add`s in the order of the ledger: after every call of its process that had returned before it was made.

Assumption: writes to the resource go through `Resource`. A process without this plugin may change other fields; what it
writes to a counted one is undone with the next amount. Records whose ids are not used again (`reuse_ids=False`, and ids
that tenure drew) are deleted by processes that have it: another removes the tombstone, and what is counted with it.

Not guaranteed: that `get` without `consistent` shows what was just added. It is in the record within about `interval`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, cast, overload

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig, seconds
from tenure.coordinator.given import check_flag
from tenure.coordinator.layout import check_name
from tenure.coordinator.lead import Lead
from tenure.database.ids import check_id
from tenure.database.resource import Resource
from tenure.errors import ConfigError, RequestRefused
from tenure.ledger import InboxName, LedgerConfig, LogEntry, Lot, Place
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.plugins.counters.agreed import agree
from tenure.plugins.counters.calls import Calls
from tenure.plugins.counters.cell import Cell
from tenure.plugins.counters.consistent import consistent_totals
from tenure.plugins.counters.fields import fields_from
from tenure.plugins.counters.glance import CountersGlance, glance_of
from tenure.plugins.counters.group import Collector
from tenure.plugins.counters.leading import CountersLeading
from tenure.plugins.counters.looking import (
    Bucket,
    CounterStats,
    Period,
    Top,
    history_of,
    limit_of,
    looked,
    rollup_of,
    stats_of,
    top_of,
)
from tenure.plugins.counters.numbers import Counter, Number, Reducer, counter_of
from tenure.plugins.counters.records import Answer
from tenure.plugins.counters.settings import CounterSettings, Mode, settings_from, word_of
from tenure.plugins.counters.shelf import Shelf
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.counters.totals import CountedShape, Key
from tenure.plugins.counters.wire import CONSOLIDATE, MAX_OP_ID_CHARACTERS, RECALCULATE, Request, compose
from tenure.plugins.ledgered import SHUTDOWN_TIMEOUT, LedgerPlugin, LedgerView
from tenure.plugins.queue.meter import IdleMeter
from tenure.store import Store

TIMEOUT = 30.0


class Recalculated(msgspec.Struct, frozen=True):
    """What came of a recalculation."""

    totals: dict[str, Number]
    former: dict[str, Number | None]
    """Those that were not right; they are now."""


class EventualConsistencyPlugin(LedgerPlugin):
    """`resource`: the name of the resource whose records are counted, or the object itself. One plugin for each.

    `fields`: which ones, and how (`Counter`). Other options are settings (`CounterSettings`), or of the coordinator.
    Whoever only counts gives `producer_only=True`: it takes no part in the election.
    """

    slug = "eventual-consistency"
    what = "counters"

    def __init__(
        self,
        resource: str | Resource[Any],
        fields: Any,
        *,
        producer_only: bool = False,
        namespace: str = "default",
        config: CoordinatorConfig | None = None,
        ledger: LedgerConfig | None = None,
        shutdown_timeout: float | timedelta = SHUTDOWN_TIMEOUT,
        **settings: Any,
    ) -> None:
        super().__init__(
            namespace=namespace,
            config=config,
            ledger=ledger,
            shutdown_timeout=shutdown_timeout,
            takes_part=not check_flag("producer_only", producer_only),
        )
        self._given = resource if isinstance(resource, Resource) else None
        name = resource.name if isinstance(resource, Resource) else resource
        self.resource = check_name("resource", name, MAX_NAME_CHARACTERS)
        self.fields: dict[str, Counter] = fields_from(fields)
        self.settings: CounterSettings = settings_from(settings)
        self._records: Resource[Any] | None = None
        self._collector: Collector | None = None
        self._calls: Calls | None = None
        self._view: LedgerView | None = None
        self._shelf = Shelf()
        self._agreed: dict[str, str] = {}
        """How every field is counted that any process counts."""
        self._meter = IdleMeter(SYSTEM_CLOCK)

    @property
    def default_name(self) -> str:
        """What this instance is called if nothing else is said: the name of its resource."""
        return self.resource

    # Counting

    async def add(
        self,
        id: str,
        field: str,
        amount: Number = 1,
        *,
        op_id: str | None = None,
        mode: Mode | str | None = None,
        timeout: float | timedelta = TIMEOUT,
    ) -> None:
        """Count an amount. Calls that come together share one request.

        Returns when it is durable; with `mode="sync"` when it is in the record, for which it waits up to `timeout`
        (`RequestNotAnswered`: it is counted all the same). Raises `WriteUnknown` if the store does not say whether it
        was written: with an `op_id`, which is counted once within `dedup_window`, it can be given again.
        """
        counter = self._counter(field)
        await self._give(Cell.add, id, field, counter, counter.amount("amount", amount), op_id, mode, timeout)

    async def sub(
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
        counter = self._counter(field)
        if counter.reducer is not Reducer.SUM:
            raise ConfigError(f"field {field!r} is counted as {counter.word}: only a sum can be subtracted from")
        await self._give(Cell.sub, id, field, counter, counter.amount("amount", amount), op_id, mode, timeout)

    async def set(
        self,
        id: str,
        field: str,
        value: Number,
        *,
        op_id: str | None = None,
        mode: Mode | str | None = None,
        timeout: float | timedelta = TIMEOUT,
    ) -> None:
        """Have the total be this, after all calls of this process that have returned before; those that come later
        count on from it. What other processes give at about the same time comes before or after it, as the leader
        finds it.
        """
        counter = self._counter(field)
        await self._give(Cell.set, id, field, counter, counter.amount("value", value), op_id, mode, timeout)

    async def _give(
        self,
        how: Callable[[Cell, Counter, Number], None],
        id: str,
        field: str,
        counter: Counter,
        amount: Number,
        op_id: str | None,
        mode: Mode | str | None,
        timeout: float | timedelta,
    ) -> None:
        collector = self._collector
        if collector is None:
            raise self._not_started()
        check_id(id)
        if op_id is not None:
            check_op_id("op_id", op_id)  # before a group is opened: what is refused writes nothing
        within = seconds("timeout", timeout)
        if (self.settings.mode if mode is None else word_of("mode", mode, Mode)) is Mode.SYNC:
            await self._give_and_wait(collector, how, id, field, counter, amount, op_id, within)
            return
        group = collector.current or await collector.group()
        cell = group.cell(field, counter, id) if op_id is None else group.op(op_id, field, counter, id)
        how(cell, counter, amount)
        await group.durable()

    async def _give_and_wait(
        self,
        collector: Collector,
        how: Callable[[Cell, Counter, Number], None],
        id: str,
        field: str,
        counter: Counter,
        amount: Number,
        op_id: str | None,
        timeout: float,
    ) -> None:
        calls = self._waiting()
        await calls.join()
        try:
            group = collector.current or await collector.group()
            cell = group.cell(field, counter, id) if op_id is None else group.op(op_id, field, counter, id)
            how(cell, counter, amount)
            group.urgent[id] = None
            await calls.consolidated(await group.durable(), id, timeout)
        finally:
            calls.leave()

    # Looking

    @overload
    async def get(self, id: str, field: str, *, consistent: bool = False) -> Number | None: ...
    @overload
    async def get(self, id: str, field: None = None, *, consistent: bool = False) -> dict[str, Number | None]: ...
    async def get(
        self, id: str, field: str | None = None, *, consistent: bool = False
    ) -> Number | dict[str, Number | None] | None:
        """The total of one field, or of all: as it stands in the record, which is one request.

        `consistent=True`: with every amount whose call had returned before, each once, wherever it is on its way. That
        costs a listing, and reading what has changed since the last such call.

        It does not matter whether there is a record: totals belong to the id. Before the first amount a sum is 0, and
        everything else is `None`.
        """
        check_id(id)
        check_flag("consistent", consistent)
        fields = self.fields if field is None else {field: self._counter(field)}
        if consistent:
            totals = await consistent_totals(
                self._opened(), self._seen(), self._resource(), self.name, id, fields, shelf=self._shelf
            )
        else:
            found = await self._resource().find(id)
            key = Key(found.envelope if found is not None else None, self.name)
            totals = {each: key.total(each, counter) for each, counter in fields.items()}
        return totals if field is None else totals[field]

    async def history(
        self, id: str | None, field: str, *, period: Period | str = Period.DAY, limit: int = 100
    ) -> list[Bucket]:
        """What was added, subtracted and set, hour by hour, day by day, or by week or month; newest first.

        Of one record, or with `None` of all together. Old hours are kept as days, and old days as months (`retention`):
        of one record such longer buckets are given then, and told by their `period`. An amount belongs to the hour in
        which the leader folded it.
        """
        if id is not None:
            check_id(id)
        counter, chosen = self._counter(field), word_of("period", period, Period)
        count = limit_of(limit)
        zone = self.settings.zone

        async def look(machine: CountersMachine) -> list[Bucket]:
            if counter is not None and field not in machine.counters:
                return []
            if id is None:
                return rollup_of(machine, field, chosen, zone, count)
            return await history_of(self._opened(), machine, id, field, chosen, zone, count)

        return await looked(self._seen(), look)

    async def top(
        self,
        field: str,
        limit: int = 10,
        *,
        period: Period | str = Period.ALL,
        at: datetime | None = None,
    ) -> list[Top]:
        """The records with the largest amounts of a field: ever, or of the hour, day, week or month that `at` is in (by
        default, now). It reads what was counted in that time."""
        self._counter(field)
        chosen, count = word_of("period", period, Period), limit_of(limit)
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise ConfigError(f"at is {at!r:.80}: give a datetime with a time zone")
        if at is not None and not 1970 <= at.year <= 9998:
            raise ConfigError(f"at is {at!r:.80}: give a time from 1970 to 9998")
        at_ms = await self._now_ms() if at is None else int(at.timestamp() * 1000)

        async def look(machine: CountersMachine) -> list[Top]:
            if field not in machine.counters:
                return []
            return await top_of(self._opened(), machine, field, count, chosen, at_ms, self.settings.zone)

        return await looked(self._seen(), look)

    async def stats(self) -> CounterStats:
        """What is under way, and what was counted so far."""
        return await stats_of(self._opened(), await self._seen().refresh())

    @property
    def idle_requests_per_hour(self) -> float:
        """What this process spends on looking for amounts that are not there; `idle_budget` bounds it."""
        return self._meter.per_hour()

    def glance(self) -> CountersGlance | None:
        """What this process knows without a request; `None`: it does not lead. Called on the plugin's loop."""
        leading = self._leading
        if not isinstance(leading, CountersLeading) or leading.clerk is None or leading.halted is not None:
            return None
        return glance_of(leading.clerk.machine, self._about_ms())

    # Asking the leader

    async def consolidate(self, id: str | None = None, *, timeout: float | timedelta = TIMEOUT) -> None:
        """Have everything that was acknowledged before this call written to its record, or to one record.

        Raises `RequestNotAnswered` if that was not done in time.
        """
        await self._ask(CONSOLIDATE, "" if id is None else check_id(id), timeout)

    async def recalculate(self, id: str, *, timeout: float | timedelta = TIMEOUT) -> Recalculated:
        """Work out the totals of an id from its history, and put them right where they differ: after somebody has
        changed or removed the object by other means. Counting goes on meanwhile."""
        answer = await self._ask(RECALCULATE, check_id(id), timeout)
        counters = {field: counter_of(word) for field, word in self._agreed.items()}

        def read(field: str, value: object) -> Number | None:
            counter = counters.get(field)
            return counter.read(value) if counter is not None else None

        totals = {field: read(field, value) for field, value in answer.values.items()}
        return Recalculated(
            {field: value for field, value in totals.items() if value is not None},
            {field: read(field, value) for field, value in answer.former.items()},
        )

    async def _ask(self, op: str, id: str, timeout: float | timedelta) -> Answer:
        within = seconds("timeout", timeout)
        request = Request(cast(Any, self._attached()).draw_id(), op, id)
        answer = await self._waiting().ask(request, within)
        if answer.refused:
            raise RequestRefused(answer.refused)
        return answer

    # Life

    def compose(self, name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
        return compose(name, place, lots)

    def new_leading(self, lead: Lead) -> CountersLeading:
        host = cast(Any, self._attached())
        return CountersLeading(
            self._opened(),
            lead,
            ledger=self._ledger,
            clock=host.clock,
            draw_id=host.draw_id,
            time=self._time,
            bell=self._bell,
            emit=lambda event: self.emit(event.name, event),
            on_entry=self._wrote,
            sights=self._sights,
            resource=self._resource(),
            name=self.name,
            settings=self.settings,
            on_idle=self._meter.looked,
        )

    async def prepare(self, store: Store) -> None:
        host = cast(Any, self._attached())
        self._meter = IdleMeter(host.clock)
        records = self._given if self._given is not None else host.opened_resource(self.resource)
        records = records if records is not None else host.resource(self.resource)
        for field, counter in self.fields.items():
            first, _, inside = field.partition(".")
            records.check_field("fields", first, *(() if inside else (counter.example,)))
        self._agreed = await agree(
            store,
            self.fields,
            self.settings.timezone,
            resource=self.resource,
            clock=host.clock,
            draw_id=host.draw_id,
        )
        records.shaped_by(self.name, CountedShape(self.resource, self.name, self.fields, self.settings.on_direct_write))
        self._records = records

    async def began(self) -> None:
        host, producer = self._attached(), self._sending()
        self._collector = Collector(producer)
        self._calls = Calls(self._opened(), producer, ledger=self._ledger, clock=host.clock)
        retention = self.settings.retention
        self._view = LedgerView(
            self._opened(), lambda: CountersMachine(retention), config=self._ledger, clock=host.clock
        )
        self._shelf = Shelf()

    async def ending(self) -> None:
        self._collector = None
        calls, self._calls = self._calls, None
        if calls is not None:
            await calls.aclose()

    def ended(self) -> None:
        self._view = None  # the resource stays shaped: its records are counted, whoever writes them

    # Inside

    def _wrote(self, entry: LogEntry) -> None:
        super()._wrote(entry)
        if self._calls is not None:
            self._calls.heard(entry)

    def _counter(self, field: str) -> Counter:
        counter = self.fields.get(field) if isinstance(field, str) else None
        if counter is None:
            known = ", ".join(sorted(self.fields))
            raise ConfigError(f"field is {field!r:.80}, which is not counted here: give one of {known}")
        return counter

    def _resource(self) -> Resource[Any]:
        if self._records is None:
            raise self._not_started()
        return self._records

    def _waiting(self) -> Calls:
        if self._calls is None:
            raise self._not_started()
        return self._calls

    def _seen(self) -> LedgerView:
        if self._view is None:
            raise self._not_started()
        return self._view


def check_op_id(field: str, op_id: object) -> None:
    if not isinstance(op_id, str) or not 1 <= len(op_id) <= MAX_OP_ID_CHARACTERS or not _is_whole(op_id):
        raise ConfigError(f"{field} is {op_id!r:.80}: give a text of 1 to {MAX_OP_ID_CHARACTERS} characters")


def _is_whole(text: str) -> bool:
    """Half a character cannot be written down."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Counters as anybody sees them who can read the bucket: no leader is asked, and nothing is written."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from tenure.errors import ConfigError, NotFound
from tenure.ledger import LedgerState
from tenure.ledger.layout import INBOX_NAMES
from tenure.plugins.counters.calendar import moment_of, week_of
from tenure.plugins.counters.cell import Cell, cell_from
from tenure.plugins.counters.history import Share, shares
from tenure.plugins.counters.numbers import Counter, Number, minus, plus, told
from tenure.plugins.counters.pages import PageBook
from tenure.plugins.counters.records import Level, Moment, Rows
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.ledgered import LedgerView, look_up
from tenure.store import Store, ours

T = TypeVar("T")
MAX_TOP = 10_000
_TRIES = 5


class Period(enum.Enum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    ALL = "all"


class CounterStats(msgspec.Struct, frozen=True, kw_only=True):
    """One look at counters. What lies in the inbox is durable, and not folded yet by any leader."""

    fields: dict[str, str]
    """How each is counted: `int:sum`."""
    inbox: int
    """Objects, each with the amounts of one or more calls."""
    pending: int
    """Calls that are folded, and not known to be in their records ..."""
    records: int
    """... which are so many ..."""
    lag: float
    """... and seconds of the log's time since the oldest of them was folded; 0: none is."""
    calls: int
    """That were ever folded."""
    applied: int
    """Writes of records that were noted."""
    duplicates: int
    """Calls that were not counted, since their `op_id` had been."""
    pages: int
    seq: int
    epoch: int


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a field in an hour, a day, a week or a month: of one record, or of all together."""

    start_ms: int
    """Its beginning, on the store's clock; 0: before everything that is kept apart."""
    period: str
    """May be coarser than what was asked for: old hours are kept as days, old days as months."""
    adds: int
    added: Any
    subs: int
    subbed: Any
    sets: int

    @property
    def net(self) -> Any:
        """What was added, less what was subtracted."""
        return plus(self.added, minus(self.subbed))


class Top(msgspec.Struct, frozen=True):
    id: str
    value: Any
    """The net amount; for `min`, `max` and `last`, the value itself."""
    calls: int


async def read_counters(store: Store) -> LedgerState:
    """The state of counters, from their newest snapshot and the log after that. `store` is the ledger's own."""
    state = LedgerState(CountersMachine())
    await look_up(store, state)
    return state


async def looked(view: LedgerView, look: Callable[[CountersMachine], Awaitable[T]]) -> T:
    """What `look` finds in the newest state. Pages are put together while others read them: then it looks again."""
    for attempt in range(_TRIES):
        machine = machine_of(await view.refresh())
        try:
            return await look(machine)
        except NotFound:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def machine_of(state: LedgerState) -> CountersMachine:
    assert isinstance(state.machine, CountersMachine)
    return state.machine


async def stats_of(store: Store, state: LedgerState) -> CounterStats:
    machine = machine_of(state)
    inbox = 0
    async for _ in ours(store, INBOX_NAMES):
        inbox += 1
    since = [waiting.since_ms for waiting in machine.waiting.values()]
    offers = [offer for id in machine.waiting for offer in machine.unapplied(id)]
    pending = sum(cell.calls for offer in offers for cell in offer.cells.values())
    return CounterStats(
        fields={field: counter.word for field, counter in machine.counters.items()},
        inbox=inbox,
        pending=pending,
        records=len(machine.waiting),
        lag=max(0, state.time_ms - min(since)) / 1000 if since else 0.0,
        calls=machine.totals.calls,
        applied=machine.totals.applied,
        duplicates=machine.totals.duplicates,
        pages=len(machine.pages),
        seq=state.seq,
        epoch=state.epoch,
    )


def rollup_of(machine: CountersMachine, field: str, period: Period, zone: ZoneInfo, limit: int) -> list[Bucket]:
    """A field's buckets of all records together, newest first."""
    counter = known_counter(machine, field)
    level = {Period.HOUR: Level.HOUR, Period.DAY: Level.DAY, Period.WEEK: Level.DAY, Period.MONTH: Level.MONTH}.get(
        period
    )
    if level is None:
        raise ConfigError("period is 'all', which is for one record: give its id, or 'hour', 'day', 'week' or 'month'")
    found: dict[int, Cell] = {}
    for start, row in machine.sums[level].items():
        if field in row:
            sum = row[field]
            begin = week_of(start, zone) if period is Period.WEEK else start
            cell = found.setdefault(begin, Cell.blank(counter))
            cell.adds += sum.adds
            cell.added = plus(cell.added, sum.added)
            cell.subs += sum.subs
            cell.subbed = plus(cell.subbed, sum.subbed)
            cell.sets += sum.sets
    return [_bucket(start, period, found[start]) for start in sorted(found, reverse=True)[:limit]]


async def history_of(
    store: Store, machine: CountersMachine, id: str, field: str, period: Period, zone: ZoneInfo, limit: int
) -> list[Bucket]:
    """What happened to one counter, newest first."""
    counter = known_counter(machine, field)
    found: dict[tuple[int, Period], Cell] = {}
    for share in await shares(PageBook(store, lambda: ""), machine, id):
        if field in share.cells:
            begin = _begin(share, period, zone)
            cell = found.get(begin)
            if cell is None:
                found[begin] = share.cells[field].copy()
            else:
                cell.followed_by(counter, share.cells[field])
    return [_bucket(*begin, found[begin]) for begin in sorted(found, key=lambda each: each[0], reverse=True)[:limit]]


async def top_of(
    store: Store, machine: CountersMachine, field: str, count: int, period: Period, at_ms: int, zone: ZoneInfo
) -> list[Top]:
    """The records with the largest amounts of one hour, day, week or month, or of all time; `at_ms` is in it."""
    counter = known_counter(machine, field)
    inside = _inside(period, at_ms, zone)
    book = PageBook(store, lambda: "")
    whole: dict[str, Cell] = {}

    def take(id: str, row: Any) -> None:
        cell = cell_from(counter, row)
        if id in whole:
            whole[id].followed_by(counter, cell)
        else:
            whole[id] = cell

    recent: list[tuple[Moment, Rows]] = [(sealed.moment, sealed.rows) for sealed in machine.sealed]
    tally = [(id, cells[field].plain()) for id, cells in machine.tally.items() if field in cells]
    moment = machine.moment
    for page in list(machine.pages):
        if inside(page.level, page.moment):
            async for id, cells in book.rows(page):
                if field in cells:
                    take(id, cells[field])
    for when, rows in recent:
        if inside(Level.HOUR, when):
            for id, row in rows.get(field, {}).items():
                take(id, row)
    if moment is not None and inside(Level.HOUR, moment):
        for id, row in tally:
            take(id, row)
    best = heapq.nsmallest(count, whole.items(), key=lambda each: (minus(_worth(counter, each[1])), each[0]))
    return [Top(id, _worth(counter, cell), cell.calls) for id, cell in best]


def known_counter(machine: CountersMachine, field: str) -> Counter:
    counter = machine.counters.get(field)
    if counter is None:
        known = ", ".join(sorted(machine.counters)) or "none"
        raise ConfigError(f"field {field!r:.80} was never counted; those that were: {known}")
    return counter


def limit_of(limit: object, most: int = MAX_TOP) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise ConfigError(f"limit is {told(limit)}: give a whole number from 1 to {most:,}")
    return limit


def _worth(counter: Counter, cell: Cell) -> Any:
    """Of an amount; sets count as what they set."""
    value: Number | None = cell.applied_to(counter, counter.zero)
    return value if value is not None else 0


def _bucket(start_ms: int, period: Period, cell: Cell) -> Bucket:
    return Bucket(
        start_ms=start_ms,
        period=period.value,
        adds=cell.adds,
        added=cell.added,
        subs=cell.subs,
        subbed=cell.subbed,
        sets=cell.sets,
    )


_COARSENESS = {Level.HOUR: 0, Level.DAY: 1, Level.MONTH: 3, Level.ALL: 4}
_PERIODS = {Period.HOUR: 0, Period.DAY: 1, Period.WEEK: 2, Period.MONTH: 3, Period.ALL: 4}


def _begin(share: Share, period: Period, zone: ZoneInfo) -> tuple[int, Period]:
    """In which bucket it is: of that period, or of a longer one if it is not kept apart any more."""
    coarse = max(_COARSENESS[share.level], _PERIODS[period])
    moment = share.moment
    if coarse == 0:
        return moment.hour_ms, Period.HOUR
    if coarse == 1:
        return moment.day_ms, Period.DAY
    if coarse == 2:
        return week_of(moment.day_ms, zone), Period.WEEK
    if coarse == 3:
        return moment.month_ms, Period.MONTH
    return 0, Period.ALL


def _inside(period: Period, at_ms: int, zone: ZoneInfo) -> Callable[[Level, Moment], bool]:
    """Is a page of this level and moment within that period? One that reaches beyond it is not."""
    at = moment_of(at_ms, zone)

    def inside(level: Level, moment: Moment) -> bool:
        if period is Period.ALL:
            return True
        if _COARSENESS[level] > _PERIODS[period]:
            return False
        if period is Period.HOUR:
            return moment.hour_ms == at.hour_ms
        if period is Period.DAY:
            return moment.day_ms == at.day_ms
        if period is Period.WEEK:
            return week_of(moment.day_ms, zone) == week_of(at.day_ms, zone)
        return moment.month_ms == at.month_ms

    return inside

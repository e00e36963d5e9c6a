"""What the bucket has of the shop: read as anybody could who may read it, and without asking any of the processes."""

from __future__ import annotations

from tenure.clock import Clock
from tenure.database.resource import Resource
from tenure.demo.shop import MOST_RECORDS, ORDERS, SHOP, TAKINGS, TICK, TILL
from tenure.ledger import ledger_of_onlooker, ledger_store
from tenure.plugins.counters import Counter, EventualConsistencyPlugin, Kind, Reducer, Retention
from tenure.plugins.counters.consistent import consistent_totals
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.ledgered import LedgerView
from tenure.plugins.queue import QueueStats, S3QueuePlugin
from tenure.plugins.queue.looking import read_queue, stats_of
from tenure.plugins.scheduler import OccurrenceRecord, SchedulerPlugin
from tenure.plugins.scheduler.looking import history_of, machine_of, read_schedule
from tenure.store import Store


async def queue_stats(store: Store, clock: Clock) -> QueueStats:
    ledger = ledger_store(store, S3QueuePlugin.slug, ORDERS)
    return await stats_of(ledger, await read_queue(ledger), clock.read().wall_ns // 1_000_000)


async def tick_records(store: Store) -> list[OccurrenceRecord]:
    state = await read_schedule(ledger_store(store, SchedulerPlugin.slug, SchedulerPlugin.slug))
    return history_of(state, TICK, MOST_RECORDS) if TICK in machine_of(state).jobs else []


async def takings(store: Store, clock: Clock) -> int:
    """With everything that was acknowledged, also what no leader has read yet."""
    ledger = ledger_store(store, EventualConsistencyPlugin.slug, SHOP)
    view = LedgerView(
        ledger, lambda: CountersMachine(Retention()), config=await ledger_of_onlooker(ledger), clock=clock
    )
    counters = {TAKINGS: Counter(Kind.INT, Reducer.SUM)}
    total = (await consistent_totals(ledger, view, Resource(store, SHOP), SHOP, TILL, counters))[TAKINGS]
    assert isinstance(total, int)
    return total

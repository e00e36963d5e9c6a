"""Failures of counters that were found once: each came back as long as its rule was missing."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tenure
from tenure.clock import SYSTEM_CLOCK
from tenure.database.resource import Resource
from tenure.ledger import InboxName, LedgerConfig, Lot, Place, Stamp
from tenure.plugins.counters import EventualConsistencyPlugin, leading
from tenure.plugins.counters.cell import Cell, cell_from
from tenure.plugins.counters.consistent import consistent_totals
from tenure.plugins.counters.group import Group
from tenure.plugins.counters.numbers import Counter, Kind
from tenure.plugins.counters.records import Moment, Work
from tenure.plugins.counters.state import MAX_OFFERED, CountersMachine
from tenure.plugins.counters.wire import compose
from tenure.plugins.ledgered import LedgerView
from tenure.store.memory import MemoryStore

SWIFT = tenure.CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)
LARGEST = sys.float_info.max


@pytest.mark.req("EC-2")
def test_what_was_put_together_is_consolidated_only_when_its_oldest_part_is() -> None:
    """Else `consolidate` returns before an amount that was acknowledged before it is in its record."""
    machine = CountersMachine()
    for seq in range(1, MAX_OFFERED + 4):
        first = {"ledger": "l", "fields": {"views": "int:sum"}} if seq == 1 else {}
        work = Work(moment=Moment(0, 0, 0), rows={"views": {"home": [1, 1]}}, **first)  # type: ignore[arg-type]
        machine.enact(work, Stamp(seq=seq, epoch=1, time_ms=seq))
    put_together = MAX_OFFERED + 1  # the first of the rest
    machine.enact(Work(applied={"home": MAX_OFFERED}), Stamp(seq=MAX_OFFERED + 4, epoch=1, time_ms=99))
    for each in (machine, _restored(machine)):
        (offer,) = each.offered("home")
        assert (offer.number, offer.oldest) == (MAX_OFFERED + 3, put_together)
        assert each.is_consolidated(MAX_OFFERED, "home")
        assert not each.is_consolidated(put_together, "home")
        assert not each.is_consolidated(put_together)


def test_sums_of_floats_that_are_too_large_can_still_be_written_down() -> None:
    """Else the batch in which they are is set aside as unreadable, with what others gave."""
    counter = Counter(Kind.FLOAT)
    cell = Cell.blank(counter)
    for _ in range(3):
        cell.add(counter, LARGEST)
        cell.sub(counter, -LARGEST)
    row = msgspec.json.decode(msgspec.json.encode(cell.plain()))
    assert cell_from(counter, row).applied_to(counter, LARGEST) == LARGEST
    assert cell_from(counter, row).applied_to(counter, -LARGEST) == 0.0


@pytest.mark.req("EC-1")
async def test_who_waits_with_an_op_id_that_was_counted_is_answered(tmp_path: Path) -> None:
    """Nothing is applied for a second call: who waited for its number waited for ever."""
    async with asyncio.timeout(60), tenure.Database((tmp_path / "bucket").as_uri()) as db:
        counters = await db.use_plugin(tenure.EventualConsistencyPlugin("pages", ["views"], config=SWIFT))
        for _ in range(2):
            await counters.add("home", "views", 5, op_id="once", mode="sync", timeout=50)
        await asyncio.gather(*(counters.add("home", "views", 2, op_id="two", mode="sync", timeout=50) for _ in "ab"))
        assert await counters.get("home", "views") == 7
        assert (await counters.stats()).duplicates == 2


def _restored(machine: CountersMachine) -> CountersMachine:
    twin = CountersMachine()
    twin.restore(machine.snapshot())
    return twin


async def test_what_is_refused_writes_nothing_and_harms_nobody(tmp_path: Path) -> None:
    """An `op_id` was looked at after a batch was opened for it: that was written empty, or could not be written."""
    place = tmp_path / "bucket"
    async with asyncio.timeout(60), tenure.Database(place.as_uri()) as db:
        plugin = tenure.EventualConsistencyPlugin("pages", ["views"], producer_only=True)
        counters = await db.use_plugin(plugin)
        for op_id in ("", "x" * 129, "\ud800", 7):
            for mode in ("async", "sync"):
                with pytest.raises(tenure.ConfigError, match="op_id is"):
                    await counters.add("home", "views", op_id=op_id, mode=mode)  # type: ignore[arg-type]
        assert (await counters.stats()).inbox == 0
        await counters.add("home", "views", op_id="é" * 128)
        assert await counters.get("home", "views", consistent=True) == 1


async def test_a_leader_that_holds_as_much_as_it_may_does_not_wait_for_its_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inbox is left alone until there is room: whoever asked for something meanwhile waited as long."""
    monkeypatch.setattr(leading, "MAX_WAITING", 3)
    async with asyncio.timeout(60), tenure.Database((tmp_path / "bucket").as_uri()) as db:
        plugin = tenure.EventualConsistencyPlugin("pages", ["views"], config=SWIFT, interval=3600.0)
        counters = await db.use_plugin(plugin)
        await counters.add("first", "views", mode="sync", timeout=50)  # it leads, and its first round is over
        for number in range(5):
            await counters.add(f"page-{number}", "views")
        await counters.consolidate(timeout=50)
        assert [await counters.get(f"page-{number}", "views") for number in range(5)] == [1] * 5


@pytest.mark.req("EC-1")
async def test_a_batch_that_was_given_up_on_is_not_read_after_what_came_later() -> None:
    """It landed when a later one that skips it had: no leader folds it any more, and a `set` in it hid that one."""
    store = MemoryStore()

    async def post(number: int, place: Place, verb: str, amount: int) -> None:
        group, counter = Group(), Counter()
        getattr(group.cell("views", counter, "home"), verb)(counter, amount)
        lot = Lot(group, 1, asyncio.get_running_loop().create_future())
        name = InboxName(0, "writer", number)
        await store.create(name.key, compose(name, place, [lot]))
        await SYSTEM_CLOCK.sleep(0.01)  # the order is by the store's time, in milliseconds

    async def total() -> object:
        view = LedgerView(store, CountersMachine, config=LedgerConfig(), clock=SYSTEM_CLOCK)
        pages: Resource[Any] = Resource(store, "pages")
        return (await consistent_totals(store, view, pages, "pages", "home", {"views": Counter()}))["views"]

    await post(1, Place(0), "add", 3)
    await post(3, Place(2, [2]), "add", 7)
    await post(2, Place(1), "set", 100)
    assert await total() == 10
    await post(4, Place(3, [2]), "set", 5)
    assert await total() == 5


class Wrong(msgspec.Struct, rename="camel"):
    title: str = ""
    page_views: str = ""
    paid: float = 0.0


@dataclass
class Fitting:
    views: int = 0
    peak: float | None = None
    paid: Decimal = Decimal(0)


async def test_a_schema_that_cannot_hold_a_total_is_refused_before_anything_is_counted() -> None:
    """Else the leader would make records that their own schema cannot read."""
    async with tenure.Database("memory://") as db:
        db.resource("wrong", Wrong)
        for field, kind in (("pageViews", "int:sum"), ("paid", "decimal:sum")):
            with pytest.raises(tenure.ConfigError, match=f"fields is '{field}'.*cannot hold"):
                await db.use_plugin(EventualConsistencyPlugin("wrong", {field: kind}, producer_only=True))
        db.resource("fitting", Fitting)
        fields = {"views": "int:sum", "peak": "float:max", "paid": "decimal:sum"}
        await db.use_plugin(EventualConsistencyPlugin("fitting", fields, producer_only=True))

"""History as pages: put together as time goes by, few of them for ever, and none removed that the log names."""

from __future__ import annotations

import hashlib
import itertools
from datetime import UTC
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import LedgerDamaged, NotFound
from tenure.ledger import Stamp
from tenure.plugins.counters import pages
from tenure.plugins.counters.calendar import DAY_MS, HOUR_MS, moment_of
from tenure.plugins.counters.history import recorded, shares
from tenure.plugins.counters.looking import Period, history_of, top_of
from tenure.plugins.counters.numbers import Counter, Kind
from tenure.plugins.counters.pages import MANY_PAGES, MAX_RUN, Merge, PageBook, next_merge
from tenure.plugins.counters.records import Level, Moment, Page, Sealed, Work
from tenure.plugins.counters.settings import Retention
from tenure.plugins.counters.state import CountersMachine
from tenure.store import Stored
from tenure.store.memory import MemoryStore
from tests.unit.counters_rig import Call, calls, cell_of

VIEWS = Counter()
COUNTERS = {"views": VIEWS}
START_MS = 1_700_000_000_000
ZONE = ZoneInfo("Europe/Berlin")
NOTHING: frozenset[int] = frozenset()


def _merged(found: list[Page], merge: Merge) -> list[Page]:
    """As the machine does it; what the book would write does not matter here."""
    first, last = found.index(merge.pages[0]), found.index(merge.pages[-1])
    assert found[first : last + 1] == merge.pages, "pages that follow each other"
    page = Page(merge.level, merge.pages[0].moment, merge.pages[-1].number)
    return [*found[:first], page, *found[last + 1 :]]


@pytest.mark.parametrize(
    ("retention", "zone", "step", "days"),
    [
        (Retention(), ZONE, 17, 4 * 365),
        (Retention(1, 1, 1), ZoneInfo("Australia/Lord_Howe"), 5, 200),
        (Retention(30, 5, 3), UTC, 1, 45),
    ],
)
def test_over_years_there_are_ever_only_so_many(retention: Retention, zone: Any, step: int, days: int) -> None:
    """A page an hour: it is soon enough a day's, then a month's, then with all the others; and it comes to an end."""
    found: list[Page] = []
    most = 0
    numbers = itertools.count(1)
    bound = (retention.hours + 80) + (retention.days + 64) + (retention.months + 4)
    for ms in range(START_MS, START_MS + days * DAY_MS, step * HOUR_MS):
        now = moment_of(ms, zone)
        found.append(Page(Level.HOUR, now, next(numbers)))
        for _ in range(200):
            merge = next_merge(found, now, retention, frozenset({now.hour_ms}))
            if merge is None:
                break
            assert all(page.moment.hour_ms < now.hour_ms for page in merge.pages), "what grows is left alone"
            assert merge.level is not Level.HOUR or len(merge.pages) > 1
            found = _merged(found, merge)
        else:
            pytest.fail("it never ends")
        most = max(most, len(found))
        assert [page.number for page in found] == sorted({page.number for page in found})
    assert most <= bound
    levels = [page.level for page in found]
    order = [Level.ALL, Level.MONTH, Level.DAY, Level.HOUR]
    assert levels == sorted(levels, key=order.index)
    assert levels.count(Level.ALL) <= 1
    assert levels.count(Level.MONTH) <= retention.months + 3
    assert levels.count(Level.DAY) <= retention.days + 64
    assert levels.count(Level.HOUR) <= retention.hours + 52


def test_many_pages_of_one_hour_are_put_together_before_it_is_over() -> None:
    now = moment_of(START_MS, UTC)
    found = [Page(Level.HOUR, now, number) for number in range(1, MANY_PAGES)]
    busy = frozenset({now.hour_ms})
    assert next_merge(found, now, Retention(), busy) is None
    found += [Page(Level.HOUR, now, number) for number in range(MANY_PAGES, 200)]
    merge = next_merge(found, now, Retention(), busy)
    assert merge is not None
    assert (len(merge.pages), merge.level) == (MAX_RUN, Level.HOUR)
    rounds = 0
    while (merge := next_merge(found, now, Retention(), busy)) is not None:
        found = _merged(found, merge)
        rounds += 1
    assert len(found) < MANY_PAGES
    assert rounds < 20


def test_an_hour_of_which_more_is_to_come_is_left_alone() -> None:
    early, now = moment_of(START_MS, UTC), moment_of(START_MS + HOUR_MS, UTC)
    found = [Page(Level.HOUR, early, 1), Page(Level.HOUR, early, 2)]
    assert next_merge(found, now, Retention(), frozenset({early.hour_ms})) is None
    assert next_merge(found, now, Retention(), NOTHING) == Merge(found, Level.HOUR)
    assert next_merge([], now, Retention(), NOTHING) is None


def test_a_clock_that_was_far_ahead_makes_no_endless_work() -> None:
    now = moment_of(START_MS, UTC)
    ahead = moment_of(START_MS + 400 * DAY_MS, UTC)
    found = [Page(Level.HOUR, ahead, 1), Page(Level.HOUR, now, 2), Page(Level.HOUR, ahead, 3)]
    for _ in range(10):
        if (merge := next_merge(found, now, Retention(), NOTHING)) is None:
            break
        found = _merged(found, merge)
    else:
        pytest.fail("it never ends")


# The book


async def _book(store: MemoryStore, epoch: int = 1) -> PageBook:
    tags = itertools.count(1)
    return PageBook(store, lambda: f"tag{next(tags)}", epoch)


def _sealed(number: int, rows: dict[str, list[Any]], hour: int = 0) -> Sealed:
    return Sealed(number, Moment(hour * HOUR_MS, 0, 0), {"views": rows})


@settings(max_examples=25)
@given(st.lists(st.dictionaries(st.sampled_from("abcdefg"), calls(VIEWS, 3), max_size=7), min_size=2, max_size=4))
async def test_put_together_pages_say_what_they_said_apart(hours: list[dict[str, list[Call]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "CHUNK_ROWS", 2)
        store = MemoryStore()
        book = await _book(store)
        written = []
        for number, hour in enumerate(hours, start=1):
            rows = {id: cell_of(VIEWS, each).plain() for id, each in hour.items()}
            written.append(await book.write(_sealed(number, rows, number)))
        merged = await book.merge(Merge(written, Level.DAY), COUNTERS)
        assert (merged.level, merged.number, merged.moment) == (Level.DAY, len(hours), written[0].moment)
        for id in "abcdefg":
            expected = cell_of(VIEWS, [call for hour in hours for call in hour.get(id, [])])
            found = await book.cells(merged, id, COUNTERS)
            assert found.get("views", cell_of(VIEWS, [])) == expected
        ids = [id async for id, _ in book.rows(merged)]
        assert ids == sorted({id for hour in hours for id in hour})
        assert all(chunk.rows <= 2 for chunk in merged.chunks)


async def test_parts_are_cut_by_bytes_too_so_that_names_of_many_long_fields_fit() -> None:
    """5,000 records of 100 such fields were one object of 69.7 MB, over the limit: no page was ever written again."""
    store = MemoryStore()
    book = await _book(store)
    fields = [f"f{number:03}." + "x" * 125 for number in range(100)]
    counters = dict.fromkeys(fields, VIEWS)
    ids = [f"rec{number:020}" for number in range(700)]
    sealed = [
        Sealed(number, Moment(0, 0, 0), {field: {id: [1, number] for id in ids} for field in fields})
        for number in (1, 2)
    ]
    written = [await book.write(each) for each in sealed]
    merged = await book.merge(Merge(written, Level.DAY), counters)
    for page in (*written, merged):
        sizes = [
            len(stored.body)
            for stored in [await store.get(chunk.key) for chunk in page.chunks]
            if isinstance(stored, Stored)
        ]
        assert max(sizes) < 8.1 * 2**20
        assert len(sizes) == 2
        assert [id async for id, _ in book.rows(page)] == ids
    for id in (ids[0], ids[350], ids[-1]):
        assert [cell.net for cell in (await book.cells(merged, id, counters)).values()] == [3] * 100


async def test_a_single_page_is_only_called_otherwise() -> None:
    store = MemoryStore()
    book = await _book(store)
    page = await book.write(_sealed(1, {"a": [1, 1]}))
    before = [entry.key async for entry in store.list()]
    assert (await book.merge(Merge([page], Level.MONTH), COUNTERS)).chunks == page.chunks
    assert [entry.key async for entry in store.list()] == before


async def test_a_page_that_was_changed_is_told_and_one_that_is_gone_is_missed() -> None:
    store = MemoryStore()
    book = await _book(store)
    page = await book.write(_sealed(1, {"a": [1, 1]}))
    key = page.chunks[0].key
    await store.put(key, b'{"rows":[["a",{"views":[1,1000]}]]}')
    with pytest.raises(LedgerDamaged, match="backup"):
        await book.cells(page, "a", COUNTERS)
    await store.delete(key)
    with pytest.raises(NotFound):
        await book.cells(page, "a", COUNTERS)
    assert await book.cells(page, "z", COUNTERS) == {}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"none", b"\xff", b"[]", b"{}", b'{"rows":5}', b'{"rows":[["a"]]}', b'{"rows":[[1,{}]]}'),
        *(b'{"rows":[["a",{"views":5}]]}', b'{"rows":[["a",{"views":[1]}]]}', b'{"rows":[["a",{"views":["x",1]}]]}'),
        *(b'{"rows":[["a",{"unheard":[1,1]}]]}', b'{"rows":' + b"[" * 100_000),
    ],
    ids=lambda each: each[:30].decode("latin-1"),
)
async def test_a_page_with_the_right_checksum_that_is_none_is_damage_by_name(body: bytes) -> None:
    """The log says what its checksum is, and whoever wrote that may have been wrong."""
    store = MemoryStore()
    book = await _book(store)
    page, other = [await book.write(_sealed(number, {"a": [1, 1]})) for number in (1, 2)]
    (chunk,) = page.chunks
    forged = msgspec.structs.replace(
        page, chunks=[msgspec.structs.replace(chunk, sha256=hashlib.sha256(body).hexdigest())]
    )
    await store.put(chunk.key, body)
    with pytest.raises(LedgerDamaged, match=chunk.key):
        await book.cells(forged, "a", COUNTERS)
    with pytest.raises(LedgerDamaged, match=chunk.key):
        await book.merge(Merge([forged, other], Level.DAY), COUNTERS)


@pytest.mark.req("EC-2")
async def test_a_former_leader_removes_nothing_of_those_who_came_after() -> None:
    """It may go on with its work without knowing that another leads, and its list of pages is old."""
    store = MemoryStore()
    former, present = await _book(store, 3), await _book(store, 4)
    named = await former.write(_sealed(1, {"a": [1, 1]}))
    left = await former.write(_sealed(2, {"b": [1, 1]}))
    fresh = await present.write(_sealed(3, {"c": [1, 1]}))
    assert await former.orphans([named]) == []
    assert await present.orphans([named]) == [left.chunks[0].key]
    assert await (await _book(store, 5)).orphans([named, fresh]) == [left.chunks[0].key]
    await store.put("pages/something-else", b"")
    assert "pages/something-else" not in await present.orphans([])


# What history says


async def _machine(store: MemoryStore, amounts: dict[int, int], book: PageBook) -> CountersMachine:
    """`amounts` by hour, of record `a`: the first ones in pages, then one that is sealed, then one that is not."""
    machine = CountersMachine()
    seq = 0
    for hour, amount in amounts.items():
        seq += 1
        ms = START_MS + hour * HOUR_MS
        work = Work(fields={"views": "int:sum"}, moment=moment_of(ms, ZONE), rows={"views": {"a": [1, amount]}})
        machine.enact(work, Stamp(seq, 1, ms))
        if len(machine.sealed) > 1:
            seq += 1
            paged = [await book.write(machine.sealed[0])]
            machine.apply(msgspec.json.encode(Work(paged=paged)), Stamp(seq, 1, ms))
    return machine


async def test_everything_is_found_wherever_it_is_and_after_it_was_put_together() -> None:
    store = MemoryStore()
    book = await _book(store)
    amounts = {hour * 7: 10**number for number, hour in enumerate(range(12))}
    machine = await _machine(store, amounts, book)
    assert machine.pages and machine.sealed and machine.tally
    now = moment_of(START_MS + 90 * DAY_MS, ZONE)
    while True:
        assert (await recorded(book, machine, "a"))["views"].net == int("1" * 12)
        assert await recorded(book, machine, "b") == {}
        by_day = await history_of(store, machine, "a", "views", Period.DAY, ZONE, 100)
        assert sum(bucket.net for bucket in by_day) == int("1" * 12)
        assert [bucket.start_ms for bucket in by_day] == sorted((b.start_ms for b in by_day), reverse=True)
        (best,) = await top_of(store, machine, "views", 10, Period.ALL, START_MS, ZONE)
        assert (best.id, best.value, best.calls) == ("a", int("1" * 12), 12)
        merge = next_merge(machine.pages, now, Retention(48, 62, 24), NOTHING)
        if merge is None:
            break
        page = await book.merge(merge, machine.counters)
        work = Work(merged=[page], replaced=[[each.number for each in merge.pages]])
        machine.enact(work, Stamp(machine.seq + 1, 1, machine.time_ms))
    assert {share.level for share in await shares(book, machine, "a")} == {Level.MONTH, Level.HOUR}


async def test_top_of_a_period_takes_what_is_within_it() -> None:
    store = MemoryStore()
    book = await _book(store)
    machine = await _machine(store, {0: 1, 1: 10, 30: 100, 200: 1000, 2000: 10_000}, book)
    at = START_MS + 30 * HOUR_MS

    async def value(period: Period, ms: int = at) -> int:
        found = await top_of(store, machine, "views", 5, period, ms, ZONE)
        return int(found[0].value) if found else 0

    assert await value(Period.HOUR) == 100
    assert await value(Period.DAY) == 100
    assert await value(Period.ALL) == 11_111
    assert await value(Period.HOUR, START_MS + 5 * HOUR_MS) == 0
    assert await value(Period.MONTH) == 1111
    assert await value(Period.WEEK) in (100, 111)


async def test_decimals_are_exact_through_pages() -> None:
    store = MemoryStore()
    book = await _book(store)
    counter = Counter(Kind.DECIMAL)
    row = cell_of(counter, [("add", Decimal("0.1"))] * 3).plain()
    sealed = [Sealed(number, Moment(0, 0, 0), {"paid": {"a": row}}) for number in (1, 2)]
    written = [await book.write(each) for each in sealed]
    merged = await book.merge(Merge(written, Level.DAY), {"paid": counter})
    assert (await book.cells(merged, "a", {"paid": counter}))["paid"].net == Decimal("0.6")

"""Cells: any number of calls, put together in any way, do what the calls do one after the other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.plugins.counters.cell import Cell, cell_from, cells_from, put_together
from tenure.plugins.counters.numbers import Counter, Kind, Reducer
from tests.unit.counters_rig import COUNTERS, Call, amounts, calls, cell_of, total_of


def _runs(counter: Counter) -> st.SearchStrategy[Any]:
    total = st.one_of(st.just(counter.zero), amounts(counter))
    return st.tuples(st.just(counter), total, st.lists(calls(counter), min_size=1, max_size=4))


RUNS = st.sampled_from(COUNTERS).flatmap(_runs)
Run = tuple[Counter, Any, list[list[Call]]]


@given(RUNS)
def test_a_cell_does_what_its_calls_do(run: Run) -> None:
    counter, total, parts = run
    every = [call for part in parts for call in part]
    assert cell_of(counter, every).applied_to(counter, total) == total_of(counter, every, total)


@given(RUNS)
def test_put_together_or_one_after_the_other_is_the_same(run: Run) -> None:
    counter, total, parts = run
    cells = [cell_of(counter, part) for part in parts]
    whole = cells[0].copy()
    for cell in cells[1:]:
        whole.followed_by(counter, cell)
    assert whole == cell_of(counter, [call for part in parts for call in part])
    one_by_one = total
    for cell in cells:
        one_by_one = cell.applied_to(counter, one_by_one)
    assert whole.applied_to(counter, total) == one_by_one


@given(RUNS)
def test_it_does_not_matter_which_are_put_together_first(run: Run) -> None:
    counter, _, parts = run
    cells = [cell_of(counter, part) for part in (parts * 3)[:3]]
    first, then, last = (cell.copy() for cell in cells)
    then.followed_by(counter, last)
    first.followed_by(counter, then)
    other, middle, end = (cell.copy() for cell in cells)
    other.followed_by(counter, middle)
    other.followed_by(counter, end)
    assert first == other
    assert [last, middle] == [cells[2], cells[1]], "what follows is not changed"


@given(RUNS)
def test_it_is_read_as_it_was_written(run: Run) -> None:
    counter, _, parts = run
    cell = cell_of(counter, [call for part in parts for call in part])
    row = msgspec.json.decode(msgspec.json.encode(cell.plain()))
    assert cell_from(counter, row) == cell
    assert cells_from(counter, {"a": row, "b": row}) == {"a": cell, "b": cell}
    assert cell_from(counter, cell_from(counter, row).plain()) == cell


@given(RUNS)
def test_many_records_are_put_together_as_one_is(run: Run) -> None:
    counter, _, parts = run
    together: dict[str, Cell] = {}
    for part in parts:
        put_together(counter, together, {"a": cell_of(counter, part)})
    assert together == {"a": cell_of(counter, [call for part in parts for call in part])}


def test_many_floats_are_put_together_without_becoming_infinite() -> None:
    counter = Counter(Kind.FLOAT)
    together: dict[str, Cell] = {}
    for _ in range(3):
        put_together(counter, together, {"a": cell_of(counter, [("add", 1.7e308)])})
    row = msgspec.json.decode(msgspec.json.encode(together["a"].plain()))
    assert cell_from(counter, row).applied_to(counter, 0.0) == pytest.approx(1.797e308, rel=1e-3)


def test_calls_are_counted_and_amounts_added_up_whatever_was_set() -> None:
    cell = cell_of(Counter(), [("add", 5), ("sub", 2), ("set", 100), ("add", 1), ("sub", 4)])
    assert (cell.adds, cell.added, cell.subs, cell.subbed, cell.sets, cell.calls) == (2, 6, 2, 6, 1, 5)
    assert cell.applied_to(Counter(), 7) == 97


@pytest.mark.parametrize(
    "row",
    [
        [],
        [1],
        [1, 2, 3],
        [1, 2, 3, 4, 5, 6, 7, 8],
        ["1", 1],
        [True, 1],
        [-1, 1],
        [1, None],
        [1, True],
        [1, 1.5],
        [1, "x"],
        [1, [1]],
        [1.0, 1],
        [1, 1, 0, 0, 0, None, None],
        [1, None, 0, 0, 0, None, 1],
        [1, 1, 0, None, 0, None, 1],
        [1, 1, -1, 0, 0, None, 1],
        [1, 1, 0, 0, False, None, 1],
        [1, 1, 0, 0, 1, "x", 1],
        {"adds": 1},
        None,
        "[1,1]",
    ],
)
def test_what_is_no_row_is_refused(row: Any) -> None:
    with pytest.raises(ValueError, match="row"):
        cell_from(Counter(), row)
    with pytest.raises(ValueError, match="row"):
        cells_from(Counter(), {"ok": [1, 1], "bad": row})


def test_an_extreme_of_nothing_is_nothing() -> None:
    for reducer in (Reducer.MIN, Reducer.MAX, Reducer.LAST):
        counter = Counter(Kind.INT, reducer)
        assert Cell.blank(counter).applied_to(counter, None) is None
        assert Cell.blank(counter).applied_to(counter, 3) == 3

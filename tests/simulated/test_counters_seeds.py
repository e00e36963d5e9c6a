"""Counters on the simulator: no violation in production classes, and seeds replay."""

from __future__ import annotations

import logging
from decimal import Decimal

import pytest

from tenure.plugins.counters import Counter, Kind, Reducer, clerk, pages, state
from tenure.simulate.counters_books import Call, ExtremeBook, LevelBook, OwnBook, SumBook, selection
from tenure.simulate.counters_fleet import run_counters_seed
from tenure.simulate.counters_kinds import CountersKind
from tenure.simulate.seed import Plan

SEEDS = (2, 5, 6)
"""Small bounds and large ones, time that flies and time that does not, stores with and without conditional deletes."""


@pytest.mark.req("EC-1", "EC-2")
def test_some_seeds_with_every_fault_keep_every_promise() -> None:
    kinds = [CountersKind(seed) for seed in SEEDS]
    assert {kind.conditional_delete for kind in kinds} == {True, False}
    assert any(kind.offered <= 3 for kind in kinds)
    assert any(kind.calendar == "flies" for kind in kinds)
    assert any(kind.calendar != "flies" for kind in kinds)
    for seed in SEEDS:
        result = run_counters_seed(seed, Plan(what="counters", minutes=2, mix="everything"))
        assert result.violations == []
        assert result.faults >= 8
        assert result.coverage["counters:add done"] > 100
        assert result.coverage["counters:put right"] > 0


def test_a_seed_leaves_no_trace() -> None:
    logger = logging.getLogger("tenure")
    before = logger.level, state.MAX_OFFERED, clerk.SEAL_ROWS, clerk.moment_of, pages.HOUR_MS
    run_counters_seed(2, Plan(what="counters", minutes=0.2))
    assert (logger.level, state.MAX_OFFERED, clerk.SEAL_ROWS, clerk.moment_of, pages.HOUR_MS) == before


class TestBooks:
    """The judge's own reckoning: what it is told decides what a total may be."""

    def test_a_sum_tells_which_amounts_are_in_it(self) -> None:
        calls = [_call(amount) for amount in (3, 5, 11, 23)]
        assert selection(16, calls, 0) == [calls[1], calls[2]]
        assert selection(6, calls, 0) is None  # 3 twice
        assert selection(Decimal("0.5"), [_call(Decimal("0.5"), "sub")], Decimal(0)) is None

    def test_an_amount_that_returned_is_counted_once_and_one_that_did_not_happen_never(self) -> None:
        book = SumBook(Counter())
        acked, unknown, refused = _call(3, told="done"), _call(5), _call(11, told="no")
        for call in (acked, unknown, refused):
            book.given(call)
        mark = book.mark()
        assert book.verdict(3, mark) is None
        assert book.verdict(8, mark) is None
        for wrong in (0, 5, 6, 14):
            assert book.verdict(wrong, mark) is not None
        assert book.recorded(8, 0) is None
        assert book.recorded(11, 0) is not None  # once more
        assert (acked.counted, unknown.counted, refused.counted) == (True, True, False)

    def test_one_writers_calls_are_counted_in_its_order(self) -> None:
        book = OwnBook(Counter())
        for call in (_call(3, told="done"), _call(50, "set", told="done"), _call(5), _call(7, told="done")):
            book.given(call)
            book.heard(call)
        assert book.verdict(57, book.mark()) is None
        assert book.verdict(62, book.mark()) is None
        assert book.verdict(60, book.mark()) is not None  # 3 after the set
        assert book.recorded(50, 0) is None
        assert book.recorded(3, 0) is not None  # and back

    def test_extremes_do_not_go_back(self) -> None:
        book = ExtremeBook(Counter(Kind.INT, Reducer.MAX))
        for call in (_call(3, told="done"), _call(9), _call(7, told="done")):
            book.given(call)
        assert book.verdict(7, book.mark()) is None
        assert book.verdict(9, book.mark()) is None
        assert book.verdict(3, book.mark()) is not None
        assert book.verdict(8, book.mark()) is not None
        assert book.recorded(7, None) is None
        assert book.recorded(3, None) is not None

    def test_what_everybody_sets_ends_as_some_order_makes_it(self) -> None:
        book = LevelBook(Counter())
        mine = _call(100, "set", told="done")
        later = _call(3, told="done", began=2.0)
        for call in (mine, later, _call(5, told="done", writer="other")):
            book.given(call)
        for total, is_right in ((103, True), (108, True), (100, False), (105, False), (8, False)):
            book.total = total
            assert (book.final() is None) is is_right


def _call(amount: object, verb: str = "add", *, told: str = "", writer: str = "me", began: float = 0.0) -> Call:
    call = Call("home", "views", verb, amount, writer, began, attempts=1)
    if told:
        call.ended_at = began + 1.0
    if told == "done":
        call.acked_at = began + 1.0
    elif told == "no":
        call.refusals = 1
    return call

"""How a race between writers is judged."""

from __future__ import annotations

import pytest

from tenure.store.races import RaceReport, RoundResult, judge


def round_of(applied: str = "", unknown: str = "", stored: str | None = None) -> RoundResult:
    return RoundResult(applied=tuple(applied), unknown=tuple(unknown), stored=stored)


@pytest.mark.parametrize(
    ("result", "winners", "undecided", "violation"),
    [
        (round_of("a", "", "a"), 1, 0, None),
        (round_of("a", "bc", "a"), 1, 0, None),
        (round_of("", "abc", "b"), 1, 0, None),
        (round_of("", "a", None), 0, 1, None),
        (round_of("", "ab", "old"), 0, 1, None),
        (round_of("ab", "", "a"), 0, 0, "create race 1: 2 of 16 writers were told that they won"),
        (round_of("abc", "d", "d"), 0, 0, "create race 1: 3 of 16 writers were told that they won"),
        (round_of("a", "", "b"), 0, 0, "create race 1: the winner's write is not what is stored"),
        (round_of("a", "b", "b"), 0, 0, "create race 1: the winner's write is not what is stored"),
        (round_of("a", "", None), 0, 0, "create race 1: the winner's write is not what is stored"),
        (round_of("", "", "old"), 0, 0, "create race 1: nobody won, although the condition held"),
        (round_of("", "", None), 0, 0, "create race 1: nobody won, although the condition held"),
    ],
)
def test_one_round(result: RoundResult, winners: int, undecided: int, violation: str | None) -> None:
    report = judge("create", [result], 16, 4)
    assert (report.winners, report.undecided, report.unknown) == (winners, undecided, len(result.unknown))
    assert report.violations == (() if violation is None else (violation,))


def test_rounds_are_summed_and_numbered() -> None:
    results = [
        round_of("a", "b", "a"),
        round_of("ab", "", "a"),
        round_of("", "", "x"),
        round_of("", "cd", "x"),
        round_of("", "efg", "g"),
    ]
    assert judge("replace", results, 8, 2) == RaceReport(
        kind="replace",
        rounds=5,
        contenders=8,
        processes=2,
        winners=2,
        unknown=6,
        undecided=1,
        violations=(
            "replace race 2: 2 of 8 writers were told that they won",
            "replace race 3: nobody won, although the condition held",
        ),
    )


def test_a_write_of_the_round_before_may_have_won() -> None:
    """Nobody wins a round whose condition was broken by a late write: that is no fault of the store."""
    lost, silent = round_of("", "", "x"), round_of("", "cd", "x")
    report = judge("replace", [silent, lost, lost, round_of("a", "", "a"), lost], 8, 2)
    assert (report.winners, report.undecided) == (1, 3)
    assert report.violations == ("replace race 5: nobody won, although the condition held",)


def test_no_rounds_prove_nothing() -> None:
    report = judge("create", [], 8, 2)
    assert (report.rounds, report.winners, report.violations) == (0, 0, ())

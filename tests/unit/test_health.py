"""Health with hysteresis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.coordinator.health import HealthGate


def judged(gate: HealthGate, answers: str) -> str:
    """`+` and `-` are answers; the judgement after each."""
    return "".join("+" if (gate.observe(answer == "+"), gate.healthy)[1] else "-" for answer in answers)


@pytest.mark.req("EL-16")
def test_one_bad_answer_deposes_nobody() -> None:
    assert judged(HealthGate(3, 2), "+-++--+--") == "+" * 9


@pytest.mark.req("EL-16")
def test_three_in_a_row_do() -> None:
    assert judged(HealthGate(3, 2), "---") == "++-"


@pytest.mark.req("EL-16")
def test_one_good_answer_makes_nobody_fit() -> None:
    assert judged(HealthGate(3, 2), "----+-+-++") == "++-------+"


def test_it_says_when_the_judgement_changes() -> None:
    gate = HealthGate(2, 2)
    assert [gate.observe(answer) for answer in (False, False, False, True, True, True)] == [
        *(False, True, False),
        *(False, True, False),
    ]


@pytest.mark.req("EL-16")
@pytest.mark.parametrize("first", [True, False])
def test_where_nothing_is_known_the_first_answer_decides(first: bool) -> None:
    gate = HealthGate(3, 2, known=False)
    assert not gate.healthy  # nobody stands before it was asked
    assert gate.observe(first) is not first  # that it is healthy is no news
    assert gate.healthy is first


def test_after_that_it_is_as_slow_as_any() -> None:
    gate = HealthGate(3, 2, known=False)
    assert judged(gate, "+--+---") == "++++++-"
    gate = HealthGate(3, 2, known=False)
    assert judged(gate, "-+-++") == "----+"


def test_once_can_be_enough() -> None:
    assert judged(HealthGate(1, 1), "-+-") == "-+-"


@given(st.text("+-", max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_a_judgement_changes_only_after_so_many_answers_against_it(answers: str, down: int, up: int) -> None:
    gate = HealthGate(down, up)
    for position, answer in enumerate(answers, 1):
        before = gate.healthy
        changed = gate.observe(answer == "+")
        assert changed == (gate.healthy != before)
        if changed:
            needed, sign = (down, "-") if before else (up, "+")
            assert answers[:position].endswith(sign * needed)

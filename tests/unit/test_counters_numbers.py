"""Kinds of numbers: what may be given, how it is kept, and that nothing is lost between the two."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigError
from tenure.plugins.counters.numbers import LARGEST_AMOUNT, Counter, Kind, Reducer, counter_of, minus, plus, told
from tests.unit.counters_rig import COUNTERS, amounts

INT, FLOAT, DECIMAL = Counter(), Counter(Kind.FLOAT), Counter(Kind.DECIMAL)


@given(st.sampled_from(COUNTERS).flatmap(lambda counter: st.tuples(st.just(counter), amounts(counter))))
def test_what_may_be_given_is_kept_as_it_was(case: tuple[Counter, Any]) -> None:
    counter, value = case
    assert counter.amount("amount", value) == value
    stored = msgspec.json.decode(msgspec.json.encode(counter.stored(value)))
    assert counter.read(stored) == value
    assert type(counter.read(stored)) is type(counter.amount("amount", value))


@given(st.lists(st.integers(-LARGEST_AMOUNT, LARGEST_AMOUNT), max_size=40))
def test_totals_beyond_what_json_readers_take_are_kept_exactly(values: list[int]) -> None:
    total = sum(values) * 10**20
    assert INT.read(msgspec.json.decode(msgspec.json.encode(INT.stored(total)))) == total
    assert abs(int(INT.shown(total))) <= 2**63


@pytest.mark.parametrize(
    ("counter", "value"),
    [
        (INT, True),
        (INT, 1.0),
        (INT, "1"),
        (INT, None),
        (INT, 2**63),
        (INT, -(2**63)),
        pytest.param(INT, 10**5000, id="huge"),
        (INT, Decimal(1)),
        (FLOAT, math.nan),
        (FLOAT, math.inf),
        (FLOAT, 10**400),
        (FLOAT, False),
        (FLOAT, Decimal(1)),
        (DECIMAL, 0.1),
        (DECIMAL, Decimal("NaN")),
        (DECIMAL, Decimal("sNaN")),
        (DECIMAL, Decimal("Infinity")),
        (DECIMAL, Decimal("1E+30")),
        (DECIMAL, Decimal("1E-31")),
        (DECIMAL, Decimal("0E+1000000")),
        pytest.param(DECIMAL, 10**5000, id="huge decimal"),
        (DECIMAL, True),
        (DECIMAL, "1"),
    ],
)
def test_what_is_no_amount_is_refused_and_said_in_few_words(counter: Counter, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"amount is .*: give ") as refused:
        counter.amount("amount", value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("counter", "value"),
    [
        (INT, True),
        (INT, 1.5),
        (INT, "1.5"),
        (INT, "1" * 201),
        (INT, []),
        (INT, None),
        (FLOAT, "1"),
        (FLOAT, math.nan),
        (FLOAT, 10**400),
        (DECIMAL, "1e5"),
        (DECIMAL, "NaN"),
        (DECIMAL, "1" * 121),
        (DECIMAL, 10**120),
        (DECIMAL, math.inf),
        (DECIMAL, 1e300),
        (DECIMAL, {}),
    ],
)
def test_what_is_stored_and_no_number_of_the_kind_is_none(counter: Counter, value: Any) -> None:
    assert counter.read(value) is None


def test_floats_stay_finite_and_decimals_exact() -> None:
    largest = sys.float_info.max
    assert plus(largest, largest) == largest
    assert plus(-largest, -largest) == -largest
    assert plus(Decimal("0.1"), Decimal("0.2")) == Decimal("0.3")
    assert plus(0, Decimal("1E-30")) == Decimal("1E-30")
    assert minus(Decimal(10**40)) == -Decimal(10**40)
    big = Decimal("9" * 59 + "." + "9" * 30)
    assert plus(big, Decimal("1E-30")) == Decimal(10**59)


def test_words_name_every_counter_and_nothing_else() -> None:
    assert [counter_of(counter.word) for counter in COUNTERS] == COUNTERS
    assert [counter_of(word) for word in ("int:avg", "", None, 5, "INT:SUM")] == [None] * 5
    with pytest.raises(ConfigError, match="give a Kind and a Reducer"):
        Counter("int")  # type: ignore[arg-type]


def test_floats_that_differ_by_rounding_are_the_same() -> None:
    assert FLOAT.same(0.1 + 0.2, 0.3)
    assert not FLOAT.same(0.3, 0.4)
    assert not FLOAT.same(None, 0.0)
    assert not INT.same(10**18, 10**18 + 1)


def test_before_the_first_amount_a_sum_is_nothing_and_everything_else_is_unknown() -> None:
    for counter in COUNTERS:
        assert (counter.zero is None) == (counter.reducer is not Reducer.SUM)
    assert isinstance(Counter(Kind.DECIMAL).zero, Decimal)
    assert isinstance(Counter(Kind.FLOAT).zero, float)


def test_whatever_is_told_is_short() -> None:
    assert told(10**5000) == "a number of thousands of digits"
    assert len(told("x" * 1000)) == 80

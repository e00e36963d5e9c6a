"""Which fields are counted, and where they stand in a record."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigError
from tenure.plugins.counters.fields import MAX_FIELDS, fields_from, overlapping, value_at, with_value
from tenure.plugins.counters.numbers import Counter, Kind, Reducer


def test_fields_are_named_or_described() -> None:
    assert fields_from("views") == {"views": Counter()}
    assert fields_from(["views", "stats.likes"]) == {"views": Counter(), "stats.likes": Counter()}
    assert fields_from({"a": int, "b": float, "c": Decimal, "d": "decimal:max", "e": Counter(Kind.FLOAT)}) == {
        "a": Counter(),
        "b": Counter(Kind.FLOAT),
        "c": Counter(Kind.DECIMAL),
        "d": Counter(Kind.DECIMAL, Reducer.MAX),
        "e": Counter(Kind.FLOAT),
    }


@pytest.mark.parametrize(
    "given_fields",
    [
        None,
        5,
        [],
        {},
        [5],
        [["views"]],
        [None],
        [""],
        ["a..b"],
        [".a"],
        ["a."],
        ["a\n"],
        ["\ud800"],
        ["x" * 201],
        [".".join("a" * 17)],
        ["views", "views.today"],
        {"views": "int:avg"},
        {"views": bool},
        {5: int},
        {"views": 10**5000 > 0},
        [f"f{number}" for number in range(MAX_FIELDS + 1)],
    ],
)
def test_what_cannot_be_counted_is_refused(given_fields: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        fields_from(given_fields)
    assert len(str(refused.value)) < 400


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join), max_size=6))
def test_two_of_which_one_is_inside_the_other_are_found(names: list[str]) -> None:
    expected = any(other.startswith(f"{name}.") for name in names for other in names)
    assert (overlapping(set(names)) is not None) == expected


def test_a_value_is_put_where_its_path_leads_and_nothing_that_was_given_changes() -> None:
    data = {"a": {"b": {"c": 1}, "x": 2}}
    assert value_at(data, "a.b.c") == 1
    assert with_value(data, "a.b.c", 9) == {"a": {"b": {"c": 9}, "x": 2}}
    assert with_value({}, "a.b.c", 9) == {"a": {"b": {"c": 9}}}
    assert with_value({"a": None}, "a.b", 9) == {"a": {"b": 9}}
    assert data == {"a": {"b": {"c": 1}, "x": 2}}
    assert value_at(data, "a.x.y") is None
    assert value_at(data, "z") is None


def test_a_value_takes_the_place_of_no_object_and_no_list() -> None:
    """They are somebody's data, and would be gone for good."""
    assert with_value({"stats": {"likes": 3}}, "stats", 1) is None
    assert with_value({"stats": [1]}, "stats", 1) is None
    assert with_value({"stats": 5}, "stats.likes", 1) is None
    assert with_value({"stats": [1]}, "stats.likes", 1) is None
    assert with_value({"stats": "text"}, "stats", 1) == {"stats": 1}

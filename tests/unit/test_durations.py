"""Durations on the command line."""

from __future__ import annotations

import pytest

from tenure.cli.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("5s", 5), ("1.5s", 1.5), ("2m", 120), ("1h", 3600), (" 30s ", 30), ("0s", 0)]
)
def test_a_number_and_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 s", "5S", "5sec", "1e3s", "nan", "infs", "٥s", "1m30s", "9" * 40 + "s"]
)
def test_what_is_none(text: str) -> None:
    assert parse_duration(text) is None

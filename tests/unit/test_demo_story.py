"""The demo's own judge: two spans of belief that overlap are two leaders at once."""

from __future__ import annotations

import pytest

from tenure.demo.candidate import Report
from tenure.demo.story import two_at_once


def term(worker: str, epoch: int, first: int, last: int) -> list[Report]:
    return [Report(at, at + 2, worker, True, epoch) for at in range(first, last + 1, 10)]


@pytest.mark.parametrize(
    ("reports", "pairs"),
    [
        (term("ada", 1, 0, 100) + term("ben", 2, 110, 200), 0),
        (term("ada", 1, 0, 100) + term("ben", 2, 90, 200), 1),
        (term("ada", 1, 0, 100) + term("ben", 2, 30, 40), 1),
        (term("ada", 1, 0, 100) + term("ben", 2, 50, 200) + term("cyd", 3, 70, 80), 3),
        (term("ada", 1, 0, 100) + term("ada", 2, 110, 200), 0),
        # One answer alone was given at some instant between its two times, and proves no overlap at the edge.
        (term("ada", 1, 0, 100) + term("ben", 2, 99, 99), 0),
        ([Report(5, 6, "ben", False, 0), *term("ada", 1, 0, 100)], 0),
        ([], 0),
    ],
)
def test_two_at_once(reports: list[Report], pairs: int) -> None:
    assert two_at_once(reports) == pairs
    assert two_at_once(reversed(reports)) == pairs

"""Every check of every judge of the simulator can report."""

from __future__ import annotations

import pytest

from . import planted as planted
from .checks import PLANTED, Plant, known_checks, reported_in, shown_by_variants

CHECKS = list(known_checks())


@pytest.mark.req("TS-1")
@pytest.mark.parametrize(("what", "check"), CHECKS)
def test_a_check_has_a_variant_or_a_planted_history(what: str, check: str) -> None:
    assert (what, check) in shown_by_variants() or (what, check) in PLANTED


def test_nothing_is_planted_for_a_check_that_no_judge_has() -> None:
    assert set(PLANTED) | set(shown_by_variants()) <= set(CHECKS)


@pytest.mark.req("TS-1")
@pytest.mark.parametrize(
    ("check", "plant"),
    [
        pytest.param(check, plant, id=f"{what}:{plant.__name__}")
        for (what, check), all in PLANTED.items()
        for plant in all
    ],
)
def test_a_planted_history_is_reported(check: str, plant: Plant) -> None:
    assert check in {violation.check for violation in plant().violations}


def test_a_check_is_found_where_it_is_reported() -> None:
    source = """
def judged(self, check, value):
    self._report(check, f"{value}")

def judge(self, x):
    self._report("late", f"{x}")
    checks.report("lost" if x else "twice", "")
    self.judged("early", x)
    self._reports("no", 1)
"""
    assert reported_in(source) == {"late", "lost", "twice", "early"}

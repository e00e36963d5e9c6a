"""Kinds of fleet on the simulator: no violation in production classes. What is directed is in files of its own."""

from __future__ import annotations

import msgspec
import pytest

from tenure.simulate.campaign import run_seeds
from tenure.simulate.fleets import FLEETS
from tenure.simulate.seed import Plan

from .rotating import run_seeds_of_today


class Few(msgspec.Struct, frozen=True):
    """Seeds that are run for every change."""

    what: str
    seeds: int
    minutes: float
    faults: int
    """Of a seed, at least."""
    seen: str
    """Of which a seed has so many, at least ..."""
    least: int


KINDS = [
    pytest.param(Few("lock", 8, 2, 2, "lock:granted", 30), marks=pytest.mark.req("DB-4", "EF-9"), id="lock"),
    pytest.param(
        Few("children", 6, 2, 8, "children:started", 30), marks=pytest.mark.req("SV-2", "SV-9", "EF-9"), id="children"
    ),
    pytest.param(Few("records", 30, 1, 5, "records:insert done", 10), marks=pytest.mark.req("DB-2"), id="records"),
    pytest.param(Few("polling", 6, 2, 8, "polling:completed", 30), marks=pytest.mark.req("SV-4"), id="polling"),
]


@pytest.mark.parametrize("few", KINDS)
def test_some_seeds_have_no_violation(few: Few) -> None:
    for result in run_seeds(range(5001, 5001 + few.seeds), Plan(what=few.what, minutes=few.minutes)):
        assert result.violations == []
        assert result.faults >= few.faults
        assert result.coverage[few.seen] >= few.least


@pytest.mark.parametrize("what", [kind.id for kind in KINDS])
def test_a_seed_replays_exactly(what: str) -> None:
    plan = Plan(what=what, minutes=1)
    first, second, other = (FLEETS[what].run(seed, plan) for seed in (77, 77, 78))
    assert first.coverage == second.coverage
    assert first.simulated_seconds == second.simulated_seconds
    assert other.coverage != first.coverage


@pytest.mark.slow
@pytest.mark.parametrize("few", KINDS)
def test_sixty_seeds_have_no_violation(few: Few) -> None:
    report = run_seeds_of_today(60, Plan(what=few.what, minutes=5))
    assert report.violations == 0, report.first_violation

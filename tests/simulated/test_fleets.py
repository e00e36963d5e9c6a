"""Kinds of fleet on the simulator: no violation in production classes. What is directed is in files of its own."""

from __future__ import annotations

import logging

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


PROMISES = {
    "election": pytest.mark.req("EL-15", "EF-1", "EF-8", "EL-20"),
    "queue": pytest.mark.req("SQ-1", "SQ-2", "SQ-3", "EF-9"),
    "schedule": pytest.mark.req("SC-1", "SC-2", "EF-9"),
    "ttl": pytest.mark.req("TT-1", "TT-2", "EF-9"),
    "counters": pytest.mark.req("EC-1", "EC-2"),
    "lock": pytest.mark.req("DB-4", "EF-9"),
    "children": pytest.mark.req("SV-2", "SV-9", "EF-9"),
    "records": pytest.mark.req("DB-2"),
    "polling": pytest.mark.req("SV-4"),
}
LEAST_FAULTS = {"election": 20, "queue": 20, "schedule": 20, "ttl": 20, "counters": 20}
"""Of each seed of today, of those kinds in which every mix makes as much trouble."""
KINDS = [
    pytest.param(Few("lock", 8, 2, 2, "lock:granted", 30), marks=PROMISES["lock"], id="lock"),
    pytest.param(Few("children", 6, 2, 8, "children:started", 30), marks=PROMISES["children"], id="children"),
    pytest.param(Few("records", 30, 1, 5, "records:insert done", 10), marks=PROMISES["records"], id="records"),
    pytest.param(Few("polling", 6, 2, 8, "polling:completed", 30), marks=PROMISES["polling"], id="polling"),
]


@pytest.mark.parametrize("few", KINDS)
def test_some_seeds_have_no_violation(few: Few) -> None:
    for result in run_seeds(range(5001, 5001 + few.seeds), Plan(what=few.what, minutes=few.minutes)):
        assert result.violations == []
        assert result.faults >= few.faults
        assert result.coverage[few.seen] >= few.least


@pytest.mark.parametrize("what", FLEETS)
def test_a_seed_replays_exactly_and_leaves_no_trace(what: str) -> None:
    before = logging.getLogger("tenure").level
    plan = Plan(what=what, minutes=1)
    first, second, other = (FLEETS[what].run(seed, plan) for seed in (77, 77, 78))
    assert first.coverage == second.coverage
    assert first.simulated_seconds == second.simulated_seconds
    assert other.coverage != first.coverage
    assert logging.getLogger("tenure").level == before


@pytest.mark.slow
@pytest.mark.parametrize("what", [pytest.param(what, marks=marks) for what, marks in PROMISES.items()])
def test_the_seeds_of_today_have_no_violation(what: str) -> None:
    is_election = what == "election"
    report = run_seeds_of_today(300 if is_election else 60, Plan(what=what, minutes=10 if is_election else 5))
    assert report.violations == 0, report.first_violation
    assert report.not_covered == []
    assert report.fewest_faults >= LEAST_FAULTS.get(what, 1)


def test_every_kind_is_tried() -> None:
    assert set(PROMISES) == set(FLEETS)

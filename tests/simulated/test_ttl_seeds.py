"""Records that expire on the simulator: no violation in production classes, and seeds replay."""

from __future__ import annotations

import logging

import pytest

from tenure.simulate.seed import Plan
from tenure.simulate.ttl_fleet import Kind, run_ttl_seed

from .rotating import run_seeds_of_today

SEEDS = (7001, 7002, 7006, 7007)
"""All four strategies, every way to count, stores with and without a conditional delete, one with strangers."""


@pytest.mark.req("TT-1", "TT-2", "EF-9")
def test_some_seeds_with_every_fault_keep_every_promise() -> None:
    kinds = [Kind(seed) for seed in SEEDS]
    assert len({rule.strategy for kind in kinds for rule in kind.rules}) == 4
    assert {rule.field for kind in kinds for rule in kind.rules} == {None, "expires_at", "updated_at"}
    assert {kind.conditional_delete for kind in kinds} == {True, False}
    assert any(kind.strangers for kind in kinds)
    for seed in SEEDS:
        result = run_ttl_seed(seed, Plan(what="ttl", minutes=2, mix="everything"))
        assert result.violations == []
        assert result.faults >= 8
        assert result.coverage["ttl:expired"] > 30


@pytest.mark.slow
def test_a_seed_replays_exactly() -> None:
    first, second = (run_ttl_seed(77, Plan(what="ttl", minutes=1)) for _ in range(2))
    assert first.coverage == second.coverage
    assert first.simulated_seconds == second.simulated_seconds
    assert run_ttl_seed(78, Plan(what="ttl", minutes=1)).coverage != first.coverage


def test_a_seed_leaves_no_trace() -> None:
    logger = logging.getLogger("tenure")
    before = logger.level
    run_ttl_seed(5, Plan(what="ttl", minutes=0.2))
    assert logger.level == before


@pytest.mark.slow
@pytest.mark.req("TT-1", "TT-2", "EF-9")
def test_sixty_seeds_have_no_violation() -> None:
    report = run_seeds_of_today(60, Plan(what="ttl", minutes=5))
    assert report.violations == 0, report.first_violation
    assert report.fewest_faults >= 20

"""The queue on the simulator: no violation in production classes, and seeds replay."""

from __future__ import annotations

import logging

import pytest

from tenure.simulate.queue_fleet import Kind, run_queue_seed
from tenure.simulate.seed import Plan

from .rotating import run_seeds_of_today

SEEDS = (5003, 5004, 5007)
"""One at most once, one with purges, one with results."""


@pytest.mark.req("SQ-1", "SQ-2", "SQ-3", "EF-9")
def test_some_seeds_with_every_fault_keep_every_promise() -> None:
    kinds = [Kind(seed) for seed in SEEDS]
    assert any(kind.at_most_once for kind in kinds)
    assert any(kind.results for kind in kinds)
    assert any(kind.purges for kind in kinds)
    for seed in SEEDS:
        result = run_queue_seed(seed, Plan(what="queue", minutes=2, mix="everything"))
        assert result.violations == []
        assert result.faults >= 8
        assert result.coverage["queue:handled"] > 50


def test_a_seed_replays_exactly() -> None:
    first, second = (run_queue_seed(77, Plan(what="queue", minutes=1)) for _ in range(2))
    assert first.coverage == second.coverage
    assert first.simulated_seconds == second.simulated_seconds
    assert run_queue_seed(78, Plan(what="queue", minutes=1)).coverage != first.coverage


def test_a_seed_leaves_no_trace() -> None:
    logger = logging.getLogger("tenure")
    before = logger.level
    run_queue_seed(5, Plan(what="queue", minutes=0.2))
    assert logger.level == before


@pytest.mark.slow
@pytest.mark.req("SQ-1", "SQ-2", "SQ-3", "EF-9")
def test_sixty_seeds_have_no_violation() -> None:
    report = run_seeds_of_today(60, Plan(what="queue", minutes=5))
    assert report.violations == 0, report.first_violation
    assert report.fewest_faults >= 20

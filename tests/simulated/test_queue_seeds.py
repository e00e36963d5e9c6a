"""The queue on the simulator: no violation in production classes, and seeds replay."""

from __future__ import annotations

import pytest

from tenure.simulate.queue_fleet import Kind, run_queue_seed
from tenure.simulate.seed import Plan

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

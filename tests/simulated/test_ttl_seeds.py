"""Records that expire on the simulator: no violation in production classes, and seeds replay."""

from __future__ import annotations

import pytest

from tenure.simulate.seed import Plan
from tenure.simulate.ttl_fleet import Kind, run_ttl_seed

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

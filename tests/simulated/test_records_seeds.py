"""Records on the simulator: no violation in production classes."""

from __future__ import annotations

import pytest

from tenure.simulate.campaign import run_campaign
from tenure.simulate.records_fleet import RECORDS_MIXES, run_records_seed
from tenure.simulate.seed import Plan


@pytest.mark.req("DB-2")
def test_some_seeds_of_each_kind_of_store_have_no_violation() -> None:
    for seed in range(5000, 5030):
        result = run_records_seed(seed, Plan(what="records", minutes=1))
        assert result.violations == []
        assert result.mix == RECORDS_MIXES[seed % 3].name
        assert result.faults >= 5
        assert result.terms >= 100


def test_a_seed_replays_exactly() -> None:
    first, second = (run_records_seed(77, Plan(what="records", minutes=0.5)) for _ in range(2))
    assert first.coverage == second.coverage
    assert first.simulated_seconds == second.simulated_seconds
    assert run_records_seed(78, Plan(what="records", minutes=0.5)).coverage != first.coverage


@pytest.mark.slow
@pytest.mark.req("DB-2")
def test_three_hundred_seeds_cover_every_fault() -> None:
    report = run_campaign(30_001, 300, Plan(what="records", minutes=5))
    assert report.violations == 0, report.first_violation
    assert report.not_covered == []

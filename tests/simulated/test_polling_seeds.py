"""Polling on the simulator: no violation in production classes. What is directed is in test_poll.py."""

from __future__ import annotations

import pytest

from tenure.simulate.campaign import run_campaign
from tenure.simulate.polling_fleet import run_polling_seed
from tenure.simulate.seed import Plan


@pytest.mark.req("SV-4")
def test_some_seeds_with_every_fault_have_no_violation() -> None:
    for seed in range(5001, 5007):
        result = run_polling_seed(seed, Plan(what="polling", minutes=2))
        assert result.violations == []
        assert result.faults >= 8
        assert result.coverage["polling:completed"] > 30


def test_a_seed_replays_exactly() -> None:
    first, second = (run_polling_seed(77, Plan(what="polling", minutes=1)) for _ in range(2))
    assert first.coverage == second.coverage
    assert first.simulated_seconds == second.simulated_seconds
    assert run_polling_seed(78, Plan(what="polling", minutes=1)).coverage != first.coverage


@pytest.mark.slow
@pytest.mark.req("SV-4")
def test_two_hundred_seeds_cover_every_fault() -> None:
    report = run_campaign(30_001, 200, Plan(what="polling", minutes=5))
    assert report.violations == 0, report.first_violation
    assert report.not_covered == []

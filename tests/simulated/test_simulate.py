"""The simulator: no violation in production classes, and every broken variant is caught."""

from __future__ import annotations

import json

import pytest

from tenure.simulate.seed import Plan, run_seed
from tenure.testing.broken import VARIANTS
from tests.support.command import tenure_process


@pytest.mark.req("EL-15", "EF-1", "EF-8", "EL-20")
def test_some_seeds_with_every_fault_have_no_violation() -> None:
    for seed in range(5001, 5007):
        result = run_seed(seed, Plan(minutes=5, mix="everything"))
        assert result.violations == []
        assert result.faults >= 10
        assert result.terms >= 2


def test_the_command_reports_what_it_did() -> None:
    done = tenure_process("simulate", "--seeds", "2", "--minutes", "2", "--workers", "3", "--json", "--processes", "1")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["seeds"] == 2
    assert report["violations"] == 0
    assert report["first_violation"] is None
    assert report["simulated_seconds"] > 240
    assert report["wall_seconds"] > 0
    assert report["coverage"]["network:applied"] > 0


def test_the_command_exits_with_one_on_a_violation() -> None:
    done = tenure_process("simulate", "--seeds", "3", "--broken", "wall-clock-expiry", "--json", "--processes", "1")
    assert done.code == 1
    violation = json.loads(done.out)["first_violation"]
    assert violation["check"] == "one-leader"
    assert violation["seed"] >= 1


def test_help_lists_every_variant() -> None:
    listed = tenure_process("simulate", "--help").out
    assert all(name in listed for name in VARIANTS)


def test_an_unknown_fault_is_refused_by_name() -> None:
    done = tenure_process("simulate", "--faults", "freeze,gremlins")
    assert done.code == 2
    assert "gremlins" in done.err

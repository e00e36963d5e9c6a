"""Each broken variant is caught in at least 5 % of the seeds of its kind, which take its mixes in turn."""

from __future__ import annotations

import pytest

from tenure.simulate.campaign import run_seeds
from tenure.simulate.fleets import FLEETS
from tenure.simulate.seed import Plan
from tenure.testing.broken import variants_of

SEEDS, LEAST = 40, 2
"""Caught twice in forty seeds, which are the same each time; `tenure simulate --rates` counts all of them."""


@pytest.mark.trials
@pytest.mark.req("TS-2")
@pytest.mark.parametrize(("what", "name"), [(what, name) for what in FLEETS for name in variants_of(what)])
def test_a_broken_variant_is_caught_by_default(what: str, name: str) -> None:
    check = variants_of(what)[name].check
    caught = 0
    for seed in range(1, SEEDS + 1):
        [result] = run_seeds([seed], Plan(what=what, minutes=5, broken=name, until=check))
        caught += result.has_reported(check)
        if caught == LEAST:
            return
    pytest.fail(f"{check!r} reported in {caught} of {SEEDS} seeds")

"""Every broken variant is caught: on the seed that pins.toml names, by the check that is there to catch it."""

from __future__ import annotations

from collections import Counter

import pytest

from tenure.simulate.campaign import run_seeds
from tenure.simulate.fleets import FLEETS
from tenure.testing.broken import all_variants, broken, variants_of
from tools.variants import Pin, read_pins

PINS = read_pins()
CRASHES = ("defect", "halted")
"""Checks that report an exception: a variant that merely crashes shows nothing."""


def test_every_variant_has_one_pin() -> None:
    pinned = Counter((pin.what, pin.variant) for pin in PINS)
    assert pinned == {(what, name): 1 for what in FLEETS for name in variants_of(what)}


def test_no_variant_counts_as_caught_because_it_crashes() -> None:
    assert [name for name, variant in all_variants().items() if variant.check in CRASHES] == []


def test_a_variant_is_undone_afterwards() -> None:
    for name, variant in all_variants().items():
        before = [vars(owner)[attribute] for owner, attribute, _ in variant.patches()]
        with broken(name):
            during = [vars(owner)[attribute] for owner, attribute, _ in variant.patches()]
        assert [vars(owner)[attribute] for owner, attribute, _ in variant.patches()] == before
        assert during != before, name


@pytest.mark.slow
@pytest.mark.req("TS-1")
@pytest.mark.parametrize("pin", PINS, ids=lambda pin: f"{pin.what}:{pin.variant}")
def test_a_broken_variant_is_caught_by_its_check(pin: Pin) -> None:
    [result] = run_seeds([pin.seed], pin.plan)
    checks = {violation.check for violation in result.violations}
    assert pin.plan.until in checks, f"seed {pin.seed} shows {checks or 'nothing'}: `make variants` finds another seed"

"""What goes wrong in a run of chaos is a pure function of its seed, and all of it comes to its turn and its end."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lab.chaos import __main__ as chaos
from lab.chaos.plan import KINDS, OF_PROCESS, OF_STORE, SECONDS, Kind, Target, Timing, plan, waves_in
from lab.soak import __main__ as soak

STORES = pytest.mark.parametrize("store", sorted(KINDS))


@STORES
def test_the_same_seed_gives_the_same_plan(store: str) -> None:
    assert plan(7, 1800, 6, KINDS[store]) == plan(7, 1800, 6, KINDS[store])
    assert plan(7, 1800, 6, KINDS[store]) != plan(8, 1800, 6, KINDS[store])


@STORES
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("seconds", [10, 60, 180, 1800])
def test_every_kind_comes_however_short_the_run(store: str, seed: int, seconds: float) -> None:
    assert {step.kind for step in plan(seed, seconds, 5, KINDS[store])} == set(KINDS[store])


@STORES
@pytest.mark.parametrize("seed", range(20))
def test_all_that_begins_in_a_wave_ends_with_it(store: str, seed: int) -> None:
    timing = Timing(wave=20.0, calm=25.0)
    steps = plan(seed, 600, 5, KINDS[store], timing)
    assert {step.wave for step in steps} == set(range(waves_in(600, timing)))
    for step in steps:
        assert 0 <= step.at < timing.wave
        assert 0 < step.seconds <= SECONDS[step.kind][1]
        assert step.at + step.seconds <= timing.wave + 0.001
        assert 0 <= step.index < 5


def test_no_kind_comes_twice_before_every_other_came_once() -> None:
    kinds = KINDS["ministack"]
    dealt = [step.kind for step in plan(3, 3600, 6, kinds)]
    for at in range(0, len(dealt) - len(kinds), len(kinds)):
        assert set(dealt[at : at + len(kinds)]) == set(kinds)


def test_faults_of_the_store_are_meant_for_the_store_and_others_for_a_process() -> None:
    assert set(Kind) == OF_STORE | OF_PROCESS
    assert not OF_STORE & OF_PROCESS
    steps = [step for store in KINDS for step in plan(11, 3600, 6, KINDS[store])]
    assert all((step.target is Target.STORE) == (step.kind in OF_STORE) for step in steps)
    assert {step.target for step in steps} == set(Target)
    leaps = {step.amount for step in steps if step.kind is Kind.CLOCK}
    assert min(leaps) < -3600
    assert max(leaps) > 3600
    assert all(step.amount > 0 for step in steps if step.kind is Kind.STORE_SLOW)


def test_a_directory_has_a_disk_and_no_network() -> None:
    assert Kind.FULL_DISK in KINDS["directory"]
    assert not {Kind.CUT_OFF, Kind.STORM, Kind.STORE_RESTART} & set(KINDS["directory"])


@pytest.mark.parametrize("of", [chaos, soak], ids=["chaos", "soak"])
@pytest.mark.parametrize(
    "given",
    [
        *(["--nodes", each] for each in ("0", "1", "13", "99", "-3", "five", "2.5", "", "9" * 30)),
        *(["--minutes", each] for each in ("0", "-1", "nan", "inf", "x", "1e9")),
    ],
    ids=" ".join,
)
def test_numbers_that_cannot_be_are_refused_at_once(
    of: Any, given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        of.parse_arguments(given)
    assert ended.value.code == 2
    assert re.search(rf"error: argument {given[0]}: .*(give|expected)", capsys.readouterr().err)


@pytest.mark.parametrize("of", [chaos, soak], ids=["chaos", "soak"])
def test_numbers_that_can_be_are_taken(of: Any) -> None:
    for nodes in ("3", "8", "12"):
        assert of.parse_arguments(["--nodes", nodes, "--minutes", "0.5"]).nodes == int(nodes)

"""The model of the lease holds, its broken variants do not, and its search is one: see tools/model.py.

No requirement is marked here: the model shows that the rules are right, not that the code follows them.
"""

from __future__ import annotations

import os

import pytest

from tools import model
from tools.model import CONFIGURATIONS, Configuration, Expected, Result

HOLDS = Configuration("the model", Expected.HOLDS, {"N": 2})
BROKEN = Configuration("BROKEN", Expected.VIOLATES, {"BROKEN": None})
REACHES = Configuration("a landmark", Expected.REACHES, {"REACH": 3})

COMPLETE = """
(Spin Version 6.5.2 -- 6 December 2019)
\t+ Partial Order Reduction

Full statespace search for:
\tassertion violations\t+

State-vector 140 byte, depth reached 682, errors: 0
   554839 states, stored
"""
VIOLATED = """
pan:1: assertion violated  !((((valid[0]>0)+(valid[1]>0))>1)) (at depth 79)
pan: wrote lease.pml.trail
\t+ Partial Order Reduction
State-vector 132 byte, depth reached 821, errors: 1
    12263 states, stored
"""


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """Of all configurations, searched on all cores: one test after the other would leave all but one idle."""
    absent = model.missing()
    if absent:
        reason = f"not installed: {', '.join(absent)}; run tools/install-servers, or: {model.INSTALL}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return {result.configuration.name: result for result in model.search_all(CONFIGURATIONS)}


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda configuration: configuration.name)
def test_the_search_finds_what_it_should(configuration: Configuration, results: dict[str, Result]) -> None:
    result = results[configuration.name]
    print(result.line())
    assert result.as_expected, result.line()


def test_names_are_unique() -> None:
    assert len({configuration.name for configuration in CONFIGURATIONS}) == len(CONFIGURATIONS)


def test_every_broken_variant_of_the_model_is_searched() -> None:
    text = model.MODEL.read_text(encoding="utf-8")
    header = text[: text.index("*/")]
    listed = {line.split()[1] for line in header.splitlines() if line.startswith(" *   ") and "_" in line.split()[1]}
    assert len(listed) > 10
    searched = {configuration.name for configuration in CONFIGURATIONS if configuration.expected is Expected.VIOLATES}
    assert listed <= searched
    for name in searched:
        assert f"ifdef {name}" in text or f"ifndef {name}" in text or f"defined({name})" in text, name


def test_a_complete_search_without_errors_holds() -> None:
    result = model.judge(HOLDS, COMPLETE)
    assert result.as_expected
    assert (result.states, result.depth) == (554839, 682)
    assert not model.judge(BROKEN, COMPLETE).as_expected
    assert not model.judge(REACHES, COMPLETE).as_expected


@pytest.mark.parametrize(
    "output",
    [
        "",
        COMPLETE.replace("errors: 0", "errors: 1"),
        COMPLETE.replace("\t+ Partial Order Reduction\n", ""),
        COMPLETE + "Warning: Search not completed\n",
        COMPLETE + "error: max search depth too small\n",
        COMPLETE + "pan: reached -DMEMLIM bound\n",
        COMPLETE.replace("Full statespace", "Bit statespace"),
        VIOLATED,
    ],
)
def test_nothing_else_holds(output: str) -> None:
    assert not model.judge(HOLDS, output).as_expected


def test_a_variant_is_caught_by_an_invariant_and_by_nothing_else() -> None:
    caught = model.judge(BROKEN, VIOLATED)
    assert caught.as_expected
    assert caught.verdict == "violated I-1"
    reached = VIOLATED.replace("!((((valid[0]>0)+(valid[1]>0))>1))", "(3!=3)")
    assert not model.judge(BROKEN, reached).as_expected
    assert model.judge(REACHES, reached).as_expected
    assert not model.judge(REACHES, reached.replace("3!=3", "4!=4")).as_expected
    assert not model.judge(BROKEN, COMPLETE.replace("errors: 0", "errors: 1")).as_expected


def test_a_model_that_cannot_be_translated_is_not_as_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    assert model.missing() == ["spin", "cc"]
    assert not model.search(BROKEN).as_expected
    assert model.main([]) == 1

"""What counts as a search of the model of the lease, and when it is searched: see tools/model.py.

`make model` searches it, and so do `make test-servers`, if it was changed, and `make trials`. No requirement is marked
here: the model shows that the rules are right, not that the code follows them.
"""

from __future__ import annotations

from pathlib import Path

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


class TestSearchedBefore:
    """`--if-changed`, with a model that stands for the real one."""

    @pytest.fixture(autouse=True)
    def wrong(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """Names of configurations that are found otherwise than expected."""
        wrong: set[str] = set()

        def search(configuration: Configuration) -> Result:
            return Result(configuration, configuration.name not in wrong, "searched")

        (tmp_path / "lease.pml").write_text("a model")
        monkeypatch.setattr(model, "MODEL", tmp_path / "lease.pml")
        monkeypatch.setattr(model, "SEARCHED", tmp_path / "searched.txt")
        monkeypatch.setattr(model, "missing", list)
        monkeypatch.setattr(model, "search", search)
        return wrong

    def searches(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, int]:
        """The exit code, and how many configurations were searched."""
        code = model.main(arguments)
        return code, capsys.readouterr().out.count(" searched: ")

    def test_an_unchanged_model_is_not_searched_again(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.searches(capsys, "--if-changed") == (0, len(CONFIGURATIONS))
        assert self.searches(capsys, "--if-changed") == (0, 0)
        assert self.searches(capsys) == (0, len(CONFIGURATIONS))

    def test_a_changed_model_is_searched(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.searches(capsys)
        model.MODEL.write_text("another model")
        assert self.searches(capsys, "--if-changed") == (0, len(CONFIGURATIONS))

    def test_a_search_that_fails_or_is_not_complete_is_not_recorded(
        self, capsys: pytest.CaptureFixture[str], wrong: set[str]
    ) -> None:
        assert self.searches(capsys, CONFIGURATIONS[0].name) == (0, 1)
        assert not model.is_searched()
        wrong.add(CONFIGURATIONS[-1].name)
        assert self.searches(capsys, "--if-changed") == (1, len(CONFIGURATIONS))
        assert not model.is_searched()

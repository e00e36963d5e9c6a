"""The budget of the tests: seconds by group, and what is made of a group that takes more than it may."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tools import pytest_budget
from tools.pytest_budget import REST, Budget, read, table, too_slow

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
BUDGET = Budget(0.25, {"tests/unit": 100.0, "tests/unit/test_queue": 50.0, REST: 60.0})
FILE = 'reference = 100.0\n[all]\n"test_slow" = {slow}\n"everything else" = 60\n'
TESTS = {
    "test_slow": "import time\ndef test_it(): time.sleep(0.3)\n",
    "test_quick": "def test_it(): pass\n",
}


@pytest.mark.parametrize(
    ("node_id", "group"),
    [
        ("tests/unit/test_clock.py::test_x", "tests/unit"),
        ("tests/unit/test_queue_state.py::test_x", "tests/unit/test_queue"),
        ("tests/integration/test_x.py::test_x", REST),
    ],
)
def test_the_longest_beginning_counts(node_id: str, group: str) -> None:
    assert BUDGET.group_of(node_id) == group


def test_a_fifth_above_is_borne_and_more_is_not() -> None:
    seconds = {"tests/unit": 120.0, "tests/unit/test_queue": 61.0, REST: 1.0}
    assert too_slow(BUDGET, seconds, 1.0) == ["tests/unit/test_queue"]
    assert too_slow(BUDGET, seconds, 1.1) == [], "a slower machine has more time"
    assert too_slow(BUDGET, {}, 1.0) == []
    lines = table(BUDGET, seconds, 1.0)
    assert lines[1].split() == ["tests/unit", "120", "100"]
    assert lines[2].split() == ["tests/unit/test_queue", "61", "50", "TOO", "SLOW"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("reference = 1.0\n", "no section"),
        ("reference = 1.0\n[all]\nx = 1\n", "no section"),
        ('[all]\n"everything else" = 1\n', "'reference' is not"),
        ('reference = 1\n[all]\n"everything else" = "x"\n', "'everything else' is not"),
        ('reference = 1\n[all]\n"everything else" = 1\nx = 0\n', "'x' is not"),
        ('reference = 1\n[all]\n"everything else" = true\n', "'everything else' is not"),
    ],
)
def test_a_file_that_is_wrong_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(text, "all")


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest('pytest_plugins = ["tools.pytest_budget"]')
    pytester.makepyprojecttoml(
        f'[tool.pytest.ini_options]\npythonpath = ["{ROOT}"]\nasyncio_default_fixture_loop_scope = "function"\n'
    )
    pytester.makepyfile(**TESTS)
    return pytester


@pytest.mark.req("TS-4")
@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=["alone", "workers"])
def test_a_session_with_a_group_that_is_too_slow_fails(project: pytest.Pytester, workers: tuple[str, ...]) -> None:
    project.path.joinpath("budget.toml").write_text(FILE.format(slow=0.1))
    run = project.runpytest_subprocess if workers else project.runpytest
    ran = run("--budget", "budget.toml#all", *workers)
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    ran.stdout.fnmatch_lines(["test_slow*TOO SLOW", "test_slow took more than a fifth above its budget:*"])
    ran.assert_outcomes(passed=2)


def test_a_session_within_its_budget_passes_and_prints_it(project: pytest.Pytester) -> None:
    project.path.joinpath("budget.toml").write_text(FILE.format(slow=5))
    ran = project.runpytest("--budget", "budget.toml#all")
    assert ran.ret == pytest.ExitCode.OK
    ran.stdout.fnmatch_lines(["*seconds by group*", "test_slow * 0 * 5"])


def test_without_the_option_nothing_is_measured(project: pytest.Pytester) -> None:
    ran = project.runpytest()
    assert ran.ret == pytest.ExitCode.OK
    ran.stdout.no_fnmatch_line("*seconds by group*")


def test_a_budget_that_is_not_there_is_refused(project: pytest.Pytester) -> None:
    ran = project.runpytest("--budget", "budget.toml#all")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["*--budget budget.toml#all: *No such file*"])


def test_a_slower_machine_has_larger_budgets(project: pytest.Pytester) -> None:
    project.path.joinpath("budget.toml").write_text(FILE.format(slow=0.1).replace("100.0", "0.000001"))
    ran = project.runpytest("--budget", "budget.toml#all")
    assert ran.ret == pytest.ExitCode.OK
    ran.stdout.fnmatch_lines(["(this machine was * times as slow as the reference)"])


def test_the_budgets_of_this_project_name_files_that_are_there() -> None:
    text = (ROOT / "tests" / "budget.toml").read_text(encoding="utf-8")
    sections = {name for name, value in tomllib.loads(text).items() if isinstance(value, dict)}
    named = (ROOT / "Makefile").read_text(encoding="utf-8").count("--budget tests/budget.toml#")
    assert len(sections) == named
    there = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    for section in sections:
        for group in read(text, section).groups:
            assert group == REST or any(path.startswith(group) for path in there), group


def test_a_calibration_takes_a_moment() -> None:
    assert 0 < pytest_budget.calibrate() < 30

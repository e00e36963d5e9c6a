"""Pytest plugin: seconds by group, and a budget that they must not exceed.

    pytest --budget tests/budget.toml#test tests

A section of the file gives groups and their seconds. A group is the beginning of node ids: the longest that fits
counts. "everything else" is what no group names: small groups belong there, since one slow start would upset them.

    reference = 0.25

    [test]
    "tests/unit" = 300
    "tests/unit/test_queue" = 90
    "everything else" = 60

At the end the seconds of each group are printed. A group that takes more than a fifth above its budget fails a session
that would have passed. Seconds are of tests, added up over all workers. They are compared with what this machine could
do: a fixed piece of work is timed at the beginning and at the end, `reference` is what it took where the budgets were
measured, and on a machine that is slower, or has other work, all budgets are as much larger. Without the option nothing
is measured; it is for complete runs, as `make test` and `make test-servers` are.
"""

from __future__ import annotations

import hashlib
import statistics
import time
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

REST = "everything else"
ABOVE = 1.2
"""Times its budget, from which a group is too slow."""
_SAMPLES = 5


class Budget(msgspec.Struct, frozen=True):
    reference: float
    groups: Mapping[str, float]

    def group_of(self, node_id: str) -> str:
        return max((group for group in self.groups if node_id.startswith(group)), key=len, default=REST)


def read(text: str, section: str) -> Budget:
    """Raises `ValueError` if the file does not have it, or has it wrong."""
    found = tomllib.loads(text)
    groups = found.get(section)
    if not isinstance(groups, dict) or REST not in groups:
        raise ValueError(f'it has no section [{section}] with "{REST}"')
    numbers = {"reference": found.get("reference"), **groups}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ValueError(f"{name!r} is not a number of seconds above 0")
    return Budget(float(numbers["reference"]), {group: float(seconds) for group, seconds in groups.items()})


def too_slow(budget: Budget, seconds: Mapping[str, float], scale: float) -> list[str]:
    """The groups that took more than they may."""
    return [group for group, most in budget.groups.items() if seconds.get(group, 0.0) > most * scale * ABOVE]


def table(budget: Budget, seconds: Mapping[str, float], scale: float) -> list[str]:
    wide = max(map(len, budget.groups))
    slow = too_slow(budget, seconds, scale)
    lines = [f"{'group':<{wide}}  seconds   budget"]
    for group, most in sorted(budget.groups.items(), key=lambda each: -seconds.get(each[0], 0.0)):
        mark = "  TOO SLOW" if group in slow else ""
        lines.append(f"{group:<{wide}}  {seconds.get(group, 0.0):7.0f}  {most * scale:7.0f}{mark}")
    return lines


def calibrate() -> float:
    """Seconds that a fixed piece of work takes now: the median of some, so that one interruption does not count."""

    def work() -> float:
        began = time.perf_counter()
        digest = b"tenure"
        for _ in range(150_000):
            digest = hashlib.sha256(digest).digest()
        return time.perf_counter() - began

    return statistics.median(work() for _ in range(_SAMPLES))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", metavar="FILE#SECTION", help="seconds by group, and an error if one takes more")


def pytest_configure(config: pytest.Config) -> None:
    where = config.getoption("budget")
    if where is None or hasattr(config, "workerinput"):
        return  # under pytest-xdist the controller sees all reports
    name, _, section = where.rpartition("#")
    try:
        budget = read((config.rootpath / name).read_text(encoding="utf-8"), section)
    except (OSError, ValueError) as problem:
        raise pytest.UsageError(f"--budget {where}: {problem}") from problem
    config.pluginmanager.register(Watch(budget, Path(name)), "tenure-budget")


class Watch:
    """State of one session."""

    def __init__(self, budget: Budget, file: Path) -> None:
        self._budget = budget
        self._file = file
        self._began = calibrate()
        self._seconds: Counter[str] = Counter()
        self._scale = 1.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[self._budget.group_of(report.nodeid)] += report.duration  # type: ignore[assignment]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._scale = max(1.0, self._began / self._budget.reference, calibrate() / self._budget.reference)
        if session.exitstatus == pytest.ExitCode.OK and self._too_slow():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds by group")
        for line in table(self._budget, self._seconds, self._scale):
            terminalreporter.write_line(line)
        if self._scale > 1:
            terminalreporter.write_line(f"(this machine was {self._scale:.1f} times as slow as the reference)")
        for group in self._too_slow():
            terminalreporter.write_line(
                f"{group} took more than a fifth above its budget: `--durations=25` shows what is slow. Make it "
                f"faster, mark it as trials, or raise the budget in {self._file} and say why in the commit.",
                red=True,
            )

    def _too_slow(self) -> list[str]:
        return too_slow(self._budget, self._seconds, self._scale)

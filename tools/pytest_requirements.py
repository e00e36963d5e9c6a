"""Pytest plugin: records which tests passed and failed for each requirement id.

A test names its requirements with `@pytest.mark.req("EF-1", "EF-2")`, on a function, a class or a module. At the end of
a session the results are merged into `.reports/requirements-<tier>.json`, where the tier is the first folder under
`tests`, and `tools/requirements.py` reports them:

    {"passed": {"EF-1": ["tests/unit/test_x.py::test_y"]}, "failed": {}, "collected_at": "2026-01-01T00:00:00+00:00"}

The merge is by node id: a run replaces what is recorded of the tests that it ran and leaves the others alone, so the
record can be built up tier by tier or file by file. Under pytest-xdist only the controller sees all reports, so only
the controller writes; ids travel to it in each report's `user_properties`.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tools.requirements import ID

PROPERTY = "requirements"
COLLECTED = "requirements_collected"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "req(*ids): the requirements (docs/requirements.md) that this test shows")
    config.pluginmanager.register(Recorder(config), "tenure-requirements-recorder")


def required_ids(item: pytest.Item) -> tuple[list[str], list[str]]:
    """The ids that a test names, and what is wrong with its marks."""
    ids: list[str] = []
    wrong: list[str] = []
    for mark in item.iter_markers("req"):
        if mark.kwargs or not mark.args:
            wrong.append(f"{item.nodeid}: req takes one or more ids and nothing else")
        for value in mark.args:
            if not isinstance(value, str) or ID.fullmatch(value) is None:
                wrong.append(f"{item.nodeid}: {value!r} is not a requirement id such as 'EF-1'")
            elif value not in ids:
                ids.append(value)
    return ids, wrong


def tier_of(node_id: str) -> str:
    folders = node_id.partition("::")[0].split("/")[:-1]
    return folders[1] if len(folders) > 1 and folders[0] == "tests" else "other"


class Recorder:
    """State of one session: of one pytest.Config, because a test may run pytest inside pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ids: dict[str, list[str]] = {}
        self._outcomes: dict[str, str] = {}
        self._collected: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        # A malformed mark is an error in collecting its file, which xdist carries home like any other.
        report = yield
        found = report.result or ()
        wrong = [problem for item in found if isinstance(item, pytest.Item) for problem in required_ids(item)[1]]
        if wrong:
            report.outcome = "failed"
            report.longrepr = "\n".join(wrong)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # First, because -k and -m remove items here: a deselected test exists all the same.
        for item in items:
            ids, _ = required_ids(item)
            item.user_properties.append((PROPERTY, " ".join(ids)))
        if self._collects_whole_files():
            self._collected.update(item.nodeid for item in items)

    def _collects_whole_files(self) -> bool:
        last_failed = self._config.getoption("lf", default=False)
        return not last_failed and not any("::" in argument for argument in self._config.args)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        if PROPERTY in properties:
            self._ids[report.nodeid] = properties[PROPERTY].split()
        self._outcomes.setdefault(report.nodeid, "skipped")
        if report.failed:
            # In any phase: a test whose fixtures do not work has shown nothing.
            self._outcomes[report.nodeid] = "failed"
        elif (
            report.when == "call"
            and report.passed
            and not hasattr(report, "wasxfail")
            and self._outcomes[report.nodeid] != "failed"
        ):
            self._outcomes[report.nodeid] = "passed"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        self._collected.update(getattr(node, "workeroutput", {}).get(COLLECTED, ()))

    def pytest_sessionfinish(self) -> None:
        worker_output = getattr(self._config, "workeroutput", None)
        if worker_output is not None:
            worker_output[COLLECTED] = sorted(self._collected)
            return
        by_tier: dict[str, list[str]] = defaultdict(list)
        for node_id in self._outcomes:
            by_tier[tier_of(node_id)].append(node_id)
        for tier, node_ids in by_tier.items():
            self._merge(tier, node_ids)

    def _merge(self, tier: str, ran: list[str]) -> None:
        file = self._config.rootpath / ".reports" / f"requirements-{tier}.json"
        content = {"passed": self._kept(file, "passed", ran), "failed": self._kept(file, "failed", ran)}
        for node_id in ran:
            outcome = self._outcomes[node_id]
            if outcome in content:
                for id_ in self._ids.get(node_id, ()):
                    content[outcome].setdefault(id_, set()).add(node_id)
        written = {
            key: {id_: sorted(tests) for id_, tests in sorted(by_id.items()) if tests} for key, by_id in content.items()
        }
        collected_at = datetime.now(UTC).isoformat(timespec="seconds")
        file.parent.mkdir(exist_ok=True)
        # Renamed into place: a session that is killed here must not leave half a file for the next one to read.
        partial = file.with_name(f"{file.name}.{os.getpid()}")
        partial.write_text(json.dumps({**written, "collected_at": collected_at}, indent=2) + "\n", encoding="utf-8")
        partial.replace(file)

    def _kept(self, file: Path, key: str, ran: list[str]) -> dict[str, set[str]]:
        """What earlier runs recorded and this one says nothing about."""
        try:
            before: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))[key]
        except FileNotFoundError:
            return {}
        replaced = set(ran)
        return {
            id_: {test for test in tests if test not in replaced and not self._is_gone(test)}
            for id_, tests in before.items()
        }

    def _is_gone(self, node_id: str) -> bool:
        """A test that was renamed or removed must not go on counting as proof."""
        name = node_id.partition("::")[0]
        if not (self._config.rootpath / name).exists():
            return True
        collected_files = {test.partition("::")[0] for test in self._collected}
        return name in collected_files and node_id not in self._collected

"""Figures of several trials lie side by side in one file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.figures import record


def test_each_trial_has_its_place_and_the_last_run_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "reports" / "queue.json"
    record(report, "kills", {"lost": 1}, "ceph")
    record(report, "kills", {"lost": 0}, "ceph")
    record(report, "kills", {"lost": 2}, "directory")
    record(report, "adds", {"count": 7})
    assert json.loads(report.read_text()) == {
        "adds": {"count": 7},
        "kills": {"ceph": {"lost": 0}, "directory": {"lost": 2}},
    }
    printed = capsys.readouterr().out
    assert 'kills, ceph: {"lost": 1}' in printed
    assert 'adds: {"count": 7}' in printed

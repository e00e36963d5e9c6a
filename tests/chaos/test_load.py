"""`make load` in small: many coordinators in real processes on ministack, a busy queue, a leader that is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.servers, pytest.mark.chaos, pytest.mark.trials]
ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--coordinators", "40", "--processes", "2", "--handlers", "4", "--saturation", "12")


def load(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Its exit code and its verdict."""
    done = subprocess.run(
        [sys.executable, "-m", "lab.load", "--json", "--logs", str(folder / "load"), *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_fleet_keeps_its_heartbeats_and_its_messages_while_leaders_are_killed(tmp_path: Path) -> None:
    # A part of the maximum, and the lease that comes by default.
    code, verdict = load(tmp_path, *SMALL, "--minutes", "0.75", "--kills", "1", "--share", "0.3")
    assert (code, verdict["violations"]) == (0, []), json.dumps(verdict, indent=1)
    figures = {part["part"]: part["figures"] for part in verdict["judged"]}
    assert figures["heartbeats"]["least_alive"] >= 20
    assert figures["queue"]["accepted"] > 100
    assert len(verdict["run"]["kills"]) == 1


def test_processes_that_misbehave_under_load_are_found_out(tmp_path: Path) -> None:
    broken = [part for name in ("slow-heartbeats", "falls-silent", "acks-unhandled") for part in ("--broken", name)]
    code, verdict = load(tmp_path, *SMALL, "--minutes", "0.7", "--kills", "0", "--share", "0.3", *broken)
    found = {text.split(":")[1].strip() for text in verdict["violations"]}
    assert code == 1
    assert {"slow", "too_few_alive", "lost", "no_failover"} <= found, verdict["violations"]

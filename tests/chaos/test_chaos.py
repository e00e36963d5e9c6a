"""Three minutes of `make chaos`, and processes that misbehave, which must not pass it.

Recoveries are judged by the clock, so these have the machine to themselves: `make test-servers` and `make trials` run
theirs last, one after the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.servers, pytest.mark.chaos]


def chaos(folder: Path, *arguments: str, code: int) -> dict[str, Any]:
    """The verdict of a run, which must end with this code."""
    command = [sys.executable, "-m", "lab.chaos", "--json", "--logs", str(folder / "logs"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, check=False)
    assert done.returncode == code, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def parts_of(verdict: dict[str, Any]) -> set[str]:
    return {violation.partition(":")[0] for violation in verdict["violations"]}


@pytest.mark.req("EL-15", "EF-1", "EF-9", "DB-4", "SQ-1", "SC-2", "EC-2", "TT-2", "SV-2", "EL-20")
def test_nothing_that_is_promised_breaks(tmp_path: Path) -> None:
    verdict = chaos(tmp_path, "--store", "ministack", "--minutes", "3", "--seed", "101", code=0)
    assert verdict["violations"] == []
    run = verdict["run"]
    assert run["faulted"] > 100, "faults that hardly any request met show nothing"
    assert len(run["calms"]) == 3
    assert run["wiped_objects"] > 100
    figures = {each["part"]: each["figures"] for each in verdict["judged"]}
    assert figures["election"]["terms"] > 3
    assert figures["queue"]["handled"] > 500
    assert figures["counters"]["acknowledged"] > 500
    assert figures["schedule"]["runs"] > 300
    assert figures["expiry"]["found_gone"] > 100


@pytest.mark.trials
def test_processes_that_misbehave_are_found(tmp_path: Path) -> None:
    """Each in every way at once. Leaders that believe on are found out when they freeze, as three do."""
    broken = {
        "believes-on": "election",
        "leaves-program": "program",
        "acks-unhandled": "queue",
        "loses-enqueue": "queue",
        "fires-twice": "schedule",
        "counts-twice": "counters",
        "expires-early": "expiry",
        "gives-up": "recovery",
    }
    options = [part for name in broken for part in ("--broken", name)]
    for only in ("freeze", "store-freeze"):
        options += ["--only", only]
    verdict = chaos(tmp_path, "--minutes", "1", "--seed", "215", "--skip-wiping", *options, code=1)
    assert set(broken.values()) <= parts_of(verdict)
    assert [text for text in verdict["violations"] if text.startswith("queue: lost")]

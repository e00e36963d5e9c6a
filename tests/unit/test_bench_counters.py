"""`make bench-counters` is run by hand: what it counts, and that it still runs, is tested here."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.counters.figures import changes, load_json, missed, spent
from bench.counters.ours import Bench
from bench.counters.plan import LEAST_PER_SECOND, Plan
from bench.counters.table import show


def look(cpu: float, sent: int, **requests: dict[str, int]) -> dict[str, Any]:
    return {"cpu": cpu, "bytes_sent": sent, "bytes_received": 0, "requests": requests}


def share(count: int, began: float, ended: float) -> dict[str, Any]:
    return {"count": count, "began": began, "ended": ended}


def good() -> dict[str, Any]:
    run = {"adds": 100, "counted": 100, "consolidated_per_second": LEAST_PER_SECOND, "requests_each": 0.02}
    rows = [
        {"stored": stored, "touched": 10, "first": {"requests_each": 2.2}, "again": {"requests_each": 1.2}}
        for stored in (100, 1000)
    ]
    return {"load": [{"callers": 1000, "runs": [run]}], "growth": rows}


def test_what_a_load_took_is_counted_over_all_processes() -> None:
    before = [look(1.0, 100, ledger={"get": 1}), look(2.0, 0)]
    after = [look(3.0, 300, ledger={"get": 3}, records={"replace": 4}), look(3.0, 500, ledger={"create": 2})]
    assert spent(before, after) == {"ledger": {"get": 2, "create": 2}, "records": {"replace": 4}}
    found = load_json([share(100, 10.0, 12.0), share(300, 10.5, 14.0)], 15.0, before, after, total=400)
    assert (found["acknowledged_per_second"], found["consolidated_per_second"]) == (100.0, 80.0)
    assert found["requests_each"] == 8 / 400
    assert found["bytes_per_add"] == 700 / 400
    writer = 1.0 / 300
    assert found["writer_cpu_us_per_add"] == round(writer * 1e6, 2)
    assert found["leader_cpu_us_per_add"] == round((2.0 - 100 * writer) / 400 * 1e6, 2)


def test_bars_that_are_missed_are_told() -> None:
    assert missed(good()) == []
    for spoil, said in (
        (lambda found: found["load"][0]["runs"][0].update(counted=99), "99 counted"),
        (lambda found: found["load"][0]["runs"][0].update(requests_each=0.021), "0.0210 requests"),
        (lambda found: found["load"][0]["runs"][0].update(consolidated_per_second=LEAST_PER_SECOND - 1), "49,999"),
        (lambda found: found["growth"][1]["again"].update(requests_each=1.3), "+8.3%"),
    ):
        found = copy.deepcopy(good())
        spoil(found)
        (sentence,) = missed(found)
        assert said in sentence


def test_few_callers_may_need_more_requests_for_each() -> None:
    found = good()
    found["load"][0].update(callers=100)
    found["load"][0]["runs"][0].update(requests_each=0.2)
    assert missed(found) == []


def test_growth_is_compared_from_the_fewest_to_the_most_stored() -> None:
    rows = list(reversed(good()["growth"]))
    assert changes(rows) == {"10 (first)": 0.0, "10 (again)": 0.0}
    assert changes([]) == {}


@pytest.mark.slow
def test_it_runs(tmp_path: Path) -> None:
    """With real processes. No figure is judged but those that do not depend on the machine."""
    plan = Plan.tiny()
    told: list[str] = []
    bench = Bench("directory", lambda place: (tmp_path / "store" / place).as_uri(), tmp_path, plan, told.append)
    found = bench.run()
    (load,) = found["load"]
    for run in load["runs"]:
        assert run["adds"] == run["counted"] > 0
        assert run["requests"]["records"]["replace"] >= plan.records
    assert {len(row["samples_ms"]) for row in found["calls"].values()} == {plan.calls}
    for row in found["growth"]:
        assert row["first"]["requests"]["records"] == {"get": row["touched"], "replace": row["touched"]}
        assert row["again"]["requests"]["records"] == {"replace": row["touched"]}
    assert found["memory"]["records"] == plan.waiting
    screen = io.StringIO()
    show([found], Console(width=150, file=screen))
    assert "two processes that add" in screen.getvalue()
    assert told

"""`make bench-ttl` on a few records: what it counts is what was sent, and a bar that is missed is said."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.ttl import table
from bench.ttl.figures import changes, missed
from bench.ttl.load import Lot, load
from bench.ttl.measure import Bench
from bench.ttl.meter import billed, since, together
from bench.ttl.plan import Plan
from bench.ttl.scene import Scene

PLAN = Plan.tiny()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return Bench(tmp_path_factory.mktemp("bench"), PLAN).run()


@pytest.mark.req("TT-2")
def test_each_expired_record_is_read_and_swapped_once_and_no_other_is_touched(result: dict[str, Any]) -> None:
    for row in result["growth"]:
        for run in row["cleanups"]:
            assert run["expired"] == PLAN.due
            assert run["records_left"] == row["stored"] - PLAN.due
            assert run["requests"]["records"] == {"get": PLAN.due, "replace": PLAN.due, "discard": PLAN.due}
            groups = PLAN.due // PLAN.batch
            assert run["index_entries_due"] == groups
            assert run["requests"]["index"] == {"get": groups, "list": 1, "delete": groups}


def test_requests_of_every_way_to_expire(result: dict[str, Any]) -> None:
    count = PLAN.strategies
    found = {row["how"]: row["requests"] for row in result["strategies"]}
    for how in ("hard delete, entries of many", "hard delete, an entry each"):
        assert found[how]["records"] == {"get": count, "replace": count, "discard": count}
    assert found["hard delete, an entry each"]["index"].get("get", 0) == 0
    assert found["soft delete"]["records"] == {"get": count, "replace": count}
    assert found["archive"]["archive"] == {"create": count}
    assert found["archive"]["records"] == {"get": count, "replace": 2 * count, "discard": count}
    assert found["callback"]["records"] == {"get": count, "replace": 2 * count, "discard": count}


def test_an_index_entry_for_each_insert_and_one_for_many(result: dict[str, Any]) -> None:
    found = {(row["how"], row["ttl"]): row for row in result["inserts"]}
    assert found["one by one", False]["billed_per_record"] == 1
    assert found["one by one", True]["billed_per_record"] == 2
    many = found[f"insert_many of {PLAN.batch}", True]
    assert many["requests"]["records"] == {"create": PLAN.inserts}
    # One entry if all of it falls into one second; those of a second that has fewer than four have one each.
    assert many["requests"]["index"]["put"] <= 1 + 3


def test_an_idle_hour_is_one_listing_of_the_index_and_of_the_inbox_for_each_tick(result: dict[str, Any]) -> None:
    spent = result["idle_hour"]["requests"]
    assert "records" not in spent
    assert list(spent["index"]) == ["list"]
    ticks = spent["index"]["list"]
    assert 360 <= ticks <= 520  # a tick of ten seconds, or somewhat less
    assert ticks <= spent["ledger"]["list"] <= ticks + 1  # one more, to find the snapshot that it trims by


def test_the_tables_can_be_shown(result: dict[str, Any]) -> None:
    console = Console(width=150, record=True, quiet=True)
    table.show(result, console)


def a_growth(*billed_per_record: float) -> list[dict[str, Any]]:
    run = {"expired": 10, "seconds": 1.0, "cpu_us_per_record": 5.0, "read_in_vain": 0, "counts": {}}
    return [
        {
            "stored": 10 * 10**number,
            "due": 10,
            "cleanups": [{**run, "billed_per_record": each, "records_left": 10 * 10**number - 10}],
        }
        for number, each in enumerate(billed_per_record)
    ]


def test_a_bar_that_is_missed_is_said() -> None:
    assert missed(a_growth(2.1, 2.5)) == []
    assert changes(a_growth(2.0, 2.2)) == {"requests": 0.1, "CPU": 0.0, "wall time": 0.0}
    (sentence,) = missed(a_growth(2.2, 2.6))
    assert "2.600 requests" in sentence
    (sentence,) = missed(a_growth(1.9, 2.4))
    assert "+26.3%" in sentence
    (sentence,) = missed(a_growth(2.4, 1.9))
    assert "-20.8%" in sentence
    for figure, wrong in (("read_in_vain", 1), ("expired", 9), ("records_left", 1)):
        growth = copy.deepcopy(a_growth(2.0, 2.0))
        growth[0]["cleanups"][0][figure] = wrong
        assert len(missed(growth)) == 1, figure


def test_what_s3_bills() -> None:
    before = {"records": {"get": 5}, "index": {"list": 1}}
    after = {"records": {"get": 8, "replace": 3, "discard": 3}, "index": {"list": 1, "delete": 2}, "ledger": {}}
    spent = since(after, before)
    assert spent == {"records": {"get": 3, "replace": 3, "discard": 3}, "index": {"delete": 2}}
    assert together(spent) == {"get": 3, "replace": 3, "discard": 3, "delete": 2}
    assert billed(together(spent)) == 6


@pytest.mark.slow
def test_two_processes_load_what_one_does(tmp_path: Path) -> None:
    lot = Lot("lot", 50, 30, 20)
    told: list[int] = []
    loaded = load(Scene(tmp_path), lot, processes=2, callers=2, progressed=lambda count, seconds: told.append(count))
    assert loaded.records == told[-1] == 80
    assert loaded.requests["records.create"] == 80
    assert loaded.requests["index.put"] == 5

"""docs/benchmarks.md and its pictures are what bench/results say, and the arithmetic behind them holds."""

from __future__ import annotations

import copy
import json
import math
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from bench import report
from bench.counters.figures import limits as counter_limits
from bench.form import Limit, finish, merged
from bench.idle.figures import limits as idle_limits
from bench.idle.imports import import_time
from bench.idle.process import figures, look
from bench.machine import RESULTS
from bench.pages import limits, short, table
from bench.plot import Bar, Group, bars, lines, strips
from bench.scale.figures import crossing, ends, growth, known_after, longest_failover, spread
from bench.scale.figures import limits as scale_limits
from bench.scale.measure import measure, steady_json
from bench.scale.plan import Plan
from bench.ttl.figures import limits as ttl_limits

SVG = "{http://www.w3.org/2000/svg}"


# The page


def test_the_page_and_its_pictures_are_what_the_results_say() -> None:
    """If this fails: `python -m bench.report`."""
    stale = [path.name for path, text in report.files().items() if not path.exists() or path.read_text() != text]
    assert stale == []


def test_no_picture_is_left_of_a_bench_that_is_gone() -> None:
    written = {path.name for path in report.files()}
    assert {path.name for path in report.PICTURES.glob("bench-*.svg")} <= written


def test_every_result_has_its_place_on_the_page() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} <= set(report.NAMES)
    page = (report.DOCS / "benchmarks.md").read_text()
    for name, (part, result) in report.pages().items():
        assert f"## {part.title}\n" in page
        assert f"`make bench-{name}`, {result['machine']['measured_at'][:10]}" in page
        for picture in part.pictures:
            assert f"(pictures/bench-{picture}.svg)" in page
    assert "{{" not in page  # every picture that a text names is there
    assert "nan" not in page.replace("\n", " ").split()


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(RESULTS.glob("*.json"))])
def test_bars_are_judged_as_they_were_written_down(path: Path) -> None:
    for each in json.loads(path.read_text())["limits"]:
        met = each.pop("met")
        assert Limit(**each).met is met, each


def test_recorded_bars_follow_from_the_samples() -> None:
    found = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    computed = {
        "counters": lambda result: counter_limits(result["subjects"]),
        "ttl": lambda result: ttl_limits(result["growth"]),
        "idle": lambda result: idle_limits(result["workers"], result["imports"]),
        "scale": lambda result: scale_limits(result["sizes"], 2 * result["plan"]["latency"][1]),
    }
    for name, compute in computed.items():
        if name in found:
            said = [(each["what"], each["value"], each["limit"]) for each in found[name]["limits"]]
            assert said == [(each.what, each.value, each.limit) for each in compute(found[name])], name


def test_what_is_on_paper_follows_from_what_was_measured() -> None:
    path = RESULTS / "scale.json"
    if not path.exists():
        pytest.skip("not measured yet")
    result = json.loads(path.read_text())
    assert result["ends"] == ends(result["sizes"], result["leaders"], sum(result["plan"]["latency"]))


def test_a_stale_page_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pictures").mkdir()
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(report, "PICTURES", tmp_path / "pictures")
    for arguments, code, said in ((["--check"], 1, "stale"), ([], 0, "written"), (["--check"], 0, "")):
        monkeypatch.setattr("sys.argv", ["report", *arguments])
        assert report.main() == code
        assert said in capsys.readouterr().out


# Pictures


def pictures() -> dict[str, str]:
    group = Group("<group> & 'more'", [Bar("a", 0.5, "0.5"), Bar("b", 2000.0, "2,000", 1, 900.0, 4000.0)])
    return {
        "bars": bars("it's <this> & that", [group], note="a note " * 40),
        "bars, log": bars("log", [group], log=True),
        "no bars": bars("none", []),
        "strips": strips("strips", {"a": [1.0, 2.0, 2.0], "b & c": []}, unit="ms"),
        "lines": lines("lines", {"x": [(1, 2), (10, 3)], "y": [(1, 0), (10, 9)]}, x_label="n", y_label="v", log_x=True),
        "flat lines": lines("flat", {"x": [(5, 0)]}, x_label="n", y_label="v"),
    }


def test_pictures_are_xml_and_the_same_each_time() -> None:
    once, again = pictures(), pictures()
    assert once == again
    for name, svg in once.items():
        root = ElementTree.fromstring(svg)
        assert root.tag == f"{SVG}svg", name
        assert root.get("role") == "img"
        assert root.get("aria-label")


def test_the_pictures_of_the_results_lie_within_their_frame_and_can_be_read_out() -> None:
    for part, _ in report.pages().values():
        for name, svg in part.pictures.items():
            root = ElementTree.fromstring(svg)
            _, _, width, height = (float(each) for each in root.attrib["viewBox"].split())
            for shape in root.iter(f"{SVG}rect"):
                left, wide = float(shape.get("x", 0)), float(shape.get("width", 0))
                assert 0 <= left <= left + wide <= width, name
                assert math.isfinite(wide)
            for text in root.iter(f"{SVG}text"):
                assert 0 <= float(text.get("y", 0)) <= height, name
            assert report._spoken(svg) == root.get("aria-label")


def test_longer_bars_are_larger_values() -> None:
    for log in (False, True):
        root = ElementTree.fromstring(bars("t", [Group("", [Bar(str(n), 10.0**n, "") for n in range(4)])], log=log))
        widths = [float(rect.attrib["width"]) for rect in root.iter(f"{SVG}rect") if rect.get("height") == "14"]
        assert widths == sorted(widths)
        assert len(set(widths)) > 1


# The form


def test_bars_are_met_up_to_the_limit() -> None:
    assert Limit("x", 1.0, 1.0).met
    assert not Limit("x", 1.01, 1.0).met
    assert Limit("x", 1.0, 1.0, is_least=True).met
    assert not Limit("x", 0.99, 1.0, is_least=True).met


def test_a_missed_bar_is_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.form.SCRATCH", tmp_path)
    console = Console(quiet=True)
    assert finish("x", {"a": 1}, [Limit("x", 1, 2)], console, is_whole=False) == 0
    assert finish("x", {"a": 1}, [Limit("x", 1, 2), Limit("y", 3, 2)], console, is_whole=False) == 1
    written = json.loads((tmp_path / "x.json").read_text())
    assert [each["met"] for each in written["limits"]] == [True, False]
    assert written["machine"]["cores"]
    assert written["a"] == 1


def test_what_is_measured_again_replaces_that_and_nothing_else() -> None:
    former = [{"subject": "us", "measured_at": "1", "fast": 10, "late": 20}, {"subject": "them", "fast": 1}]
    (ours, theirs) = merged(former, [{"subject": "us", "measured_at": "2", "late": 5}])
    assert (ours["fast"], ours["late"], ours["measured_at"]) == (10, 5, "2")
    assert ours["parts_measured_at"] == {"fast": "1", "late": "2"}
    assert theirs == former[1]
    assert merged([], [{"subject": "new", "x": 1}])[0]["x"] == 1


def test_numbers_are_written_short_and_without_exponents() -> None:
    assert [short(each) for each in (72952.8, 1000.0, 999.4, 0.01073, 0, 2.0076)] == [
        *("72,953", "1,000", "999", "0.0107", "0", "2.01")
    ]


def test_tables_and_bars_are_markdown() -> None:
    assert table(["a", "b"], [["x", 1]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    result = {"limits": [{"what": "x", "value": 3, "limit": 2, "is_least": False, "met": False}]}
    assert limits(result) == "- x: 3 (at most 2: **missed**)"


# Scale


def steady(workers: int, requests: int, moved: int) -> dict[str, Any]:
    found = steady_json(
        size=workers,
        seconds=55.0,
        beats=10 * workers,
        verbs={"replace": 10 * workers, "get": requests - 10 * workers},
        sent={"replace": moved},
        received={},
        writes={"state.json": 10},
        peak=5,
    )
    return {"workers": workers, "steady": found, "failovers": []}


LEADER = {"workers": 1000, "members_bytes": 100_000, "cpu_us_per_worker": 5.0}


def test_what_one_worker_asks_in_one_heartbeat() -> None:
    found = steady(100, 2100, 50_000)["steady"]
    assert (found["requests_each"], found["bytes_each"], found["seconds_per_heartbeat"]) == (2.1, 50.0, 5.5)
    assert found["requests_each_by_verb"] == {"get": 1.1, "replace": 1.0}
    assert found["busiest_key_writes_per_second"] == round(10 / 55, 4)


def test_growth_counts_upwards_and_spread_both_ways_but_for_small_fleets() -> None:
    rows = [steady(10, 260, 1000), steady(100, 2100, 10_000), steady(1000, 20_000, 115_000)]
    assert growth(rows, "requests_each") == 0.0
    assert growth(rows, "bytes_each") == pytest.approx(0.15)
    assert spread(rows, "requests_each") == pytest.approx(0.05)
    assert [each.met for each in scale_limits(rows, 0.04)] == [True, True, False, False, True]
    assert scale_limits(rows[:1], 0.04) == []


def test_where_it_ends() -> None:
    row = steady(1000, 20_000, 1)  # one write and one read a heartbeat of 5.5 s
    row["failovers"] = [{"peak_requests_per_second": 55_000, "seconds": 14.0}]
    small = {**steady(100, 2000, 1), "failovers": [{"peak_requests_per_second": 550, "seconds": 14.0}]}
    found = {each["what"]: each["workers"] for each in ends([small, row], [LEADER], 0.022)}
    assert found["S3: writes a second in one prefix"] == 3500 * 5.5
    assert found["S3: reads a second in one prefix, fleet unchanged"] == 5500 * 5.5
    assert found["S3: reads in the busiest second after the leader crashed"] == 316
    assert found["the leader's LIST takes a heartbeat, 100 ms a page"] == 50_000
    assert found["the leader's CPU for one heartbeat takes a heartbeat"] == 1_000_000
    assert found["the list of members is longer than the 8 MiB that are read"] == 83_886
    assert found["GCS: one write a second of one key"] is None
    assert known_after(10_000, 5.5) == 275.0


def test_a_limit_that_is_not_reached_is_not_made_up() -> None:
    assert crossing([(10, 5.0), (100, 50.0)], 500.0) is None
    assert crossing([(10, 5.0), (1000, 500.0)], 50.0) == pytest.approx(100)


def test_a_failover_is_held_against_what_the_plan_foresees() -> None:
    rows = [{"workers": 10, "failovers": [{"seconds": 5.0}]}]
    quick = longest_failover(rows, 0.04)
    assert 0 < quick < 1
    assert longest_failover([{"workers": 10, "failovers": [{"seconds": 50.0}]}], 0.04) == pytest.approx(10 * quick)


def test_fleets_can_be_simulated_cold_and_warm_and_twice_the_same() -> None:
    plan = Plan.tiny()
    found = [measure(size, plan, lambda _: None) for size in (*plan.sizes, plan.sizes[-1])]
    cold, warm, again = found
    assert (cold["start"], warm["start"]) == ("cold", "warm")
    for row in found:
        verbs = row["steady"]["requests_each_by_verb"]
        assert verbs["replace"] == pytest.approx(1 + 1 / row["workers"], rel=0.05)
        assert 2 < row["failovers"][0]["seconds"] < 20
    assert {**warm, "cpu_seconds": 0} == {**again, "cpu_seconds": 0}


# Idle


def test_a_process_is_looked_at_from_outside() -> None:
    first = look(os.getpid())
    sum(number * number for number in range(300_000))
    last = look(os.getpid())
    assert last["cpu_seconds"] > first["cpu_seconds"] > 0
    assert 5 < last["megabytes"] < 5000
    assert last["threads"] >= 1


def test_a_minute_is_extrapolated_to_an_hour() -> None:
    looks = [
        {"at": 10.0, "cpu_seconds": 1.0, "megabytes": 30.0, "threads": 5, "wakeups": 100},
        {"at": 40.0, "cpu_seconds": 1.04, "megabytes": 33.0, "threads": 5, "wakeups": 400},
        {"at": 70.0, "cpu_seconds": 1.1, "megabytes": 32.0, "threads": 6, "wakeups": 700},
    ]
    found = figures(looks)
    assert found["cpu_seconds_per_hour"] == pytest.approx(6.0)
    assert (found["megabytes"], found["megabytes_first"], found["threads"]) == (33.0, 30.0, 6)
    assert found["wakeups_per_second"] == 10.0
    assert len(found["samples"]) == 3


def test_the_bars_of_an_idle_worker() -> None:
    worker = {"megabytes": 45.0, "cpu_seconds_per_hour": 10.0, "needless_modules": []}
    needed = {"what": "what a worker needs", "best_ms": 150.0, "needless_modules": []}
    assert [each.met for each in idle_limits([worker], [needed])] == [True] * 4
    worse = [{**worker, "megabytes": 45.1}, {**worker, "cpu_seconds_per_hour": 10.1, "needless_modules": ["rich"]}]
    assert [each.met for each in idle_limits(worse, [{**needed, "best_ms": 151.0}])] == [False] * 4


def test_a_worker_imports_nothing_that_it_has_no_use_for() -> None:
    found = import_time("what a worker needs", "import tenure; tenure.Database, tenure.lead", 1)
    assert found["needless_modules"] == []
    assert len(found["samples_ms"]) == 1
    assert import_time("rich", "import rich", 1)["needless_modules"] == ["rich"]


# Bars of the others


def test_counters_and_ttl_write_down_what_they_are_held_against() -> None:
    run = {"adds": 100, "counted": 100, "consolidated_per_second": 60_000.0, "requests_each": 0.01}
    row = {"stored": 10, "touched": 10, "first": {"requests_each": 2.0}, "again": {"requests_each": 1.0}}
    good = {"subject": "tenure on directory", "load": [{"callers": 1000, "runs": [run]}], "growth": [row]}
    assert [each.met for each in counter_limits([good])] == [True] * 4
    bad = copy.deepcopy(good)
    bad["load"][0]["runs"][0].update(counted=99, consolidated_per_second=1.0, requests_each=0.5)  # type: ignore[index]
    assert [each.met for each in counter_limits([bad])] == [False, False, False, True]
    assert counter_limits([{"subject": "others"}]) == []
    cleanup = {"billed_per_record": 2.0, "read_in_vain": 0, "expired": 5, "records_left": 5}
    cleanup |= {"cpu_us_per_record": 1.0, "seconds": 1.0}
    stored = {"stored": 10, "due": 5, "cleanups": [cleanup]}
    assert [each.met for each in ttl_limits([stored, stored])] == [True] * 4
    spoilt = {**stored, "cleanups": [{**cleanup, "billed_per_record": 3.0, "read_in_vain": 1, "records_left": 4}]}
    assert [each.met for each in ttl_limits([stored, spoilt])] == [False] * 4

"""What judges a run of chaos is shown to fail: each finds what was planted in a log that it otherwise passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.chaos.conductor import Calm, Run
from lab.chaos.expiry_judge import judge_files as judge_expiry
from lab.chaos.plan import KINDS, plan
from lab.chaos.recovery_judge import bounds, facts, judge
from lab.chaos.verdict import Judged, Verdict, judge_run, table
from lab.judge import Unjudgeable
from lab.queue_judge import judge_files as judge_queue

S = 1_000_000_000

# Expiry


RECORD = [
    f"inserting {1 * S} n1:1 a 12000",
    f"inserted {2 * S} n1:1 a",
    f"looked {3 * S} {4 * S} n1:1 a 1",
    f"touching {12 * S} n1:1 a 12000",
    f"touched {13 * S} n1:1 a",
    f"looked {23 * S} {23 * S + 1} n1:1 a 1",
    f"looked {30 * S} {30 * S} n1:1 a 0",
]


def expiry(folder: Path, lines: list[str], left: str = "") -> list[str]:
    log, rest = folder / "n1-1.expiry", folder / "sessions"
    log.write_text("".join(f"{line}\n" for line in lines))
    rest.write_text(left)
    return judge_expiry([log], rest).violations


@pytest.mark.req("TT-2")
def test_expiry_that_is_right(tmp_path: Path) -> None:
    assert expiry(tmp_path, RECORD) == []


@pytest.mark.req("TT-2")
@pytest.mark.parametrize(
    ("lines", "left", "found"),
    [
        ([*RECORD[:2], f"looked {3 * S} {4 * S} n1:1 a 0"], "", ["early"]),
        ([*RECORD[:5], f"looked {14 * S} {15 * S} n1:1 a 0"], "", ["early"]),  # it was refreshed
        ([*RECORD[:3], f"touching {12 * S} n1:1 a 12000", f"gone {12 * S + 5} n1:1 a"], "", ["early"]),
        ([*RECORD, f"looked {31 * S} {31 * S} n1:1 a 1"], "", ["came_back"]),
        ([*RECORD, f"touching {31 * S} n1:1 a 12000", f"touched {32 * S} n1:1 a"], "", ["came_back"]),
        (RECORD, "a\n", ["left"]),
    ],
    ids=["early", "refreshed", "touched-in-vain", "came-back", "touched-after", "left"],
)
def test_expiry_that_is_wrong(tmp_path: Path, lines: list[str], left: str, found: list[str]) -> None:
    assert expiry(tmp_path, lines, left) == found


def test_expiry_that_nobody_is_sure_of(tmp_path: Path) -> None:
    """An insert that raised may have happened or not; a touch that raised promises nothing."""
    unsure = [RECORD[0], f"unsure {2 * S} n1:1 a WriteUnknown", f"looked {3 * S} {4 * S} n1:1 a 0"]
    assert expiry(tmp_path, unsure) == []
    touched = [*RECORD[:4], f"unsure {13 * S} n1:1 a WriteUnknown", f"looked {14 * S} {15 * S} n1:1 a 0"]
    assert expiry(tmp_path, touched) == []


def test_expiry_that_cannot_be_judged(tmp_path: Path) -> None:
    with pytest.raises(Unjudgeable):
        expiry(tmp_path, [f"looked {3 * S} {4 * S} n1:1 stranger 1"])


# Recovery


PARTS = ("election", "program", "lock", "queue", "schedule", "counters", "expiry")


def calm(from_s: float, to_s: float) -> dict[str, int]:
    return {"from_ns": round(from_s * S), "to_ns": round(to_s * S)}


def works(at: float) -> dict[str, list[tuple[int, int]]]:
    return {part: [(round(at * S), round(at * S))] for part in PARTS}


def test_everything_works_in_good_time() -> None:
    verdict = judge({"calms": [calm(100, 140)]}, works(104), bounds())
    assert verdict.violations == []
    assert verdict.longest == dict.fromkeys(PARTS, 4.0)


@pytest.mark.parametrize("part", PARTS)
def test_one_part_that_comes_back_late_or_never_is_found(part: str) -> None:
    limit = bounds()[part]
    late = {**works(104), part: [(round((100 + limit + 0.5) * S),) * 2]}
    never: dict[str, list[tuple[int, int]]] = {**works(104), part: []}
    begun_before = {**works(104), part: [(99 * S, 104 * S)]}
    for wrong in (late, never, begun_before):
        verdict = judge({"calms": [calm(100, 140)]}, wrong, bounds())
        assert verdict.violations == ["late"]
        assert [text.split()[0] for text in verdict.late] == [part]


def test_a_calm_that_is_shorter_than_a_bound_judges_nothing() -> None:
    with pytest.raises(Unjudgeable):
        judge({"calms": [calm(100, 110)]}, works(101), bounds())
    with pytest.raises(Unjudgeable):
        judge({"calms": []}, works(101), bounds())


def test_facts_are_what_the_logs_say(tmp_path: Path) -> None:
    files = {
        "belief": "1 2 n1:1 0 0 0\n3 4 n1:1 1 1 1\n",
        "program": "5 5 n1:9 1 1 1\n",
        "waits": "1 6 1\n",
        "sent": "sending 7 n1-1:1 n1-1:1:-\n",
        "handled": "began 8 n1:1 n1-1:1:- id s:0 1 1\nended 9 n1:1 n1-1:1:- id 1 100\n",
        "runs": "began 10 n1:1 j01 1000 1 1\n",
        "notes": "adding 11 n1:1 n1:1:page0001:views:5:op\nadded 12 n1:1 n1:1\n",
        "expiry": "inserting 13 n1:1 a 12000\ninserted 14 n1:1 a\n",
    }
    for part, text in files.items():
        (tmp_path / f"n1-1.{part}").write_text(text)
    assert facts(tmp_path) == {
        "election": [(4, 4)],
        "program": [(5, 5)],
        "lock": [(6, 6)],
        "queue": [(7, 9)],
        "schedule": [(10, 10)],
        "counters": [(11, 12)],
        "expiry": [(13, 14)],
    }


# Queue: who was cut off from the store could not report


def queue(folder: Path, *events: str) -> list[str]:
    sent, handled, deeds = folder / "s", folder / "h", folder / "e"
    sent.write_text(f"sending {1 * S} p:1 p:1:-\naccepted {1 * S} p:1 p:1:-\n")
    handled.write_text(
        f"began {2 * S} n1:1 p:1:- id s:0 4 1\nended {3 * S} n1:1 p:1:- id 4 3000\n"
        f"began {20 * S} n2:2 p:1:- id s:0 9 2\nended {21 * S} n2:2 p:1:- id 9 3000\n"
    )
    deeds.write_text("".join(f"{event}\n" for event in events))
    return judge_queue([sent], [handled], [deeds]).violations


@pytest.mark.req("SQ-1")
def test_who_was_cut_off_is_a_reason_to_handle_again(tmp_path: Path) -> None:
    assert queue(tmp_path) == ["unexplained"]
    assert queue(tmp_path, f"cut {S * 5 // 2} n1", f"restored {10 * S} n1") == []
    assert queue(tmp_path, f"cut {S * 5 // 2} n1") == []


@pytest.mark.req("SQ-1")
def test_who_was_cut_off_at_another_time_or_was_another_is_none(tmp_path: Path) -> None:
    assert queue(tmp_path, f"cut {S} n1", f"restored {S * 3 // 2} n1") == ["unexplained"]
    assert queue(tmp_path, f"cut {S * 5 // 2} n2", f"restored {10 * S} n2") == ["unexplained"]


# The whole


def run_of(**changes: Any) -> Run:
    steps = plan(1, 60, 5, KINDS["directory"])
    hits = dict.fromkeys((kind.value for kind in KINDS["directory"]), 1)
    fields = {"store": "directory", "seed": 1, "seconds": 60.0, "nodes": 5, "broken": [], "steps": list(steps)}
    return Run(**{**fields, "hits": hits, **changes})


def test_a_fault_of_the_plan_that_nobody_felt_fails_the_run() -> None:
    assert Verdict(run_of(), [], []).violations == []
    assert Verdict(run_of(), [], ["freeze"]).violations == ["plan: no freeze was felt by anybody"]


def test_a_process_that_ended_by_itself_fails_the_run() -> None:
    verdict = Verdict(run_of(failures=["n1:7 ended by itself"]), [Judged("election", [], {"terms": 3})], [])
    assert verdict.violations == ["run: n1:7 ended by itself"]
    assert "VIOLATED" in table(verdict)[-1]


def test_a_run_without_logs_is_no_run_without_violations(tmp_path: Path) -> None:
    (tmp_path / "events").touch()
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(run_of()))
    verdict = judge_run(tmp_path, run_of(hits={}))
    assert {each.part for each in verdict.judged if not each.violations} == {"processes"}
    assert len(verdict.unfelt) == len(KINDS["directory"])


def test_two_leaders_in_the_logs_of_a_run_are_found(tmp_path: Path) -> None:
    for name, epoch in (("n1", 1), ("n2", 2)):
        stamps = range(S, 2 * S, 10_000_000)
        text = "".join(f"{at} {at + 1} {name}:1 {epoch} 1 1\n" for at in stamps)
        (tmp_path / f"{name}-1.belief").write_text(text)
    (tmp_path / "events").touch()
    found = judge_run(tmp_path, run_of(wiped=Calm(S, 40 * S)))
    election = next(each for each in found.judged if each.part == "election")
    assert any(text.startswith("overlaps") for text in election.violations)
    assert json.dumps(election.figures)

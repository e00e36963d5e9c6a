"""What judges a run of chaos is shown to fail: each finds what was planted in a log that it otherwise passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.chaos.conductor import Calm, Run
from lab.chaos.expiry_judge import judge_files as judge_expiry
from lab.chaos.plan import KINDS, Kind, Step, Target, plan
from lab.chaos.recovery_judge import (
    Life,
    RecoveryVerdict,
    bounds,
    calm_seconds,
    facts,
    judge,
    lives_of,
    steady,
)
from lab.chaos.verdict import Judged, Verdict, _after_wiping, judge_run, table
from lab.judge import Unjudgeable
from lab.pace import LEASE
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


PARTS = ("election", "program", "lock", "queue", "schedule", "counters", "expiry", "consolidation")
OWN = ("enqueue", "add", "insert")
CALM = 34.0
Fact = tuple[int, int]


def calm(from_s: float, to_s: float) -> dict[str, int]:
    return {"from_ns": round(from_s * S), "to_ns": round(to_s * S)}


def at(*seconds: float) -> list[Fact]:
    return [(round(each * S),) * 2 for each in seconds]


def paced(from_s: float, to_s: float, every: float = 1.0) -> list[Fact]:
    return at(*(from_s + number * every for number in range(1 + int((to_s - from_s) / every))))


def works(from_s: float, to_s: float = 100 + CALM) -> dict[str, list[Fact]]:
    return {**{part: paced(from_s, to_s) for part in PARTS}, "sweep": paced(from_s, to_s)}


def life(label: str = "n1-1", joined: float = 50.0, ended: float = 900.0, **changed: Any) -> Life:
    facts_: dict[str, list[Fact]] = {**dict.fromkeys(OWN, paced(joined, 200)), **changed}
    dues = [round(each * S) for each in range(round(joined), 200)]
    return Life(label=label, joined_ns=round(joined * S), ended_ns=round(ended * S), facts=facts_, dues=dues)


def recovery(found: dict[str, list[Fact]], *lives: Life, to: float = 100 + CALM) -> RecoveryVerdict:
    return judge({"calms": [calm(100, to)]}, found, bounds(), lives)


def test_bounds_of_recovery_are_those_of_the_settings() -> None:
    """For a lease of 3 s: failover 16.53 s, a request 0.75 s; a lease is added to each."""
    assert LEASE == 3
    assert bounds() == {
        "election": 19.53,
        "program": 20.28,
        "lock": 10.37,
        "queue": 23.28,
        "schedule": 23.28,
        "counters": 13.0,
        "expiry": 13.0,
        "consolidation": 24.28,
        "sweep": 28.28,
        "enqueue": 18.0,
        "add": 18.0,
        "insert": 18.0,
    }
    assert steady(bounds()) == {
        **dict.fromkeys(bounds(), 9.0),
        "lock": 10.37,
        **dict.fromkeys(OWN, 12.0),
    }
    assert calm_seconds() == CALM


def test_everything_works_in_good_time() -> None:
    verdict = recovery(works(104), life())
    assert verdict.violations == []
    assert verdict.longest == {**dict.fromkeys((*PARTS, "sweep"), 4.0), **dict.fromkeys(OWN, 0.0)}
    assert verdict.lives == 1
    assert verdict.gaps["queue"] <= 1.0


@pytest.mark.parametrize("part", PARTS)
def test_one_part_that_comes_back_late_or_never_is_found(part: str) -> None:
    limit = bounds()[part]
    late = {**works(104), part: paced(100 + limit + 0.5, 134)}
    never: dict[str, list[Fact]] = {**works(104), part: []}
    begun_before = {**works(104), part: [(99 * S, 104 * S)]}
    for wrong in (late, never, begun_before):
        verdict = recovery(wrong)
        assert verdict.violations == ["late"]
        assert [text.split()[0] for text in verdict.late] == [part]
    in_time = {**works(104), part: paced(100 + limit - 0.1, 134)}
    assert recovery(in_time).violations == []


@pytest.mark.parametrize("part", PARTS)
def test_one_part_that_works_again_and_does_not_go_on_is_found(part: str) -> None:
    """As if it led for half a second, or handled one message, in a whole calm."""
    once = {**works(104), part: at(101)}
    for_a_while = {**works(104), part: paced(100, 100 + 34 - steady(bounds())[part] - 1.5, 0.5)}
    for wrong in (once, for_a_while):
        verdict = recovery(wrong)
        assert verdict.violations == ["ceased"]
        assert [text.split()[0] for text in verdict.ceased] == [part]
    again = {**works(104), part: [*paced(100, 105), *paced(105 + steady(bounds())[part] - 0.1, 134)]}
    assert recovery(again).violations == []


def test_a_gap_longer_than_the_bound_is_found_wherever_it_is() -> None:
    wrong = {**works(104), "lock": [*paced(100, 101), *paced(112, 134)]}
    verdict = recovery(wrong)
    assert verdict.violations == ["ceased"]
    assert "lock worked, and not for 11.000 s" in verdict.ceased[0]
    assert recovery({**works(104), "lock": [*paced(100, 101), *paced(111, 134)]}).violations == []


@pytest.mark.parametrize("part", OWN)
def test_a_process_that_does_not_do_its_part_again_is_found_though_others_do(part: str) -> None:
    others = life("n1-1"), life("n3-1")
    for wrong, found in (
        ([], "late"),
        (paced(50, 99), "late"),
        (paced(118.5, 134), "late"),
        (paced(50, 104), "ceased"),
        (at(110), "ceased"),
    ):
        verdict = recovery(works(104), *others, life("n2-4", **{part: wrong}))
        assert verdict.violations == [found]
        assert f"{part} by n2-4" in getattr(verdict, found)[0]
    assert recovery(works(104), *others, life("n2-4", **{part: paced(117.5, 134)})).violations == []


def test_of_a_process_only_the_time_counts_for_which_it_had_joined() -> None:
    nothing: dict[str, Any] = {part: [] for part in OWN}
    assert recovery(works(104), life(joined=120, **nothing)).violations == [], "too short to tell"
    assert recovery(works(104), life(ended=130, **nothing)).violations == [], "it was ended"
    assert recovery(works(104), life(joined=110, **nothing)).violations == ["late"]
    assert recovery(works(104), life(joined=110, **dict.fromkeys(OWN, paced(127.5, 134)))).violations == []


def test_records_that_are_due_and_that_nobody_finds_gone() -> None:
    verdict = recovery({**works(104), "sweep": []}, life())
    assert verdict.violations == ["late"]
    assert verdict.late[0].startswith("sweep worked not at all")
    assert recovery({**works(104), "sweep": paced(126, 134)}, life()).violations == []


def test_sweeps_are_only_waited_for_while_something_is_due() -> None:
    """Nothing was inserted while the store was away: nothing is due for so long afterwards."""
    waiting = life()
    waiting.dues = [round(each * S) for each in range(112, 200)]
    assert recovery({**works(104, 160), "sweep": paced(139, 160)}, waiting, to=160).violations == []
    assert recovery({**works(104, 160), "sweep": paced(141, 160)}, waiting, to=160).violations == ["late"]
    waiting.dues = []
    assert recovery({**works(104), "sweep": []}, waiting).violations == []


def test_a_calm_that_is_shorter_than_a_bound_judges_nothing() -> None:
    with pytest.raises(Unjudgeable):
        judge({"calms": [calm(100, 110)]}, works(101), bounds())
    with pytest.raises(Unjudgeable):
        judge({"calms": []}, works(101), bounds())


JOINED = '{"said": "joined", "boottime_ns": 20, "worker": "n1", "pid": 1}\n'
TOLD = "PluginEvent(plugin='pages', event=Consolidated(resource='pages', epoch=1, records=%d, failed=0, seconds=1.0))"


def noted(folder: Path) -> None:
    told = [
        json.dumps({"said": "plg:eventual-consistency:consolidated", "boottime_ns": at_ns, "told": TOLD % records})
        for at_ns, records in ((15, 25), (16, 0))
    ]
    files = {
        "belief": "1 2 n1:1 0 0 0\n3 4 n1:1 1 1 1\n",
        "program": "5 5 n1:9 1 1 1\n",
        "waits": "1 6 1\n",
        "sent": "sending 7 n1-1:1 n1-1:1:-\naccepted 8 n1-1:1 n1-1:1:-\n",
        "handled": "began 8 n1:1 n1-1:1:- id s:0 1 1\nended 9 n1:1 n1-1:1:- id 1 100\n",
        "runs": "began 10 n1:1 j01 1000 1 1\n",
        "notes": "adding 11 n1:1 n1:1:page0001:views:5:op\nadded 12 n1:1 n1:1\n",
        "expiry": "inserting 13 n1:1 a 1000\ninserted 14 n1:1 a\n"
        "inserting 15 n1:1 b 1000\ninserted 16 n1:1 b\ntouching 17 n1:1 b 1000\nunsure 18 n1:1 b WriteUnknown\n"
        f"looked {2 * S} {2 * S + 1} n1:1 a 1\nlooked {3 * S} {3 * S + 1} n1:1 a 0\n"
        f"looked {3 * S} {3 * S + 2} n1:1 b 0\n",
        "out": JOINED + "".join(f"{line}\n" for line in told),
    }
    for part, text in files.items():
        (folder / f"n1-1.{part}").write_text(text)


def test_facts_are_what_the_logs_say(tmp_path: Path) -> None:
    noted(tmp_path)
    assert facts(tmp_path) == {
        "election": [(4, 4)],
        "program": [(5, 5)],
        "lock": [(6, 6)],
        "queue": [(7, 9)],
        "schedule": [(10, 10)],
        "counters": [(11, 12)],
        "expiry": [(13, 14), (15, 16)],
        "consolidation": [(15, 15)],
        "sweep": [(2 * S, 3 * S + 1), (15 + S, 3 * S + 2)],
    }


def test_lives_are_what_the_logs_say(tmp_path: Path) -> None:
    noted(tmp_path)
    (tmp_path / "n2-1.out").write_text('{"said": "unreachable"}\n')
    (tmp_path / "events").write_text("started 1 n1:1\nkilled 99 n9:1\nterminated 77 n1:1\nkilled 88 n1:1\n")
    (found,) = lives_of(tmp_path)
    assert (found.label, found.joined_ns, found.ended_ns) == ("n1-1", 20, 77)
    assert found.facts == {"enqueue": [(7, 8)], "add": [(11, 12)], "insert": [(13, 14), (15, 16)]}
    assert found.dues == [14 + S], "of the other one it is not known"


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
    return Run(**{**fields, "hits": hits, "on": {"kill leader": 1}, **changes})


def test_a_fault_of_the_plan_that_nobody_felt_fails_the_run() -> None:
    assert Verdict(run_of(), [], []).violations == []
    assert Verdict(run_of(), [], ["freeze"]).violations == ["plan: no freeze was felt by anybody"]


def test_a_run_that_never_hit_a_leader_though_it_meant_to_fails() -> None:
    def steps(leaders: int) -> list[Step]:
        targets = [Target.LEADER] * leaders + [Target.ANY] * 5
        return [Step(number, 0, 0.0, 1.0, Kind.KILL, target, 0) for number, target in enumerate(targets)]

    def found(leaders: int, **on: int) -> list[str]:
        names = {name.replace("_", " "): count for name, count in on.items()}
        return Verdict(run_of(steps=steps(leaders), on=names), [], []).violations

    assert found(3, kill_any=8) == ["plan: 3 faults were meant for the leader, and none hit one"]
    assert found(3, kill_any=7, kill_leader=1) == []
    assert found(2, kill_any=7) == [], "so few may all come while nobody leads"


# Wiping


def wiping(folder: Path, leads_at: float | None, program_at: float | None, **changes: Any) -> list[str]:
    """Wiped at 100 s."""
    for part, from_s in (("belief", leads_at), ("program", program_at)):
        if from_s is not None:
            stamps = range(round(from_s * S), 140 * S, S // 2)
            (folder / f"n1-2.{part}").write_text("".join(f"{each} {each} n1:9 7 1 1\n" for each in stamps))
    told = {"wiped": Calm(100 * S, 140 * S), "wiped_objects": 5, "wiped_leader": "n2:7", **changes}
    return _after_wiping(folder, run_of(**told)).violations


def test_after_the_wiping_somebody_leads_and_its_program_runs(tmp_path: Path) -> None:
    assert wiping(tmp_path, 119.0, 120.0) == []


def test_after_the_wiping_nobody_leads_or_nothing_runs_in_time(tmp_path: Path) -> None:
    for number, (leads, runs, late) in enumerate(
        [(120.0, 120.0, ["election"]), (119.0, 121.0, ["program"]), (None, None, ["election", "program"])]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = wiping(folder, leads, runs)
        assert [text.split()[1] for text in found] == late
        assert all(text.startswith("late: ") for text in found)


def test_a_wiping_in_which_nothing_was_done_shows_nothing(tmp_path: Path) -> None:
    assert wiping(tmp_path, 101.0, 101.0, wiped_objects=0) == ["nothing was deleted"]
    assert wiping(tmp_path, 101.0, 101.0, wiped_leader="") == ["no leader was killed"]
    assert wiping(tmp_path, 101.0, 101.0, wiped=None) == ["it did not come to it"]


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

"""What judges a run of chaos is shown to fail: each finds what was planted in a log that it otherwise passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.chaos.conductor import Calm, Run
from lab.chaos.expiry_judge import judge_files as judge_expiry
from lab.chaos.log_judge import judge_folder as judge_logs
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
from lab.chaos.verdict import Judged, Verdict, _after_wiping, _ask, _with_logs, judge_run, table
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


def expiry(folder: Path, lines: list[str], left: str = "", *calms: dict[str, int]) -> list[str]:
    log, rest, run = folder / "n1-1.expiry", folder / "sessions", folder / "run.json"
    log.write_text("".join(f"{line}\n" for line in lines))
    rest.write_text(left)
    run.write_text(json.dumps({"calms": calms}))
    return judge_expiry([log], rest, run).violations


def test_expiry_that_is_right(tmp_path: Path) -> None:
    assert expiry(tmp_path, RECORD) == []


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


def test_expiry_that_comes_too_late(tmp_path: Path) -> None:
    """Due at 14 s at the latest, and in a calm swept 28.28 s later; found at the end is something else."""
    due = RECORD[:2]

    def looked(at_s: float, *calms: dict[str, int], lines: list[str] = due, there: int = 1) -> list[str]:
        stamp = round(at_s * S)
        return expiry(tmp_path, [*lines, f"looked {stamp} {stamp} n1:1 a {there}"], "", *calms)

    assert looked(42.5, calm(10, 60)) == ["late"]
    assert looked(42.0, calm(10, 60)) == []
    assert looked(1200, calm(1000, 1300)) == ["late"]
    assert looked(1200, calm(1000, 1300), there=0) == []
    assert looked(1200) == [], "not in a calm: there may have been no leader"
    assert looked(1200, calm(10, 60), calm(1190, 1300)) == [], "the calm has only begun"
    assert looked(1219, calm(10, 60), calm(1190, 1300)) == ["late"]
    touched = [*due, f"touching {13 * S} n1:1 a 12000", f"touched {20 * S} n1:1 a"]
    assert looked(60.0, calm(10, 80), lines=touched) == []
    assert looked(60.5, calm(10, 80), lines=touched) == ["late"]
    unsure = [*due, f"touching {13 * S} n1:1 a 12000", f"unsure {14 * S} n1:1 a WriteUnknown"]
    assert looked(84.0, calm(10, 100), lines=unsure) == [], "it may have landed after half a minute"
    assert looked(84.5, calm(10, 100), lines=unsure) == ["late"]
    under_way = [*due, f"touching {13 * S} n1:1 a 12000"]
    assert looked(84.5, calm(10, 100), lines=under_way) == []


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


def test_who_was_cut_off_is_a_reason_to_handle_again(tmp_path: Path) -> None:
    assert queue(tmp_path) == ["unexplained"]
    assert queue(tmp_path, f"cut {S * 5 // 2} n1", f"restored {10 * S} n1") == []
    assert queue(tmp_path, f"cut {S * 5 // 2} n1") == []


def test_who_was_cut_off_at_another_time_or_was_another_is_none(tmp_path: Path) -> None:
    assert queue(tmp_path, f"cut {S} n1", f"restored {S * 3 // 2} n1") == ["unexplained"]
    assert queue(tmp_path, f"cut {S * 5 // 2} n2", f"restored {10 * S} n2") == ["unexplained"]


# Logs that say nothing


def life_of(folder: Path, label: str, process: str, from_s: float = 10.0, to_s: float = 60.0) -> None:
    """It has joined at 11 s, and did all that it should."""
    name, _, pid = process.partition(":")
    said = {"said": "joined", "boottime_ns": 11 * S, "worker": name, "pid": int(pid)}
    beliefs = range(round((from_s + 0.5) * S), round(to_s * S), S // 5)
    files = {
        "out": json.dumps(said) + "\n",
        "belief": "".join(f"{each} {each + 1} {process} 0 0 0\n" for each in beliefs),
        "waits": f"{12 * S} {13 * S} 5\n",
        "lock": f"{13 * S} {13 * S + 1} {process} 5 1 1\n",
        "sent": f"sending {12 * S} {label}:{pid} {label}:1:-\n",
        "notes": f"adding {12 * S} {process} n1:1:page0001:views:5:op\n",
        "expiry": f"inserting {12 * S} {process} a 12000\n",
        "program": f"{14 * S} {14 * S} {name}:999 1 1 1\n",
    }
    for part, text in files.items():
        (folder / f"{label}.{part}").write_text(text)


def unjudged(
    folder: Path, *more: str, until: str = f"terminated {60 * S} n2:7\nended {61 * S} n2:7\n"
) -> dict[str, Any]:
    """What cannot be judged of n2, beside whom n1 is as it should be."""
    life_of(folder, "n1-1", "n1:1")
    started = f"started {10 * S} n1:1\nstarted {10 * S} n2:7\nkilled {60 * S} n1:1\ncut {20 * S} n1\n"
    (folder / "events").write_text(started + "".join(f"{line}\n" for line in more) + until)
    return judge_logs(folder).unjudged


def test_logs_that_can_be_judged(tmp_path: Path) -> None:
    life_of(tmp_path, "n2-1", "n2:7")
    assert unjudged(tmp_path) == {}
    verdict = judge_logs(tmp_path)
    assert (verdict.lives, verdict.joined, verdict.violations) == (2, 2, [])


@pytest.mark.parametrize("wrong", ["empty", "away", "early", "late", "hole"])
def test_a_belief_that_is_not_noted_for_as_long_as_its_process_lived(tmp_path: Path, wrong: str) -> None:
    life_of(tmp_path, "n2-1", "n2:7")
    path = tmp_path / "n2-1.belief"
    lines = path.read_text().splitlines(keepends=True)
    kept = {"early": lines[:150], "late": lines[90:], "hole": [*lines[:50], *lines[130:]]}.get(wrong, [])
    path.unlink() if wrong == "away" else path.write_text("".join(kept))
    found = unjudged(tmp_path)
    assert list(found) == ["election"]
    assert "n2-1.belief" in found["election"][0]


def test_a_belief_with_pauses_that_are_not_its_own(tmp_path: Path) -> None:
    """It was stopped; or the machine was busy; or it had only begun."""
    life_of(tmp_path, "n2-1", "n2:7")
    path = tmp_path / "n2-1.belief"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:50], *lines[90:]]))
    assert unjudged(tmp_path) == {}, "eight seconds"
    path.write_text("".join([*lines[:50], *lines[140:]]))
    assert unjudged(tmp_path) == {
        "election": [f"n2-1.belief is silent at {20300000001}, and its process went on: 18.2 s"]
    }
    assert unjudged(tmp_path, f"stopped {21 * S} n2:7", f"continued {33 * S} n2:7") == {}
    assert list(unjudged(tmp_path, f"stopped {21 * S} n1:1", f"continued {33 * S} n1:1")) == ["election"]
    path.write_text("")
    assert unjudged(tmp_path, until=f"killed {20 * S} n2:7\n") == {}


@pytest.mark.parametrize(
    ("part", "judged"),
    [("belief", "election"), ("program", "program"), ("lock", "lock"), ("sent", "queue"), ("expiry", "expiry")],
)
def test_a_log_that_another_clock_has_stamped(tmp_path: Path, part: str, judged: str) -> None:
    life_of(tmp_path, "n2-1", "n2:7")
    path = tmp_path / f"n2-1.{part}"
    first, *rest = path.read_text().splitlines(keepends=True)
    other = " ".join(
        str(int(word) + 17 * 10**17) if word.isdecimal() and int(word) > S else word for word in first.split()
    )
    path.write_text("".join([*rest, f"{other}\n"]))
    found = unjudged(tmp_path)
    assert list(found) == [judged]
    assert "is not between start and end" in found[judged][0]


def test_a_log_of_another_process(tmp_path: Path) -> None:
    life_of(tmp_path, "n2-1", "n2:7")
    path = tmp_path / "n2-1.belief"
    path.write_text(path.read_text().replace("n2:7", "n2:8"))
    assert list(unjudged(tmp_path)) == ["election"]
    life_of(tmp_path, "n2-1", "n2:8")
    assert "n2:8 has joined, and was not started" in unjudged(tmp_path)["election"][0]
    life_of(tmp_path, "n2-1", "n2:7")
    life_of(tmp_path, "n3-1", "n3:9")
    assert [why for why in unjudged(tmp_path)["queue"] if "n3-1.sent: no such process" in why]


def test_a_lock_that_was_got_and_of_which_nothing_is_noted(tmp_path: Path) -> None:
    life_of(tmp_path, "n2-1", "n2:7")
    (tmp_path / "n2-1.lock").write_text("")
    assert list(unjudged(tmp_path)) == ["lock"]
    (tmp_path / "n2-1.waits").write_text("")
    assert unjudged(tmp_path) == {}, "it never got one"


@pytest.mark.parametrize(("part", "judged"), [("sent", "queue"), ("notes", "counters"), ("expiry", "expiry")])
def test_a_process_that_noted_nothing_of_what_it_should_have_done(tmp_path: Path, part: str, judged: str) -> None:
    life_of(tmp_path, "n2-1", "n2:7")
    (tmp_path / f"n2-1.{part}").write_text("")
    assert list(unjudged(tmp_path)) == [judged]
    assert unjudged(tmp_path, until=f"killed {20 * S} n2:7\n") != {}, "other logs go on after that"
    life_of(tmp_path, "n2-1", "n2:7", to_s=20.0)
    (tmp_path / f"n2-1.{part}").write_text("")
    assert unjudged(tmp_path, until=f"killed {20 * S} n2:7\n") == {}, "it had only begun"


def test_logs_of_nobody_who_joined_cannot_be_judged(tmp_path: Path) -> None:
    life_of(tmp_path, "n1-1", "n1:1")
    (tmp_path / "events").write_text(f"started {10 * S} n1:1\n")
    (tmp_path / "n1-1.out").write_text("")
    with pytest.raises(Unjudgeable):
        judge_logs(tmp_path)


def test_what_cannot_be_judged_is_a_violation_of_its_part() -> None:
    parts = [Judged("election", [], {"terms": 3}), Judged("lock", ["overlaps: []"], {})]
    logs = Judged("logs", ["unjudged: ..."], {"lives": 2, "unjudged": {"election": ["n2-1.belief is silent"]}})
    assert _with_logs(parts, logs) == [
        Judged("election", ['cannot be judged: ["n2-1.belief is silent"]'], {"terms": 3}),
        parts[1],
        Judged("logs", [], {"lives": 2}),
    ]
    broken = Judged("logs", ["cannot be judged: nobody"], {})
    assert _with_logs(parts, broken) == [*parts, broken]


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


def test_a_judge_that_fails_has_judged_nothing(tmp_path: Path) -> None:
    log = tmp_path / "n1-1.belief"
    log.write_bytes(b"\xff\xfe\n")
    judged = _ask("election", "lab.judge", [str(log)], ())
    assert len(judged.violations) == 1
    assert judged.violations[0].startswith("cannot be judged")


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

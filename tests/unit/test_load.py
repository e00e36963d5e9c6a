"""What judges a run under load is shown to fail: it finds what was planted in files that it otherwise passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from lab.judge import Sample, Term, Unjudgeable
from lab.load.beat_judge import BeatVerdict, Files, Life, Window, failover_seconds, judge, unforced
from lab.load.conductor import Deed, EndCount, Run
from lab.load.plan import Plan
from lab.load.verdict import judge_folder, judge_given, table
from lab.load.watch import Member
from lab.queue_producer import allowed

S = 1_000_000_000
PLAN = Plan(coordinators=4, processes=2, handlers=1, seconds=100.0, kills=1)
"""A heartbeat every 5 to 6 seconds; a worker is alive for 20 s after one."""
BEGIN, END = 100, 200
KILLED, BACK = 150, 155
BEFORE = ("n0-w00:1", "n0-w01:1", "n1-w00:2", "n1-w01:2")
AFTER = ("n0-w00:3", "n0-w01:3")


def beats(process: str, first: int, last: int, took: float = 0.1) -> list[str]:
    """Every five seconds, each of the same length."""
    return [
        f"beat {at * S} {process} {number} {round(number * took * 1e6)} {number * 3}"
        for number, at in enumerate(range(first, last, 5), 1)
    ]


def events() -> list[str]:
    return [
        *(f"started {10 * S} {process}" for process in BEFORE),
        *(f"killed {KILLED * S} {process}" for process in BEFORE[:2]),
        *(f"started {BACK * S} {process}" for process in AFTER),
    ]


def all_beats(took: float = 0.1) -> list[str]:
    return [
        *(line for process in BEFORE[:2] for line in beats(process, 12, KILLED, took)),
        *(line for process in BEFORE[2:] for line in beats(process, 12, END, took)),
        *(line for process in AFTER for line in beats(process, BACK + 4, END, took)),
        f"renewed {110 * S} n0-w00:1 1 {124 * S}",
        f"renewed {115 * S} n0-w00:1 1 {130 * S}",
    ]


def term(process: str, epoch: int, first: int, last: int) -> Term:
    one, other = (Sample(at * S, at * S, process, epoch, True, True) for at in (first, last))
    return Term(process, epoch, one, other)


HEIR = term("n1-w00:2", 3, 167, 199)
TERMS = [term("n0-w00:1", 1, 20, 149), term("n1-w00:2", 2, 167, 199)]


def verdict(
    folder: Path, lines: list[str], terms: list[Term] = TERMS, kills: tuple[int, ...] = (KILLED,), plan: Plan = PLAN
) -> BeatVerdict:
    (folder / "events").write_text("".join(f"{line}\n" for line in events()))
    (folder / "node.beats").write_text("".join(f"{line}\n" for line in lines))
    files = Files()
    files.read_events(folder / "events")
    files.read_beats(folder / "node.beats")
    return judge(files, terms, [at * S for at in kills], plan, Window(BEGIN * S, END * S), END * S)


def test_a_run_that_is_right(tmp_path: Path) -> None:
    found = verdict(tmp_path, all_beats())
    assert found.violations == []
    assert found.heartbeat == {"p50": 0.1, "p99": 0.1, "p99.9": 0.1, "longest": 0.1}
    assert found.between["p50"] == 5.0
    assert (found.renewals, found.renewal["longest"]) == (2, 6.0)
    assert found.failovers["longest"] == 17.0
    assert found.least_alive == 2
    assert found.samples == 100


def without(lines: list[str], process: str, after: int) -> list[str]:
    return [line for line in lines if not (line.split(" ")[2] == process and int(line.split(" ")[1]) > after * S)]


@pytest.mark.parametrize(
    ("lines", "terms", "kills", "found"),
    [
        (all_beats(took=5.0), TERMS, (KILLED,), ["slow"]),
        (without(all_beats(), "n1-w01:2", 140), TERMS, (KILLED,), ["too_few_alive"]),
        ([], TERMS, (KILLED,), ["too_few_beats", "too_few_alive"]),
        (all_beats(), [TERMS[0], term("n1-w01:2", 2, 140, 145), HEIR], (KILLED,), ["unforced"]),
        (all_beats(), [TERMS[0], term("n0-w00:1", 2, 120, 149), HEIR], (KILLED,), ["unforced"]),
        (all_beats(), [TERMS[0], term("n1-w00:2", 2, 240, 250)], (KILLED,), ["late"]),
        (all_beats(), TERMS[:1], (KILLED,), ["late", "no_failover"]),
        (all_beats(), TERMS[:1], (), ["no_failover"]),
    ],
    ids=["slow", "one-silent", "all-silent", "pushed-aside", "led-again", "late", "never", "none"],
)
def test_what_was_planted_is_found(
    tmp_path: Path, lines: list[str], terms: list[Term], kills: tuple[int, ...], found: list[str]
) -> None:
    assert verdict(tmp_path, lines, terms, kills).violations == found


@pytest.mark.parametrize(
    ("what", "at", "forced"), [("killed", 150, True), ("terminated", 150, False), ("killed", 168, False)]
)
def test_only_a_kill_of_the_leader_before_it_forces_another(what: str, at: int, forced: bool) -> None:
    """Who was asked to end gives its lease back, which is no failover; and it was led before the later kill."""
    lives = {"n0-w00:1": Life("n0-w00", 10 * S, at * S, what == "killed")}
    assert bool(unforced(TERMS, lives, END * S)) is not forced


def test_the_way_in_which_a_process_ended_is_what_the_events_say(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text("started 1 a:1\nstarted 2 b:2\nstarted 3 c:3\nkilled 4 a:1\nterminated 5 b:2\n")
    files = Files()
    files.read_events(path)
    ends = {process: (life.killed, life.ended_ns) for process, life in files.lives.items()}
    assert ends == {"a:1": (True, 4), "b:2": (False, 5), "c:3": (False, 2**62)}


def test_a_failover_is_the_first_belief_above_all_that_were_known() -> None:
    """Epochs 1 and 2 were there before the kill, and two leaders have come since."""
    terms = [
        term("a:1", 2, 30, 149),
        term("b:2", 1, 20, 29),
        term("c:3", 3, 167, 180),
        term("d:4", 4, 181, 199),
    ]
    assert failover_seconds(KILLED * S, terms) == 17.0
    assert failover_seconds(KILLED * S, list(reversed(terms))) == 17.0
    assert failover_seconds(170 * S, terms) == 11.0
    assert failover_seconds(190 * S, terms) is None
    # One that goes on under an epoch that was known is no successor.
    assert failover_seconds(KILLED * S, [terms[0], term("b:2", 1, 160, 165)]) is None


def test_one_slow_heartbeat_in_a_hundred_is_borne_and_two_are_not(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, lease=3.0)
    lines, total = [], 0.0
    for number in range(1, 201):
        total += 2.0 if number == 50 else 0.1
        lines.append(f"beat {(100 * S) + number * S // 3} n1-w00:2 {number} {round(total * 1e6)} 0")
    assert "slow" not in verdict(tmp_path, lines, plan=plan).violations
    lines.append(f"beat {180 * S} n1-w00:2 202 {round((total + 4.0) * 1e6)} 0")
    assert "slow" in verdict(tmp_path, lines, plan=plan).violations


def test_several_heartbeats_between_two_looks_are_never_taken_for_too_short(tmp_path: Path) -> None:
    lines = [f"beat {101 * S} n1-w00:2 1 100000 0", f"beat {110 * S} n1-w00:2 3 6100000 0"]
    assert verdict(tmp_path, lines).heartbeat["p50"] == 6.0


def test_a_process_that_was_just_started_may_be_silent_and_one_that_never_joins_may_not(tmp_path: Path) -> None:
    lines = [line for line in all_beats() if line.split(" ")[2] not in AFTER]
    assert verdict(tmp_path, lines).too_few_alive == ()
    fast = msgspec.structs.replace(PLAN, lease=3.0)
    assert "n0-w00, n0-w01" in "".join(verdict(tmp_path, lines, plan=fast).too_few_alive)


def test_fewer_than_all_but_one_process_is_too_few(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, coordinators=8)
    assert "only 2 of 8" in "".join(verdict(tmp_path, all_beats(), plan=plan).too_few_alive)


@pytest.mark.parametrize("line", ["beat 1 n9-w00:9 1 1 1", "beat 1 n1-w00:2", "beaten 1 2 3 4 5"])
def test_what_is_no_line_of_a_log_is_not_judged(tmp_path: Path, line: str) -> None:
    with pytest.raises(Unjudgeable, match=r"node\.beats:1"):
        verdict(tmp_path, [line])


# Was there load?


@pytest.mark.parametrize(
    ("accepted", "rate", "settled", "found"),
    [
        (1000, 10.0, 210, []),
        (940, 10.0, 210, ["too little"]),
        (0, 0.0, 210, ["too little"]),
        (1000, 10.0, 0, ["not settled"]),
    ],
)
def test_a_run_without_its_load_does_not_count(accepted: int, rate: float, settled: int, found: list[str]) -> None:
    run = Run(plan=PLAN, rate=rate, from_ns=BEGIN * S, to_ns=END * S, settled_ns=settled * S)
    assert [text.partition(":")[0] for text in judge_given(run, accepted).violations] == found


# A whole folder


def folder_of(folder: Path) -> Path:
    """A run that is right: four coordinators, two messages, one of them handled again because of the kill."""
    run = Run(
        plan=PLAN,
        measured_per_second=0.025,
        rate=0.02,
        from_ns=BEGIN * S,
        to_ns=END * S,
        settled_ns=(END + 1) * S,
        kills=[Deed(KILLED * S, "n0-w00", 1, 0)],
    )
    belief = [
        *(f"{at * S // 50} {at * S // 50 + 9} n0-w00:1 1 1 1" for at in range(30 * 50, 31 * 50)),
        *(f"{at * S // 50} {at * S // 50 + 9} n1-w00:2 2 1 1" for at in range(167 * 50, 168 * 50)),
    ]
    handled = [
        f"began {149 * S} n0-w00:1 p0:1:- u-1-0 s:1 7 1",
        f"began {185 * S} n1-w00:2 p0:1:- u-1-0 s:1 9 2",
        f"ended {186 * S} n1-w00:2 p0:1:- u-1-0 9 4000",
        f"began {187 * S} n1-w00:2 p0:2:- u-2-0 s:2 9 1",
        f"ended {188 * S} n1-w00:2 p0:2:- u-2-0 9 4000",
    ]
    sent = [f"sending {140 * S} p0:9 p0:1:- p0:2:-", f"accepted {141 * S} p0:9 p0:1:- p0:2:-"]
    files = {"events": events(), "n.beats": all_beats(), "n.belief": belief, "n.handled": handled, "p0.sent": sent}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    (folder / "run.json").write_bytes(msgspec.json.encode(run))
    return folder


def test_a_folder_that_is_right(tmp_path: Path) -> None:
    found = judge_folder(folder_of(tmp_path))
    assert found.violations == []
    assert table(found)[-1].endswith("no violation")


@pytest.mark.parametrize(
    ("file", "line", "part"),
    [
        ("n.belief", None, "election: overlaps"),
        ("p0.sent", f"accepted {142 * S} p0:9 p0:3:-", "queue: lost"),
        ("n.out", '{"said": "halted", "told": "x"}', "processes: halted"),
        ("n.beats", "nonsense", "heartbeats: cannot be judged"),
        ("n.handled", "nonsense", "queue: cannot be judged"),
    ],
)
def test_every_part_of_a_folder_is_judged(tmp_path: Path, file: str, line: str | None, part: str) -> None:
    folder = folder_of(tmp_path)
    two = [f"{at * S // 50} {at * S // 50 + 9} n1-w01:2 3 1 1" for at in range(30 * 50, 31 * 50)]
    with (folder / file).open("a") as log:
        log.write("".join(f"{each}\n" for each in ([line] if line is not None else two)))
    found = judge_folder(folder)
    assert any(text.startswith(part) for text in found.violations), found.violations
    assert table(found)[-1].endswith("VIOLATED")


def test_what_the_run_itself_could_not_do_is_a_violation(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    run = msgspec.json.decode((folder / "run.json").read_bytes(), type=Run)
    run.failures.append("process 0 ended by itself")
    (folder / "run.json").write_bytes(msgspec.json.encode(run))
    assert judge_folder(folder).violations == ["run: process 0 ended by itself"]


# What is noted


class FakeLead:
    epoch = 4
    left = 10.0

    def holds(self) -> bool:
        return self.left > 0

    def is_current(self) -> bool:
        return self.left > 5

    def time_to_wind_up(self) -> float:
        return self.left


class FakeCoordinator:
    lead: FakeLead | None = None

    def is_leader(self) -> bool:
        return self.lead is not None and self.lead.is_current()


def test_a_line_of_belief_is_left_out_only_if_it_repeats_that_it_leads_nothing() -> None:
    coordinator = FakeCoordinator()
    member = Member(cast(Any, None), cast(Any, coordinator), "w")
    said = [member.believes(due=False), member.believes(due=False), member.believes(due=True)]
    assert [bool(line) for line in said] == [True, False, True]
    coordinator.lead = FakeLead()
    assert [member.believes(due=False).split(" ")[3:] for _ in range(2)] == 2 * [["4", "1", "1\n"]]
    FakeLead.left, coordinator.lead = 3.0, None
    assert member.believes(due=False).split(" ")[3:] == ["4", "0", "1\n"]
    FakeLead.left = 0.0
    assert member.believes(due=False).split(" ")[3:] == ["0", "0", "0\n"]
    assert member.believes(due=False) == ""


def test_a_lease_that_holds_for_longer_was_renewed() -> None:
    coordinator, lead = FakeCoordinator(), FakeLead()
    member = Member(cast(Any, None), cast(Any, coordinator), "w")
    assert member.renewed() == ""
    coordinator.lead, lead.left = cast(Any, lead), 10.0
    member.believes(due=False)
    assert member.renewed().startswith("renewed ")
    assert member.renewed() == ""
    lead.left = 14.0
    assert member.renewed().split(" ")[3] == "4"


def test_ends_are_counted_once_each_and_torn_lines_later(tmp_path: Path) -> None:
    log, count = tmp_path / "a.handled", EndCount(tmp_path)
    log.write_text("began 1 w:1 b i p 1 1\nended 1 w:1 b i 1 5\nended 2 w")
    assert [count.look(), count.look()] == [1, 1]
    with log.open("a") as file:
        file.write(":1 c i 1 5\n")
    assert count.look() == 2


# What is planned


def test_everybody_has_a_place_and_those_who_handle_are_among_them() -> None:
    plan = Plan(coordinators=7, processes=3, handlers=4)
    names = [plan.names(node) for node in range(3)]
    assert [len(each) for each in names] == [3, 2, 2]
    assert len({name for each in names for name in each}) == 7
    handling = [plan.handling(node) for node in range(3)]
    assert [len(each) for each in handling] == [2, 1, 1]
    assert all(set(some) <= set(each) for some, each in zip(handling, names, strict=True))


def test_kills_are_spread_over_the_load() -> None:
    assert Plan(seconds=300.0, kills=3).kill_times() == [50.0, 150.0, 250.0]
    assert Plan(kills=0).kill_times() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"coordinators": 201}, "coordinators is 201"),
        ({"coordinators": 3}, "coordinators is 3"),
        ({"coordinators": 1, "processes": 1, "handlers": 1}, "processes is 1"),
        ({"handlers": 0}, "handlers is 0"),
        ({"handlers": 300}, "handlers is 300"),
        ({"saturation": 5.0}, "warm_up is 5"),
        ({"kills": -1}, "kills is -1"),
        ({"seconds": 0.0}, "seconds 0"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Plan(**wrong)


def test_a_producer_is_allowed_what_the_file_says(tmp_path: Path) -> None:
    assert allowed(tmp_path / "up-to") == 0
    (tmp_path / "up-to").write_text("150")
    assert allowed(tmp_path / "up-to") == 150

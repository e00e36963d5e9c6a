"""The judge of schedules finds what is planted, and nothing where all is well."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.judge import Unjudgeable
from lab.schedule_judge import VIOLATIONS, ScheduleVerdict, judge_files
from lab.schedule_log import Runs

# Two jobs every second from second 1 on, one leader that is killed in second 3, and another

SECOND = 1_000_000_000


def entry(seq: int, epoch: int, at: float, *events: list[Any], worker: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"tenure": "log", "seq": seq, "epoch": epoch, "timeMs": round(at * 1000)}
    if not events:
        return {**found, "kind": "term"}
    return {**found, "events": {"worker": worker or ("a" if epoch == 1 else "b"), "events": list(events)}}


def defined(job: str, **options: Any) -> list[Any]:
    schedule, target = {"kind": "every", "periodMs": 1000}, {"kind": "function", "name": job}
    return ["defined", {"id": job, "schedule": schedule, "target": target, "endMs": 7000, **options}, 0, 0, "a"]


def fired(number: int, job: str, second: int, begins: bool = True) -> list[Any]:
    return ["fired", number, job, second * 1000, begins, ""]


def passed(number: int, job: str, second: int, outcome: str, to: int = 0, count: int = 1) -> list[Any]:
    return ["passed", number, job, second * 1000, outcome, to * 1000, count, ""]


LOG = [
    entry(1, 1, 0),
    entry(2, 1, 0, defined("x"), defined("y", misfire="skip", interrupted="abandon")),
    entry(3, 1, 1.1, fired(1, "x", 1), fired(2, "y", 1)),
    entry(4, 1, 2.1, ["succeeded", 1], ["failed", 2, "no", 0], fired(3, "x", 2), passed(4, "y", 2, "skipped-overlap")),
    entry(5, 1, 3.1, ["succeeded", 3], fired(5, "x", 3), fired(6, "y", 3)),
    entry(6, 2, 6.0),
    entry(7, 1, 4.1, fired(7, "x", 4), worker="a"),  # of a leader whose term is over: it is void
    entry(8, 2, 6.1, ["cut-short", 5, True, True], ["cut-short", 6, False, True], ["begun", 5],
          passed(7, "x", 4, "coalesced", 5, 2), fired(8, "x", 6, False),
          passed(9, "y", 4, "missed-window", 5, 2), fired(10, "y", 6)),
    entry(9, 2, 6.5, ["succeeded", 5], ["failed", 10, "no", 6600], ["begun", 8]),
    entry(10, 2, 6.7, ["succeeded", 8], ["begun", 10]),
    entry(11, 2, 6.9, ["succeeded", 10]),
]  # fmt: skip


def ran(
    at: float, process: str, job: str, second: int, token: int, attempt: int = 1, *, how: str | None = "ok"
) -> list[str]:
    """Began and, unless `how` is None, ended."""
    lines = [f"began {round(at * SECOND)} {process} {job} {second * 1000} {token} {attempt}"]
    if how is not None:
        lines.append(f"ended {round((at + 0.05) * SECOND)} {process} {job} {second * 1000} {token} {how}")
    return lines


RUNS = [
    *ran(1.2, "a:1", "x", 1, 3),
    *ran(1.2, "a:1", "y", 1, 3, how="raised"),
    *ran(2.2, "a:1", "x", 2, 4),
    *ran(3.2, "a:1", "x", 3, 5, how=None),
    *ran(6.2, "b:2", "x", 3, 8, 2),
    *ran(6.2, "b:2", "y", 6, 8, how="raised"),
    *ran(6.6, "b:2", "x", 6, 9),
    *ran(6.8, "b:2", "y", 6, 10, 2),
]
EVENTS = [f"started {SECOND} a:1", f"killed {round(3.5 * SECOND)} a:1"]


def told(job: str, second: int, outcome: str, token: int = 0, attempts: int = 0, **more: Any) -> dict[str, Any]:
    who = {"epoch": 1 if token < 6 else 2, "worker": "a" if token < 6 else "b"}
    found = {"run": f"{job}@{second}", "job": job, "scheduled_ms": second * 1000, "outcome": outcome, "token": token}
    return {**found, "attempts": attempts, "interruptions": 0, "to_ms": 0, "count": 1, **who, **more}


API: dict[str, Any] = {
    "stats": {
        **{"jobs": 2, "fired": 7, "succeeded": 5, "failed": 1, "interrupted": 1},
        **{"skipped_overlap": 1, "missed_window": 2, "coalesced": 2, "seq": 11},
    },
    "history": [
        told("x", 1, "fired", 3, 1),
        told("x", 2, "fired", 4, 1),
        told("x", 3, "fired", 8, 2, interruptions=1),
        told("x", 4, "coalesced", to_ms=5000, count=2),
        told("x", 6, "fired", 9, 1),
        told("y", 1, "failed", 3, 1),
        told("y", 2, "skipped-overlap"),
        told("y", 3, "interrupted", 5, 1, interruptions=1),
        told("y", 4, "missed-window", to_ms=5000, count=2),
        told("y", 6, "fired", 10, 2),
    ],
}


class Files:
    """All is well in them, until something is planted."""

    def __init__(self) -> None:
        self.log, self.runs, self.events, self.api = copy.deepcopy((LOG, RUNS, EVENTS, API))

    def replace_event(self, seq: int, index: int, *events: list[Any]) -> None:
        self.log[seq - 1]["events"]["events"][index : index + 1] = events

    def add_event(self, seq: int, event: list[Any]) -> None:
        self.log[seq - 1]["events"]["events"].append(event)

    def verdict(self, folder: Path) -> ScheduleVerdict:
        (folder / "log").mkdir()
        for each in self.log:
            (folder / "log" / f"{each['seq']:020}").write_text(json.dumps(each))
        for name, lines in (("runs", self.runs), ("events", self.events)):
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
        (folder / "api").write_text(json.dumps(self.api))
        return judge_files(folder / "log", [folder / "runs"], [folder / "events"], folder / "api")


def stopped(process: str, from_s: float, to_s: float) -> list[str]:
    return [f"stopped {round(from_s * SECOND)} {process}", f"continued {round(to_s * SECOND)} {process}"]


def begin_late(files: Files) -> None:
    """The first leader is not killed, and notes that it begins what another leader has begun again since."""
    files.events = EVENTS[:1]
    files.runs[6:7] = ran(6.23, "a:1", "x", 3, 5, how="cancelled")


def plant_doubled(files: Files) -> None:
    files.add_event(9, fired(11, "x", 6, False))


def plant_doubled_in_a_range(files: Files) -> None:
    files.replace_event(8, 3, passed(7, "x", 3, "coalesced", 5, 3))


def plant_lost(files: Files) -> None:
    files.replace_event(4, 3)


def plant_lost_in_a_range(files: Files) -> None:
    files.replace_event(8, 3, passed(7, "x", 5, "coalesced"))


def plant_lost_at_the_end(files: Files) -> None:
    files.log[1]["events"]["events"][0][1]["endMs"] = 8000


def plant_phantom(files: Files) -> None:
    files.add_event(9, ["passed", 11, "x", 6400, "skipped-overlap", 0, 1, ""])


def plant_early(files: Files) -> None:
    files.log[3]["timeMs"] = 1999


def plant_miscounted(files: Files) -> None:
    files.replace_event(8, 3, passed(7, "x", 4, "coalesced", 5, 3))


def plant_skip_that_coalesces(files: Files) -> None:
    files.replace_event(8, 5, passed(9, "y", 4, "coalesced", 5, 2))


def plant_abandoned_and_run(files: Files) -> None:
    files.replace_event(8, 1, ["cut-short", 6, True, True])
    files.add_event(8, ["begun", 6])
    files.add_event(9, ["succeeded", 6])
    files.runs += ran(6.25, "b:2", "y", 3, 8, 2)


def plant_repeated_token(files: Files) -> None:
    """The entry begins two occurrences of a job that may not overlap."""
    files.replace_event(8, 4, fired(8, "x", 6, True))
    files.replace_event(9, 2)
    files.runs[11:13] = ran(6.6, "b:2", "x", 6, 8)


def plant_token_gone_back(files: Files) -> None:
    """What was decided first really began last."""
    files.runs[11:13] = ran(6.1, "b:2", "x", 6, 9)


def plant_undecided_run(files: Files) -> None:
    files.runs += ran(6.3, "b:2", "y", 4, 8)


def plant_other_leader(files: Files) -> None:
    files.runs[4:6] = ran(2.2, "c:3", "x", 2, 4)


def plant_wrong_attempt(files: Files) -> None:
    files.runs[4:6] = ran(2.2, "a:1", "x", 2, 4, 2)


def plant_run_twice(files: Files) -> None:
    files.runs += ran(6.82, "b:2", "x", 6, 9)


def plant_begun_twice(files: Files) -> None:
    """The rerun is not of something that was cut short."""
    files.replace_event(8, 0)


def plant_two_at_once(files: Files) -> None:
    """Its process lives on while another runs it."""
    files.events = EVENTS[:1]


def plant_two_at_once_and_a_stop_before(files: Files) -> None:
    """Its process runs two of a job at once, and it was stopped only before either began."""
    files.runs[8] = files.runs[8].replace("ended 6250000000", "ended 6950000000")
    files.events += stopped("b:2", 5.9, 6.1)


def plant_two_at_once_and_a_stop_after(files: Files) -> None:
    files.runs[8] = files.runs[8].replace("ended 6250000000", "ended 6950000000")
    files.events += stopped("b:2", 6.7, 6.8)


def plant_late_beginner_that_was_not_held_up(files: Files) -> None:
    """What the next leader has begun again is begun by the one before, who was stopped, but not then."""
    begin_late(files)
    files.events += stopped("a:1", 0.5, 1.0)


def plant_never_begun(files: Files) -> None:
    """It fired while another run was open, and waits for ever."""
    files.replace_event(9, 2)
    files.replace_event(10, 0)
    del files.runs[11:13]
    files.api["history"][4].update(token=0, attempts=0)
    files.api["stats"]["succeeded"] = 4


def plant_never_tried_again(files: Files) -> None:
    files.replace_event(10, 1)
    files.log[10]["events"]["events"] = []
    del files.runs[13:]
    files.api["history"][9].update(token=8, attempts=1)
    files.api["stats"]["succeeded"] = 4


def plant_never_ended(files: Files) -> None:
    """It was decided to run, never did, and nobody ever said what became of it."""
    del files.log[10]
    del files.runs[13:]
    files.api["stats"].update(succeeded=4, seq=10)


def plant_ended_twice(files: Files) -> None:
    files.add_event(5, ["succeeded", 1])


def plant_success_without_end(files: Files) -> None:
    del files.runs[5]


def plant_failure_without_error(files: Files) -> None:
    files.runs[3] = files.runs[3].replace("raised", "ok")


def plant_cut_short_in_its_term(files: Files) -> None:
    files.replace_event(5, 0, ["cut-short", 3, False, True])


def plant_forgotten_record(files: Files) -> None:
    del files.api["history"][1]


def plant_doubled_in_history(files: Files) -> None:
    files.api["history"].append(told("x", 5, "coalesced"))


def plant_other_outcome(files: Files) -> None:
    files.api["history"][5]["outcome"] = "fired"


def plant_wrong_totals(files: Files) -> None:
    files.api["stats"]["succeeded"] = 6


PLANTED: dict[Callable[[Files], None], set[str]] = {
    plant_doubled: {"doubled", "sums", "unended", "api_differs"},
    plant_doubled_in_a_range: {"doubled", "sums", "api_differs"},
    plant_lost: {"lost", "sums", "api_differs"},
    plant_lost_in_a_range: {"lost", "sums", "api_differs"},
    plant_lost_at_the_end: {"lost", "sums"},
    plant_phantom: {"phantoms", "sums", "api_differs"},
    plant_early: {"early"},
    plant_miscounted: {"sums"},
    plant_skip_that_coalesces: {"against_policy", "api_differs"},
    plant_abandoned_and_run: {"against_policy", "api_differs", "tokens_not_rising"},
    plant_repeated_token: {"tokens_not_rising", "api_differs"},
    plant_token_gone_back: {"tokens_not_rising"},
    plant_undecided_run: {"undecided_runs", "tokens_not_rising"},
    plant_other_leader: {"undecided_runs"},
    plant_wrong_attempt: {"undecided_runs"},
    plant_run_twice: {"run_again", "tokens_not_rising"},
    plant_begun_twice: {"run_again", "api_differs"},
    plant_two_at_once: {"two_at_once"},
    plant_two_at_once_and_a_stop_before: {"two_at_once"},
    plant_two_at_once_and_a_stop_after: {"two_at_once"},
    plant_late_beginner_that_was_not_held_up: {"tokens_not_rising", "two_at_once"},
    plant_never_begun: {"unended"},
    plant_never_tried_again: {"unended"},
    plant_never_ended: {"unended"},
    plant_ended_twice: {"ends_unfounded"},
    plant_success_without_end: {"ends_unfounded", "two_at_once"},
    plant_failure_without_error: {"ends_unfounded"},
    plant_cut_short_in_its_term: {"ends_unfounded", "against_policy", "api_differs"},
    plant_forgotten_record: {"api_differs"},
    plant_doubled_in_history: {"api_differs"},
    plant_other_outcome: {"api_differs"},
    plant_wrong_totals: {"api_differs"},
}


def test_the_judge_finds_nothing_where_all_is_well(tmp_path: Path) -> None:
    verdict = Files().verdict(tmp_path)
    assert verdict.violations == [], verdict
    assert (verdict.jobs, verdict.instants, verdict.runs, verdict.kills, verdict.terms) == (2, 12, 8, 1, 2)
    assert verdict.ends == {"succeeded": 5, "failed": 1, "interrupted": 1, "open": 0}
    assert verdict.outcomes == {
        **{"fired": 5, "failed": 1, "interrupted": 1, "skipped-overlap": 1},
        **{"coalesced": 2, "missed-window": 2},
    }
    assert (verdict.reruns, verdict.retries, verdict.never_ran, verdict.void) == (1, 1, 1, 1)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.removeprefix("plant_"))
def test_the_judge_finds_what_is_planted(plant: Callable[[Files], None], tmp_path: Path) -> None:
    files = Files()
    plant(files)
    assert set(files.verdict(tmp_path).violations) == PLANTED[plant]


def test_everything_that_the_judge_can_find_is_planted() -> None:
    assert set().union(*PLANTED.values()) == set(VIOLATIONS)


def test_the_judge_refuses_a_log_that_is_not_whole(tmp_path: Path) -> None:
    files = Files()
    del files.log[4]
    with pytest.raises(Unjudgeable, match="entry 5"):
        files.verdict(tmp_path)


# What excuses, and when


@pytest.mark.parametrize(("from_s", "to_s"), [(3.15, 6.21), (6.2, 6.22), (1.3, 1.4)])
def test_who_was_stopped_as_it_was_to_begin_may_begin_late(from_s: float, to_s: float, tmp_path: Path) -> None:
    """Another has begun it again at 6.2: up to five seconds after it goes on it may note what it was told before."""
    files = Files()
    begin_late(files)
    files.events += stopped("a:1", from_s, to_s)
    assert files.verdict(tmp_path).violations == []


@pytest.mark.parametrize(
    ("events", "found"),
    [
        (stopped("a:1", 3.15, 3.25), []),
        (stopped("a:1", 3.3, 6.3), []),
        (stopped("a:1", 3.3, 6.3)[:1], []),
        (stopped("a:1", 1.0, 3.1), ["two_at_once"]),
        (stopped("a:1", 6.3, 6.4), ["two_at_once"]),
        (stopped("b:2", 3.3, 6.1), []),
        (stopped("c:3", 3.3, 6.3), ["two_at_once"]),
    ],
    ids=["as it began", "until later", "for good", "before", "after", "the other one", "a stranger"],
)
def test_who_was_stopped_in_a_run_may_run_on(events: list[str], found: list[str], tmp_path: Path) -> None:
    """Its run began at 3.2, was never ended, and another began it again at 6.2 and another occurrence at 6.6."""
    files = Files()
    files.events = [EVENTS[0], *events]
    assert files.verdict(tmp_path).violations == found


def test_a_process_is_stopped_until_it_goes_on_or_is_killed(tmp_path: Path) -> None:
    (tmp_path / "events").write_text(
        "stopped 10 a:1\ncontinued 20 a:1\nstopped 30 a:1\nkilled 40 a:1\nstopped 50 b:2\n"
    )
    runs = Runs()
    runs.read_events(tmp_path / "events")
    assert [at for at in range(5, 100, 5) if runs.was_stopped("a:1", at, at)] == [10, 15, 20, 30, 35, 40]
    assert [at for at in range(5, 100, 5) if runs.was_stopped("b:2", at, at)] == list(range(50, 100, 5))
    assert runs.was_stopped("a:1", 0, 100)
    assert not runs.was_stopped("a:1", 21, 29)
    assert not runs.was_stopped("c:3", 0, 100)


def test_a_run_is_compared_with_all_that_go_on(tmp_path: Path) -> None:
    """The second may meet the first, and has ended; the third may not, and is no other's excuse."""
    files = Files()
    files.events = [EVENTS[0], *stopped("b:2", 3.3, 6.1)]
    files.runs[11:13] = ran(6.6, "c:3", "x", 6, 9)
    (told,) = files.verdict(tmp_path).two_at_once
    assert told.startswith("x@6000 by c:3")
    assert "while x@3000 by a:1" in told


# Policies


def interrupt(files: Files, at_most: int) -> None:
    """x@3 is cut short for the first time, and not begun again."""
    files.log[1]["events"]["events"][0][1]["maxInterruptions"] = at_most
    files.replace_event(8, 0, ["cut-short", 5, False, True])
    files.replace_event(8, 2)
    files.replace_event(9, 0)
    del files.runs[7:9]
    files.api["history"][2] = told("x", 3, "interrupted", 5, 1, interruptions=1)
    files.api["stats"].update(succeeded=4, interrupted=2)


@pytest.mark.parametrize(("at_most", "found"), [(0, []), (1, ["against_policy"]), (3, ["against_policy"])])
def test_a_run_is_given_up_after_so_many_interruptions_and_not_before(
    at_most: int, found: list[str], tmp_path: Path
) -> None:
    files = Files()
    interrupt(files, at_most)
    assert files.verdict(tmp_path).violations == found


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"misfire": "fire-all", "misfireGraceMs": 0, "catchUp": 1}, []),
        ({"misfire": "fire-all", "misfireGraceMs": 99, "catchUp": 1}, []),
        ({"misfire": "fire-all", "misfireGraceMs": 100, "catchUp": 1}, [5000]),
        ({"misfire": "fire-all", "misfireGraceMs": 0, "catchUp": 2}, [5000]),
        ({"misfire": "fire-all", "misfireGraceMs": 0, "catchUp": 3}, [4000, 5000]),
        ({"misfire": "fire-all", "misfireGraceMs": 0}, [4000, 5000]),
        ({"misfire": "fire-all", "catchUp": 1}, [4000, 5000]),
        ({"misfire": "skip", "misfireGraceMs": 0, "catchUp": 1}, [4000, 5000]),
        ({"misfire": "fire-once"}, []),
    ],
    ids=["one", "grace", "within grace", "two", "three", "a hundred", "usual grace", "skip", "once"],
)
def test_older_ones_than_are_caught_up_with_are_coalesced(
    options: dict[str, Any], wrong: list[int], tmp_path: Path
) -> None:
    """At 6.1, those of 4 and 5 are; that of 6 fires. So many must be late, by more than the grace, that are newer."""
    files = Files()
    files.log[1]["events"]["events"][0][1].update(options)
    verdict = files.verdict(tmp_path)
    assert verdict.violations == (["against_policy"] if wrong else [])
    assert [text.split(", of ")[1].split(",")[0] for text in verdict.against_policy] == [str(each) for each in wrong]


@pytest.mark.parametrize("misfire", ["fire-once", "fire-all"])
@pytest.mark.parametrize(("window_ms", "wrong"), [(1000, 0), (1099, 0), (1100, 1), (3000, 2), (None, 2)])
def test_what_is_older_than_the_window_is_missed(
    misfire: str, window_ms: int | None, wrong: int, tmp_path: Path
) -> None:
    """Those of 4 and 5, at 6.1."""
    files = Files()
    options = files.log[1]["events"]["events"][1][1]
    options.update({"misfire": misfire, **({"misfireWindowMs": window_ms} if window_ms is not None else {})})
    verdict = files.verdict(tmp_path)
    assert verdict.violations == (["against_policy"] if wrong else [])
    assert len(verdict.against_policy) == wrong


# Tokens


def test_an_entry_that_begins_two_of_a_job_is_found_in_the_log_alone(tmp_path: Path) -> None:
    files = Files()
    plant_repeated_token(files)
    files.runs = []
    assert "x has token 8 more than once" in files.verdict(tmp_path).tokens_not_rising
    allowed = Files()
    plant_repeated_token(allowed)
    allowed.log[1]["events"]["events"][0][1]["overlap"] = "allow"
    (tmp_path / "allowed").mkdir()
    assert allowed.verdict(tmp_path / "allowed").tokens_not_rising == ()


def test_an_occurrence_that_is_begun_twice_by_one_entry_is_found(tmp_path: Path) -> None:
    """Of a job whose runs may overlap: there only the occurrence itself shows it."""
    files = Files()
    files.log[1]["events"]["events"][1][1]["overlap"] = "allow"
    files.add_event(8, ["failed", 10, "no", 6200])
    files.add_event(8, ["begun", 10])
    assert any("has the tokens [8, 8, 10]" in text for text in files.verdict(tmp_path).tokens_not_rising)

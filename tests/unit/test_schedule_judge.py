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
    plant_doubled: {"doubled", "sums", "api_differs"},
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


@pytest.mark.req("SC-2")
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

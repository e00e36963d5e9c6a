"""A schedule's processes are real, and its leader is killed again and again; a program of its own judges their files.

The figures are printed (`pytest -s`) and kept in .reports/schedule.json.
"""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.judge import Unjudgeable, judge_logs
from lab.schedule_cluster import ScheduleCluster
from lab.schedule_judge import VIOLATIONS, ScheduleVerdict, judge_files

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / ".reports" / "schedule.json"
CALM = 5.0
"""Seconds from the first entry of a leader to the next kill."""
AWAY = 2.0
"""Seconds until a process that was killed is started anew."""
JOBS = 50
NAMES = "abcde"


def record(what: str, verdict: dict[str, Any], **figures: Any) -> None:
    kept = [name for name in verdict if name not in (*VIOLATIONS, "violations")]
    shown = {**{name: verdict[name] for name in kept}, **figures}
    print(f"\n{what}: {json.dumps(shown)}")
    REPORT.parent.mkdir(exist_ok=True)
    known: dict[str, Any] = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    known[what] = shown
    REPORT.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


# The judge: two jobs every second from second 1 on, one leader that is killed in second 3, and another

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


# Real processes


async def kill_leaders(cluster: ScheduleCluster, until: float) -> list[float]:
    """Each leader, so long after its first entry; gives how long each failover took."""
    took = []
    leader, epoch, killed = await cluster.next_leader(0, within=60), cluster.epoch, 0.0
    while True:
        await asyncio.sleep(CALM)
        if time.time() > until:
            return took
        if cluster.leader() is leader:
            cluster.kill(leader)
            killed = time.monotonic()
            asyncio.get_running_loop().call_later(AWAY, cluster.start, leader.name)
        leader = await cluster.next_leader(epoch, within=60)
        if killed:
            took.append(round(time.monotonic() - killed, 2))
        epoch, killed = cluster.epoch, 0.0


def planted(cluster: ScheduleCluster, folder: Path) -> set[str]:
    """What the judge finds if a run is there twice, and a record is not: of these two things."""
    log = max((path for path in cluster.run_logs if path.exists()), key=lambda path: path.stat().st_size)
    log.write_text(log.read_text() + log.read_text())
    for path in sorted((folder / "log").iterdir(), reverse=True):
        entry = json.loads(path.read_bytes())
        events = entry.get("events", {}).get("events", [])
        gone = next((event for event in events if event[0] == "passed"), None)
        if gone is not None:
            events.remove(gone)
            path.write_text(json.dumps(entry))
            break
    code, verdict = cluster.judge(folder / "log", folder / "api.json")
    assert code == 1
    return set(verdict["violations"]) & {"run_again", "lost"}


async def kill_and_judge(url: str, folder: Path, processes: str, seconds: float, jobs: int = JOBS) -> dict[str, Any]:
    """`seconds`: for which there are occurrences, at least, after the first leader's first entry."""
    end = time.time() + seconds + 10.0
    options = ("--end", str(end), "--jobs", str(jobs))
    async with ScheduleCluster(url, folder, options) as cluster:
        for name in processes:
            cluster.start(name)
        failovers = await kill_leaders(cluster, end)
        await cluster.until_settled(round(end * 1000), within=60)
        code, verdict = await cluster.judged()
        assert (code, verdict["violations"]) == (0, []), json.dumps(verdict, indent=2) + await cluster.report()
        assert verdict["jobs"] == jobs
        assert verdict["instants"] >= jobs * seconds
        assert verdict["kills"] == len(failovers)
        assert verdict["ends"]["open"] == 0
        verdict["failovers"] = sorted(failovers)
        assert planted(cluster, folder) == {"run_again", "lost"}
    return verdict


@pytest.mark.slow
@pytest.mark.req("SC-2", "EF-9")
async def test_fifty_jobs_a_second_while_every_leader_is_killed(url_of: Callable[[str], str], tmp_path: Path) -> None:
    verdict = await kill_and_judge(url_of("ministack"), tmp_path / "files", NAMES, 60.0)
    assert verdict["kills"] >= 3
    assert verdict["terms"] >= verdict["kills"] + 1
    for outcome in ("fired", "failed", "interrupted", "skipped-overlap", "missed-window", "coalesced"):
        assert verdict["outcomes"].get(outcome), f"nothing was {outcome}: {verdict['outcomes']}"
    assert verdict["reruns"] > 0
    record("50 jobs a second, leaders killed, ministack", verdict)


@pytest.mark.slow
@pytest.mark.req("SC-2", "EF-9")
async def test_leaders_are_killed_on_a_directory(url_of: Callable[[str], str], tmp_path: Path) -> None:
    verdict = await kill_and_judge(url_of("directory"), tmp_path / "files", NAMES[:3], 10.0, jobs=20)
    assert verdict["kills"] >= 1
    record("20 jobs a second, leaders killed, directory", verdict)


@pytest.mark.slow
@pytest.mark.req("SC-2", "EF-9")
async def test_a_command_is_gone_before_another_leader_begins_it_again(
    url_of: Callable[[str], str], tmp_path: Path
) -> None:
    """The leader is frozen while it runs, and so cannot end it itself; later it goes on."""
    ticks = tmp_path / "ticks"
    ticks.mkdir()

    def logs() -> list[Path]:
        return sorted(ticks.iterdir())

    async with ScheduleCluster(url_of("directory"), tmp_path / "files", ("--command", str(ticks))) as cluster:
        for name in "abc":
            cluster.start(name)
        leader = await cluster.next_leader(0, within=60)
        await cluster.until(lambda: logs() and logs()[0].stat().st_size > 5000, 60, "the command runs")
        epoch = cluster.epoch
        cluster.pause(leader)
        await cluster.next_leader(epoch, within=60)
        await cluster.until(lambda: len(logs()) > 1, 60, "another leader begins it again")
        verdict = judge_logs(logs())
        assert len(verdict.processes) == 2
        cluster.resume(leader)
        await asyncio.sleep(4.0)
        first, second = (log for log in sorted(logs(), key=lambda path: path.stat().st_mtime_ns))
        assert first.name.startswith(f"{leader.name}-")
        machine = await cluster.machine()
        (open_run,) = machine.open.values()
        assert (open_run.attempts, open_run.interruptions) == (2, 1)
        assert second.name.startswith(f"{open_run.worker}-")
        verdict = judge_logs(logs())
        assert verdict.violations == [], verdict
        (takeover,) = verdict.takeovers
        assert takeover.seconds > 0
        silent = verdict.longest_silence
    print(
        f"\na command of a frozen leader: begun again {takeover.seconds:.2f} s after its end (silence {silent:.2f} s)"
    )

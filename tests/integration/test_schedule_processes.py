"""A schedule's processes are real, and its leader is killed again and again; a program of its own judges their files.

The figures are printed (`pytest -s`) and kept in .reports/schedule.json.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.judge import judge_logs
from lab.schedule_cluster import ScheduleCluster
from lab.schedule_judge import VIOLATIONS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.clock
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


@pytest.mark.trials
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

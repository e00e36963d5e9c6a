"""A supervised service moves between real processes when its leader is killed, sent away or stopped.

The service is an async child and a program; both note a hundred times a second that they run, and a separate program
judges their logs. The candidates' settings are the defaults. The figures are printed (`pytest -s`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from lab.cluster import Believer, Cluster
from lab.judge import Verdict

NAMES = ("ada", "ben", "cyd")
PATIENCE = 40.0
WITHIN_CRASH = 10.0
WITHIN_GRACEFUL = 5.0
STOPPED = 9.0

pytestmark = [pytest.mark.slow, pytest.mark.clock]
TRIALS = pytest.mark.parametrize(("clusters", "each"), [(3, 1), pytest.param(5, 2, marks=pytest.mark.trials)])
"""How many clusters side by side, and trials of each."""


class Trials:
    def __init__(self, url: str, folder: Path, seed: int) -> None:
        folder.mkdir()
        self.cluster = Cluster(url, folder, namespace="coordinator", module="lab.supervised")
        self.dice = Random(seed)
        self.events_ns: list[int] = []

    async def run(self, each: int, trial: Callable[[Trials, Believer], Awaitable[None]]) -> None:
        for name in NAMES:
            self.cluster.start(name)
        for _ in range(each):
            leader = await self.cluster.settled(PATIENCE)
            await asyncio.sleep(5 + self.dice.uniform(0, 2.2))
            await trial(self, leader)

    async def returns(self, name: str) -> None:
        """The one that left comes back, and the one that took over stays."""
        successor = await self.cluster.settled(PATIENCE)
        returned = self.cluster.start(name)
        assert await self.cluster.settled(PATIENCE) is successor
        await asyncio.sleep(4)
        assert self.cluster.leaders() == [successor], f"{returned.identity} did not stay a standby"


async def kill(trials: Trials, leader: Believer) -> None:
    trials.events_ns.append(trials.cluster.kill(leader))
    await trials.returns(leader.name)


async def send_away(trials: Trials, leader: Believer) -> None:
    trials.events_ns.append(await trials.cluster.terminate(leader))
    await trials.returns(leader.name)


async def stop(trials: Trials, leader: Believer) -> None:
    trials.events_ns.append(trials.cluster.pause(leader))
    await asyncio.sleep(STOPPED)
    trials.cluster.resume(leader)
    await trials.cluster.settled(PATIENCE, other_than=leader)
    await asyncio.sleep(2)


async def side_by_side(
    url_of: Callable[[str], str],
    folder: Path,
    clusters: int,
    each: int,
    trial: Callable[[Trials, Believer], Awaitable[None]],
) -> list[Verdict]:
    running = [Trials(url_of("ministack"), folder / f"cluster{seed}", seed) for seed in range(clusters)]
    try:
        await asyncio.gather(*(trials.run(each, trial) for trials in running))
    finally:
        for trials in running:
            trials.cluster.stop()
    for trials in running:
        # The programs' own processes are killed a moment after their parent was.
        programs = trials.cluster.programs_verdict()
        assert not programs.overlaps, f"two programs ran at once: {programs.overlaps}"
        assert len(programs.terms) >= each, "the programs did not run"
    verdicts = [trials.cluster.verdict(trials.events_ns) for trials in running]
    for verdict in verdicts:
        assert verdict.violations == [], [getattr(verdict, name) for name in verdict.violations]
    return verdicts


def reactions(verdicts: list[Verdict], count: int, what: str) -> list[float]:
    found = [reaction.seconds for verdict in verdicts for reaction in verdict.reactions]
    seconds = [each for each in found if each is not None]
    assert len(seconds) == len(found) == count, f"nobody took over: {found}"
    print(f"\n{what}: mean {fmean(seconds):.2f} s, max {max(seconds):.2f} s, min {min(seconds):.2f} s")
    return seconds


@pytest.mark.req("SV-6", "SV-2")
@TRIALS
async def test_a_crashed_leaders_service_runs_elsewhere_within_ten_seconds(
    clusters: int, each: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    seconds = reactions(await side_by_side(url_of, tmp_path, clusters, each, kill), clusters * each, "crash")
    assert max(seconds) <= WITHIN_CRASH


@pytest.mark.req("SV-6", "SV-2")
@TRIALS
async def test_a_graceful_restart_moves_the_service_within_five_seconds(
    clusters: int, each: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    seconds = reactions(await side_by_side(url_of, tmp_path, clusters, each, send_away), clusters * each, "graceful")
    assert max(seconds) <= WITHIN_GRACEFUL


@pytest.mark.req("SV-2", "CP-7")
@TRIALS
async def test_a_stopped_leaders_service_and_program_never_overlap_the_next(
    clusters: int, each: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    await side_by_side(url_of, tmp_path, clusters, each, stop)

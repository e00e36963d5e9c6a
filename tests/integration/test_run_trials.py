"""`tenure run` between real processes on ministack: whatever is frozen or killed, two programs never overlap.

Lease 3 s. The programs note a hundred times a second that they run, and are judged from that alone. What was measured
is printed (`pytest -s`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from lab.run_cluster import Life, RunCluster, boottime_ns, lives, overlaps

CLUSTERS = 5
TRIALS = 20
NODES = 3
LEASE = 3.0
FROZEN = 4.5
"""Longer than a lease: a successor is there when it wakes up."""

Harm = Callable[[RunCluster, Life], Awaitable[None]]

pytestmark = [pytest.mark.slow, pytest.mark.servers]


async def freeze(cluster: RunCluster, leader: Life) -> None:
    cluster.send(leader.worker, signal.SIGSTOP)


async def kill(cluster: RunCluster, leader: Life) -> None:
    cluster.send(leader.worker, signal.SIGKILL)


async def kill_watchdog(cluster: RunCluster, leader: Life) -> None:
    os.kill(cluster.guards(leader.worker)[1], signal.SIGKILL)


async def kill_behind(cluster: RunCluster, leader: Life) -> None:
    os.kill(cluster.guards(leader.worker)[0], signal.SIGKILL)


async def freeze_and_kill_watchdog(cluster: RunCluster, leader: Life) -> None:
    cluster.send(leader.worker, signal.SIGSTOP)
    await kill_watchdog(cluster, leader)


async def kill_with_watchdog(cluster: RunCluster, leader: Life) -> None:
    _, guard = cluster.guards(leader.worker)
    os.kill(guard, signal.SIGKILL)
    cluster.send(leader.worker, signal.SIGKILL)


async def freeze_both(cluster: RunCluster, leader: Life) -> None:
    """The watchdog is told to go on by the one behind it."""
    cluster.send(leader.worker, signal.SIGSTOP)
    os.kill(cluster.guards(leader.worker)[1], signal.SIGSTOP)


HARMS: tuple[Harm, ...] = (
    freeze,
    kill,
    kill_watchdog,
    kill_behind,
    freeze_and_kill_watchdog,
    kill_with_watchdog,
    freeze_both,
)
PROGRAMS = {"plain": (), "stubborn": ("--stubborn",), "daemon": ("--daemon",), "bare-daemon": ("--daemon", "--bare")}


async def trial(cluster: RunCluster, harm: Harm, dice: Random) -> float:
    """Seconds from the harm to the next program."""
    leader = await cluster.running()
    await asyncio.sleep(dice.uniform(0.2, 1.5))
    leader = await cluster.running()
    at = boottime_ns()
    await harm(cluster, leader)
    follower = await cluster.running(above=leader.epoch)
    took = (follower.first_ns - at) / 1e9
    if cluster.runs[leader.worker].poll() is None:
        await asyncio.sleep(max(0.0, FROZEN - took))
        cluster.send(leader.worker, signal.SIGCONT)
    await asyncio.sleep(0.5)
    while sum(run.poll() is None for run in cluster.runs.values()) < NODES:
        cluster.start()
    return took


async def trials(url: str, folder: Path, harm: Harm, program: tuple[str, ...], seed: int, count: int) -> list[float]:
    dice = Random(seed)
    cluster = RunCluster(url, folder, program=program)
    try:
        for _ in range(NODES):
            cluster.start()
        took = [await trial(cluster, harm, dice) for _ in range(count)]
    finally:
        await asyncio.to_thread(cluster.close)  # the other clusters of this test must not wait for stubborn programs
    found = lives(cluster.notes)
    assert len({life.epoch for life in found}) >= count + 1, "there were not as many programs as trials"
    assert overlaps(found) == [], cluster.logs()
    return took


@pytest.mark.req("OP-2")
@pytest.mark.parametrize("program", list(PROGRAMS))
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__.replace("_", "-"))
async def test_two_programs_never_overlap(
    harm: Harm, program: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    often = harm in (freeze, kill, kill_watchdog) and program in ("plain", "daemon")
    count = TRIALS if often else TRIALS // 4
    each = count // CLUSTERS
    results = await asyncio.gather(
        *(
            trials(url_of("ministack"), tmp_path / f"cluster{seed}", harm, PROGRAMS[program], seed, each)
            for seed in range(CLUSTERS)
        )
    )
    took = [seconds for result in results for seconds in result]
    assert len(took) == count
    print(
        f"\n{harm.__name__}, {program}: {len(took)} trials, the next program after {min(took):.2f} to "
        f"{max(took):.2f} s (mean {fmean(took):.2f})"
    )


async def test_the_judge_sees_a_program_that_nobody_ended(url_of: Callable[[str], str], tmp_path: Path) -> None:
    """The same trial, with a watchdog that does not keep time."""
    cluster = RunCluster(url_of("ministack"), tmp_path / "cluster", command=(sys.executable, "-m", "lab.unguarded"))
    try:
        for _ in range(NODES):
            cluster.start()
        await trial(cluster, freeze, Random(1))
    finally:
        cluster.close()
    found = overlaps(lives(cluster.notes))
    assert found, "a frozen leader's program ran on, and was not seen"

"""`tenure run` between real processes on ministack: whatever is frozen or killed, two programs never overlap.

Lease 3 s. Every harm and every program is tried for each change, and each harm with each program before a release. The
programs note a hundred times a second that they run, and are judged from that alone. What was measured is printed
(`pytest -s`).
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
from typing import Any

import pytest

from lab.run_cluster import Life, RunCluster, boottime_ns, lives, overlaps

CLUSTERS = 5
OFTEN = 4
"""Trials of each cluster, before a release, of what happens most."""
NODES = 3
LEASE = 3.0
FROZEN = 4.5
"""Longer than a lease: a successor is there when it wakes up."""

Harm = Callable[[RunCluster, Life], Awaitable[None]]

pytestmark = [pytest.mark.slow, pytest.mark.servers, pytest.mark.clock]


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


PAIRS: tuple[tuple[Harm, str], ...] = (
    (freeze, "plain"),
    (freeze, "stubborn"),
    (kill, "plain"),
    (kill, "bare-daemon"),
    (kill_watchdog, "stubborn"),
    (kill_watchdog, "daemon"),
    (kill_behind, "bare-daemon"),
    (freeze_and_kill_watchdog, "stubborn"),
    (kill_with_watchdog, "daemon"),
    (freeze_both, "bare-daemon"),
)
"""Tried for each change, once by each cluster."""


def is_frequent(harm: Harm, program: str) -> bool:
    return harm in (freeze, kill, kill_watchdog) and program in ("plain", "daemon")


def cases() -> list[Any]:
    """Harm, program, and trials of each cluster."""
    before_a_release = [
        pytest.param(harm, program, OFTEN if is_frequent(harm, program) else 1, marks=pytest.mark.trials)
        for harm in HARMS
        for program in PROGRAMS
        if is_frequent(harm, program) or (harm, program) not in PAIRS
    ]
    return [(harm, program, 1) for harm, program in PAIRS] + before_a_release


def named(value: object) -> str:
    return value.__name__.replace("_", "-") if callable(value) else str(value)


def test_every_harm_and_every_program_are_tried_for_each_change() -> None:
    assert {harm for harm, _ in PAIRS} == set(HARMS)
    assert {program for _, program in PAIRS} == set(PROGRAMS)
    tried = {tuple(getattr(case, "values", case))[:2] for case in cases()}
    assert tried == {(harm, program) for harm in HARMS for program in PROGRAMS}


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
@pytest.mark.parametrize(("harm", "program", "each"), cases(), ids=named)
async def test_two_programs_never_overlap(
    harm: Harm, program: str, each: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    results = await asyncio.gather(
        *(
            trials(url_of("ministack"), tmp_path / f"cluster{seed}", harm, PROGRAMS[program], seed, each)
            for seed in range(CLUSTERS)
        )
    )
    took = [seconds for result in results for seconds in result]
    assert len(took) == CLUSTERS * each
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

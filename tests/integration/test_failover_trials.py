"""Leaders of real processes are killed, stopped and sent away, many times over; the logs say who believed what when.

Every trial comes at another instant of the leader's heartbeat. Several clusters go through their trials side by side,
each with a store of its own; before a release there are more, on a server as well. The figures are printed
(`pytest -s`) and kept in .reports/failover.json.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest

from lab.cluster import Believer, Cluster
from lab.judge import Verdict
from tests.trials import sized

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / ".reports" / "failover.json"
NAMES = ("ada", "ben", "cyd")
CLUSTERS = 5
LEASE = 3.0
HEARTBEAT = 0.75
STOPPED = 3 * LEASE + 0.5
WITHIN = LEASE * 1.05 + 1.5
WITHIN_GRACEFUL = 1.5
PATIENCE = 30.0

pytestmark = [pytest.mark.slow, pytest.mark.clock]


class Trials:
    """One cluster, and the instants at which something was done to its leader."""

    def __init__(self, url: str, folder: Path, seed: int, *options: str) -> None:
        self.cluster = Cluster(url, folder, options=options)
        self.dice = Random(seed)
        self.events_ns: list[int] = []
        self.victims: list[Believer] = []

    async def run(self, times: int, trial: Callable[[Trials, Believer], Awaitable[None]]) -> Trials:
        for name in NAMES:
            self.cluster.start(name)
        for _ in range(times):
            leader = await self.cluster.settled(PATIENCE)
            # Anywhere in the leader's heartbeat, and after its followers have had time to see a renewal or two.
            await asyncio.sleep(2 * HEARTBEAT + self.dice.uniform(0, 2 * HEARTBEAT))
            if leader not in self.cluster.leaders():  # nothing was done to it
                raise AssertionError(f"{leader.identity} lost its leadership by itself:\n{self.cluster.tail()}")
            self.victims.append(leader)
            await trial(self, leader)
        await asyncio.sleep(1)
        return self

    def verdict(self) -> Verdict:
        return self.cluster.verdict(self.events_ns)


async def kill(trials: Trials, leader: Believer) -> None:
    trials.events_ns.append(trials.cluster.kill(leader))
    await trials.cluster.settled(PATIENCE)
    trials.cluster.start(leader.name)


async def stop_for_three_leases(trials: Trials, leader: Believer) -> None:
    trials.events_ns.append(trials.cluster.pause(leader))
    await asyncio.sleep(STOPPED)
    trials.cluster.resume(leader)
    await trials.cluster.settled(PATIENCE, other_than=leader)
    await asyncio.sleep(HEARTBEAT)


async def send_away(trials: Trials, leader: Believer) -> None:
    trials.events_ns.append(await trials.cluster.terminate(leader))
    await trials.cluster.settled(PATIENCE)
    trials.cluster.start(leader.name)


async def run_side_by_side(
    urls: Sequence[str],
    folder: Path,
    each: int,
    trial: Callable[[Trials, Believer], Awaitable[None]],
    *options: str,
) -> list[Trials]:
    clusters = []
    for seed, url in enumerate(urls):
        (folder / f"cluster{seed}").mkdir()
        clusters.append(Trials(url, folder / f"cluster{seed}", seed, *options))
    try:
        return list(await asyncio.gather(*(trials.run(each, trial) for trials in clusters)))
    finally:
        for trials in clusters:
            trials.cluster.stop()


def check_safe(verdict: Verdict) -> None:
    assert verdict.violations == [], _shown(verdict)
    assert verdict.epochs_skipped == (), f"epochs that nobody led: {verdict.epochs_skipped}"
    assert verdict.median_silence < 0.05, "the logs are too thin to be judged by"


def _shown(verdict: Verdict) -> str:
    return "\n".join(f"{name}: {getattr(verdict, name)}" for name in verdict.violations)


def record(what: str, kind: str, seconds: Sequence[float], bound: float, verdicts: Sequence[Verdict]) -> None:
    figures = {
        "trials": len(seconds),
        "mean_seconds": round(fmean(seconds), 3),
        "max_seconds": round(max(seconds), 3),
        "min_seconds": round(min(seconds), 3),
        "bound_seconds": round(bound, 3),
        "samples": sum(verdict.samples for verdict in verdicts),
        "terms": sum(len(verdict.terms) for verdict in verdicts),
        "overlaps": sum(len(verdict.overlaps) for verdict in verdicts),
        "holding_overlaps": sum(len(verdict.holding_overlaps) for verdict in verdicts),
    }
    print(f"\n{what}, {kind}: {json.dumps(figures)}")
    REPORT.parent.mkdir(exist_ok=True)
    kept: dict[str, Any] = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    kept.setdefault(what, {})[kind] = figures
    REPORT.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def reactions(verdicts: Sequence[Verdict]) -> list[float]:
    found = [reaction for verdict in verdicts for reaction in verdict.reactions]
    assert all(reaction.seconds is not None for reaction in found), f"nobody took over: {found}"
    return [reaction.seconds for reaction in found if reaction.seconds is not None]


@pytest.mark.req("EL-15", "EF-1")
@sized("each", (2,), (4,))
async def test_killed_leaders(kind: str, each: int, url_of: Callable[[str], str], tmp_path: Path) -> None:
    urls = [url_of(kind) for _ in range(CLUSTERS)]
    verdicts = [trials.verdict() for trials in await run_side_by_side(urls, tmp_path, each, kill)]
    seconds = reactions(verdicts)
    record("SIGKILL", kind, seconds, WITHIN, verdicts)
    assert len(seconds) == CLUSTERS * each
    for verdict in verdicts:
        check_safe(verdict)
    assert max(seconds) <= WITHIN


@pytest.mark.req("EL-15", "EF-1")
@sized("each", (2,), (4,))
async def test_leaders_stopped_for_three_leases(
    kind: str, each: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    urls = [url_of(kind) for _ in range(CLUSTERS)]
    verdicts = [trials.verdict() for trials in await run_side_by_side(urls, tmp_path, each, stop_for_three_leases)]
    seconds = reactions(verdicts)
    record("SIGSTOP", kind, seconds, WITHIN, verdicts)
    assert len(seconds) == CLUSTERS * each
    for verdict in verdicts:
        assert verdict.longest_silence >= STOPPED - 0.1, "nobody was stopped"
        check_safe(verdict)
    assert max(seconds) <= WITHIN


@pytest.mark.req("EL-11", "EL-15")
@sized("each", (1,), (2,))
async def test_leaders_sent_away(kind: str, each: int, url_of: Callable[[str], str], tmp_path: Path) -> None:
    """Timed from the instant at which the old leader no longer believed, since it may take its time to wind up."""
    urls = [url_of(kind) for _ in range(CLUSTERS)]
    done = await run_side_by_side(urls, tmp_path, each, send_away)
    verdicts = [trials.verdict() for trials in done]
    seconds = []
    for trials, verdict in zip(done, verdicts, strict=True):
        check_safe(verdict)
        left = {victim.identity for victim in trials.victims}
        seconds += [takeover.seconds for takeover in verdict.takeovers if takeover.from_process in left]
    record("SIGTERM", kind, seconds, WITHIN_GRACEFUL, verdicts)
    assert len(seconds) == CLUSTERS * each
    assert max(seconds) <= WITHIN_GRACEFUL


@pytest.mark.req("EL-15", "EF-1")
@pytest.mark.parametrize("of_each", [1, pytest.param(2, marks=pytest.mark.trials)])
async def test_stops_of_any_length_of_any_worker(of_each: int, url_of: Callable[[str], str], tmp_path: Path) -> None:
    """For half a minute or a whole one, in one or two clusters on each store, every worker is stopped again and again,
    often for about as long as the lease is: that is where the answers to renewals come just before or just after it has
    run out, and where several may be stopped at once."""
    urls = [url_of(kind) for kind in ("directory", "ministack") for _ in range(of_each)]
    trial = partial(stop_everybody_now_and_then, seconds=30.0 * of_each)
    done = await run_side_by_side(urls, tmp_path, 1, trial)
    verdicts = [trials.verdict() for trials in done]
    stops = sum(len(trials.events_ns) for trials in done)
    terms = sum(len(verdict.terms) for verdict in verdicts)
    print(f"\n{stops} stops of any length: {terms} terms in {len(urls)} clusters")
    for verdict in verdicts:
        assert verdict.violations == [], _shown(verdict)
    assert stops >= 25 * of_each**2
    assert terms >= 5 * of_each**2, "hardly a stop cost anybody the leadership"


async def stop_everybody_now_and_then(trials: Trials, leader: Believer, *, seconds: float) -> None:
    cluster, dice, ends = trials.cluster, trials.dice, time.monotonic() + seconds

    async def stop_now_and_then(believer: Believer) -> None:
        while time.monotonic() < ends:
            await asyncio.sleep(dice.uniform(0.1, 1.3 * LEASE))
            trials.events_ns.append(cluster.pause(believer))
            short, about_a_lease, long = dice.uniform(0.05, 0.6), dice.uniform(1.8, 3.4), dice.uniform(LEASE, 2 * LEASE)
            await asyncio.sleep(dice.choice((short, about_a_lease, long)))
            cluster.resume(believer)

    await asyncio.gather(*(stop_now_and_then(believer) for believer in list(cluster.running)))
    await cluster.settled(PATIENCE)


async def test_a_flag_in_place_of_a_deadline_is_found_out(url_of: Callable[[str], str], tmp_path: Path) -> None:
    """That the trials above find no overlap means something only because they would have found this one."""
    (trials,) = await run_side_by_side(
        [url_of("directory")], tmp_path, 1, stop_for_three_leases, "--break", "flag-not-deadline"
    )
    verdict = trials.verdict()
    assert verdict.overlaps, "a leader that woke up and believed on was not noticed"
    stopped = trials.victims[0].identity
    for overlap in verdict.overlaps:
        assert stopped in overlap.processes
        assert overlap.from_ns >= trials.events_ns[0] + (STOPPED - 0.1) * 1e9
    longest = max(overlap.to_ns - overlap.from_ns for overlap in verdict.overlaps)
    print(f"\nflag-not-deadline: {len(verdict.overlaps)} overlaps found, the longest {longest / 1e6:.0f} ms")

"""Workers and producers of a queue as real processes, killed and stopped; a separate program judges their files alone.

The figures are printed (`pytest -s`) and kept in .reports/queue.json.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lab.queue_cluster import Member, QueueCluster, redelivery_bound
from lab.queue_worker import SETTINGS, config
from tenure.plugins.queue import QueueSettings
from tests.trials import sized

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.clock
REPORT = ROOT / ".reports" / "queue.json"
CALM = 2.0
"""Seconds from the first entry of a leader to the next kill."""
LONG = 5000
"""Messages in a long call of a producer: some fifty writes."""


def record(what: str, kind: str, verdict: dict[str, Any], **figures: Any) -> None:
    kept = (
        "accepted",
        "not_accepted",
        "handlings",
        "duplicates",
        "explained",
        "kills",
        "redelivery",
        "in_vain",
        "longest_unreported",
        "seconds",
    )
    shown = {**{name: verdict[name] for name in kept}, **figures, "lost": len(verdict["lost"])}
    print(f"\n{what}, {kind}: {json.dumps(shown)}")
    REPORT.parent.mkdir(exist_ok=True)
    known: dict[str, Any] = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    known.setdefault(what, {})[kind] = shown
    REPORT.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


async def judged(cluster: QueueCluster, *options: str) -> dict[str, Any]:
    """The verdict, once the queue holds nothing that could still be handled again."""
    await cluster.until_settled(within=60)
    code, verdict = cluster.judged(*options)
    assert (code, verdict["violations"]) == (0, []), json.dumps(verdict, indent=2) + await cluster.report()
    return verdict


# Real processes


@pytest.mark.slow
@pytest.mark.req("SQ-1", "SQ-2", "EF-9")
async def test_the_leader_of_two_is_killed(url_of: Callable[[str], str], tmp_path: Path) -> None:
    quick = ("--set", "visibility_timeout=3", "--set", "margin=1")
    async with QueueCluster(url_of("directory"), tmp_path / "files", quick) as cluster:
        for name in "ab":
            cluster.start(name)
        leader = await cluster.next_leader(0, within=60)
        cluster.produce("p", 500, "--call", "10", "--rate", "150")
        await cluster.until(lambda: cluster.look() or len(cluster.ended) > 100, 60, "100 messages are handled")
        cluster.kill(leader)
        await cluster.until_handled(500, within=120)
        verdict = await judged(cluster, "--visibility", "3")
        assert (verdict["accepted"], verdict["handled"], verdict["kills"]) == (500, 500, 1)
        assert len(cluster.terms) >= 2, "the other one has taken over"
        # What it handled is in the files, and without it the judge would say so.
        log = leader.log.read_text()
        leader.log.write_text("".join(text + "\n" for text in log.split("\n")[:-1] if not text.startswith("ended ")))
        code, verdict = cluster.judged("--visibility", "3")
        assert code == 1
        assert len(verdict["lost"]) > 1


@pytest.mark.slow
@pytest.mark.req("SQ-1", "SQ-2", "EF-9")
@sized("each, rate, least", (2_000, 60, 1), (10_000, 125, 5))
async def test_messages_while_workers_and_leaders_are_killed_at_random(
    kind: str, each: int, rate: int, least: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    dice = Random(11)
    async with QueueCluster(url_of(kind), tmp_path / "files") as cluster:
        for name in "abcd":
            cluster.start(name)
        await cluster.next_leader(0, within=60)
        producers = [cluster.produce(name, each, "--call", "25", "--rate", str(rate)) for name in ("p", "q")]
        leaders = workers = 0
        failovers = []
        while any(producer.process.poll() is None for producer in producers):
            leader, epoch = cluster.leader(), cluster.epoch
            others = [member for member in cluster.workers if member is not leader]
            victim = leader if leader is not None and dice.random() < 0.5 else dice.choice(others)
            cluster.kill(victim)
            killed = time.monotonic()
            cluster.start(victim.name)
            if victim is leader:
                await cluster.next_leader(epoch, within=60)
                failovers.append(round(time.monotonic() - killed, 2))
                leaders += 1
            else:
                await cluster.next_entry(within=60)
                workers += 1
            await asyncio.sleep(CALM)
        assert [producer.process.returncode for producer in producers] == [0, 0]
        await cluster.until_handled(2 * each, within=180)
        verdict = await judged(cluster)
        assert (verdict["accepted"], verdict["handled"]) == (2 * each, 2 * each)
        assert leaders >= least
        assert workers >= least
        record("kills at random", kind, verdict, leaders=leaders, workers=workers, failovers=sorted(failovers))


async def hold_some(cluster: QueueCluster, victim: Member, number: int) -> int:
    """Until the victim is in the middle of messages that take almost their whole time; gives how many were sent.

    Somebody who has just joined may be given nothing of the first ones: others may have had room for all of them.
    """

    def holds() -> bool:
        cluster.look()
        mine = [body for body, process in cluster.began.items() if process == victim.identity]
        return any(body.startswith(f"long{number}x") and body not in cluster.ended for body in mine)

    for again in range(1, 9):
        cluster.produce(f"long{number}x{again}", 8, "--call", "8", "--keys", "0", "--seconds", "4")
        waited = time.monotonic() + 10
        while time.monotonic() < waited:
            if holds():
                return 8 * again
            await asyncio.sleep(0.03)
    raise AssertionError(f"{victim.name} is given nothing\n{await cluster.report()}")


@pytest.mark.slow
@pytest.mark.req("SQ-1", "SQ-3")
@pytest.mark.parametrize("who", ["worker", "leader"])
@sized("rounds", (1,), (5,))
async def test_a_consumer_killed_in_mid_message(
    kind: str, rounds: int, who: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    """What it had is handled again within the visibility timeout and the bound."""
    bound = redelivery_bound(QueueSettings(**SETTINGS), config(), leader_died=who == "leader")
    async with QueueCluster(url_of(kind), tmp_path / "files") as cluster:
        for name in "abc":
            cluster.start(name)
        await cluster.next_leader(0, within=60)
        sent = 0
        for number in range(1, rounds + 1):
            epoch, leader = cluster.epoch, cluster.leader()
            assert leader is not None
            await cluster.until(lambda: all(each.said("joined") for each in cluster.workers), 60, "all have joined")
            await all_known(cluster)
            victim = leader if who == "leader" else next(each for each in cluster.workers if each is not leader)
            sent += await hold_some(cluster, victim, number)
            await asyncio.sleep(0.5)
            cluster.kill(victim)
            await cluster.until_handled(sent, within=120)
            cluster.start(victim.name)
            if who == "leader":
                await cluster.next_leader(epoch, within=60)
        verdict = await judged(cluster, "--within", str(bound))
        assert verdict["kills"] == rounds
        assert verdict["redelivery"]["longest"] > SETTINGS["visibility_timeout"] / 2, "something was cut short"
        record(f"a {who} killed in mid-message", kind, verdict, bound=round(bound, 2))


async def all_known(cluster: QueueCluster) -> None:
    """Until the leader knows of everybody who runs: so that each is given something."""
    names = {member.name for member in cluster.workers}
    deadline = time.monotonic() + 60
    while True:
        known = [worker.name for worker in (await cluster.machine()).workers.values() if worker.capacity]
        if names <= set(known):
            return
        assert time.monotonic() < deadline, await cluster.report()
        await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.req("SQ-1", "SQ-3", "EF-9")
@sized("messages", (3_500,), (6_000,))
async def test_a_leader_stopped_for_longer_than_its_lease(
    kind: str, messages: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    async with QueueCluster(url_of(kind), tmp_path / "files", ("--hold", "0.15")) as cluster:
        for name in "abc":
            cluster.start(name)
        await cluster.next_leader(0, within=60)
        cluster.produce("p", messages, "--call", "20", "--rate", "100")
        for seconds in (5.0, 12.0):
            await asyncio.sleep(CALM)
            epoch, leader = cluster.epoch, cluster.leader()
            assert leader is not None
            cluster.pause(leader)
            began = time.monotonic()
            await cluster.next_leader(epoch, within=60)
            await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
            cluster.resume(leader)
            before = leader.log.stat().st_size
            await cluster.until(
                lambda leader=leader, before=before: leader.log.stat().st_size > before + 2000,
                60,
                f"{leader.name} goes on as a worker",
            )
        await cluster.until_handled(messages, within=180)
        verdict = await judged(cluster)
        assert verdict["kills"] == 0
        assert verdict["explained"]["stopped"] > 0, "the second time it held some for too long"
        assert set(verdict["explained"]) <= {"stopped", "late"}
        record("a leader stopped", kind, verdict, terms=len(cluster.terms))


@pytest.mark.slow
@pytest.mark.req("SQ-1")
@sized("rounds", (3,), (12,))
async def test_a_producer_killed_in_the_middle_of_a_long_call(
    kind: str, rounds: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    """What it was told is durable is handled, once; of the rest, nothing is handled twice."""
    dice = Random(5)
    async with QueueCluster(url_of(kind), tmp_path / "files", ("--hold", "0.0005")) as cluster:
        for name in "ab":
            cluster.start(name)
        await cluster.next_leader(0, within=60)
        for number in range(1, rounds + 1):
            producer = cluster.produce("p", number * LONG, "--call", str(LONG), "--small-writes")

            def sends(number: int = number) -> bool:
                log = cluster.folder / "p.sent"
                return log.exists() and log.read_bytes().count(b"sending ") >= number

            def handles(number: int = number, producer: Member = producer) -> bool:
                """One of its writes has been handled; most often its call has not returned."""
                cluster.look()
                return producer.process.poll() is not None or any(
                    int(body.split(":")[1]) > (number - 1) * LONG for body in cluster.began
                )

            await cluster.until(sends, 60, "it sends")
            if number % 3 == 0:
                await cluster.until(lambda producer=producer: producer.process.poll() is not None, 60, "it ends")
            elif number % 3 == 1:
                await cluster.until(handles, 60, "some of it is handled")
                cluster.kill(producer)
            else:
                await asyncio.sleep(dice.uniform(0.0, 0.5))
                cluster.kill(producer)
        await cluster.until_handled(LONG, within=240)
        verdict = await judged(cluster)
        assert verdict["accepted"] + verdict["not_accepted"] == rounds * LONG
        assert verdict["handlings"] > verdict["accepted"], "some were killed in the middle of a call"
        assert verdict["duplicates"] == 0
        record(
            "a producer killed", kind, verdict, handled_though_not_accepted=verdict["handlings"] - verdict["accepted"]
        )


@pytest.mark.slow
@pytest.mark.req("SQ-1")
@sized("messages, rounds", (2_000, 1), (6_000, 3))
async def test_the_whole_fleet_is_killed_and_started_again(
    kind: str, messages: int, rounds: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    async with QueueCluster(url_of(kind), tmp_path / "files") as cluster:
        cluster.produce("p", messages, "--call", "20", "--rate", "150")
        for _ in range(rounds):
            for name in "abcd":
                cluster.start(name)
            await cluster.next_leader(cluster.epoch, within=90)
            await asyncio.sleep(CALM)
            for member in list(cluster.workers):
                cluster.kill(member)
            await asyncio.sleep(1.0)
        for name in "wxyz":
            cluster.start(name)
        await cluster.until_handled(messages, within=240)
        verdict = await judged(cluster)
        assert (verdict["accepted"], verdict["handled"], verdict["kills"]) == (messages, messages, 4 * rounds)
        record("the whole fleet killed", kind, verdict)


@pytest.mark.slow
@pytest.mark.req("SQ-3")
@sized("messages, turns", (2_400, 4), (6_000, 8))
async def test_workers_that_are_asked_to_end_leave_no_duplicate(
    kind: str, messages: int, turns: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    """Each is replaced in turn, leaders as well, under load: what it holds is finished or given back."""
    async with QueueCluster(url_of(kind), tmp_path / "files", ("--hold", "0.05")) as cluster:
        for name in "abcd":
            cluster.start(name)
        await cluster.next_leader(0, within=60)
        cluster.produce("p", messages, "--call", "20", "--rate", "200")
        took = []
        for turn in range(turns):
            await asyncio.sleep(1.0)
            member = cluster.leader() if turn % 2 else cluster.workers[0]
            assert member is not None
            began = time.monotonic()
            assert await cluster.terminate(member) == 0
            took.append(round(time.monotonic() - began, 2))
            cluster.start(f"{member.name[0]}{turn}")
            await cluster.until(lambda: cluster.leader() is not None, 60, "somebody leads")
        await cluster.until_handled(messages, within=180)
        verdict = await judged(cluster)
        assert (verdict["duplicates"], verdict["kills"]) == (0, 0)
        record("asked to end", kind, verdict, took=took)

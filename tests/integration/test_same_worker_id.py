"""Two processes are given one worker id: the newer start has it, and the older one is told and stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lab.cluster import Believer, Cluster
from tests.trials import STORES

LEASE = 3.0

pytestmark = [pytest.mark.slow, pytest.mark.clock, pytest.mark.req("EL-14")]


@pytest.fixture
async def cluster(kind: str, url_of: Callable[[str], str], tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(url_of(kind), tmp_path)
    yield cluster
    cluster.stop()


@STORES
async def test_the_newer_of_two_processes_with_one_id_leads(cluster: Cluster) -> None:
    older = cluster.start("twin")
    assert await cluster.settled() is older
    newer = cluster.start("twin")
    await _replaced(cluster, older)
    assert await cluster.settled(other_than=older) is newer  # the older may have led in its newest line
    await asyncio.sleep(LEASE)
    _check(cluster)
    assert not newer.said("worker:replaced")

    # It stopped for good: with nobody else alive it still does not stand again.
    cluster.kill(newer)
    await asyncio.sleep(3 * LEASE)
    assert cluster.leaders() == []
    assert len(_check(cluster)) == 2


@STORES
async def test_a_process_that_was_stopped_while_another_took_its_id(cluster: Cluster) -> None:
    """The older one wakes up after the newer has led for a while."""
    older = cluster.start("twin")
    assert await cluster.settled() is older
    cluster.pause(older)
    newer = cluster.start("twin")
    assert await cluster.settled() is newer
    await asyncio.sleep(LEASE)
    cluster.resume(older)
    await _replaced(cluster, older)
    await asyncio.sleep(LEASE)
    assert cluster.leaders() == [newer]
    assert not newer.said("worker:replaced")
    assert len(_check(cluster)) == 2


@STORES
async def test_three_starts_of_one_id_at_once_leave_one(cluster: Cluster) -> None:
    """Whichever came last: one is left, and the other two were told."""
    starts = [cluster.start("twin") for _ in range(3)]
    for _ in range(400):
        told = [believer for believer in starts if believer.said("worker:replaced")]
        if len(told) == 2:
            break
        await asyncio.sleep(0.05)
    (left,) = [believer for believer in starts if believer not in told]
    assert await cluster.settled() is left
    await asyncio.sleep(LEASE)
    assert not left.said("worker:replaced")
    assert cluster.leaders() == [left]
    _check(cluster)


async def _replaced(cluster: Cluster, believer: Believer, seconds: float = 10.0) -> None:
    for _ in range(int(seconds / 0.05)):
        if believer.said("worker:replaced"):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{believer.identity} was not told that it is replaced:\n{cluster.tail()}")


def _check(cluster: Cluster) -> list[str]:
    """The processes that led, in order."""
    verdict = cluster.verdict()
    assert verdict.violations == []
    return [term.process for term in verdict.terms]

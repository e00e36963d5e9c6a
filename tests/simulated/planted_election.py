"""Histories that no single mistake of the product leads to: of the election, and of the stage that ledgers share."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from unittest.mock import patch

from tenure.coordinator.layout import STATE
from tenure.coordinator.lease import LeaseDesk
from tenure.ledger.layout import log_key
from tenure.simulate import seed as seed_module
from tenure.simulate.queue_fleet import FOLDER, QueueStage
from tenure.simulate.seed import Plan, SeedResult, run_seed
from tenure.simulate.stage import Stage, run_stage
from tenure.testing.checkers import FENCED_PREFIX, Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker

from .calm import calm_election, saying
from .checks import plants

SHORT = 0.2
"""Minutes."""


async def unforeseen(*arguments: Any, **options: Any) -> Any:
    raise ValueError("nobody foresaw this")


# The election


def lease_of(cluster: SimulatedCluster) -> tuple[str, bytes]:
    """Where it lies, and what it says."""
    key = cluster.key(STATE)
    body = cluster.bucket.body(key)
    assert body is not None
    return key, body


@plants("election", "defect")
def a_renewal_raises_what_nobody_foresaw() -> SeedResult:
    with patch.object(LeaseDesk, "renew", unforeseen):
        return run_seed(1, Plan(minutes=SHORT))


@plants("election", "defect")
def work_of_a_process_raises_what_nobody_foresaw() -> SeedResult:
    with patch.object(seed_module._Writer, "_write_as_a_ghost", unforeseen):
        return run_seed(1, Plan(minutes=SHORT))


@plants("election", "liveness")
def who_does_not_lead_renews_the_lease() -> Checkers:
    with calm_election() as (cluster, checkers):
        lead = cluster.workers["a"].lead
        assert lead is not None
        lead.end("renew-deadline")
        key, body = lease_of(cluster)
        for _ in range(3):
            cluster.bucket._write(key, body, "a", "replace")
        return checkers


@plants("election", "epochs")
def a_lease_is_written_that_cannot_be_read() -> Checkers:
    with calm_election() as (cluster, checkers):
        key, _ = lease_of(cluster)
        cluster.bucket._write(key, b"{", "a", "replace")
        return checkers


@plants("election", "epochs")
def a_damaged_lease_is_rebuilt_at_an_epoch_that_was() -> Checkers:
    with calm_election() as (cluster, checkers):
        key, body = lease_of(cluster)
        cluster.bucket.corrupt(key, b"{")
        cluster.bucket._write(key, body, "a", "replace")
        return saying("rebuilt the lease", checkers)


@plants("election", "epochs")
@plants("election", "own-grant")
def a_process_leads_again_under_a_grant_of_its_former_life() -> Checkers:
    with calm_election() as (cluster, checkers):
        before = cluster.workers["a"].lead
        assert before is not None
        cluster.crash("a")
        cluster.workers["a"].start()
        cluster.world.run_until(cluster.world.now + 0.1)
        service = cluster.workers["a"].service
        assert service is not None
        assert service._engine is not None
        service._engine.lead = before
        checkers._stepped(cluster.workers["a"].host)
        return saying("began to lead epoch 1 after epoch 1", checkers)


@plants("election", "fencing")
def a_fenced_key_is_written_without_a_fence() -> Checkers:
    with calm_election() as (cluster, checkers):
        cluster.bucket._write(f"{FENCED_PREFIX}0", b"mine", "a", "put")
        return checkers


# The stage


class Quiet(Stage):
    """Nothing is done in it."""

    name = "quiet"

    async def work(self, worker: SimulatedWorker) -> None:
        pass

    async def restart(self, worker: SimulatedWorker) -> None:
        pass

    def conclude(self) -> None:
        pass

    def coverage(self, found: Counter[str]) -> None:
        pass


class Failing(Quiet):
    work = unforeseen


class Endless(Quiet):
    def conclude(self) -> None:
        async def wait() -> None:
            await asyncio.get_running_loop().create_future()

        self.see_through(self.cluster.world.host("reader"), wait())


class Spoilt(QueueStage):
    """The first entry of its log cannot be read."""

    def begin(self) -> None:
        super().begin()
        self.cluster.bucket.corrupt(FOLDER + log_key(1), b"{")

    def conclude(self) -> None:
        pass


@plants("election", "defect")
def a_task_raises_what_nobody_foresaw() -> SeedResult:
    return run_stage(1, Plan(minutes=SHORT), Failing)


@plants("stage", "liveness")
def a_call_does_not_end() -> SeedResult:
    return run_stage(1, Plan(minutes=SHORT), Endless)


@plants("stage", "halted")
def a_leader_cannot_read_the_log() -> SeedResult:
    return run_stage(1, Plan(minutes=SHORT, until="halted"), Spoilt)

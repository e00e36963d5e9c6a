"""The scheduler on the simulator: no violation in production classes, and seeds replay."""

from __future__ import annotations

import pytest

from tenure.coordinator.config import CoordinatorConfig
from tenure.entropy import Random
from tenure.simulate.schedule_fleet import ScheduleStage, run_schedule_seed
from tenure.simulate.seed import Plan
from tenure.testing import World
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker

SEEDS = (1, 2, 3)


@pytest.mark.req("SC-1", "SC-2", "EF-9")
def test_some_seeds_with_every_fault_keep_every_promise() -> None:
    for seed in SEEDS:
        result = run_schedule_seed(seed, Plan(what="schedule", minutes=2, mix="everything"))
        assert result.violations == []
        assert result.faults >= 8
        assert result.coverage["schedule:decided"] > 50
        assert result.coverage["schedule:fired"] > 20


def test_no_process_of_the_fleet_has_a_schedule_twice() -> None:
    """Asked to restart its plugins while they still start, on a coordinator that is not its first (seed 700803)."""
    with World(1) as world:

        async def work(worker: SimulatedWorker) -> None:
            await stage.work(worker)

        cluster = SimulatedCluster(world, 1, CoordinatorConfig.fast(), work=work)
        stage = ScheduleStage(cluster, Checkers(cluster), Random(1), cluster.config)
        cluster.start()
        world.run_until(30.0)
        worker = cluster.workers["a"]
        former = worker.service
        worker.stop()
        world.run_until(60.0)
        worker.start()
        while stage._at_work["a"] is former:
            world.run_until(world.now + 0.001)
        cluster.network.change("a", latency=(1.0, 1.0))
        worker.host.start(stage.restart(worker))
        world.run_until(world.now + 60.0)
        assert worker.service is not None
        assert worker.service is not former
        assert len(worker.service._seats) == 2  # a schedule, and a queue

"""Supervised children on the simulator: no violation in production classes."""

from __future__ import annotations

import asyncio

import pytest

from tenure.plugins.supervisor.running import LeasedCoroutine
from tenure.simulate.campaign import run_campaign
from tenure.simulate.children_fleet import run_children_seed
from tenure.simulate.seed import Plan
from tenure.testing import World


@pytest.mark.req("SV-2", "SV-9", "EF-9")
def test_some_seeds_with_every_fault_have_no_violation() -> None:
    for seed in range(5001, 5007):
        result = run_children_seed(seed, Plan(what="children", minutes=2))
        assert result.violations == []
        assert result.faults >= 8
        assert result.coverage["children:started"] > 30


def test_a_seed_replays_exactly() -> None:
    first, second = (run_children_seed(77, Plan(what="children", minutes=1)) for _ in range(2))
    assert first.coverage == second.coverage
    assert first.simulated_seconds == second.simulated_seconds
    assert run_children_seed(78, Plan(what="children", minutes=1)).coverage != first.coverage


@pytest.mark.slow
@pytest.mark.req("SV-2", "SV-9", "EF-9")
def test_two_hundred_seeds_cover_every_fault() -> None:
    report = run_campaign(30_001, 200, Plan(what="children", minutes=5))
    assert report.violations == 0, report.first_violation
    assert report.not_covered == []


@pytest.mark.req("SV-9")
def test_code_is_not_resumed_when_its_process_is_paused_again_before_its_supervisor_had_time() -> None:
    """Found by `tenure simulate --children`, seed 1009: a timeout of the code itself came first, twice."""
    went_on: list[float] = []
    with World(1) as world:
        host = world.host("a")

        async def code() -> None:
            try:
                async with asyncio.timeout(0.3):
                    await host.clock.sleep(1e9)
            except TimeoutError:
                went_on.append(world.now)

        async def supervise() -> None:
            leased = LeasedCoroutine(code(), lambda: world.now < 0.2)

            async def run() -> None:
                await leased

            task = asyncio.get_running_loop().create_task(run())
            await host.clock.sleep(0.6)  # frozen meanwhile: this is over when it wakes
            await host.clock.sleep(0.02)  # and so long it takes to notice
            leased.stopping = True
            task.cancel()
            await asyncio.wait([task])

        task = host.start(supervise())
        world.call_at(0.4, host.freeze, 10.0)
        world.run_until(20.0)
        assert task.done()
        assert went_on == []

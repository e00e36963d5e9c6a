"""What seeds of supervised children found."""

from __future__ import annotations

import asyncio

import pytest

from tenure.plugins.supervisor.running import LeasedCoroutine
from tenure.testing import World


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

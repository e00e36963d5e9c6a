"""Starting, stopping and sharing a coordinator, on real loops and threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from tenure import CoordinatorConfig, Database, Lead
from tenure.coordinator.layout import METADATA, namespace_store
from tenure.errors import ConfigError
from tests.support.waiting import eventually

SWIFT = CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05)


class Lingering:
    """A subscriber that takes its time to wind up."""

    def on_become_coordinator(self, lead: Lead) -> None:
        pass

    async def on_stop_being_coordinator(self) -> None:
        await asyncio.sleep(0.5)


@pytest.mark.req("EL-11")
async def test_a_stop_that_was_given_up_on_harms_nothing(url_of: Callable[[str], str]) -> None:
    async with Database(url_of("memory"), worker_id="a") as database:
        coordinator = await database.get_global_coordinator(config=SWIFT)
        coordinator.subscribe(Lingering())
        await coordinator.start()
        await eventually(coordinator.is_leader)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(coordinator.stop(), 0.05)
        await coordinator.start()
        await eventually(coordinator.is_leader)
        assert coordinator.get_epoch() == 2
        await coordinator.stop()
        assert not coordinator.is_leader()


async def test_two_loops_over_terms_share_one_leadership(url_of: Callable[[str], str]) -> None:
    async with Database(url_of("memory"), worker_id="a") as database:
        coordinator = await database.get_global_coordinator(config=SWIFT)
        await coordinator.start()
        led: dict[str, list[int]] = {"one": [], "two": []}
        cancelled: list[str] = []

        async def loop(name: str) -> None:
            async for lead in coordinator.terms():
                async with lead:
                    led[name].append(lead.epoch)
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        cancelled.append(name)
                        raise

        loops = [asyncio.create_task(loop(name)) for name in led]
        await eventually(lambda: all(led.values()))
        await coordinator.step_down()
        await eventually(lambda: len(led["one"]) == len(led["two"]) == 2)
        assert sorted(cancelled) == ["one", "two"]
        assert led["one"] == led["two"]
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def test_events_end_with_the_database(url_of: Callable[[str], str]) -> None:
    async with Database(url_of("memory"), worker_id="a") as database:
        coordinator = await database.get_global_coordinator(config=SWIFT)
        await coordinator.start()
        seen: list[str] = []

        async def listen() -> None:
            async for event in coordinator.events("leader:changed"):
                seen.append(event.new_leader)  # noqa: PERF401  each as it comes

        listening = asyncio.create_task(listen())
        await eventually(lambda: bool(seen))
    async with asyncio.timeout(10):
        await listening


@pytest.mark.req("EL-15", "EL-20")
async def test_metadata_that_was_lost_is_not_founded_below_a_lease_that_is_held(url_of: Callable[[str], str]) -> None:
    url = url_of("directory")
    async with Database(url, worker_id="slow") as first, Database(url, worker_id="quick") as second:
        slow = CoordinatorConfig.economical(startup_jitter_max=0, takeover_delay=0.05)
        leading = await first.get_global_coordinator(config=slow)
        await leading.start()
        await eventually(leading.is_leader)
        await namespace_store(first.store, "default").delete(METADATA)
        quick = await second.get_global_coordinator(config=SWIFT)
        await quick.start()
        assert quick._engine is not None
        assert quick._engine.rules.longest_lease >= 90


async def test_text_is_refused_as_a_body(url_of: Callable[[str], str]) -> None:
    async with Database(url_of("memory"), worker_id="a") as database:
        coordinator = await database.get_global_coordinator(config=SWIFT)
        await coordinator.start()
        async with coordinator.leadership() as lead:
            with pytest.raises(ConfigError, match="bytes"):
                await lead.put("reports/latest", "text")  # type: ignore[arg-type]

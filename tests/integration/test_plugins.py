"""Plugins of a real `Database`, on a directory, with the coordinator on its own thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tenure import CoordinatorConfig, CoordinatorPlugin, Database
from tenure.coordinator.overrun import EXIT_OVERRAN
from tenure.errors import ConfigConflict, ConfigError, TenureError
from tests.support.waiting import eventually

FAST = CoordinatorConfig.fast(startup_jitter_max=0)


class Noting(CoordinatorPlugin):
    slug = "noting"

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"config": FAST, "skip_cold_start": True, "coordinator_work_interval": 0.1} | options))
        self.notes: list[str] = []

    async def on_become_coordinator(self) -> None:
        self.notes.append("become")

    async def on_stop_being_coordinator(self) -> None:
        self.notes.append("stop")

    async def coordinator_work(self) -> None:
        self.notes.append("work")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'store'}"


@pytest.mark.req("DB-1")
async def test_ten_plugins_used_at_once_share_one_coordinator_and_are_told_of_its_end(url: str) -> None:
    async with Database(url, worker_id="a") as database:
        plugins = await asyncio.gather(*(database.use_plugin(Noting(), f"p{number}") for number in range(10)))
        assert len({id(plugin.coordinator) for plugin in plugins}) == 1
        await eventually(lambda: all("work" in plugin.notes for plugin in plugins))
        assert {plugin.worker_id for plugin in plugins} == {"a"}
        assert len(database.plugins) == 10
    for plugin in plugins:
        assert plugin.notes[0] == "become"
        assert plugin.notes[-1] == "stop"
        assert plugin.notes.count("stop") == 1


async def test_what_cannot_be_used_is_refused(url: str) -> None:
    class Failing(Noting):
        slug = "failing"

        async def start(self) -> None:
            raise ValueError("no disk")

    database = Database(url)
    with pytest.raises(TenureError, match="not connected"):
        await database.use_plugin(Noting())
    async with database:
        await database.use_plugin(Noting(), "one")
        with pytest.raises(ConfigError, match="a name of its own"):
            await database.use_plugin(Noting(), "one")
        with pytest.raises(ConfigError, match="not a plugin"):
            await database.use_plugin(Noting)  # type: ignore[type-var]
        with pytest.raises(ConfigError, match="not a plugin"):
            await database.use_plugin(object())  # type: ignore[type-var]
        with pytest.raises(ConfigConflict, match="lease_timeout"):
            await database.use_plugin(Noting(config=FAST.replace(lease_timeout=4)), "two")
        with pytest.raises(ValueError, match="no disk"):
            await database.use_plugin(Failing(), "failing")
        assert list(database.plugins) == [("noting", "one")]
        async with Database(url) as another:
            with pytest.raises(ConfigError, match="belongs to"):
                await another.use_plugin(database.plugins["noting", "one"])  # type: ignore[type-var]


@pytest.mark.req("DB-3")
async def test_two_instances_of_a_plugin_share_no_storage(url: str) -> None:
    async with Database(url) as database:
        one, two = Noting(enable_coordinator=False), Noting(enable_coordinator=False)
        await database.use_plugin(one, "one")
        await database.use_plugin(two, "two")
        await one.storage.set("key", {"of": "one"})
        assert await two.storage.get("key") is None
        assert await one.storage.get("key") == {"of": "one"}
        await one.stop()
        await two.stop()


@pytest.mark.req("EF-8")
async def test_any_worker_reads_what_the_leader_wrote(url: str) -> None:
    async with Database(url) as database:
        plugin = await database.use_plugin(Noting())
        await eventually(lambda: plugin.lead is not None)
        assert plugin.lead is not None
        await plugin.lead.put("latest", b"report")
        async with Database(url) as reader:
            found = await reader.read_fenced("latest")
            assert found is not None
            assert (found.body, found.epoch) == (b"report", 1)
            assert await reader.read_fenced("nothing") is None


async def block(url: str, seconds: float) -> None:
    class Blocking(Noting):
        slug = "blocking"

        def on_become_coordinator(self) -> None:  # type: ignore[override]
            time.sleep(seconds)
            self.notes.append("become")

    async with Database(url, worker_id="a") as database:
        other = await database.use_plugin(Noting())
        blocking = await database.use_plugin(Blocking())
        began = time.monotonic()
        await eventually(lambda: "become" in blocking.notes, within=seconds + 60)
        assert time.monotonic() - began >= seconds
        metrics = blocking.coordinator.get_metrics()
        assert metrics.heartbeat_count >= seconds / 1.5, "the heartbeat stood still"
        assert blocking.is_coordinator
        assert blocking.epoch == 1, "a blocked loop cost the lease"
        worked = other.notes.count("work")
        await eventually(lambda: other.notes.count("work") > worked + 2 and "work" in blocking.notes)


@pytest.mark.req("CP-2")
@pytest.mark.slow
async def test_a_hook_that_blocks_its_loop_for_two_leases_costs_nothing(url: str) -> None:
    await block(url, 6.0)


@pytest.mark.trials
@pytest.mark.req("CP-2")
async def test_a_hook_that_blocks_its_loop_for_half_a_minute_costs_nothing(url: str) -> None:
    await block(url, 30.0)


STUBBORN = """
import asyncio, sys, time
from tenure import CoordinatorConfig, CoordinatorPlugin, Database

class Stubborn(CoordinatorPlugin):
    async def on_become_coordinator(self):
        print("leads", flush=True)
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                print("ignored", flush=True)

async def main():
    config = CoordinatorConfig.fast(startup_jitter_max=0, drain_timeout=0.5)
    async with Database(sys.argv[1]) as database:
        plugin = await database.use_plugin(Stubborn(config=config, skip_cold_start=True, hook_overrun=sys.argv[2]))
        while not plugin.is_coordinator:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        print("leaving", flush=True)
        await plugin.coordinator.step_down()
        print("stepped down", flush=True)
        await asyncio.sleep(20)

asyncio.run(main())
"""


@pytest.mark.req("CP-7")
@pytest.mark.slow
async def test_a_process_that_must_not_overlap_its_successor_ends_itself(url: str) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", STUBBORN, url, "exit"], capture_output=True, text=True, timeout=60, check=False
        )

    ended = await asyncio.to_thread(run)
    assert ended.returncode == EXIT_OVERRAN, ended.stdout + ended.stderr
    assert "ignored" in ended.stdout


class LastWord(Noting):
    slug = "last-word"

    async def on_stop_being_coordinator(self) -> None:
        await asyncio.sleep(0.5)
        await self.storage.set("last", "word")
        async with self._host.lock("final", ttl=5):  # type: ignore[union-attr]
            self.notes.append("stop")


@pytest.mark.req("DB-1", "EL-11")
async def test_a_second_disconnect_waits_for_the_first_and_nothing_is_opened_meanwhile(url: str) -> None:
    database = await Database(url).connect()
    plugin = await database.use_plugin(LastWord())
    await eventually(lambda: plugin.is_coordinator and "work" in plugin.notes)
    first = asyncio.create_task(database.disconnect())
    await asyncio.sleep(0.1)
    with pytest.raises(TenureError, match="being disconnected"):
        await database.use_plugin(Noting(), "late")
    with pytest.raises(TenureError, match="being disconnected"):
        await database.get_global_coordinator("other")
    await database.disconnect()
    assert first.done()
    await first
    assert plugin.notes[-1] == "stop"
    async with Database(url) as again:
        assert await again.plugin_storage("last-word", "last-word").get("last") == "word"
        assert await (await again.get_global_coordinator()).get_leader(fresh=True) is None, "the lease was not released"

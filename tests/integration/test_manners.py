"""A coordinator in somebody else's process: what it leaves alone, and what it survives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tenure import CoordinatorConfig, Database


def test_a_database_is_used_on_one_loop_after_another(url_of: Callable[[str], str]) -> None:
    config = CoordinatorConfig.fast(worker_id="w", startup_jitter_max=0)
    database = Database(url_of("memory"))

    async def lead_once() -> int:
        await database.connect()
        coordinator = await database.get_global_coordinator(config=config)
        await coordinator.start()
        async with asyncio.timeout(20), coordinator.leadership() as lead:
            return lead.epoch

    assert asyncio.run(lead_once()) == 1
    time.sleep(1.0)  # the watch on the first loop finds it closed
    assert asyncio.run(lead_once()) == 2

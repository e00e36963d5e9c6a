"""Coordinators of one election in this process, each with a database of its own, for the command to look at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tenure import CoordinatorConfig, Database, GlobalCoordinatorService

Fleet = dict[str, GlobalCoordinatorService]
PATIENCE = 30.0


@contextlib.asynccontextmanager
async def fleet(url: str, *names: str, namespace: str = "default", **settings: Any) -> AsyncIterator[Fleet]:
    """They run on threads of their own, so that the test may block."""
    config = CoordinatorConfig.fast(**{"startup_jitter_max": 0, **settings})
    async with contextlib.AsyncExitStack() as stack:
        coordinators: Fleet = {}
        for name in names:
            database = await stack.enter_async_context(Database(url, worker_id=name))
            coordinators[name] = await database.get_global_coordinator(namespace, config=config)
        for coordinator in coordinators.values():
            await coordinator.start()
        yield coordinators


async def leader_of(coordinators: Fleet, *, sees: int | None = None) -> str:
    """Who leads, once somebody does and all see so many workers (default: everyone): only what the leader has written
    down is seen by the others, and by a command."""
    wanted = len(coordinators) if sees is None else sees
    async with asyncio.timeout(PATIENCE):
        while True:
            seen = {len(await coordinator.get_active_workers()) for coordinator in coordinators.values()}
            for name, coordinator in coordinators.items():
                if coordinator.is_leader() and seen == {wanted}:
                    return name
            await asyncio.sleep(0.02)

"""Commands to the leader of a schedule from outside: run, pause, resume.

What is sent is durable. A leader need not be alive for that, and nothing happens until one is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.database.core import Database
from tenure.plugins.scheduler import SchedulerPlugin


@asynccontextmanager
async def asking(url: str, name: str, by: str) -> AsyncIterator[SchedulerPlugin]:
    """The schedule, as a process sees it that asks something of it and takes no part."""
    async with Database(url, worker_id=by[:128]) as database:
        yield await database.use_plugin(SchedulerPlugin(takes_part=False), name)

"""A process of the demo: `python -m tenure.demo.candidate URL ID` stands for election until SIGTERM.

Fifty times a second it asks itself whether it leads, and prints the answer, a JSON object to a line (`Report`). Whoever
started it can tell from these alone whether two ever believed it at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database

NAMESPACE = "demo"
CONFIG = CoordinatorConfig.fast(startup_jitter_max=0)
_PERIOD_SECONDS = 0.02


class Report(msgspec.Struct, frozen=True):
    """One answer. The two times enclose the question, on the clock that every process of a host shares."""

    asked_ns: int
    boottime_ns: int
    worker: str
    leads: bool
    epoch: int
    """Of its own leadership; 0 if it does not lead."""


def ask(coordinator: GlobalCoordinatorService, clock: Clock) -> Report:
    before = clock.read()
    lead = coordinator.lead
    leads = lead is not None and lead.is_current()
    after = clock.read()
    epoch = lead.epoch if lead is not None and leads else 0
    return Report(before.boottime_ns, after.boottime_ns, coordinator.worker_id, leads, epoch)


async def stand(url: str, worker_id: str, clock: Clock = SYSTEM_CLOCK) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with Database(url, worker_id=worker_id) as database:
        coordinator = await database.get_global_coordinator(NAMESPACE, config=CONFIG)
        await coordinator.start()
        leaving: asyncio.Task[None] | None = None
        while leaving is None or not leaving.done():
            # A broken pipe ends this process: whoever started it has gone.
            os.write(1, msgspec.json.encode(ask(coordinator, clock)) + b"\n")
            if ended.is_set() and leaving is None:
                leaving = asyncio.create_task(coordinator.stop())
            await clock.sleep(_PERIOD_SECONDS)
        await leaving


if __name__ == "__main__":
    asyncio.run(stand(sys.argv[1], sys.argv[2]))

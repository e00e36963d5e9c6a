"""A process that leads from some host of Python code, and notes what it believes and when its work ran.

    python -m lab.hosted HOST URL --worker-id ID --folder FOLDER

HOST is `thread` (the blocking API on a plain thread), `script` (the same on the main thread), `uvloop` (the async API),
`cell` (the blocking API in a notebook's cell: plain code that a running loop has called) or `async-cell` (the async
API, awaited on that loop). All do the same: lead, write a fenced value every now and then, end when the term does,
stand again. `ID.log` in FOLDER is for `lab.judge`; `ID.spans` has a line `epoch begin_ns` for each body that began, and
`epoch begin_ns end_ns` for each that ended, of CLOCK_BOOTTIME. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path

from lab.believer import BeliefLog, boottime_ns
from tenure import CoordinatorConfig, Database, GlobalCoordinatorService, Lead, blocking

CONFIG = CoordinatorConfig.fast(startup_jitter_max=0, min_epoch_duration=0)
KEY = "report"


class Diary:
    """The spans of one worker's bodies."""

    def __init__(self, folder: Path, worker_id: str) -> None:
        self._folder = folder
        self._worker_id = worker_id
        self._file = os.open(folder / f"{worker_id}.spans", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def follow(self, coordinator: GlobalCoordinatorService) -> None:
        BeliefLog(coordinator, self._worker_id, self._folder / f"{self._worker_id}.log").start()

    def begin(self, epoch: int) -> int:
        began = boottime_ns()
        os.write(self._file, f"{epoch} {began}\n".encode())
        return began

    def end(self, epoch: int, began: int) -> None:
        os.write(self._file, f"{epoch} {began} {boottime_ns()}\n".encode())


def lead_by_blocking(url: str, worker_id: str, diary: Diary, ended: threading.Event) -> None:
    with blocking.Database(url, worker_id=worker_id) as database:
        coordinator = database.get_global_coordinator(config=CONFIG)
        diary.follow(coordinator._service)
        coordinator.start()
        threading.Thread(target=_stop_when, args=(ended, coordinator), daemon=True).start()
        for leader in coordinator.terms():
            began = diary.begin(leader.epoch)
            with leader:
                while True:
                    leader.put(KEY, worker_id.encode())
                    leader.sleep(0.1)
            diary.end(leader.epoch, began)


def _stop_when(ended: threading.Event, coordinator: blocking.Coordinator) -> None:
    ended.wait()
    coordinator.stop()


async def lead_by_async(url: str, worker_id: str, diary: Diary, ended: threading.Event) -> None:
    async with Database(url, worker_id=worker_id) as database:
        coordinator = await database.get_global_coordinator(config=CONFIG)
        diary.follow(coordinator)
        await coordinator.start()
        leading = asyncio.create_task(_lead(coordinator, worker_id, diary))
        await asyncio.to_thread(ended.wait)
        leading.cancel()
        await asyncio.wait([leading])


async def _lead(coordinator: GlobalCoordinatorService, worker_id: str, diary: Diary) -> None:
    async for lead in coordinator.terms():
        async with lead:
            await _work(lead, worker_id, diary)


async def _work(lead: Lead, worker_id: str, diary: Diary) -> None:
    began = diary.begin(lead.epoch)
    try:
        while True:
            await lead.put(KEY, worker_id.encode())
            await asyncio.sleep(0.1)
    finally:
        diary.end(lead.epoch, began)


def on_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def run(host: str, url: str, worker_id: str, diary: Diary, ended: threading.Event) -> None:
    def plainly() -> None:
        lead_by_blocking(url, worker_id, diary, ended)

    async def cell() -> None:
        """As ipykernel runs it: the loop runs, and the code of the cell stands still in it."""
        sys.modules.setdefault("ipykernel", types.ModuleType("ipykernel"))
        plainly()

    match host:
        case "script":
            plainly()
        case "thread":
            on_thread(plainly)
        case "cell":
            asyncio.run(cell())
        case "async-cell":
            asyncio.run(lead_by_async(url, worker_id, diary, ended))
        case "uvloop":
            import uvloop

            uvloop.run(lead_by_async(url, worker_id, diary, ended))
        case _:
            raise SystemExit(f"there is no host {host!r}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.hosted")
    parser.add_argument("host")
    parser.add_argument("url")
    parser.add_argument("--worker-id", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    arguments = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    diary = Diary(arguments.folder, arguments.worker_id)
    run(arguments.host, arguments.url, arguments.worker_id, diary, ended)


if __name__ == "__main__":
    main()

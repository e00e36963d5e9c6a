"""A web application whose master process leads: `gunicorn --preload 'lab.preloaded:create()'`.

It is loaded before gunicorn forks its workers, which is the trap: they inherit a coordinator that leads. Every process
notes its belief (lab.believer) in the folder LAB_FOLDER, as `master.log` and `worker-PID.log`, from the first moment
after the fork on; a request is answered with what the process that answers believes. With LAB_OWN=1 each worker also
opens a coordinator of its own, which is the remedy, and notes its belief as `own-PID.log`.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lab.believer import BeliefLog
from tenure import CoordinatorConfig, Database
from tenure.errors import TenureError

PATIENCE = 20.0

Application = Callable[[dict[str, Any], Callable[[str, list[tuple[str, str]]], object]], Iterable[bytes]]


class Member:
    """A database and its coordinator, on a thread of their own."""

    def __init__(self, url: str, worker_id: str) -> None:
        self.coordinator: Any = None
        self._joined = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(url, worker_id)), daemon=True)
        self._thread.start()
        if not self._joined.wait(PATIENCE):
            raise RuntimeError(f"{worker_id} could not join within {PATIENCE} s")

    async def _run(self, url: str, worker_id: str) -> None:
        async with Database(url, worker_id=worker_id) as database:
            config = CoordinatorConfig.fast(startup_jitter_max=0)
            self.coordinator = await database.get_global_coordinator("default", config=config)
            await self.coordinator.start()
            self._joined.set()
            await asyncio.Event().wait()


def create() -> Application:
    url, folder = os.environ["LAB_URL"], Path(os.environ["LAB_FOLDER"])
    master = Member(url, "master")
    coordinator = master.coordinator
    deadline = time.monotonic() + PATIENCE
    while not coordinator.is_leader():
        if time.monotonic() > deadline:
            raise RuntimeError("the master does not lead")
        time.sleep(0.01)
    BeliefLog(coordinator, "master", folder / "master.log").start()
    at_first: dict[int, bool] = {}

    def begin_worker() -> None:
        at_first[os.getpid()] = coordinator.is_leader()
        BeliefLog(coordinator, "worker", folder / f"worker-{os.getpid()}.log").start()
        if os.environ.get("LAB_OWN") == "1":
            threading.Thread(target=_join_oneself, args=(url, folder), daemon=True).start()

    os.register_at_fork(after_in_child=begin_worker)

    def application(
        environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        answer = {
            "pid": os.getpid(),
            "leads": coordinator.is_leader(),
            "led_at_first": at_first.get(os.getpid()),
            "refusal": asyncio.run(_refusal(coordinator)),
        }
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    return application


def _join_oneself(url: str, folder: Path) -> None:
    member = Member(url, f"worker-{os.getpid()}")
    BeliefLog(member.coordinator, "own", folder / f"own-{os.getpid()}.log").start()


async def _refusal(coordinator: Any) -> str:
    try:
        await coordinator.get_leader(fresh=True)
    except TenureError as refusal:
        return type(refusal).__name__
    return ""

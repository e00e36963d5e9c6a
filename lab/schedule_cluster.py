"""Processes that share a schedule: started, killed, stopped, continued; the bucket tells who leads.

What was done to whom is noted in `events`, with the instant, for `lab.schedule_judge`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from lab.ledger_cluster import ROOT, LedgerCluster, Member
from lab.schedule_node import KEPT, SCHEDULE
from tenure import Database
from tenure.ledger.layout import LOG
from tenure.plugins.scheduler import SchedulerPlugin
from tenure.plugins.scheduler.looking import machine_of, read_schedule
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.store import Stored


@dataclass
class ScheduleCluster(LedgerCluster):
    slug: ClassVar[str] = "scheduler"
    name: ClassVar[str] = SCHEDULE

    run_logs: list[Path] = field(default_factory=list)

    def start(self, name: str, *options: str) -> Member:
        member = self._start(name, "runs", "lab.schedule_node", *options)
        self.run_logs.append(member.log)
        return member

    async def machine(self) -> ScheduleMachine:
        return machine_of(await read_schedule(self.ledger))

    async def until_settled(self, end_ms: int, within: float) -> None:
        """Until everything before `end_ms` is decided, and nothing runs or waits."""
        deadline = time.monotonic() + within
        while True:
            machine = await self.machine()
            behind = [state.job.id for state in machine.jobs.values() if state.decided_ms < end_ms - 1000]
            if machine.jobs and not behind and not machine.open:
                return
            if time.monotonic() >= deadline:
                raise AssertionError(
                    f"in vain for {within:g} s until all is decided; behind are {behind[:5]}, open "
                    f"{list(machine.open.values())[:5]}\n{await self.report()}"
                )
            await asyncio.sleep(0.2)

    async def report(self) -> str:
        return "\n".join([f"log at {self.seq}, terms {self.terms}", *self.outputs()])

    # For the judge

    async def copy_log(self) -> Path:
        """The bucket's log, entry by entry, as files."""
        folder = self.folder / "log"
        folder.mkdir(exist_ok=True)
        for key in [row.key async for row in self.ledger.list(LOG)]:
            stored = await self.ledger.get(key)
            assert isinstance(stored, Stored)
            (folder / key.removeprefix(LOG)).write_bytes(stored.body)
        return folder

    async def ask_api(self) -> Path:
        """What a process that takes no part is told of the schedule."""
        scheduler = SchedulerPlugin(takes_part=False, ledger=KEPT)
        async with Database(self.url, worker_id="onlooker") as database:
            await database.use_plugin(scheduler)
            stats, history = await scheduler.stats(), await scheduler.history(limit=100_000)
            one = history[0].job
            assert await scheduler.history(one, limit=100_000) == [each for each in history if each.job == one]
        path = self.folder / "api.json"
        path.write_bytes(msgspec.json.encode({"stats": stats, "history": history}))
        return path

    async def judged(self) -> tuple[int, dict[str, Any]]:
        """The judge is a program of its own."""
        log, api = await self.copy_log(), await self.ask_api()
        return self.judge(log, api)

    def judge(self, log: Path, api: Path) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "lab.schedule_judge", "--log", str(log), "--api", str(api)),
                *("--events", str(self.events), "--runs", *(str(path) for path in self.run_logs if path.exists())),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        verdict: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, verdict

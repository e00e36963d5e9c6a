"""Polling on a fleet in simulated time, and a checker that knows the truth: the bucket's history and who ran what."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any, cast

import msgspec

from tenure.coordinator.config import CoordinatorConfig
from tenure.database import Database
from tenure.errors import StoreError
from tenure.plugins.poll import PollOrchestrator, PollSchedule, PollWorker, Run, Verdict
from tenure.plugins.poll.job import Job, decode_job
from tenure.plugins.poll.summary import Summary
from tenure.plugins.supervisor.child import Context, token_of
from tenure.simulate.polling_judge import FOLDER, PollingJudge
from tenure.testing import SimulatedStore
from tenure.testing.checkers import Judge
from tests.simulated.fleet import QUICK, Fleet, Node


class NodeDatabase:
    """As much of a database as polling needs."""

    def __init__(self, fleet: Fleet, node: Node) -> None:
        self.store = SimulatedStore(fleet.bucket, node.host, fleet.network)


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class SleepyCheck:
    """Takes `seconds`, and notes in the fleet's log who ran it for which job."""

    def __init__(self, polling: Polling, node: Node, seconds: float, kind: str = "sleepy") -> None:
        self.polling = polling
        self.node = node
        self.seconds = seconds
        self.kind = kind

    def definition(self) -> dict[str, Any]:
        return {"kind": self.kind}

    async def run(self, run: Run) -> Verdict:
        polling, name = self.polling, self.node.name
        polling.truth.began(name, polling.workers[name].uid, run)
        if self.kind == "raises":
            raise RuntimeError("cannot be done")
        if self.kind == "raises what cannot be told":
            raise Silent
        await self.node.host.clock.sleep(self.seconds)
        return Verdict(True, "slept")


class Polling:
    """A fleet whose nodes all execute, and whose leader orchestrates."""

    def __init__(
        self,
        seed: int = 1,
        *,
        schedules: dict[str, dict[str, Any]] | None = None,
        config: CoordinatorConfig = QUICK,
        orchestrator: dict[str, Any] | None = None,
        worker: dict[str, Any] | None = None,
    ) -> None:
        self.fleet = Fleet(seed, config)
        self.schedules = schedules if schedules is not None else {"web": {}}
        self.orchestrator_settings = orchestrator or {}
        self.worker_settings = worker or {}
        self.workers: dict[str, PollWorker] = {}
        self.orchestrators: dict[str, PollOrchestrator] = {}
        self.events: list[Any] = []
        self._ids = itertools.count(1)
        self._judge = Judge(self.fleet.world)
        self.truth = PollingJudge(self.fleet.world, self.fleet.bucket, self._judge)
        self.runs, self.states = self.truth.runs, self.truth.states

    def __enter__(self) -> Polling:
        self.fleet.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        world = self.fleet.world
        world.close()
        # A process that crashes while it waits for several answers leaves one that failed without anybody to hear it.
        world.errors[:] = [(host, each) for host, each in world.errors if not isinstance(each, StoreError)]
        self.fleet.__exit__(*error)

    def join(self, name: str, *, executes: bool = True, leads: bool = True, **changes: Any) -> Node:
        respawned = self.fleet.nodes[name].host.respawn() if name in self.fleet.nodes else None
        if respawned is not None:
            del self.fleet.nodes[name]
        node = self.fleet.join(name, host=respawned)
        node.run(self._live(node, executes, leads, changes))
        return node

    def schedules_for(self, node: Node, changes: dict[str, Any]) -> list[PollSchedule]:
        found = []
        for name, settings in ({**self.schedules, **changes.get("schedules", {})}).items():
            fields = {"every": 10.0, "timeout": 5.0, **settings}
            check = SleepyCheck(self, node, fields.pop("takes", 0.5), fields.pop("kind", "sleepy"))
            found.append(PollSchedule(name, check, **fields))
        return found

    async def _live(self, node: Node, executes: bool, leads: bool, changes: dict[str, Any]) -> None:
        service, clock = node.service, node.host.clock
        while not service.running:
            await clock.sleep(0.05)
        database = cast(Database, NodeDatabase(self.fleet, node))
        schedules = self.schedules_for(node, changes)
        if executes:
            settings = {**self.worker_settings, **changes.get("worker", {})}
            worker = PollWorker(database, service, schedules, clock=clock, draw_id=self._draw_id, **settings)
            self.workers[node.name] = worker
            while True:
                try:
                    await worker.start()
                    break
                except Exception:
                    await clock.sleep(1.0)
        if not leads:
            return
        starts = 0
        async for lead in service.terms():
            async with lead:
                starts += 1
                orchestrator = PollOrchestrator(schedules, draw_id=self._draw_id, **self.orchestrator_settings)
                orchestrator.on("*", self.events.append)
                self.orchestrators[node.name] = orchestrator
                context = Context(
                    name="poll",
                    token=token_of(lead.epoch, starts),
                    node=node.name,
                    database=database,
                    coordinator=service,
                    lead=lead,
                    clock=clock,
                )
                await orchestrator.start(context)
                try:
                    await orchestrator.wait()
                finally:
                    await asyncio.shield(orchestrator.stop())

    def _draw_id(self) -> str:
        return f"poll-{next(self._ids):08d}"

    # The truth

    @property
    def violations(self) -> list[str]:
        return [f"{violation.check}: {violation.what}" for violation in self._judge.violations]

    def finals(self) -> Counter[str]:
        return self.truth.finals()

    def job(self, job_id: str) -> Job:
        body = self.fleet.bucket.body(f"{FOLDER}jobs/{job_id}.json")
        assert body is not None, job_id
        job = decode_job(job_id, body)
        assert isinstance(job, Job), job
        return job

    def put_job(self, job: Job) -> None:
        """Past every rule."""
        self.fleet.bucket.corrupt(f"{FOLDER}jobs/{job.id}.json", msgspec.json.encode(job))

    def summary(self, schedule: str = "web") -> Summary | None:
        return self.truth.summary(schedule)

    def check_end(self) -> None:
        """After calm: all but the newest job of each schedule have ended, and each was counted once."""
        self.truth.check_end(self.schedules)
        assert not self.violations, "; ".join(self.violations[:5])

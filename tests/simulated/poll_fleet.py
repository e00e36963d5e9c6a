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
from tenure.plugins.poll import JobState, PollOrchestrator, PollSchedule, PollWorker, Run, Verdict
from tenure.plugins.poll.book import folder_of
from tenure.plugins.poll.job import Job, decode_job, parse_job_id
from tenure.plugins.poll.summary import Summary, decode_summary
from tenure.plugins.supervisor.child import Context, token_of
from tenure.testing import SimulatedStore
from tenure.testing.bucket import Write
from tests.simulated.fleet import QUICK, Fleet, Node

FOLDER = folder_of("default")
LEGAL = {
    (None, "pending"),
    ("pending", "pending"),  # adopted
    ("pending", "dispatching"),
    ("pending", "failed"),
    ("dispatching", "dispatching"),
    ("dispatching", "running"),
    ("dispatching", "failed"),
    ("running", "running"),  # adopted
    ("running", "completed"),
    ("running", "failed"),
    ("damaged", "failed"),
}


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
        self.polling.began(self.node, run)
        if self.kind == "raises":
            raise RuntimeError("cannot be done")
        if self.kind == "raises what cannot be told":
            raise Silent
        await self.node.host.clock.sleep(self.seconds)
        return Verdict(True, "slept")


class Polling:
    """A fleet whose nodes all execute, and whose leader orchestrates. `violations` must stay empty."""

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
        self.violations: list[str] = []
        self.workers: dict[str, PollWorker] = {}
        self.orchestrators: dict[str, PollOrchestrator] = {}
        self.events: list[Any] = []
        self.runs: list[tuple[float, str, Run]] = []
        self.states: dict[str, list[str]] = {}
        """What each job went through."""
        self.deleted: set[str] = set()
        self.ghosts: set[str] = set()
        """Created again, by a late copy, after they had ended and gone."""
        self.running_as: set[tuple[str, str, int]] = set()
        self._ids = itertools.count(1)
        self.fleet.bucket.watchers.append(self._written)

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

    def began(self, node: Node, run: Run) -> None:
        uid = self.workers[node.name].uid
        if any(before.job_id == run.job_id for _, _, before in self.runs):
            self.violations.append(f"the check of {run.job_id} was begun twice")
        if (run.job_id, uid, run.token) not in self.running_as:
            self.violations.append(f"{node.name} runs {run.job_id}, and never made it running")
        tokens = [before.token for _, _, before in self.runs if before.schedule == run.schedule]
        # A worker that stood still since may begin one that was given up on: that is what the token is for.
        if tokens and run.token <= max(tokens) and self.states[run.job_id][-1] == "running":
            self.violations.append(f"the token of {run.job_id} is {run.token}, after {max(tokens)}")
        self.runs.append((self.fleet.world.now, node.name, run))

    def _written(self, write: Write) -> None:
        if not write.key.startswith(FOLDER + "jobs/"):
            return
        job_id = write.key.removeprefix(FOLDER + "jobs/").removesuffix(".json")
        before = decode_job(job_id, write.old) if write.old is not None else None
        after = decode_job(job_id, write.new) if write.new is not None else None
        was = before.state.value if isinstance(before, Job) else None if before is None else "damaged"
        if after is None:
            if job_id not in self.ghosts and isinstance(before, Job) and not before.state.final:
                self.violations.append(f"{job_id} was deleted while {was}")
            self.deleted.add(job_id)
            return
        if not isinstance(after, Job):
            if write.host == "outside":
                return
            self.violations.append(f"{job_id} was written as {after}")
            return
        if before is None and job_id in self.deleted:
            self.ghosts.add(job_id)
            return
        if write.host == "outside":
            return
        if job_id in self.ghosts:
            self.violations.append(f"{job_id} ended and went, and goes on as {after.state.value}")
        if (was, after.state.value) not in LEGAL:
            self.violations.append(f"{job_id} went from {was} to {after.state.value}, by {write.host}")
        if isinstance(before, Job) and after.epoch < before.epoch:
            self.violations.append(f"{job_id} went back from epoch {before.epoch} to {after.epoch}")
        if after.state is JobState.RUNNING and was == "dispatching":
            assert after.uid is not None
            self.running_as.add((job_id, after.uid, after.token))
        self.states.setdefault(job_id, []).append(after.state.value)

    def finals(self) -> Counter[str]:
        """How each ended job ended."""
        return Counter(states[-1] for states in self.states.values() if states[-1] in ("completed", "failed"))

    def open_jobs(self) -> list[str]:
        return [job for job, states in self.states.items() if states[-1] not in ("completed", "failed")]

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
        body = self.fleet.bucket.body(f"{FOLDER}results/schedule={schedule}.json")
        if body is None:
            return None
        summary = decode_summary(schedule, body)
        assert isinstance(summary, Summary), summary
        return summary

    def check_end(self) -> None:
        """After calm: all but the newest job of each schedule have ended, and each was counted once."""
        assert not self.violations, "; ".join(self.violations[:5])
        for schedule in self.schedules:
            numbers = sorted(
                parsed[1] for job in self.states if (parsed := parse_job_id(job)) is not None and parsed[0] == schedule
            )
            assert numbers == list(range(1, len(numbers) + 1)), "numbers have no gap"
            left = [job for job in self.open_jobs() if job.rpartition("-")[0] == schedule]
            assert left in ([], [f"{schedule}-{numbers[-1]:010d}"]), f"left open: {left}"
            summary = self.summary(schedule)
            if summary is not None:
                assert summary.total == summary.folded, f"{summary.total} jobs are counted up to {summary.folded}"
                assert 0 <= numbers[-1] - summary.folded <= 1, f"counted up to {summary.folded} of {numbers[-1]}"

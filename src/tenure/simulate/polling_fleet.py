"""The fleet of a seed with polling: every process executes checks, and the leader hands them out."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any, cast

from tenure.coordinator.config import CoordinatorConfig
from tenure.database import Database
from tenure.entropy import Random
from tenure.errors import TenureError
from tenure.plugins.poll import PollOrchestrator, PollSchedule, PollWorker, Run, Verdict
from tenure.plugins.supervisor.child import Context, token_of
from tenure.simulate.polling_judge import FOLDER, PollingJudge
from tenure.simulate.seed import Plan, SeedResult
from tenure.simulate.stage import Home, Stage, run_stage
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.mixes import EVERYTHING, Mix

SCHEDULES: dict[str, dict[str, float]] = {
    "web": {"takes": 1.0, "every": 4.0, "timeout": 5.0},
    "db": {"takes": 0.0, "every": 3.0, "timeout": 1.0},
    "slow": {"takes": 4.0, "every": 6.0, "timeout": 3.0},
}
LIMITS: dict[str, Any] = {
    "dispatch_within": 6.0,
    "pickup_within": 6.0,
    "allowance": 5.0,
    "keep_jobs": 3,
    "sweep_interval": 15.0,
}
PATIENT_ALLOWANCE = 120.0
"""Seconds that some leaders give a worker to say what came of a check: longer than it offers that."""
CALM_SECONDS = 100.0
STALLED, CUT_OFF = 0.06, 0.5
"""Of the looks at a job, and of the notes that are cleared away, so many are their worker's last for a while."""
GOES_ON_WITHIN = 25.0
"""Seconds of calm in which every schedule has another job."""
POLLING_MIXES = (
    EVERYTHING,
    Mix(name="crashes", faults=("crash", "freeze", "suspend"), seconds_between_faults=10.0),
    Mix(name="network", faults=("network", "rough", "cut-replies", "cut", "step-down"), seconds_between_faults=8.0),
)


class SleepyCheck:
    """Takes `seconds`, and says who runs it for which job."""

    def __init__(self, stage: PollingStage, worker: SimulatedWorker, seconds: float) -> None:
        self._stage = stage
        self._worker = worker
        self._host = worker.host
        self._seconds = seconds
        self.poller: PollWorker | None = None

    def definition(self) -> dict[str, Any]:
        return {"kind": "sleepy"}

    async def run(self, run: Run) -> Verdict:
        assert self.poller is not None
        if self._host.alive:
            self._stage.judge.began(self._worker.name, self.poller.uid, run)
        await self._host.clock.sleep(self._seconds)
        return Verdict(True, "slept")


class PollingStage(Stage):
    """One fleet that polls, and the judge."""

    name = "polling"
    mixes = POLLING_MIXES
    foreseen = (*Stage.foreseen, TenureError)

    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, random: Random, config: CoordinatorConfig
    ) -> None:
        super().__init__(cluster, checkers, random, config)
        self.judge = PollingJudge(cluster.world, cluster.bucket, checkers)
        self._strikes = Random(f"{cluster.world.seed}/polling strikes")
        self.is_patient = self._strikes.random() < 0.4
        self.limits = LIMITS | ({"allowance": PATIENT_ALLOWANCE} if self.is_patient else {})
        self.hit: Counter[str] = Counter()
        requested = cluster.network.on_request

        def on_request(host: str, verb: str, key: str, now: float) -> None:
            if requested is not None:
                requested(host, verb, key, now)
            if host in cluster.workers and now < self.stops_at and not cluster.workers[host].is_leader():
                self._strike(cluster.workers[host], verb, key)

        cluster.network.on_request = on_request
        self._at_work: dict[str, object] = {}
        self._pollers: dict[str, PollWorker] = {}
        self._ids = itertools.count(1)

    async def work(self, worker: SimulatedWorker) -> None:
        service = worker.service
        assert service is not None
        if self._at_work.get(worker.name) is service:
            return
        self._at_work[worker.name] = service
        home = Home(self.cluster, worker.host, service)
        database = cast(Database, home)
        checks = {name: SleepyCheck(self, worker, fields["takes"]) for name, fields in SCHEDULES.items()}
        schedules = [
            PollSchedule(name, check, every=SCHEDULES[name]["every"], timeout=SCHEDULES[name]["timeout"])
            for name, check in checks.items()
        ]
        poller = PollWorker(database, service, schedules, clock=worker.host.clock, draw_id=self._draw_id)
        for check in checks.values():
            check.poller = poller
        before = self._pollers.get(worker.name)
        if before is not None and before._clock is worker.host.clock:
            await before.stop()
        self._pollers[worker.name] = poller
        worker.host.start(self._start(worker, poller))
        starts = 0
        async for lead in service.terms():
            async with lead:
                starts += 1
                orchestrator = PollOrchestrator(schedules, draw_id=self._draw_id, **self.limits)
                token = token_of(lead.epoch, starts)
                context = Context(
                    name="poll",
                    token=token,
                    node=worker.name,
                    database=database,
                    coordinator=service,
                    lead=lead,
                    clock=worker.host.clock,
                )
                await orchestrator.start(context)
                try:
                    await orchestrator.wait()
                finally:
                    await asyncio.shield(orchestrator.stop())

    async def _start(self, worker: SimulatedWorker, poller: PollWorker) -> None:
        while self._pollers.get(worker.name) is poller:
            try:
                await poller.start()
            except TenureError:
                await worker.host.clock.sleep(1.0)
            else:
                return

    async def restart(self, worker: SimulatedWorker) -> None:
        """Its executor stops politely, and begins again."""
        poller = self._pollers.get(worker.name)
        if poller is not None and poller._clock is worker.host.clock:
            await poller.stop()
            await worker.host.clock.sleep(1.0)
            await self._start(worker, poller)

    def _strike(self, worker: SimulatedWorker, verb: str, key: str) -> None:
        """A worker stands still between its look at a job and its start, or is cut off as soon as it has begun."""
        world, network, dice = self.cluster.world, self.cluster.network, self._strikes
        if verb == "get" and key.startswith(f"{FOLDER}jobs/") and dice.random() < STALLED:
            seconds = dice.uniform(7.0, 14.0)
            world.call_at(world.now, lambda: worker.host.freeze(seconds) if worker.host.alive else None)
            self.hit["stalled"] += 1
        elif verb == "delete" and key.startswith(f"{FOLDER}inbox/") and self.is_patient and dice.random() < CUT_OFF:
            network.cut(worker.name)
            world.call_at(world.now + dice.uniform(65.0, 80.0), network.heal, worker.name)
            self.hit["cut off"] += 1

    def _draw_id(self) -> str:
        return f"poll-{next(self._ids):08d}"

    def conclude(self) -> None:
        world = self.cluster.world
        world.run_until(world.now + (PATIENT_ALLOWANCE if self.is_patient else 0.0) + CALM_SECONDS)
        before = {name: self.judge.newest(name) for name in SCHEDULES}
        world.run_until(world.now + GOES_ON_WITHIN)
        self.judge.check_end(SCHEDULES)
        self.judge.check_goes_on(before, GOES_ON_WITHIN)

    def coverage(self, found: Counter[str]) -> None:
        for what, count in self.hit.items():
            found[f"polling:{what}"] += count
        found["polling:jobs"] += len(self.judge.states)
        found["polling:begun"] += len(self.judge.runs)
        found["polling:deleted"] += len(self.judge.deleted)
        for state, count in self.judge.finals().items():
            found[f"polling:{state}"] += count


def run_polling_seed(seed: int, plan: Plan) -> SeedResult:
    return run_stage(seed, plan, PollingStage)

"""The fleet of a seed with supervised children: candidates, each with the same children, of which the leader runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tenure.coordinator.config import CoordinatorConfig
from tenure.entropy import Random
from tenure.plugins.supervisor.candidate import CoordinatorCandidate, candidate_config
from tenure.plugins.supervisor.child import Child, Context
from tenure.plugins.supervisor.restarts import RestartPolicy
from tenure.simulate.children_judge import HOPELESS, ChildrenJudge, Run
from tenure.simulate.seed import Plan, SeedResult
from tenure.simulate.stage import Home, Stage, run_stage
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.mixes import Mix

CHILDREN = ("service", "prompt", "slow", HOPELESS, "crashing", "timing")
"""In the order in which they are started."""
WIND_UP = 0.25
"""Seconds that the slow child takes to end."""
POLICY = RestartPolicy(max_restarts=8, within=10.0, first_backoff=0.1, longest_backoff=0.4)
"""The child that crashes now and then stays well below it, and the hopeless one does not."""
RUNS_WITHIN = 20.0
"""Seconds of calm under one leader in which every child is started."""

_TIMING = {
    name: getattr(candidate_config(), name)
    for name in (
        *("lease_timeout", "heartbeat_interval", "heartbeat_jitter", "request_timeout", "renew_deadline"),
        *("worker_timeout", "startup_jitter_max", "standby_watch_interval", "takeover_delay"),
    )
}
CHILDREN_MIXES = (
    Mix(name="everything", settings=_TIMING),
    Mix(
        name="asleep",
        faults=("suspend", "freeze", "cut", "crash"),
        settings={**_TIMING, "standby_watch_interval": 0.2},
        extreme_rates=True,
    ),
    Mix(
        name="leaving",
        faults=("stop", "step-down", "ask", "cut", "outage", "unhealthy"),
        seconds_between_faults=8.0,
        settings=_TIMING,
        struck_when_leaving=0.2,
    ),
)


class AsUsual(Exception):
    """A child fails."""


class ChildrenStage(Stage):
    """One fleet, its children, and the judge."""

    name = "children"
    mixes = CHILDREN_MIXES
    foreseen = (*Stage.foreseen, AsUsual)

    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, random: Random, config: CoordinatorConfig
    ) -> None:
        super().__init__(cluster, checkers, random, config)
        self.judge = ChildrenJudge(cluster, checkers, CHILDREN, POLICY.max_restarts + 1)
        self._candidates: dict[str, tuple[object, CoordinatorCandidate]] = {}
        self._lives: Counter[str] = Counter()

    async def work(self, worker: SimulatedWorker) -> None:
        service = worker.service
        assert service is not None
        await worker.host.clock.sleep(0.01)  # a stop that waited for the start comes first
        before = self._candidates.get(worker.name)
        if not service.running or (before is not None and before[0] is service):
            return  # it was asked to leave as soon as it had begun, or has its candidate
        self._lives[worker.name] += 1
        life = f"{worker.name}-{self._lives[worker.name]}"
        candidate = CoordinatorCandidate(
            self._children(worker, life), config=worker.config, environ={}, restarts=POLICY
        )
        self._candidates[worker.name] = (service, candidate)
        candidate.attach(Home(self.cluster, worker.host, service), "children")  # type: ignore[arg-type]
        await candidate.start()

    async def restart(self, worker: SimulatedWorker) -> None:
        service, candidate = self._candidates.get(worker.name, (None, None))
        if candidate is None or service is not worker.service:
            return
        life = self._lives[worker.name]
        await candidate.stop()
        self.judge.seen["candidates stopped"] += 1
        await worker.host.clock.sleep(1.0)
        is_leaving = worker.service is None or not worker.service.running
        if worker.service is service and not is_leaving and self._lives[worker.name] == life:
            if self.random.random() < 0.5:
                self.judge.restarted(f"{worker.name}-{life}")
                await candidate.start()
                return
            del self._candidates[worker.name]
            await self.work(worker)

    def _children(self, worker: SimulatedWorker, life: str) -> list[Child]:
        judge, host = self.judge, worker.host
        random = Random(f"{self.cluster.world.seed}/{life}/children")

        def child(name: str, body: Callable[[Run], Awaitable[None]]) -> Child:
            async def run(context: Context) -> None:
                this = Run(name, context, host, life)
                judge.began(this)
                judge.up(this)
                try:
                    await body(this)
                except asyncio.CancelledError:
                    judge.told(this)
                    raise
                finally:
                    judge.ended(this)

            return Child(name, run)

        async def prompt(run: Run) -> None:
            while True:
                await run.context.clock.sleep(0.4)
                judge.went_on(run)

        async def slow(run: Run) -> None:
            try:
                await run.context.clock.sleep(1e9)
            except asyncio.CancelledError:
                judge.told(run)
                await run.context.clock.sleep(WIND_UP)
                raise

        async def hopeless(run: Run) -> None:
            await run.context.clock.sleep(0.1)
            raise AsUsual

        async def crashing(run: Run) -> None:
            await run.context.clock.sleep(random.uniform(3.0, 8.0))
            judge.went_on(run)
            raise AsUsual

        async def timing(run: Run) -> None:
            """What uses cancellation for its own ends must not be lost to its supervisor by that."""
            clock = run.context.clock
            while True:
                try:
                    async with asyncio.timeout(0.3):
                        await clock.sleep(1e9)
                except TimeoutError:
                    judge.went_on(run)
                async with asyncio.TaskGroup() as group:
                    group.create_task(clock.sleep(0.1))

        class Slowly:
            """A service that takes a moment to start and to stop."""

            async def start(self, context: Context) -> None:
                self.run = Run("service", context, host, life)
                judge.began(self.run)
                await context.clock.sleep(0.05)
                judge.up(self.run)

            async def stop(self) -> None:
                judge.told(self.run)
                await self.run.context.clock.sleep(0.1)
                judge.ended(self.run)

        bodies: dict[str, Any] = {
            "prompt": prompt,
            "slow": slow,
            HOPELESS: hopeless,
            "crashing": crashing,
            "timing": timing,
        }
        return [child(name, bodies[name]) if name in bodies else Child(name, Slowly) for name in CHILDREN]

    def conclude(self) -> None:
        world = self.cluster.world
        end = world.now + RUNS_WITHIN
        while self.judge.missing() and world.now < end:
            world.run_until(world.now + 0.2)
        self.judge.check_runs(RUNS_WITHIN)

    def coverage(self, found: Counter[str]) -> None:
        for what, count in self.judge.seen.items():
            found[f"children:{what}"] += count


def run_children_seed(seed: int, plan: Plan) -> SeedResult:
    return run_stage(seed, plan, ChildrenStage)

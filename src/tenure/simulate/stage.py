"""What every seed of a plugin on a ledger has in common: the fleet, its trouble, how it comes to rest, the verdict.

A `Stage` is one kind of fleet. `run_stage` plays one seed of it: the same seed gives the same run, on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.layout import STATE
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.entropy import Random
from tenure.errors import LeadershipLost, StoreError
from tenure.simulate.seed import Plan, Played, SeedResult, liveness_bound, play, played_on
from tenure.testing.bucket import SimulatedStore, Write
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host
from tenure.testing.mixes import EVERYTHING, Mix
from tenure.testing.trouble import Trouble
from tenure.testing.world import World

LATE_SECONDS = 45.0
"""After so many the last write that was held up has landed."""
STEP = 5.0
CALM = 15.0
"""Seconds after the last fault within which nobody looks whether all is well."""


class Home:
    """What a plugin needs of a database, made of one simulated process."""

    def __init__(self, cluster: SimulatedCluster, host: Host, service: GlobalCoordinatorService | None) -> None:
        self.clock = host.clock
        self.worker_id = host.name
        self.store = SimulatedStore(cluster.bucket, host, cluster.network)
        self.random = Random(f"{cluster.world.seed}/{host.name}/{cluster.draw_id()}")
        self.draw_id = cluster.draw_id
        self.plugins: dict[tuple[str, str], Any] = {}
        self._service = service

    async def get_global_coordinator(
        self, namespace: str = "default", *, config: CoordinatorConfig | None = None
    ) -> GlobalCoordinatorService:
        assert self._service is not None
        return self._service

    def plugin_storage(self, slug: str, name: str) -> Any:
        raise NotImplementedError


class Stage:
    """One fleet of one seed: its processes, what they do, and who judges them."""

    name: ClassVar[str]
    """Coverage is told as `name:…`."""
    mixes: ClassVar[tuple[Mix, ...]] = (EVERYTHING,)
    """That its seeds take in turn."""
    foreseen: ClassVar[tuple[type[Exception], ...]] = (StoreError, LeadershipLost)
    """What may end a task: of several that were under way when a process crashed, some had failed, and those who would
    have heard it had no more time to."""

    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, random: Random, config: CoordinatorConfig
    ) -> None:
        self.cluster = cluster
        self.checkers = checkers
        self.random = random
        self.config = config
        self.mix: Mix = EVERYTHING
        """Of the faults of this seed."""
        self.stops_at = 0.0
        """True time at which trouble, and what makes work, ends."""
        self.halts: list[str] = []
        """Why a leader could not go on: never, here."""

    # To override

    async def work(self, worker: SimulatedWorker) -> None:
        """A process of the fleet has started."""
        raise NotImplementedError

    async def restart(self, worker: SimulatedWorker) -> None:
        """The plugin of a process is stopped politely, and started anew."""
        raise NotImplementedError

    def begin(self) -> None:
        """The fleet has started: whoever is outside of it begins."""

    def conclude(self) -> None:
        """Trouble is over, and somebody leads: let everything come about that was promised, and judge it."""
        raise NotImplementedError

    def coverage(self, found: Counter[str]) -> None:
        """Add what was seen, as `{name}:…`."""

    # For subclasses

    def see_through(self, host: Host, *work: Coroutine[Any, Any, Any], within: float = LATE_SECONDS) -> None:
        """Have this done in a process, at the end, when nothing goes wrong any more."""
        world = self.cluster.world
        end = world.now + within
        tasks = [host.start(each) for each in work]
        while not all(task.done() for task in tasks):
            if world.now > end:
                self.checkers.report("liveness", f"a call in {host.name} does not end, and nothing goes wrong any more")
                return
            world.run_until(world.now + 0.5)


def run_stage(seed: int, plan: Plan, kind: type[Stage]) -> SeedResult:
    def run(world: World, mix: Mix) -> Played:
        random = Random(f"{seed}/{kind.name}")
        config = _config(random.random()).replace(**mix.settings)
        stage: Stage | None = None

        async def work(worker: SimulatedWorker) -> None:
            assert stage is not None
            await stage.work(worker)

        cluster = SimulatedCluster(
            world,
            plan.workers,
            config,
            work=work,
            rate=lambda: mix.rate(random),
            wall_offset=lambda: random.choice([0.0, random.uniform(-86400, 86400)]),
        )
        cluster.bucket.clock_offset = random.uniform(-3600, 3600)
        cluster.network.whole_second_times = random.random() < 0.5
        checkers = Checkers(cluster, plan.until)
        stage = kind(cluster, checkers, random, config)
        stage.mix = mix
        trouble = Trouble(cluster, random, mix)
        stage.stops_at = ends_at = plan.minutes * 60
        cluster.start()
        stage.begin()
        trouble.begin(ends_at)
        more = LedgerTrouble(stage, mix, Random(f"{seed}/{kind.name} trouble"))
        checkers.run_until(ends_at)
        if not checkers.is_settled():
            _come_to_rest(world, stage)
            stage.conclude()
            for reason in stage.halts:
                checkers.report("halted", reason)
        checkers.check_defects()
        return played_on(cluster, checkers, trouble.hit + more.hit, stage.coverage, kind.foreseen)

    return play(seed, plan, kind.mixes, run)


def _config(roll: float) -> CoordinatorConfig:
    """Short leases make for many terms, and for many requests that have nothing to do with a plugin."""
    if roll < 0.3:
        return CoordinatorConfig.fast()
    if roll < 0.6:
        return CoordinatorConfig.fast().replace(lease_timeout=6.0, heartbeat_interval=1.5, heartbeat_jitter=0.3)
    return CoordinatorConfig.standard()


def _come_to_rest(world: World, stage: Stage) -> None:
    """Trouble is over: somebody leads within a bound, and what was held up has landed."""
    bound = liveness_bound(stage.config)
    end = world.now + LATE_SECONDS + bound
    world.run_until(world.now + CALM)
    while world.now < end and not _is_calm(world, stage.cluster):
        world.run_until(world.now + STEP)
    stage.checkers.check_liveness(bound)
    world.run_until(world.now + CALM)  # who stood still until now may have something to send


def _is_calm(world: World, cluster: SimulatedCluster) -> bool:
    """Somebody leads, nobody stands still, and no write is still on its way from before."""
    if len(cluster.leaders()) != 1 or any(worker.host.frozen for worker in cluster.workers.values()):
        return False
    return not any(getattr(call, "__func__", None) is SimulatedStore._land for _, _, call, _ in world._queue)


class LedgerTrouble:
    """What harms a ledger in particular: entries of the log that land late, most of all when another leads already,
    readers that stand still for long, and workers that leave politely and come back, as in a deployment."""

    def __init__(self, stage: Stage, mix: Mix, random: Random) -> None:
        self.hit: Counter[str] = Counter()
        self._stage = stage
        self._cluster = cluster = stage.cluster
        self._random = random
        self._leaving = Random(f"{cluster.world.seed}/leaving")
        self._overtaking = Random(f"{cluster.world.seed}/overtaking")
        self._overtaken: str | None = None
        """Who stands still, and is to be overtaken."""
        cluster.bucket.watchers.append(self._written)
        self._later(random.uniform(5, 15), self._next)
        self._later(self._leaving.uniform(10, 60), self._leave)
        self._pace = mix.seconds_between_overtakes / 35.0
        self._later(self._overtaking.uniform(5, 40), self._overtake)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        world = self._cluster.world
        if world.now + seconds < self._stage.stops_at:
            world.call_at(world.now + seconds, call)

    def _next(self) -> None:
        self._later(self._random.uniform(10, 30), self._next)
        leaders = self._cluster.leaders()
        if self._random.random() < 0.6 and leaders:
            network, leader = self._cluster.network, leaders[0]
            network.change(leader, **_held_up(0.4, LATE_SECONDS))
            self._later(self._random.uniform(0.5, 3.0), lambda: network.reset(leader))
            self.hit["late-entries"] += 1
            return
        others = [worker for worker in self._cluster.workers.values() if worker.host.alive and not worker.is_leader()]
        if others:
            lease = self._cluster.config.lease_timeout
            self._random.choice(others).host.freeze(self._random.uniform(2.0, 5.0) * lease)
            self.hit["long-freeze"] += 1

    def _leave(self) -> None:
        self._later(self._leaving.uniform(30, 90), self._leave)
        live = [worker for worker in self._cluster.workers.values() if worker.host.alive and worker.service is not None]
        if live:
            worker = self._leaving.choice(live)
            worker.host.start(self._stage.restart(worker))
            self.hit["leave"] += 1

    def _overtake(self) -> None:
        """A leader stands still, and its last entry lands when its successor is about to begin."""
        random, network = self._overtaking, self._cluster.network
        self._later(self._pace * random.uniform(20, 50), self._overtake)
        leaders = self._cluster.leaders()
        if not leaders:
            return
        worker, lease = self._cluster.workers[leaders[0]], self._cluster.config.lease_timeout

        def stand_still() -> None:
            if worker.host.alive:
                worker.host.freeze(random.uniform(1.5, 3.0) * lease)

        def held() -> None:
            self.hit["overtaken"] += 1
            self._overtaken = worker.name
            self._later(random.uniform(0.0, 0.5), stand_still)

        network.hold_next(worker.name, "/log/", held)

    def _written(self, write: Write) -> None:
        """Somebody else has the lease, and is about to begin: what the former leader sent lands in that moment."""
        former = self._overtaken
        if former is None or write.key != self._cluster.key(STATE) or write.host == former:
            return
        if write.host in self._cluster.workers:
            self._overtaken = None
            self._later(self._overtaking.uniform(0.0, 0.6), lambda: self._cluster.network.land(former))


def _held_up(share: float, seconds: float) -> dict[str, float]:
    """Conditions under which writes land late, and which leave room for no other fault."""
    others = ("lost_request", "lost_reply", "repeated", "slow_request", "slow_reply", "server_error")
    return {**dict.fromkeys(others, 0.0), "late_landing": share, "late_seconds": seconds}

"""One seed of a queue: a fleet, its trouble, and the verdict. The same seed gives the same run, on every machine."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections import Counter
from collections.abc import Iterator

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig
from tenure.entropy import Random
from tenure.errors import LedgerError, StoreError
from tenure.ledger import LedgerState
from tenure.ledger.layout import ledger_store
from tenure.plugins.queue.looking import read_queue
from tenure.simulate.queue_fleet import (
    FOLDER,
    LATE_SECONDS,
    LONGEST_VISIBILITY,
    QUEUE,
    Home,
    Kind,
    QueueTrouble,
    Scenario,
)
from tenure.simulate.queue_judge import Judge
from tenure.simulate.seed import Plan, SeedResult, liveness_bound
from tenure.testing.broken import broken
from tenure.testing.bucket import SimulatedStore
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.trouble import Trouble
from tenure.testing.world import World

_STEP = 5.0
_CALM = 15.0
"""Seconds after the last fault within which nobody looks whether all is well."""


def run_queue_seed(seed: int, plan: Plan) -> SeedResult:
    started = SYSTEM_CLOCK.read()
    with broken(plan.broken), _unheard(), World(seed) as world:
        random, kind = Random(f"{seed}/queue"), Kind(seed)
        config = _config(random.random())
        scenario: Scenario | None = None

        async def work(worker: SimulatedWorker) -> None:
            assert scenario is not None
            await scenario.work(worker)

        cluster = SimulatedCluster(
            world,
            plan.workers,
            config,
            work=work,
            rate=lambda: random.choice([0.99, 1.01, 1.0, random.uniform(0.99, 1.01)]),
            wall_offset=lambda: random.choice([0.0, random.uniform(-86400, 86400)]),
        )
        cluster.bucket.clock_offset = random.uniform(-3600, 3600)
        cluster.network.whole_second_times = random.random() < 0.5
        checkers = Checkers(cluster)
        judge = Judge(cluster, checkers, FOLDER, at_most_once=kind.at_most_once)
        scenario = Scenario(cluster, judge, random, config, kind)
        trouble = Trouble(cluster, random, plan.faults)
        outsider = world.host("producer", rate=random.uniform(0.99, 1.01))
        ends_at = plan.minutes * 60
        scenario.stops_at = ends_at
        cluster.start()
        client = scenario.plugin(producer_only=True)
        client.attach(Home(cluster, outsider, None), QUEUE)

        async def outside() -> None:
            await client.start()
            if kind.commands:
                outsider.start(scenario.command(client, outsider))
            await scenario.produce(client, outsider, "outsider")

        outsider.start(outside())
        trouble.begin(ends_at)
        more = QueueTrouble(cluster, scenario, Random(f"{seed}/queue trouble"), ends_at)
        world.run_until(ends_at)
        if not checkers.violations:
            _quiesce(world, cluster, scenario, checkers, judge, config)
        checkers.check_defects()
        simulated = world.now
        world.close()
        for host, error in world.errors:
            if isinstance(error, StoreError):
                continue  # of several requests that were under way when a process crashed, some had failed
            checkers.report("defect", f"a task of {host} raised {error!r}")
        coverage = _coverage(cluster, world, trouble.hit + more.hit, checkers, judge, scenario)
    return SeedResult(
        seed=seed,
        violations=checkers.violations,
        simulated_seconds=simulated,
        wall_seconds=SYSTEM_CLOCK.read().leader_elapsed(started),
        faults=sum((trouble.hit + more.hit).values()),
        terms=len(checkers.terms),
        coverage=coverage,
    )


def _config(roll: float) -> CoordinatorConfig:
    """Short leases make for many terms, and for many requests that have nothing to do with a queue."""
    if roll < 0.3:
        return CoordinatorConfig.fast()
    if roll < 0.6:
        return CoordinatorConfig.fast().replace(lease_timeout=6.0, heartbeat_interval=1.5, heartbeat_jitter=0.3)
    return CoordinatorConfig.standard()


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Trouble that is made on purpose is not warned of, and garbage is collected seldom: looking for it takes long."""
    logger, thresholds = logging.getLogger("tenure"), gc.get_threshold()
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL)
        gc.set_threshold(50_000, 50, 100)
        yield
    finally:
        gc.set_threshold(*thresholds)
        logger.setLevel(level)


def _quiesce(
    world: World,
    cluster: SimulatedCluster,
    scenario: Scenario,
    checkers: Checkers,
    judge: Judge,
    config: CoordinatorConfig,
) -> None:
    """Trouble is over: everything that was promised must come about within a bound."""
    bound = liveness_bound(config)
    end = world.now + LATE_SECONDS + bound
    world.run_until(world.now + _CALM)
    while world.now < end and not _is_calm(world, cluster):
        world.run_until(world.now + _STEP)
    checkers.check_liveness(bound)
    world.run_until(world.now + _CALM)  # who stood still until now may have something to send
    # Backoffs, delays, lapses one after the other, and messages one by one on few workers.
    end = world.now + scenario.settings["max_attempts"] * (2.5 * LONGEST_VISIBILITY + 10.0) + 120.0
    while (judge.unfinished() or judge.stale()) and world.now < end and not checkers.violations:
        world.run_until(world.now + _STEP)
    if stale := judge.stale():
        checkers.report("liveness", f"{len(stale)} objects lie in the inbox long after the last fault: {stale[0]}")
    if checkers.violations:
        return
    for reason in scenario.halts:
        checkers.report("halted", reason)
    try:
        state = _look(world, cluster)
    except LedgerError as error:
        checkers.report("state", f"who starts now cannot read the log: {error}")
        return
    judge.conclude(state)
    world.run_until(world.now + 2 * _STEP)
    for name, worker in cluster.workers.items():
        plugin = scenario.plugins.get(name)
        tail = plugin.worker.tail if plugin is not None and plugin.worker is not None else None
        lives = worker.host.alive and scenario.hosts.get(name) is worker.host
        if lives and tail is not None and tail.position <= state.seq:
            checkers.report("follower", f"{name} waits for entry {tail.position}, and entry {state.seq} is long there")


def _is_calm(world: World, cluster: SimulatedCluster) -> bool:
    """Somebody leads, nobody stands still, and no write is still on its way from before."""
    if len(cluster.leaders()) != 1 or any(worker.host.frozen for worker in cluster.workers.values()):
        return False
    return not any(getattr(call, "__func__", None) is SimulatedStore._land for _, _, call, _ in world._queue)


def _look(world: World, cluster: SimulatedCluster) -> LedgerState:
    """As a process that has just started sees it."""
    reader = world.host("reader")
    store = ledger_store(SimulatedStore(cluster.bucket, reader, cluster.network), "s3-queue", QUEUE)

    async def read() -> LedgerState:
        while True:
            try:
                return await read_queue(store)
            except StoreError:
                await reader.clock.sleep(1.0)

    task = reader.start(read())
    while not task.done():
        world.run_until(world.now + 0.5)
    return task.result()


def _coverage(
    cluster: SimulatedCluster, world: World, hit: Counter[str], checkers: Checkers, judge: Judge, scenario: Scenario
) -> dict[str, int]:
    found: Counter[str] = Counter()
    for kind, count in hit.items():
        found[f"fault:{kind}"] += count
    for name, count in cluster.network.hits.items():
        found[f"network:{name}"] += count
    for (strike, where), count in world.strikes.items():
        for place in where.split(" | "):
            found[f"{strike}:{place}"] += count
    for name, count in judge.counts.items():
        found[f"queue:{name}"] += count
    found["queue:ghosts"] += judge.ghosts
    found["queue:entries"] += len(judge.entries)
    found["queue:handled"] += judge.handled
    for plugin in scenario.plugins.values():
        if plugin.worker is not None:
            found["queue:resyncs"] += plugin.worker.counts["resyncs"]
            found["queue:late reports"] += plugin.worker.counts["late"]
    found["terms"] += len(checkers.terms)
    return dict(sorted(found.items()))

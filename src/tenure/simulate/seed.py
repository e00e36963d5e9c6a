"""One seed: a fleet, its trouble, and the verdict. The same seed gives the same run, on every machine."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig, MandateEnd
from tenure.coordinator.fenced import Fence, FencedWriter
from tenure.coordinator.lead import Lead
from tenure.entropy import Random
from tenure.errors import CoordinationError, StoreError
from tenure.testing.broken import broken
from tenure.testing.checkers import FENCED_PREFIX, Checkers, Judge, Violation
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.mixes import EDGE, EVERYTHING, LEAVING, Mix, mix_named
from tenure.testing.network import Network
from tenure.testing.trouble import Trouble
from tenure.testing.world import World

ELECTION_MIXES = (EVERYTHING, EDGE, LEAVING)
_LATE_SECONDS = 40.0  # the last late landing comes this long after the last fault


class Plan(msgspec.Struct, frozen=True):
    """What every seed of a run has in common."""

    workers: int = 5
    minutes: float = 10.0
    faults: tuple[str, ...] = ()
    """Kinds of trouble; none given: all."""
    broken: str | None = None
    what: str = "election"
    """The kind of fleet: one of `fleets.FLEETS`."""
    mix: str | None = None
    """The name of one of the kind's mixes; none given: its seeds take them in turn."""
    until: str | None = None
    """A check: the seed ends as soon as it reports, and no other violation ends it."""

    def mix_of(self, seed: int, mixes: tuple[Mix, ...]) -> Mix:
        if self.faults:
            return Mix(name="given", faults=self.faults)
        return mixes[seed % len(mixes)] if self.mix is None else mix_named(mixes, self.mix)


class SeedResult(msgspec.Struct, frozen=True):
    seed: int
    violations: list[Violation]
    simulated_seconds: float
    wall_seconds: float
    faults: int
    terms: int
    coverage: dict[str, int]
    mix: str = ""
    """The name of the mix of faults that it had."""

    def has_reported(self, check: str | None) -> bool:
        return any(violation.check == check for violation in self.violations)


class Played(msgspec.Struct, frozen=True):
    """A run whose time is over, before its processes are ended."""

    judge: Judge
    network: Network
    hit: Counter[str]
    """The faults that were made, by name."""
    terms: Callable[[], int]
    seen: Callable[[Counter[str]], None] = lambda found: None
    """Adds what the kind of fleet counts itself."""
    foreseen: tuple[type[BaseException], ...] = ()
    """What may end a task."""


def play(seed: int, plan: Plan, mixes: tuple[Mix, ...], run: Callable[[World, Mix], Played]) -> SeedResult:
    """One seed of a kind of fleet: `run` plays it, and this ends it and puts the verdict together."""
    started = SYSTEM_CLOCK.read()
    with broken(plan.broken), unheard(), World(seed) as world:
        mix = plan.mix_of(seed, mixes)
        played = run(world, mix)
        simulated = world.now
        world.close()
        for host, error in world.errors:
            if not isinstance(error, played.foreseen):
                played.judge.report("defect", f"a task of {host} raised {error!r}")
        return SeedResult(
            seed=seed,
            violations=played.judge.violations,
            simulated_seconds=simulated,
            wall_seconds=SYSTEM_CLOCK.read().leader_elapsed(started),
            faults=sum(played.hit.values()),
            terms=played.terms(),
            coverage=_coverage(world, played),
            mix=mix.name,
        )


@contextlib.contextmanager
def unheard() -> Iterator[None]:
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


def run_seed(seed: int, plan: Plan) -> SeedResult:
    def run(world: World, mix: Mix) -> Played:
        random = Random(f"{seed}/scenario")
        config = _config(random).replace(**mix.settings)
        cluster = SimulatedCluster(
            world,
            plan.workers,
            config,
            work=_write_fenced,
            rate=lambda: mix.rate(random),
            wall_offset=lambda: random.choice([0.0, random.uniform(-86400, 86400), random.uniform(-20, 20)]),
            settings=lambda number: {"priority": random.choice([0, 0, 0, 1])} if number % 2 else {},
        )
        cluster.bucket.clock_offset = random.uniform(-3600, 3600)
        cluster.network.whole_second_times = random.random() < 0.5
        checkers = Checkers(cluster, plan.until)
        trouble = Trouble(cluster, random, mix)
        cluster.start()
        ends_at = plan.minutes * 60
        trouble.begin(ends_at)
        checkers.run_until(ends_at)
        if not checkers.is_settled():
            bound = liveness_bound(config)
            world.run_until(ends_at + _LATE_SECONDS + bound)
            checkers.check_liveness(bound)
        checkers.check_defects()
        return played_on(cluster, checkers, trouble.hit)

    return play(seed, plan, ELECTION_MIXES, run)


def played_on(
    cluster: SimulatedCluster,
    checkers: Checkers,
    hit: Counter[str],
    seen: Callable[[Counter[str]], None] = lambda found: None,
    foreseen: tuple[type[BaseException], ...] = (),
) -> Played:
    """Of a fleet that elects a leader."""

    def seen_of_terms(found: Counter[str]) -> None:
        for reason, count in checkers.ends.items():
            found[f"end:{reason}"] += count
        seen(found)
        found["terms"] += len(checkers.terms)

    return Played(checkers, cluster.network, hit, lambda: len(checkers.terms), seen_of_terms, foreseen)


def liveness_bound(config: CoordinatorConfig) -> float:
    """Seconds after the last fault by which somebody must lead: the lease may be damaged, and all may just start."""
    damaged = config.longest_lease_seconds * (1 + config.drift) + config.takeover_margin
    starting = config.startup_jitter_max + config.takeover_delay + 2 * config.request_timeout_seconds
    # Clocks of followers run up to one percent slow, and a wait may have begun just before the faults ended.
    return (config.worst_case_failover() + damaged + starting + config.worker_timeout) * 1.05


def _config(random: Random) -> CoordinatorConfig:
    shared = {
        "membership": random.random() < 0.7,
        "mandate_end": random.choice([MandateEnd.RENEW, MandateEnd.HAND_OVER]),
    }
    kind = random.random()
    if kind < 0.7:
        return CoordinatorConfig.standard(**shared)
    if kind < 0.95:
        return CoordinatorConfig.fast(**shared)
    return CoordinatorConfig.economical(**shared)


class _Writer:
    """Leader-only work: fenced writes, for as long as the term lasts."""

    def __init__(self, worker: SimulatedWorker) -> None:
        self._worker = worker

    async def on_become_coordinator(self, lead: Lead) -> None:
        clock = self._worker.host.clock
        self._worker.host.start(self._write_as_a_ghost(lead))
        number = 0
        while True:
            number += 1
            key = f"{FENCED_PREFIX}{number % 2}"
            try:
                if number <= 2:
                    await lead.claim(key)
                await lead.put(key, f"{lead.worker_id} {lead.epoch} {number}".encode())
            except (CoordinationError, StoreError):
                pass
            await clock.sleep(self._worker.config.lease_timeout)

    async def on_stop_being_coordinator(self) -> None:
        pass

    async def _write_as_a_ghost(self, lead: Lead) -> None:
        """A guest whose clocks were all stopped goes on writing as if it led: fences must hold against that too."""
        cluster = self._worker.cluster
        writer = FencedWriter(lead._store, Fence(lead.namespace, lead.epoch), cluster.draw_id, lambda: None)
        for number in range(3):
            await self._worker.host.clock.sleep(1.5 * self._worker.config.lease_timeout)
            try:
                await writer.put(f"{FENCED_PREFIX}{number % 2}", f"ghost of {lead.worker_id} {lead.epoch}".encode())
            except (CoordinationError, StoreError):
                pass


async def _write_fenced(worker: SimulatedWorker) -> None:
    assert worker.service is not None
    worker.service.subscribe(_Writer(worker))


def _coverage(world: World, played: Played) -> dict[str, int]:
    found: Counter[str] = Counter()
    for kind, count in played.hit.items():
        found[f"fault:{kind}"] += count
    for name, count in played.network.hits.items():
        found[f"network:{name}"] += count
    for (strike, where), count in world.strikes.items():
        for place in where.split(" | "):
            found[f"{strike}:{place}"] += count
    played.seen(found)
    return dict(sorted(found.items()))

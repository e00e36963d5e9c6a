"""One seed: a fleet, its trouble, and the verdict. The same seed gives the same run, on every machine."""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig, MandateEnd
from tenure.coordinator.fenced import Fence, FencedWriter
from tenure.coordinator.lead import Lead
from tenure.entropy import Random
from tenure.errors import CoordinationError, StoreError
from tenure.testing.broken import broken
from tenure.testing.checkers import FENCED_PREFIX, Checkers, Violation
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.mixes import EDGE, EVERYTHING, LEAVING, Mix, mix_named
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


def run_seed(seed: int, plan: Plan) -> SeedResult:
    started = SYSTEM_CLOCK.read()
    with broken(plan.broken), World(seed) as world:
        random = Random(f"{seed}/scenario")
        mix = plan.mix_of(seed, ELECTION_MIXES)
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
        simulated = world.now
        world.close()
        for host, error in world.errors:
            checkers.report("defect", f"a task of {host} raised {error!r}")
        coverage = _coverage(cluster, world, trouble, checkers)
    return SeedResult(
        seed=seed,
        violations=checkers.violations,
        simulated_seconds=simulated,
        wall_seconds=SYSTEM_CLOCK.read().leader_elapsed(started),
        faults=sum(trouble.hit.values()),
        terms=len(checkers.terms),
        coverage=coverage,
        mix=mix.name,
    )


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


def _coverage(cluster: SimulatedCluster, world: World, trouble: Trouble, checkers: Checkers) -> dict[str, int]:
    found: Counter[str] = Counter()
    for kind, count in trouble.hit.items():
        found[f"fault:{kind}"] += count
    for name, count in cluster.network.hits.items():
        found[f"network:{name}"] += count
    for (strike, where), count in world.strikes.items():
        for place in where.split(" | "):
            found[f"{strike}:{place}"] += count
    for reason, count in checkers.ends.items():
        found[f"end:{reason}"] += count
    found["terms"] += len(checkers.terms)
    return dict(sorted(found.items()))

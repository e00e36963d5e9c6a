"""A simulated fleet of any size: the production classes in one thread, on simulated time.

What differs from production, and from what the simulation does elsewhere:

- Workers share what they decode of members.json, which is the same for all: ten thousand copies of a list of ten
  thousand would take ten gigabytes. What decoding takes is measured apart (`bench.scale.leader`).
- They have no health check, as in a program that sets none.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from bench.scale.counting import CountingBucket
from bench.scale.plan import Plan
from tenure.coordinator import fleet as fleet_module
from tenure.coordinator import membership
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.layout import WORKERS
from tenure.election.rank import successor
from tenure.election.records import Member, Members, decode
from tenure.testing.bucket import Conditions, Network
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.world import World

STEP = 0.05
"""Seconds of simulated time between looks whether somebody leads."""
PATIENCE = 300.0


@contextlib.contextmanager
def shared_lists() -> Iterator[None]:
    lists: dict[bytes, Any] = {}
    heirs: dict[tuple[int, str], tuple[tuple[Member, ...], Member | None]] = {}

    def decode_once(body: bytes, kind: Any, *limit: int) -> Any:
        if kind is not Members:
            return decode(body, kind, *limit)
        if body not in lists:
            if len(lists) > 3:
                del lists[next(iter(lists))]
            lists[body] = decode(body, kind, *limit)
        return lists[body]

    def find_once(members: tuple[Member, ...], holder: str) -> Member | None:
        asked = (id(members), holder)
        if asked not in heirs:
            if len(heirs) > 10:
                del heirs[next(iter(heirs))]
            heirs[asked] = (members, successor(members, holder))  # with the list, so that its id stays its own
        return heirs[asked][1]

    with patch.object(membership, "decode", decode_once), patch.object(fleet_module, "successor", find_once):
        yield


@contextlib.contextmanager
def calm() -> Iterator[None]:
    """Without log lines, and with garbage collected seldom: looking for it takes long."""
    logger, thresholds = logging.getLogger("tenure"), gc.get_threshold()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    gc.collect()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        logger.setLevel(level)


class Fleet:
    """So many workers in one namespace, and what they ask of the store."""

    def __init__(self, world: World, size: int, plan: Plan) -> None:
        self.world = world
        self.size = size
        self.bucket = CountingBucket(world)
        self.network = Network(world, Conditions(latency=plan.latency))
        self.network.on_request = self._requested
        self.cluster = SimulatedCluster(
            world,
            size,
            CoordinatorConfig(),
            network=self.network,
            bucket=self.bucket,
            settings=lambda _: {"health_check": None},
        )
        self.workers: list[SimulatedWorker] = list(self.cluster.workers.values())
        self.reset()

    def reset(self) -> None:
        """Count from here on."""
        self.began = self.world.now
        self.verbs: Counter[str] = Counter()
        self.beats = 0
        self.writes: Counter[str] = Counter()
        self.of_second: Counter[int] = Counter()
        self.bucket.reset()

    def _requested(self, host: str, verb: str, key: str, at: float) -> None:
        self.verbs[verb] += 1
        self.of_second[int(at - self.began)] += 1
        if verb in ("create", "replace"):
            if WORKERS in key:
                self.beats += 1
            else:
                self.writes[key] += 1

    @property
    def requests(self) -> int:
        return self.verbs.total()

    @property
    def peak(self) -> int:
        """Requests in the busiest second."""
        return max(self.of_second.values(), default=0)

    def leader(self) -> SimulatedWorker | None:
        return next((worker for worker in self.workers if worker.is_leader()), None)

    def until_led(self, by_other_than: str = "") -> tuple[SimulatedWorker, float]:
        """Who leads, and when that was seen."""
        end = self.world.now + PATIENCE
        while self.world.now < end:
            self.world.run_until(self.world.now + STEP)
            leader = self.leader()
            if leader is not None and leader.name != by_other_than:
                return leader, self.world.now
        raise RuntimeError(f"of {self.size:,} workers nobody leads after {PATIENCE:g} simulated seconds")

    def start_cold(self) -> float:
        """All at once, on an empty bucket. Seconds until one leads."""
        self.cluster.start()
        return self.until_led()[1]

    def start_warm(self) -> None:
        """One leads, then the others come, and it reads all their records at once instead of some per heartbeat."""
        first, *others = self.workers
        first.start()
        self.until_led()
        with patch.object(membership, "MAX_BODIES_PER_SURVEY", self.size):
            for worker in others:
                worker.start()
            self.until_known()

    def until_known(self) -> float:
        """Until the leader knows everybody that lives, and so does whoever reads its list. Seconds."""
        began, end = self.world.now, self.world.now + 2 * PATIENCE
        alive = sum(worker.host.alive for worker in self.workers)
        while self.world.now < end:
            leader = self.leader()
            if leader is not None and all(_knows(worker, alive) for worker in (leader, self.workers[-1])):
                return self.world.now - began
            self.world.run_until(self.world.now + 1.0)
        raise RuntimeError(f"of {alive:,} workers not all are known after {2 * PATIENCE:g} simulated seconds")


def _knows(worker: SimulatedWorker, count: int) -> bool:
    engine = worker.service._engine if worker.service is not None else None
    return engine is not None and len(engine.fleet.members) == count

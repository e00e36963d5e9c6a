"""What a fleet's size costs one process in CPU: the leader at each heartbeat, a follower when the fleet changes.

The leader is the production class on simulated time, alone in its world; the records of the others are kept fresh by
the scenario, and cost it what they cost in life: a listing, and what is made of it. What the client library spends on
the answers of a server (XML, TLS) is not part of it.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.scale.counting import CountingBucket
from bench.scale.fleet import calm
from bench.scale.plan import Plan
from tenure.coordinator import membership
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.layout import MEMBERS, folder_of, worker_key
from tenure.election.rank import successor
from tenure.election.records import MAX_MEMBERS_BYTES, Members, Worker, decode, encode
from tenure.testing.bucket import Conditions, Network
from tenure.testing.cluster import SimulatedCluster
from tenure.testing.host import Host
from tenure.testing.world import World

_ALONE = 30.0
_PATIENCE = 1000.0
_BEAT = 5.0


class Stopwatch:
    """CPU time of one host's own callbacks; those of the bucket and the scenario are not its own."""

    def __init__(self, world: World, host: Host) -> None:
        self.seconds = 0.0
        self._host = host
        self._began = 0.0
        enter = host._enter

        def entered() -> None:
            enter()
            self._began = time.thread_time()

        setattr(host, "_enter", entered)  # noqa: B010 - a method of one instance
        world.on_step = self._stepped

    def _stepped(self, host: Host) -> None:
        if host is self._host:
            now = time.thread_time()
            self.seconds += now - self._began
            self._began = now


def leader_cpu(size: int, plan: Plan) -> dict[str, Any]:
    """Of one leader with `size - 1` others."""
    with calm(), World(plan.seed) as world, patch.object(membership, "MAX_BODIES_PER_SURVEY", size):
        bucket = CountingBucket(world)
        bucket.reset()
        network = Network(world, Conditions(latency=plan.latency))
        cluster = SimulatedCluster(
            *(world, 1, CoordinatorConfig()),
            bucket=bucket,
            network=network,
            settings=lambda _: {"health_check": None},
        )
        folder = folder_of("default")
        bodies = {folder + worker_key(f"w{number:06d}"): _record(number) for number in range(size - 1)}

        def freshen() -> None:
            for key, body in bodies.items():
                bucket._write(key, body, "others", "put")
            world.call_at(world.now + _BEAT, freshen)

        cluster.start()
        world.run_until(_ALONE)  # it leads before the others come
        freshen()
        (worker,) = cluster.workers.values()
        assert worker.service is not None
        engine = worker.service._engine
        assert engine is not None
        # It reads all records once, some at a time, in as long as that takes.
        end = world.now + _PATIENCE
        while len(engine.fleet.members) != size and world.now < end:
            world.run_until(world.now + _BEAT)
        world.run_until(world.now + 4 * _BEAT)
        if not worker.is_leader() or len(engine.fleet.members) != size:
            raise RuntimeError(f"the leader knows {len(engine.fleet.members):,} of {size:,} workers")
        took: list[float] = []
        noted = engine._metrics.heartbeat

        def heartbeat(seconds: float, at: float) -> None:
            took.append(seconds)
            noted(seconds, at)

        setattr(engine._metrics, "heartbeat", heartbeat)  # noqa: B010
        watch = Stopwatch(world, worker.host)
        cpu: list[float] = []
        while len(cpu) < plan.cycles:
            before, cycles = watch.seconds, len(took)
            while len(took) == cycles:
                world.run_until(world.now + 0.25)
            cpu.append(watch.seconds - before)
        body = bucket.body(folder + MEMBERS)
        assert body is not None
    return {
        "workers": size,
        "cpu_ms_per_cycle": round(median(cpu) * 1000, 3),
        "cpu_us_per_worker": round(median(cpu) / size * 1e6, 3),
        "cycle_ms": round(median(took) * 1000, 1),
        "members_bytes": len(body),
        "follower_ms_per_change": follower_ms(body),
        "samples_cpu_ms": [round(seconds * 1000, 3) for seconds in cpu],
        "samples_cycle_ms": [round(seconds * 1000, 2) for seconds in took],
    }


def follower_ms(body: bytes, times: int = 5) -> float | None:
    """CPU of reading the list of members, and finding out who is next. `None`: too long to be read at all."""
    if len(body) > MAX_MEMBERS_BYTES:
        return None
    samples = []
    for _ in range(times):
        began = time.thread_time()
        record = decode(body, Members, MAX_MEMBERS_BYTES)
        assert isinstance(record, Members)
        successor(record.members, "")
        samples.append(time.thread_time() - began)
    return round(median(samples) * 1000, 3)


def _record(number: int) -> bytes:
    return encode(Worker(write_id=f"{number:032x}", worker_id=f"w{number:06d}", uid=f"{number:032x}", ordinal=1))

"""A fleet of simulated processes that run the production service, on one simulated bucket.

with World(seed) as world:
    cluster = SimulatedCluster(world, 3, CoordinatorConfig.fast())
    cluster.start()
    world.run_until(10)
    assert len(cluster.leaders()) == 1
    cluster.crash(cluster.leaders()[0])
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from tenure.coordinator.config import CoordinatorConfig, Hosting
from tenure.coordinator.layout import folder_of
from tenure.coordinator.lead import Lead
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.entropy import Random
from tenure.errors import CoordinationError, StoreError
from tenure.testing.bucket import Network, SimulatedBucket, SimulatedStore
from tenure.testing.host import Host
from tenure.testing.world import World

Work = Callable[["SimulatedWorker"], Coroutine[Any, Any, None]]


class SimulatedWorker:
    """One member of the fleet. A restart makes a new process on the same machine, with the same worker id."""

    def __init__(self, cluster: SimulatedCluster, host: Host, config: CoordinatorConfig) -> None:
        self.cluster = cluster
        self.host = host
        self.config = config
        self.healthy = True
        self.starts = 0
        self.service: GlobalCoordinatorService | None = None

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def lead(self) -> Lead | None:
        """Its current or last term; `None` for a dead process, whatever it had."""
        service = self.service
        if service is None or not self.host.alive or service._engine is None:
            return None
        return service._engine.lead

    def is_leader(self) -> bool:
        lead = self.lead
        return lead is not None and lead.is_current()

    def holds_lease(self) -> bool:
        lead = self.lead
        return lead is not None and lead.holds()

    def start(self) -> None:
        """A new process start, if it is not alive and running."""
        if not self.host.alive:
            self.host = self.host.respawn()
            self.service = None
        if self.service is None:
            self.starts += 1
            self.host.start(self._live())

    async def _live(self) -> None:
        cluster = self.cluster
        number = f"{self.name}-{self.starts}"
        service = GlobalCoordinatorService(
            SimulatedStore(cluster.bucket, self.host, cluster.network),
            cluster.namespace,
            self.config,
            clock=self.host.clock,
            random=Random(f"{cluster.world.seed}/{number}"),
            draw_id=cluster.draw_id,
        )
        self.service = service
        while True:
            try:
                await service.start()
                break
            except StoreError:
                await self.host.clock.sleep(1.0)
        if self.service is not service:
            await service.stop()  # asked to leave before it had begun
        elif cluster.work is not None:
            await cluster.work(self)

    def stop(self) -> None:
        """Ask it to leave politely. It is not restarted by itself."""
        service = self.service
        if service is not None and self.host.alive:
            self.host.start(self._leave(service))

    async def _leave(self, service: GlobalCoordinatorService) -> None:
        await service.stop()
        if self.service is service:
            self.service = None

    def step_down(self) -> None:
        service = self.service
        if service is not None and self.host.alive:
            self.host.start(self._step_down(service))

    async def _step_down(self, service: GlobalCoordinatorService) -> None:
        await _quietly(service.step_down())

    def crash(self) -> None:
        self.host.crash()


class SimulatedCluster:
    """Workers `a`, `b`, … in one namespace."""

    def __init__(
        self,
        world: World,
        workers: int = 3,
        config: CoordinatorConfig | None = None,
        *,
        namespace: str = "default",
        network: Network | None = None,
        bucket: SimulatedBucket | None = None,
        work: Work | None = None,
        rate: Callable[[], float] = lambda: 1.0,
        wall_offset: Callable[[], float] = lambda: 0.0,
        settings: Callable[[int], dict[str, Any]] = lambda _: {},
    ) -> None:
        """`work` runs in each process after its start; `rate`, `wall_offset` and `settings` differ by worker."""
        self.world = world
        self.namespace = namespace
        self.folder = folder_of(namespace)
        self.config = (config if config is not None else CoordinatorConfig()).replace(hosting=Hosting.LOOP)
        self.network = network if network is not None else Network(world)
        self.bucket = bucket if bucket is not None else SimulatedBucket(world)
        self.work = work
        self._ids = Random(f"{world.seed}/ids")
        self.workers: dict[str, SimulatedWorker] = {}
        for number, name in zip(range(workers), _names(), strict=False):
            host = world.host(name, rate=rate(), wall_offset=wall_offset())
            worker = SimulatedWorker(self, host, self.config)
            worker.config = self.config.replace(
                **({"worker_id": name, "health_check": lambda worker=worker: worker.healthy} | settings(number))
            )
            self.workers[name] = worker

    def start(self) -> None:
        for worker in self.workers.values():
            worker.start()

    def crash(self, name: str) -> None:
        self.workers[name].crash()

    def leaders(self) -> list[str]:
        """Who would say, at this instant, that it leads."""
        return [name for name, worker in self.workers.items() if worker.is_leader()]

    def holders(self) -> list[str]:
        """For whom the lease is valid at this instant; one more may be winding up than leads."""
        return [name for name, worker in self.workers.items() if worker.holds_lease()]

    def draw_id(self) -> str:
        return f"{self._ids.getrandbits(128):032x}"

    def key(self, name: str) -> str:
        """The full key of an object of the namespace, such as `state.json`."""
        return self.folder + name


def _names() -> Iterator[str]:
    """Of one letter, then of two, and so on, without end."""
    for length in itertools.count(1):
        for letters in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=length):
            yield "".join(letters)


async def _quietly(request: Coroutine[Any, Any, Any]) -> None:
    """Whoever asks for something in the middle of trouble may be refused."""
    try:
        await request
    except (CoordinationError, StoreError):
        pass

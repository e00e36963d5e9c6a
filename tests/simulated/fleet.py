"""A fleet of whole coordinators in simulated time, and what a test wants to know about it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tenure.coordinator.config import CoordinatorConfig, Hosting
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.entropy import Random
from tenure.testing import Host, Network, SimulatedBucket, SimulatedStore, World

T = TypeVar("T")

QUICK = CoordinatorConfig(startup_jitter_max=0.5, hosting=Hosting.LOOP)
"""The defaults, but for workers that start nearly together: within one `takeover_delay`."""


class Plugin:
    """A subscriber that notes what it is told."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.calls: list[str] = []
        self.times: list[float] = []
        self.epochs: list[int] = []
        self._clock = clock

    def on_become_coordinator(self, lead: Any) -> Any:
        self.epochs.append(lead.epoch)
        self._note("become")

    def on_stop_being_coordinator(self) -> Any:
        self._note("stop")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.times.append(self._clock())


class Node:
    """One process of the fleet: its host, its coordinator, and every event that it emitted, with the true time."""

    def __init__(
        self, fleet: Fleet, host: Host, namespace: str, config: CoordinatorConfig, number: int, bare: bool = False
    ) -> None:
        """`bare`: it is left to others to start its coordinator, and to subscribe."""
        self.fleet = fleet
        self.host = host
        self.name = config.worker_id or host.name
        self.number = number
        ids = itertools.count(1)
        self.service = GlobalCoordinatorService(
            SimulatedStore(fleet.bucket, host, fleet.network),
            namespace,
            config,
            clock=host.clock,
            random=Random(f"{fleet.world.seed}/{host.name}/{number}"),
            draw_id=lambda: f"{host.name}-{number}-{next(ids):06d}",  # of one length, as real ones are
        )
        self.events: list[tuple[float, Any]] = []
        self.plugin = Plugin(lambda: fleet.world.now)
        self._starting = host.start(self._start(bare))

    async def _start(self, bare: bool) -> None:
        self.service.on("*", lambda event: self.events.append((self.fleet.world.now, event)))
        if not bare:
            self.service.subscribe(self.plugin)
            await self.service.start()

    def named(self, *names: str) -> list[Any]:
        """Its events of these names."""
        return [event for _, event in self.events if event.name in names]

    def when(self, name: str) -> float:
        """When it first emitted this."""
        return next(at for at, event in self.events if event.name == name)

    @property
    def leads(self) -> bool:
        """What `is_leader()` would say, without asking it: an answer of false is remembered, and may hide a defect."""
        engine = self.service._engine
        lead = engine.lead if engine is not None and self.host.alive else None
        return lead is not None and lead.ended is None and lead.holding.leading(self.host.clock.read()) > 0

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have something done on this process's loop."""
        return self.host.start(work)

    def done(self, work: Coroutine[Any, Any, T], within: float = 60.0) -> T:
        """The same, and let time pass until it is done."""
        task = self.run(work)
        end = self.fleet.world.now + within
        while not task.done() and self.fleet.world.now < end:
            self.fleet.run(0.05)
        assert task.done(), f"not done within {within} s"
        return task.result()


class Fleet:
    """`with Fleet() as fleet: fleet.join("a"); fleet.run(10)`. Two leaders at one instant end the test."""

    def __init__(self, seed: int = 1, config: CoordinatorConfig = QUICK, namespace: str = "default") -> None:
        self.world = World(seed)
        self.bucket = SimulatedBucket(self.world)
        self.network = Network(self.world)
        self.config = config
        self.namespace = namespace
        self.nodes: dict[str, Node] = {}
        self.terms: list[tuple[float, str, int]] = []
        """(true time, worker, epoch) of each leadership that began."""
        self._numbers = itertools.count(1)
        self.world.on_step = self._check

    def join(
        self, name: str, *, host: Host | None = None, namespace: str | None = None, bare: bool = False, **changes: Any
    ) -> Node:
        """A process with this worker id (and host, if none is given)."""
        config = self.config.replace(**({"worker_id": name} | changes))
        number = next(self._numbers)
        if host is None:
            host = self.world.host(name if name not in self.world.hosts else f"{name}.{number}")
        node = Node(self, host, namespace or self.namespace, config, number, bare)
        self.nodes[name if name not in self.nodes else f"{name}.{number}"] = node
        return node

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)

    def until(self, condition: Callable[[], object], within: float = 120.0) -> float:
        """Let time pass until it holds; gives how long that took."""
        began = self.world.now
        while not condition():
            assert self.world.now - began < within, f"did not happen within {within} s"
            self.run(0.05)
        return self.world.now - began

    @property
    def leader(self) -> Node | None:
        return next((node for node in self.nodes.values() if node.leads), None)

    def lead(self, within: float = 120.0) -> Node:
        """Let time pass until somebody leads."""
        self.until(lambda: self.leader, within)
        assert self.leader is not None
        return self.leader

    def path(self, key: str, namespace: str | None = None) -> str:
        return f"plugin=coordinator/namespace={namespace or self.namespace}/{key}"

    def json(self, key: str, namespace: str | None = None) -> dict[str, Any]:
        body = self.bucket.body(self.path(key, namespace))
        assert body is not None, f"there is no {key}"
        found: dict[str, Any] = json.loads(body)
        return found

    def epochs(self) -> list[int]:
        return [epoch for _, _, epoch in self.terms]

    def requests(self, name: str) -> Counter[str]:
        return Counter({verb: count for (host, verb), count in self.network.requests.items() if host == name})

    def _check(self, host: Host) -> None:
        for namespace in {node.service.namespace for node in self.nodes.values()}:
            leading = [node for node in self.nodes.values() if node.service.namespace == namespace and node.leads]
            assert len(leading) < 2, f"{[node.name for node in leading]} both lead at {self.world.now}"
            if leading:
                lead = leading[0].service._engine.lead  # type: ignore[union-attr]
                assert lead is not None
                mark = (leading[0].name, lead.epoch)
                if mark not in [(name, epoch) for _, name, epoch in self.terms[-3:]]:
                    self.terms.append((self.world.now, *mark))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.world.close()
        if kind is None:
            assert self.world.errors == []

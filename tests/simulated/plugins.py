"""Plugins on whole coordinators in simulated time: a process is a `Fleet` node without a subscriber of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.plugin import CoordinatorPlugin
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.entropy import Random
from tenure.testing import SimulatedStore

from .fleet import Fleet, Node


class Home:
    """What a plugin needs of its database, made of one simulated process."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.clock = node.host.clock
        self.worker_id = node.name
        self.store = SimulatedStore(node.fleet.bucket, node.host, node.fleet.network)
        self.random = Random(f"home of {node.name}")
        ids = itertools.count(1)
        self.draw_id = lambda: f"home-{node.name}-{node.number}-{next(ids):06d}"

    async def get_global_coordinator(
        self, namespace: str = "default", *, config: CoordinatorConfig | None = None
    ) -> GlobalCoordinatorService:
        return self.node.service


class Noting(CoordinatorPlugin):
    """Notes what it is told, with the true time."""

    slug = "noting"

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"skip_cold_start": True} | options))
        self.notes: list[tuple[float, str]] = []
        self.now: Callable[[], float] = lambda: 0.0
        self.work: Callable[[], Coroutine[Any, Any, None]] | None = None

    def note(self, what: str) -> None:
        self.notes.append((self.now(), what))

    def said(self) -> list[str]:
        return [what for _, what in self.notes]

    def when(self, what: str) -> float:
        return next(at for at, noted in self.notes if noted == what)

    async def on_become_coordinator(self) -> None:
        self.note("become")

    async def on_stop_being_coordinator(self) -> None:
        self.note("stop")

    async def coordinator_work(self) -> None:
        self.note("work")
        if self.work is not None:
            try:
                await self.work()
            except asyncio.CancelledError:
                self.note("cancelled")
                raise
        self.note("worked")


def give(fleet: Fleet, node: Node, plugin: CoordinatorPlugin, name: str | None = None) -> CoordinatorPlugin:
    """Have `node` use the plugin."""
    plugin.attach(Home(node), name or plugin.slug)
    if isinstance(plugin, Noting):
        plugin.now = lambda: fleet.world.now
    node.run(plugin.start())
    return plugin

"""A fleet that uses everything at once, in simulated time: what a bucket looks like that is in use."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from types import TracebackType
from typing import Any

from tenure.coordinator.config import CoordinatorConfig, Hosting
from tenure.coordinator.lock import DistributedLock
from tenure.database.resource import Resource
from tenure.database.storage import PluginStorage
from tenure.errors import TenureError
from tenure.ledger import LedgerConfig
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin, every
from tenure.plugins.ttl import OnExpire, TTLPlugin
from tenure.store import Store
from tenure.testing.bucket import Write

from .fleet import Fleet, Node
from .plugins import Home

CONFIG = CoordinatorConfig.fast(startup_jitter_max=0.2, hosting=Hosting.LOOP)
LEDGER = LedgerConfig(
    trim_delay=10.0, retention=90.0, snapshot_every=8, snapshot_age=10.0, send_timeout=4.0, give_up_after=8.0
)
QUEUE, SCHEDULE, RECORDS, COUNTED = "jobs", "nightly", "sessions", "pages"
LEDGERS = {
    "s3-queue": f"plugin=s3-queue/name={QUEUE}/",
    "scheduler": f"plugin=scheduler/name={SCHEDULE}/",
    "ttl": f"plugin=ttl/name={RECORDS}/",
    "eventual-consistency": f"plugin=eventual-consistency/name={COUNTED}/",
}


class _Said(logging.Handler):
    """What was logged, as text, and how often."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.counts[f"{record.levelname} {record.getMessage()}"] += 1


class Everything(Home):
    """A database, as much of it as plugins need: with resources."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.plugins: dict[tuple[str, str], Any] = {}
        self._resources: dict[str, Resource[Any]] = {}

    def resource(self, name: str, schema: type[Any] | None = None, *, reuse_ids: bool = True) -> Resource[Any]:
        if name not in self._resources:
            self._resources[name] = Resource(
                self.store, name, schema, reuse_ids=reuse_ids, clock=self.clock, draw_id=self.draw_id
            )
        return self._resources[name]

    def opened_resource(self, name: str) -> Resource[Any] | None:
        return self._resources.get(name)


class WorkingFleet(Fleet):
    """Processes with a queue, a schedule, records that expire, counters, a storage, a lock and fenced writes.

    What goes on is counted in `done`; what was logged at warning or above is in `said`, what fell over in `fell`.
    """

    def __init__(self, seed: int = 1, names: str = "ab", *, failing: bool = False) -> None:
        """`failing`: some callbacks of records that expired do."""
        super().__init__(seed, CONFIG)
        self._failing = failing
        self.done: Counter[str] = Counter()
        self.fell: Counter[str] = Counter()
        self.halts: Counter[str] = Counter()
        self.bodies: dict[str, list[bytes]] = {}
        """Every body that was ever written, by key."""
        self.homes: dict[str, Everything] = {}
        self._said = _Said(logging.WARNING)
        self._log = logging.getLogger("tenure")
        self._log.addHandler(self._said)
        self.bucket.watchers.append(self._wrote)
        for name in names:
            self.add(name)

    @property
    def said(self) -> Counter[str]:
        return self._said.counts

    def add(self, name: str) -> Node:
        node = self.join(name, bare=True)
        home = self.homes[name] = Everything(node)
        queue = S3QueuePlugin(
            QUEUE,
            ledger=LEDGER,
            shutdown_timeout=2.0,
            visibility_timeout=5.0,
            result_retention=600.0,
            tick_interval=0.4,
            load_interval=0.4,
            poll_interval=0.5,
            idle_budget=3600.0,
        )
        schedule = SchedulerPlugin(ledger=LEDGER, shutdown_timeout=2.0, idle_budget=3600.0)
        ttl = TTLPlugin(
            RECORDS,
            ttl=5.0,
            tick=1.0,
            quarantine=60.0,
            ledger=LEDGER,
            shutdown_timeout=2.0,
            on_expire=OnExpire.CALLBACK,
            callback=self._expired,
            max_attempts=1,
        )
        counters = EventualConsistencyPlugin(COUNTED, ["views"], ledger=LEDGER, shutdown_timeout=2.0, interval=1.0)

        async def handle(message: Message) -> dict[str, int]:
            self.done["handled"] += 1
            return {"n": message.body["n"]}

        def fire() -> None:
            self.done["fired"] += 1

        queue.handler(handle)
        schedule.job(every(2), id="beat")(fire)
        home.resource(RECORDS)
        home.resource(COUNTED)

        async def run_now() -> None:
            await schedule.run_now("beat", wait=False)

        async def clean_up() -> None:
            await ttl.run_cleanup()

        async def live() -> None:
            for plugin, called in ((queue, QUEUE), (schedule, SCHEDULE), (ttl, RECORDS), (counters, COUNTED)):
                plugin.attach(home, called)
                home.plugins[plugin.slug, called] = plugin
                node.service.on(f"plg:{plugin.slug}:halted", lambda event: self.halts.update([event.event.reason]))
                node.run(self._start(node, plugin))
            self._use(node, home, queue, counters)
            node.run(self._again_and_again(node, run_now, 7.0))
            node.run(self._again_and_again(node, clean_up, 7.0))

        node.run(live())
        return node

    async def _start(self, node: Node, plugin: Any) -> None:
        while True:
            try:
                await plugin.start()
            except TenureError as error:
                self.fell[f"start of {plugin.slug}: {type(error).__name__}"] += 1
                await node.host.clock.sleep(2.0)
            else:
                return

    def _use(self, node: Node, home: Everything, queue: S3QueuePlugin, counters: EventualConsistencyPlugin) -> None:
        """What the program around it does: each thing on its own, so that one which fails stops no other."""
        storage = PluginStorage(home.store, "kept", "things", clock=home.clock, draw_id=home.draw_id)
        lock = DistributedLock(
            home.store,
            "door",
            owner=f"worker {node.host.name}",
            ttl=2.0,
            timeout=5.0,
            clock=home.clock,
            random=home.random,
            draw_id=home.draw_id,
            hosting=Hosting.LOOP,
        )

        async def enqueue() -> None:
            await queue.enqueue({"n": next(numbers)})

        async def count() -> None:
            await counters.add("front", "views", 1)

        async def insert() -> None:
            await home.resource(RECORDS).insert({"n": next(numbers)})

        async def list_records() -> None:
            await home.resource(RECORDS).list(limit=5)

        async def store() -> None:
            await storage.set("last", next(numbers))
            await storage.get("last")

        async def hold() -> None:
            async with lock:
                pass

        async def write_fenced() -> None:
            lead = node.service.lead
            if lead is not None and node.service.is_leader():
                await lead.put("fenced", b"by the leader")

        numbers = itertools.count(1)
        for action in (enqueue, count, insert, list_records, store, hold, write_fenced):
            node.run(self._again_and_again(node, action))

    async def _again_and_again(self, node: Node, action: Any, pause: float = 1.0) -> None:
        name = action.__name__
        while True:
            await node.host.clock.sleep(pause)
            try:
                await action()
            except TenureError as error:
                self.fell[f"{name}: {type(error).__name__}"] += 1
            else:
                self.done[name] += 1

    async def _expired(self, expired: Any) -> None:
        self.done["expired"] += 1
        if self._failing and self.done["expired"] % 5 == 0:
            raise RuntimeError("this one cannot be seen to")

    def _wrote(self, write: Write) -> None:
        if write.new is not None:
            self.bodies.setdefault(write.key, []).append(write.new)

    def store_of(self, name: str) -> Store:
        return self.homes[name].store

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._log.removeHandler(self._said)
        super().__exit__(kind, error, traceback)

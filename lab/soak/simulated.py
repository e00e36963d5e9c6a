"""Days of a fleet that works, in simulated time: the production classes, and what they hold.

Three processes have an election, a queue, a schedule, counters and records that expire. A moderate load goes on all the
time; now and then whoever leads crashes and comes back, or steps down. All live in one Python process, so memory is
that of the whole fleet: what Python has allocated, and what its garbage collector knows. Between two samples every
process may be in another role; their sum is the same.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from lab.soak.fleet import Report, Turn, folder_of
from lab.soak.judge import Limit, Series, judge_all
from tenure.coordinator.config import CoordinatorConfig
from tenure.database.resource import Resource
from tenure.entropy import Random
from tenure.errors import TenureError
from tenure.ledger import LedgerConfig
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.counters.settings import Retention
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin, every
from tenure.plugins.ttl import TTLPlugin
from tenure.simulate.stage import Home
from tenure.testing.bucket import SimulatedStore
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host
from tenure.testing.world import World

LIMITS: dict[str, Limit] = {
    "blocks": Limit(3000, share=0.02),
    "objects": Limit(1500, share=0.02),
    "tasks": Limit(2, share=0.05),
    "bucket": Limit(5, share=0.1),
    "bucket/terms": Limit(0),
}
BROKEN = {
    "leaks-memory": "keeps ten objects more at every turn of its load",
    "leaks-tasks": "begins a task at every tenth turn of its load, which never ends",
    "leaks-objects": "leaves an object in the bucket at every turn of its load",
}
PLUGINS = ("s3-queue", "scheduler", "eventual-consistency", "ttl")
_PAGES = "bucket/eventual-consistency/pages"
RECORDS = 20
WORKERS = 3


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """All in simulated seconds."""

    length: float
    warm_up: float
    sample: float
    turn: float
    """Between two failovers."""
    load: float
    """Between two calls of each kind, in each process: on average."""
    remembered: float
    """For how long results, `op_id`s and producers are kept."""
    lease: float
    trim_delay: float


DAYS = Pace(
    length=8 * 86400.0,
    warm_up=86400.0,
    sample=3600.0,
    turn=3 * 3600.0,
    load=240.0,
    remembered=3600.0,
    lease=90.0,
    trim_delay=198.0,
)
HOURS = Pace(
    length=5 * 3600.0,
    warm_up=1.5 * 3600.0,
    sample=200.0,
    turn=240.0,
    load=60.0,
    remembered=600.0,
    lease=30.0,
    trim_delay=300.0,
)
"""For a test. Nobody leads for as long as `trim_delay`, nor for as long as a queue's leader waits between two looks for
old results: both must be seen to all the same."""


class _Home(Home):
    """With resources."""

    def __init__(self, cluster: SimulatedCluster, host: Host, service: Any) -> None:
        super().__init__(cluster, host, service)
        self._resources: dict[str, Resource[Any]] = {}

    def resource(self, name: str, schema: type[Any] | None = None, *, reuse_ids: bool = True) -> Resource[Any]:
        if name not in self._resources:
            self._resources[name] = Resource(
                self.store, name, schema, reuse_ids=reuse_ids, clock=self.clock, draw_id=self.draw_id
            )
        return self._resources[name]

    def opened_resource(self, name: str) -> Resource[Any] | None:
        return self._resources.get(name)


class SimulatedSoak:
    def __init__(self, pace: Pace, *, seed: int = 1, broken: tuple[str, ...] = ()) -> None:
        self.pace = pace
        self.broken = broken
        self.world = World(seed)
        config = CoordinatorConfig.for_lease(pace.lease)
        self.cluster = SimulatedCluster(self.world, WORKERS, config, work=self._work)
        self.ledger = LedgerConfig(retention=pace.remembered, trim_delay=pace.trim_delay, snapshot_every=200)
        self.series: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.done: Counter[str] = Counter()
        self.halts: Counter[str] = Counter()
        self.turns: list[Turn] = []
        self._kept: list[Any] = []
        self._epochs: dict[float, int] = {}

    def run(self, tell: Callable[[str], None] = lambda line: None) -> Report:
        logger, level = logging.getLogger("tenure"), logging.getLogger("tenure").level
        logger.setLevel(logging.CRITICAL)
        try:
            self.cluster.start()
            self._later(1.5 * self.pace.turn, self._disturb)
            began = time.monotonic()
            while self.world.now < self.pace.length:
                self.world.run_until(min(self.pace.length, self.world.now + self.pace.sample))
                self._look()
                if len(self.series["all", "tasks"]) % 24 == 0:
                    tell(f"{self.world.now / 86400:.2f} days in {time.monotonic() - began:.0f} s: {self._line()}")
        finally:
            logger.setLevel(level)
            self.world.close()
        judged = dict(self.series)
        # One for each leadership, for ever (EL-18): so many there must be, and no more.
        terms = judged.pop(("all", "bucket/terms"))
        judged["all", "bucket/terms"] = [(at, value - self._epochs[at]) for at, value in terms]
        if pages := judged.get(("all", _PAGES)):
            judged["all", _PAGES] = less_days(pages)
        return Report(
            kind="simulated",
            store="simulated",
            minutes=self.pace.length / 60,
            warm_up=self.pace.warm_up,
            nodes=WORKERS,
            broken=list(self.broken),
            rows=judge_all(judged, LIMITS, after=self.pace.warm_up),
            terms=self._epochs[self.world.now],
            turns=self.turns,
            failures=self._failures(),
            series={" ".join(key): value for key, value in sorted(self.series.items())},
        )

    def _failures(self) -> list[str]:
        """A fleet that does nothing holds nothing: it must have worked."""
        failures = [f"halted: {reason}" for reason in self.halts]
        expected = self.pace.length / self.pace.load * WORKERS / 2
        failures += [
            f"{what} only {self.done[what]} times, and {expected:.0f} are the least"
            for what in ("enqueued", "handled", "counted", "inserted")
            if self.done[what] < expected
        ]
        if self.done["fired"] < self.pace.length / self.pace.load / 2:
            failures.append(f"fired only {self.done['fired']} times")
        failures += [f"a task of {host} raised {error!r}" for host, error in self._unforeseen()]
        return failures[:20]

    def _unforeseen(self) -> list[tuple[str, BaseException]]:
        return [(host, error) for host, error in self.world.errors if not isinstance(error, TenureError)]

    # Load

    async def _work(self, worker: SimulatedWorker) -> None:
        assert worker.service is not None
        home, host, pace = _Home(self.cluster, worker.host, worker.service), worker.host, self.pace
        looks = 3600.0 / pace.load * 4
        queue = S3QueuePlugin(
            "jobs",
            ledger=self.ledger,
            dedup_window=pace.remembered,
            result_retention=pace.remembered,
            idle_budget=max(12.0, looks),
            tick_interval=0.5,
            poll_interval=1.0,
        )
        schedule = SchedulerPlugin(ledger=self.ledger, idle_budget=max(12.0, looks))
        counters = EventualConsistencyPlugin(
            "pages",
            ["views"],
            ledger=self.ledger,
            interval=pace.load / 4,
            dedup_window=pace.remembered,
            idle_budget=max(12.0, looks),
            retention=Retention(hours=6, days=1, months=1),
        )
        ttl = TTLPlugin(
            "sessions", ttl=4 * pace.load, tick=pace.load / 2, quarantine=pace.remembered, ledger=self.ledger
        )

        async def handle(message: Message) -> str:
            self.done["handled"] += 1
            return message.id

        def fire() -> None:
            self.done["fired"] += 1

        queue.handler(handle)
        schedule.job(every(pace.load), id="beat", history=20)(fire)
        for plugin, name in ((queue, "jobs"), (schedule, "nightly"), (counters, "pages"), (ttl, "sessions")):
            home.resource(name)
            plugin.attach(home, name)
            home.plugins[plugin.slug, name] = plugin
            while True:
                try:
                    await plugin.start()
                    break
                except TenureError:
                    await host.clock.sleep(5.0)
            plugin.on(f"plg:{plugin.slug}:halted", lambda event: self.halts.update([str(event.event.reason)]))
        random = Random(f"{self.world.seed}/{worker.name}/{worker.starts}")
        life = f"{worker.name}{worker.starts}"
        host.start(self._use(host, random, home, queue, counters, life))

    async def _use(
        self,
        host: Host,
        random: Random,
        home: _Home,
        queue: S3QueuePlugin,
        counters: EventualConsistencyPlugin,
        life: str,
    ) -> None:
        number = 0
        while True:
            await host.clock.sleep(random.uniform(0.5, 1.5) * self.pace.load)
            number += 1
            op_id = f"{life}-{number}"
            try:
                await queue.enqueue({"n": number}, dedup_key=op_id)
                self.done["enqueued"] += 1
                await counters.add(f"page{random.randrange(RECORDS)}", "views", 1, op_id=op_id)
                self.done["counted"] += 1
                await home.resource("sessions").insert({"n": number})
                self.done["inserted"] += 1
            except TenureError:
                self.done["failed"] += 1
            await self._leak(home.store, host, op_id, number)

    async def _leak(self, store: SimulatedStore, host: Host, name: str, number: int) -> None:
        if "leaks-memory" in self.broken:
            self._kept += [[name, each] for each in range(10)]
        if "leaks-tasks" in self.broken and number % 10 == 0:
            self._kept.append(host.start(_never()))
        if "leaks-objects" in self.broken:
            await store.put(f"leak/{name}", b"x")

    # Failovers

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.world.call_at(self.world.now + seconds, call)

    def _disturb(self) -> None:
        self._later(self.pace.turn, self._disturb)
        leaders = self.cluster.leaders()
        if not leaders:
            return
        worker = self.cluster.workers[leaders[0]]
        if len(self.turns) % 2:
            worker.crash()
            self._later(0.5 * self.pace.lease, worker.start)
        else:
            worker.step_down()
        self.turns.append(Turn(self.world.now, "crash" if len(self.turns) % 2 else "step-down"))

    # Samples

    def _look(self) -> None:
        now = self.world.now
        counts: Counter[str] = Counter()
        epoch = 0
        for key in self.cluster.bucket.keys(""):
            folder = folder_of(key)
            counts[folder] += 1
            if folder == "terms":
                epoch = max(epoch, int(key.rpartition("/")[2].removesuffix(".json")))
        self._epochs[now] = epoch
        for folder in counts.keys() | {what.partition("/")[2] for _, what in self.series if "/" in what}:
            self._note(f"bucket/{folder}", counts[folder])
        tasks = sum(1 for host in self.world.hosts.values() for task in host._tasks if not task.done())
        self._note("tasks", tasks)
        own = sum(len(each) for each in self.series.values())
        gc.collect()
        # What is kept of each sample is ours, and not the fleet's: a tuple and its numbers.
        self._note("objects", len(gc.get_objects()) - own - len(self.turns))
        self._note("blocks", sys.getallocatedblocks() - 3 * own - 3 * len(self.turns))

    def _note(self, what: str, value: float) -> None:
        self.series.setdefault(("all", what), []).append((self.world.now, value))

    def _line(self) -> str:
        last = {what: each[-1][1] for (_, what), each in self.series.items()}
        there = sum(value for what, value in last.items() if what.startswith("bucket/"))
        return f"{last['blocks']:,.0f} blocks, {last['tasks']:.0f} tasks, {there:.0f} objects in the bucket"


def less_days(pages: Series) -> list[tuple[float, float]]:
    """The history of a counter has a page for each day until its month is over, when they are put together: so many
    more there must be, and no more. (That months end is seen by `tests/unit/test_counters_pages.py`.)"""
    return [(at, value - at // 86400) for at, value in pages]


async def _never() -> None:
    await asyncio.Event().wait()

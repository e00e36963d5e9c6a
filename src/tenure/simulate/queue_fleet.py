"""The fleet of a queue's seed: processes that handle, lead and enqueue, one that only enqueues, and their trouble."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.entropy import Random
from tenure.errors import CoordinationError, StoreError, TenureError
from tenure.ledger import LedgerConfig
from tenure.ledger.layout import ledger_folder
from tenure.plugins.queue import Message, Outgoing, Reject, S3QueuePlugin
from tenure.plugins.queue.records import ref_of
from tenure.simulate.queue_judge import Judge
from tenure.testing.bucket import SimulatedStore
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host

QUEUE = "jobs"
FOLDER = ledger_folder("s3-queue", QUEUE)
LATE_SECONDS = 45.0
"""After so many the last write that was held up has landed."""
KEYS = 3
DEDUP_WINDOW = 3600.0
LONGEST_VISIBILITY = 20.0


class Home:
    """What a plugin needs of a database, made of one simulated process."""

    def __init__(self, cluster: SimulatedCluster, host: Host, service: GlobalCoordinatorService | None) -> None:
        self.clock = host.clock
        self.worker_id = host.name
        self.store = SimulatedStore(cluster.bucket, host, cluster.network)
        self.random = Random(f"{cluster.world.seed}/{host.name}/{cluster.draw_id()}")
        self.draw_id = cluster.draw_id
        self._service = service

    async def get_global_coordinator(
        self, namespace: str = "default", *, config: CoordinatorConfig | None = None
    ) -> GlobalCoordinatorService:
        assert self._service is not None
        return self._service

    def plugin_storage(self, slug: str, name: str) -> Any:
        raise NotImplementedError


class Kind:
    """What sets one seed's queue apart from another's. A stream of its own: nothing else of a seed depends on it."""

    def __init__(self, seed: int) -> None:
        random = Random(f"{seed}/queue kind")
        self.at_most_once = random.random() < 0.15
        self.results = random.random() < 0.25
        self.commands = random.random() < 0.5
        self.purges = self.commands and random.random() < 0.5


class Scenario:
    """One fleet with a queue, its producers, and the judge."""

    def __init__(
        self, cluster: SimulatedCluster, judge: Judge, random: Random, config: CoordinatorConfig, kind: Kind
    ) -> None:
        self.cluster = cluster
        self.judge = judge
        self.kind = kind
        lease = config.lease_timeout
        self.ledger = LedgerConfig(
            trim_delay=2.2 * lease,
            retention=max(90.0, 8 * lease),
            snapshot_every=random.choice([5, 15, 60]),
            snapshot_age=60.0,
            objects_per_tick=random.choice([25, 1000]),
            send_timeout=5.0,
            give_up_after=15.0,
            in_flight=random.choice([1, 3, 8]),
        )
        self.settings: dict[str, Any] = {
            "visibility_timeout": random.choice([4.0, 8.0, LONGEST_VISIBILITY]),
            "max_attempts": random.choice([3, 8]),
            "backoff": 0.5,
            "max_backoff": 5.0,
            "dedup_window": DEDUP_WINDOW,
            "tick_interval": 0.4,
            "load_interval": 0.4,
            "poll_interval": 0.5,
            "presence": 5.0,
            "idle_budget": 3600.0,
            "margin": 3.0,
        }
        if kind.at_most_once:
            self.settings["delivery"] = "at-most-once"
        if kind.results:
            self.settings["result_retention"] = 3600.0
            judge.results = True
        self.stops_at = 0.0
        self.plugins: dict[str, S3QueuePlugin] = {}
        self.hosts: dict[str, Host] = {}
        """The process in which each of them is: its worker may have another by now, in which it has not begun."""
        self.halts: list[str] = []
        self._lives: Counter[str] = Counter()
        self._at_work: dict[str, object] = {}
        self._stopped: set[S3QueuePlugin] = set()
        self._bodies = 0

    def plugin(self, **options: Any) -> S3QueuePlugin:
        return S3QueuePlugin(QUEUE, ledger=self.ledger, shutdown_timeout=2.0, **self.settings, **options)

    # Handling

    async def work(self, worker: SimulatedWorker) -> None:
        """One process of the fleet: it handles, may lead, and enqueues."""
        assert worker.service is not None
        if self._at_work.get(worker.name) is worker.service:
            return  # never two in one process
        self._at_work[worker.name] = worker.service
        self.hosts[worker.name] = worker.host
        plugin = self.plugin()
        plugin.attach(Home(self.cluster, worker.host, worker.service), QUEUE)
        self._lives[worker.name] += 1
        life = f"{worker.name}-{self._lives[worker.name]}"
        seed = self.cluster.world.seed
        random, habits = Random(f"{seed}/{life}/handler"), Random(f"{seed}/{life}/habits")
        clock = worker.host.clock

        async def handle_all(messages: list[Message]) -> None:
            assert plugin.worker is not None
            self.judge.began(messages, plugin.worker.uid)
            await clock.sleep(random.expovariate(4.0))
            fate = random.random()
            if fate < 0.06:
                raise RuntimeError("it did not work")
            if fate < 0.07:
                raise Reject("it never will")
            if fate < 0.08:
                await clock.sleep(self.settings["visibility_timeout"] * random.random() * 1.5)
            elif habits.random() < 0.02:
                await self._take_long(messages, worker.host)
            self.judge.ended(messages)

        async def handle(message: Message) -> int:
            await handle_all([message])
            return int(message.body["n"])

        options: dict[str, Any] = {"concurrency": random.choice([1, 4]), "auto_extend": random.random() < 0.5}
        handler: Callable[..., Any] = handle
        if habits.random() < 0.2 and not self.kind.results:
            handler, options["batch"] = handle_all, habits.choice([2, 5])
        plugin.handler(handler, **options)
        plugin.acked = self.judge.was_acked
        self.plugins[worker.name] = plugin
        while True:
            try:
                await plugin.start()
                break
            except (StoreError, CoordinationError):
                await clock.sleep(1.0)
        plugin.on("plg:s3-queue:halted", lambda event: self.halts.append(event.event.reason))
        worker.host.start(self.produce(plugin, worker.host, life))

    async def restart(self, worker: SimulatedWorker) -> None:
        """The queue of a process is stopped politely, and started anew."""
        plugin = self.plugins.pop(worker.name, None)
        if plugin is None or plugin.worker is None:
            return
        self._stopped.add(plugin)
        life = self._lives[worker.name]
        await plugin.stop()
        await worker.host.clock.sleep(1.0)
        # Its process may have been started anew meanwhile, and with it the queue.
        if worker.service is not None and worker.name not in self.plugins and self._lives[worker.name] == life:
            self._at_work.pop(worker.name, None)
            await self.work(worker)

    async def _take_long(self, messages: Sequence[Message], host: Host) -> None:
        """Longer than one visibility timeout, with the time that it asks for itself."""
        for _ in range(2):
            await host.clock.sleep(0.4 * messages[0].remaining())
            for message in messages:
                await message.extend()  # if it is refused, the message has failed
                self.judge.goes_on(message)
            self.judge.counts["extended by hand"] += 1

    # Enqueueing

    async def produce(self, plugin: S3QueuePlugin, host: Host, name: str) -> None:
        random = Random(f"{self.cluster.world.seed}/{name}/producer")
        habits = Random(f"{self.cluster.world.seed}/{name}/producer's habits")
        key = f"{name}-key-{random.randrange(KEYS)}"
        while self.cluster.world.now < self.stops_at and plugin not in self._stopped:
            await host.clock.sleep(random.expovariate(0.35))
            kind = random.random()
            own: dict[str, Any] = {}
            if habits.random() < 0.25:
                own["visibility_timeout"] = habits.choice([2.0, 6.0, 15.0])
            if habits.random() < 0.1:
                own["max_attempts"] = habits.choice([1, 2, 5])
            try:
                if kind < 0.35:
                    body = self._draw()
                    self._accept(body, await plugin.enqueue({"n": body}, **own))
                elif kind < 0.6:
                    body = self._draw()
                    self._accept(body, await plugin.enqueue({"n": body}, ordering_key=key, **own))
                elif kind < 0.7:
                    body = self._draw()
                    delay = random.choice([0.5, 5.0, 20.0])
                    self._accept(body, await plugin.enqueue({"n": body}, delay=delay, priority=random.randrange(3)))
                elif kind < 0.85:
                    await self._with_dedup(plugin, random, habits)
                else:
                    await self._many(plugin, random, habits, key)
            except (StoreError, TenureError):
                self.judge.counts["enqueue refused or unknown"] += 1

    async def _many(self, plugin: S3QueuePlugin, random: Random, habits: Random, key: str) -> None:
        bodies = [self._draw() for _ in range(random.randrange(2, 12))]
        if habits.random() < 0.4:
            ids = await plugin.enqueue_many([{"n": body} for body in bodies], ordering_key=key)
        else:
            ids = await plugin.enqueue_many(
                [Outgoing(body={"n": body}, priority=body % 2) if body % 3 == 0 else {"n": body} for body in bodies]
            )
        for body, id in zip(bodies, ids, strict=True):
            self._accept(body, id)

    async def _with_dedup(self, plugin: S3QueuePlugin, random: Random, habits: Random) -> None:
        """Enqueued again, as a caller does that was told nothing, or does not remember."""
        body = self._draw()
        key = f"once-{body}"
        for _ in range(random.choice([1, 2, 3])):
            try:
                if habits.random() < 0.2:
                    twice = [Outgoing(body={"n": body}, dedup_key=key)] * 2
                    id = (await plugin.enqueue_many(twice))[0]
                else:
                    id = await plugin.enqueue({"n": body}, dedup_key=key)
            except (StoreError, TenureError):
                self.judge.counts["enqueue refused or unknown"] += 1
            else:
                self._accept(body, id)

    def _draw(self) -> int:
        self._bodies += 1
        return self._bodies

    def _accept(self, body: int, id: str) -> None:
        self.judge.accepted[body] = id
        self.judge.counts["accepted"] += 1

    # Commands

    async def command(self, plugin: S3QueuePlugin, host: Host) -> None:
        """A person at the process that only enqueues."""
        random = Random(f"{self.cluster.world.seed}/commands")
        while self.cluster.world.now < self.stops_at - 40.0:
            await host.clock.sleep(random.uniform(10, 40))
            what = random.random()
            if what < 0.4:
                await self._send("pause", plugin.pause)
                await host.clock.sleep(random.uniform(1, 8))
                while not await self._send("resume", plugin.resume):
                    await host.clock.sleep(1.0)
            elif what < 0.6:
                dead = self.judge.dead()
                refs = [ref_of(*random.choice(dead))] if dead and random.random() < 0.5 else []
                await self._send("redrive", functools.partial(plugin.redrive, *refs))
            elif what < 0.7:
                await self._send("purge-dead", plugin.purge_dead)
            elif what < 0.85 and self.kind.purges:
                await self._purge(plugin, random)

    async def _purge(self, plugin: S3QueuePlugin, random: Random) -> None:
        """Between messages of the same process: what came before goes, what comes after stays."""
        before = [await self._plain(plugin, self._draw()) for _ in range(random.randrange(4))]
        self.judge.purges(body for body in before if body is not None)
        await self._send("purge", plugin.purge)
        for _ in range(random.randrange(1, 4)):
            body = self._draw()
            self.judge.sends_after_purges(body)
            await self._plain(plugin, body)

    async def _plain(self, plugin: S3QueuePlugin, body: int) -> int | None:
        try:
            self._accept(body, await plugin.enqueue({"n": body}))
        except (StoreError, TenureError):
            return None
        return body

    async def _send(self, command: str, send: Callable[[], Any]) -> bool:
        self.judge.sends(command)
        try:
            await send()
        except (StoreError, TenureError):
            return False
        self.judge.followed(command)
        return True


class QueueTrouble:
    """What harms a queue in particular: entries of the log that land late, most of all when another leads already,
    readers that stand still for long, and workers that leave politely and come back, as in a deployment."""

    def __init__(self, cluster: SimulatedCluster, scenario: Scenario, random: Random, ends_at: float) -> None:
        self.hit: Counter[str] = Counter()
        self._cluster = cluster
        self._scenario = scenario
        self._random = random
        self._leaving = Random(f"{cluster.world.seed}/leaving")
        self._overtaking = Random(f"{cluster.world.seed}/overtaking")
        self._ends_at = ends_at
        self._later(random.uniform(5, 15), self._next)
        self._later(self._leaving.uniform(10, 60), self._leave)
        self._later(self._overtaking.uniform(5, 40), self._overtake)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        world = self._cluster.world
        if world.now + seconds < self._ends_at:
            world.call_at(world.now + seconds, call)

    def _next(self) -> None:
        self._later(self._random.uniform(10, 30), self._next)
        leaders = self._cluster.leaders()
        if self._random.random() < 0.6 and leaders:
            network, leader = self._cluster.network, leaders[0]
            network.change(leader, **_held_up(0.4, LATE_SECONDS))
            self._later(self._random.uniform(0.5, 3.0), lambda: network.reset(leader))
            self.hit["late-entries"] += 1
            return
        others = [worker for worker in self._cluster.workers.values() if worker.host.alive and not worker.is_leader()]
        if others:
            lease = self._cluster.config.lease_timeout
            self._random.choice(others).host.freeze(self._random.uniform(2.0, 5.0) * lease)
            self.hit["long-freeze"] += 1

    def _leave(self) -> None:
        self._later(self._leaving.uniform(30, 90), self._leave)
        live = [worker for worker in self._cluster.workers.values() if worker.host.alive and worker.service is not None]
        if live:
            worker = self._leaving.choice(live)
            worker.host.start(self._scenario.restart(worker))
            self.hit["leave"] += 1

    def _overtake(self) -> None:
        """A leader stands still, and its last writes land when its successor is about to begin."""
        random, network = self._overtaking, self._cluster.network
        self._later(random.uniform(20, 50), self._overtake)
        leaders = self._cluster.leaders()
        if not leaders:
            return
        worker, lease = self._cluster.workers[leaders[0]], self._cluster.config.lease_timeout
        network.change(worker.name, **_held_up(0.9, min(LATE_SECONDS, 2.5 * lease)))

        def stand_still() -> None:
            network.reset(worker.name)
            if worker.host.alive:
                worker.host.freeze(random.uniform(1.5, 3.0) * lease)

        self._later(random.uniform(0.3, 1.5), stand_still)
        self.hit["overtaken"] += 1


def _held_up(share: float, seconds: float) -> dict[str, float]:
    """Conditions under which writes land late, and which leave room for no other fault."""
    others = ("lost_request", "lost_reply", "repeated", "slow_request", "slow_reply", "server_error")
    return {**dict.fromkeys(others, 0.0), "late_landing": share, "late_seconds": seconds}

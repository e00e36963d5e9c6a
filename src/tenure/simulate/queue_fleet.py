"""The fleet of a queue's seed: processes that handle, lead and enqueue, one that only enqueues, and their trouble."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tenure.coordinator.config import CoordinatorConfig
from tenure.entropy import Random
from tenure.errors import CoordinationError, LedgerError, StoreError, TenureError
from tenure.ledger import LedgerConfig, LedgerState
from tenure.ledger.layout import ledger_folder, ledger_store
from tenure.plugins.queue import Message, Outgoing, Reject, S3QueuePlugin
from tenure.plugins.queue.looking import read_queue
from tenure.plugins.queue.records import ref_of
from tenure.simulate.queue_judge import Judge
from tenure.simulate.seed import Plan, SeedResult
from tenure.simulate.stage import STEP, Home, Stage, run_stage
from tenure.testing.bucket import SimulatedStore
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host
from tenure.testing.mixes import EVERYTHING, STANDSTILL

QUEUE = "jobs"
FOLDER = ledger_folder("s3-queue", QUEUE)
KEYS = 3
DEDUP_WINDOW = 3600.0
LONGEST_VISIBILITY = 20.0


def run_queue_seed(seed: int, plan: Plan) -> SeedResult:
    return run_stage(seed, plan, QueueStage)


class Kind:
    """What sets one seed's queue apart from another's. A stream of its own: nothing else of a seed depends on it."""

    def __init__(self, seed: int) -> None:
        random = Random(f"{seed}/queue kind")
        self.at_most_once = random.random() < 0.15
        self.results = random.random() < 0.25
        self.commands = random.random() < 0.5
        self.purges = self.commands and random.random() < 0.5


class QueueStage(Stage):
    """One fleet with a queue, its producers, and the judge."""

    name = "queue"
    mixes = (EVERYTHING, STANDSTILL)

    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, random: Random, config: CoordinatorConfig
    ) -> None:
        super().__init__(cluster, checkers, random, config)
        self.kind = kind = Kind(cluster.world.seed)
        self.judge = judge = Judge(cluster, checkers, FOLDER, at_most_once=kind.at_most_once)
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
        self.plugins: dict[str, S3QueuePlugin] = {}
        self.hosts: dict[str, Host] = {}
        """The process in which each of them is: its worker may have another by now, in which it has not begun."""
        self._lives: Counter[str] = Counter()
        self._at_work: dict[str, object] = {}
        self._stopped: set[S3QueuePlugin] = set()
        self._bodies = 0

    def begin(self) -> None:
        outsider = self.cluster.world.host("producer", rate=self.random.uniform(0.99, 1.01))
        client = self.plugin(producer_only=True)
        client.attach(Home(self.cluster, outsider, None), QUEUE)

        async def outside() -> None:
            await client.start()
            if self.kind.commands:
                outsider.start(self.command(client, outsider))
            await self.produce(client, outsider, "outsider")

        outsider.start(outside())

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

    # The end

    def conclude(self) -> None:
        world, judge, checkers = self.cluster.world, self.judge, self.checkers
        # Backoffs, delays, lapses one after the other, and messages one by one on few workers.
        end = world.now + self.settings["max_attempts"] * (2.5 * LONGEST_VISIBILITY + 10.0) + 120.0
        while (judge.unfinished() or judge.stale()) and world.now < end and not checkers.is_settled():
            world.run_until(world.now + STEP)
        if stale := judge.stale():
            checkers.report("liveness", f"{len(stale)} objects lie in the inbox long after the last fault: {stale[0]}")
        if checkers.is_settled():
            return
        try:
            state = self._look()
        except LedgerError as error:
            checkers.report("state", f"who starts now cannot read the log: {error}")
            return
        judge.conclude(state)
        world.run_until(world.now + 2 * STEP)
        for name, worker in self.cluster.workers.items():
            plugin = self.plugins.get(name)
            tail = plugin.worker.tail if plugin is not None and plugin.worker is not None else None
            lives = worker.host.alive and self.hosts.get(name) is worker.host
            if lives and tail is not None and tail.position <= state.seq:
                what = f"{name} waits for entry {tail.position}, and entry {state.seq} is long there"
                checkers.report("follower", what)

    def _look(self) -> LedgerState:
        """As a process that has just started sees it."""
        world = self.cluster.world
        reader = world.host("reader")
        store = ledger_store(SimulatedStore(self.cluster.bucket, reader, self.cluster.network), "s3-queue", QUEUE)

        async def read() -> LedgerState:
            while True:
                try:
                    return await read_queue(store)
                except StoreError:
                    await reader.clock.sleep(1.0)

        task = reader.start(read())
        while not task.done():
            world.run_until(world.now + 0.5)
        return task.result()

    def coverage(self, found: Counter[str]) -> None:
        judge = self.judge
        for name, count in judge.counts.items():
            found[f"queue:{name}"] += count
        found["queue:ghosts"] += judge.ghosts
        found["queue:entries"] += len(judge.entries)
        found["queue:handled"] += judge.handled
        for plugin in self.plugins.values():
            if plugin.worker is not None:
                found["queue:resyncs"] += plugin.worker.counts["resyncs"]
                found["queue:late reports"] += plugin.worker.counts["late"]

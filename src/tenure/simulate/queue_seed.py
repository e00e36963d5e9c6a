"""One seed of a queue: workers that handle, producers that enqueue, trouble, and a judge who knows everything.

The judge reads the bucket's own history: every entry of the log as it was first created, whoever deleted or re-created
it since. What was acknowledged is told by the production classes at the moment at which they tell their callers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.election.records import decode
from tenure.entropy import Random
from tenure.errors import CoordinationError, StoreError, TenureError
from tenure.ledger import LedgerConfig, LedgerState, LogEntry
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.ledger.layout import ledger_folder, ledger_store, parse_number
from tenure.plugins.queue import Message, Outgoing, Reject, S3QueuePlugin
from tenure.plugins.queue.looking import read_queue
from tenure.plugins.queue.state import QueueMachine, Work
from tenure.plugins.queue.wire import Outcome, digest
from tenure.plugins.queue.worker import Hand
from tenure.simulate.seed import Plan, SeedResult, liveness_bound
from tenure.testing.broken import broken
from tenure.testing.bucket import SimulatedStore, Write
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host
from tenure.testing.trouble import Trouble
from tenure.testing.world import World

QUEUE = "jobs"
FOLDER = ledger_folder("s3-queue", QUEUE)
KEYS = 3
DEDUP_WINDOW = 3600.0
_LATE_SECONDS = 60.0


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


class Judge:
    """Knows what was promised, and what became of it."""

    def __init__(self, cluster: SimulatedCluster, checkers: Checkers) -> None:
        self._cluster = cluster
        self._report = checkers.report
        self.accepted: dict[int, str] = {}
        """By body: the id that `enqueue` returned."""
        self.sent: set[int] = set()
        self.handled: dict[int, list[int]] = defaultdict(list)
        """By body: the tokens of its deliveries, as they began."""
        self.succeeded: set[int] = set()
        self.acked: set[tuple[str, int]] = set()
        self.entries: dict[int, bytes] = {}
        """The log, as it was first written."""
        self.ghosts = 0
        self.counts: Counter[str] = Counter()
        self._folded: dict[tuple[str, int], int] = {}
        self._highest_epoch = 0
        self._published: dict[str, tuple[int, str]] = {}
        """Tickets of entries that count: number and worker."""
        self.key_order: dict[str, list[int]] = defaultdict(list)
        """By ordering key: bodies, in the order in which their one producer was told that they are durable."""
        self.key_starts: dict[str, list[int]] = defaultdict(list)
        self.dedup_accepted: dict[str, set[int]] = defaultdict(set)
        self.dedup_handled: dict[str, set[str]] = defaultdict(set)
        cluster.bucket.watchers.append(self._written)

    def _written(self, write: Write) -> None:
        if not write.key.startswith(FOLDER):
            return
        key = write.key.removeprefix(FOLDER)
        if write.new is None:
            self.counts["trimmed"] += key.startswith("log/")
            return
        self.counts["snapshots"] += key.startswith("snapshots/")
        if not key.startswith("log/"):
            return
        number = parse_number(key)
        if number is None:
            return
        if number in self.entries:
            if write.old is not None:
                self._report("log", f"entry {number} was written over by {write.host}")
            elif write.new != self.entries[number]:
                self.ghosts += 1
            return
        self.entries[number] = write.new
        if number > 1 and number - 1 not in self.entries:
            self._report("log", f"entry {number} was written before entry {number - 1}")
        self._check_entry(number, write.new)

    def _check_entry(self, number: int, body: bytes) -> None:
        entry = decode(body, LogEntry, MAX_ENTRY_BYTES)
        if not isinstance(entry, LogEntry):
            self._report("log", f"entry {number} is not readable: {entry}")
            return
        if entry.epoch < self._highest_epoch:
            self.counts["void entries"] += 1
            return
        self._highest_epoch = entry.epoch
        for uid, numbers in entry.folded.items():
            for each in numbers:
                before = self._folded.setdefault((uid, each), number)
                if before != number:
                    self._report("folded twice", f"batch {each} of {uid} was folded by entries {before} and {number}")
        events = entry.decided
        if events is None:
            return
        work = msgspec.json.decode(events, type=Work)
        for ticket in work.tickets:
            self._published[ticket.id] = (number, ticket.uid)
            self.counts["tickets"] += 1
            for run in ticket.runs:
                for index in range(run.low, run.high):
                    if (run.segment, index) in self.acked:
                        self._report(
                            "acked", f"message {index} of {run.segment} was acked, and is in ticket {ticket.id} again"
                        )
        self.counts["lapsed"] += len(work.lapsed)
        self.counts["retried"] += sum(len(settled.retry) for settled in work.settled)
        self.counts["dead"] += sum(len(settled.dead) for settled in (*work.settled, *work.lapsed))
        self.counts["given back"] += sum(len(settled.back) for settled in work.settled)
        self.counts["duplicates"] += work.duplicates
        self.counts["shifted"] += bool(work.shift)
        self.counts["forgotten"] += len(entry.forgotten)
        self.counts["resumed"] += len(entry.resumed)
        self.counts["skipped"] += len(entry.skipped)
        self.counts["joined"] += len(work.joined)
        self.counts["left"] += len(work.left)

    # Told by the processes

    def began(self, message: Message, ticket: str, uid: str) -> None:
        body = message.body["n"]
        tokens = self.handled[body]
        known = self._published.get(ticket)
        if known is None or known != (message.token, uid):
            self._report("stale ticket", f"message {body} was begun under {ticket} for {uid}, which counts: {known}")
        if message.token in tokens:
            self.counts["begun twice under one token"] += 1
        tokens.append(message.token)
        key = message.ordering_key
        if key is not None and len(tokens) == 1:
            self.key_starts[key].append(body)
        dedup = message.body.get("dedup")
        if dedup:
            self.dedup_handled[dedup].add(message.id)
            if len(self.dedup_handled[dedup]) > 1:
                self._report("dedup", f"two messages with the deduplication key {dedup} were handled")

    def ended(self, message: Message) -> None:
        self.succeeded.add(message.body["n"])

    def was_acked(self, hand: Hand, outcome: Outcome) -> None:
        if outcome.all_done:
            for run in hand.runs:
                self.acked.update((run.segment, index) for index in range(run.low, run.high))
        for piece in outcome.done:
            self.acked.update((piece.segment, index) for index in range(piece.low, piece.high))
        self.counts["acks"] += 1

    # At the end

    def conclude(self, state: LedgerState, rest: set[int], dead: set[int]) -> None:
        """`rest`: bodies still in the queue; `dead`: those among the dead letters."""
        replayed = LedgerState(QueueMachine())
        for number in range(1, state.seq + 1):
            entry = decode(self.entries[number], LogEntry, MAX_ENTRY_BYTES)
            assert isinstance(entry, LogEntry)
            replayed.apply(entry)
        machine, full = state.machine, replayed.machine
        assert isinstance(machine, QueueMachine)
        assert isinstance(full, QueueMachine)
        if _fingerprint(machine) != _fingerprint(full):
            self._report(
                "state", f"all entries add up to {_fingerprint(full)}, and snapshot and tail to {_fingerprint(machine)}"
            )
        for body, message_id in self.accepted.items():
            if body not in self.succeeded and body not in dead:
                where = "it is still in the queue" if body in rest else "it is nowhere"
                self._report("lost", f"message {body} ({message_id}) was accepted and not handled: {where}")
        for key, starts in self.key_starts.items():
            wanted = [body for body in self.key_order[key] if body in self.handled]
            told = set(wanted)
            seen = [body for body in starts if body in told]
            if seen != wanted:
                wrong = next((pair for pair in zip(seen, wanted, strict=False) if pair[0] != pair[1]), None)
                self._report("order", f"messages of {key} were begun out of order: {wrong} of {len(wanted)}")


def _fingerprint(machine: QueueMachine) -> dict[str, Any]:
    return {
        "ready": machine.ready_count,
        "delayed": machine.delayed_count,
        "in flight": machine.in_flight_count,
        "dead": len(machine.dead),
        "segments": dict(sorted(machine.segments.items())),
        "totals": msgspec.structs.asdict(machine.totals),
        "tickets": sorted(machine.tickets),
    }


class QueueTrouble:
    """What harms a queue in particular: entries of the log that land late, and readers that stand still for long."""

    def __init__(self, cluster: SimulatedCluster, random: Random, ends_at: float) -> None:
        self._cluster = cluster
        self._random = random
        self._ends_at = ends_at
        self._later(random.uniform(5, 15), self._next)

    def _later(self, seconds: float, call: Any) -> None:
        world = self._cluster.world
        if world.now + seconds < self._ends_at:
            world.call_at(world.now + seconds, call)

    def _next(self) -> None:
        self._later(self._random.uniform(10, 30), self._next)
        leaders = self._cluster.leaders()
        if self._random.random() < 0.6 and leaders:
            network, leader = self._cluster.network, leaders[0]
            network.change(leader, late_landing=0.4, late_seconds=60.0)
            self._later(self._random.uniform(0.5, 3.0), lambda: network.change(leader, late_landing=0.003))
            return
        others = [worker for worker in self._cluster.workers.values() if worker.host.alive and not worker.is_leader()]
        if others:
            lease = self._cluster.config.lease_timeout
            self._random.choice(others).host.freeze(self._random.uniform(2.0, 5.0) * lease)


class Scenario:
    """One fleet with a queue, its producers, and the judge."""

    def __init__(self, cluster: SimulatedCluster, judge: Judge, random: Random, config: CoordinatorConfig) -> None:
        self.cluster = cluster
        self.judge = judge
        self.random = random
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
            "visibility_timeout": random.choice([4.0, 8.0, 20.0]),
            "max_attempts": random.choice([3, 8]),
            "backoff": 0.5,
            "max_backoff": 5.0,
            "dedup_window": DEDUP_WINDOW,
            "tick_interval": 0.3,
            "load_interval": 0.3,
            "poll_interval": 0.35,
            "presence": 5.0,
            "idle_budget": 3600.0,
            "margin": 3.0,
        }
        self.stops_at = 0.0
        self._bodies = 0
        self.plugins: dict[str, S3QueuePlugin] = {}

    def plugin(self, **options: Any) -> S3QueuePlugin:
        return S3QueuePlugin(QUEUE, ledger=self.ledger, shutdown_timeout=2.0, **self.settings, **options)

    async def work(self, worker: SimulatedWorker) -> None:
        """One process of the fleet: it handles, may lead, and enqueues."""
        assert worker.service is not None
        plugin = self.plugin()
        plugin.attach(Home(self.cluster, worker.host, worker.service), QUEUE)
        random = Random(f"{self.cluster.world.seed}/{worker.name}/{worker.starts}/handler")

        async def handle(message: Message) -> None:
            self.judge.began(message, message._keeper.id, plugin.worker.uid)  # type: ignore[attr-defined,union-attr]
            await worker.host.clock.sleep(random.expovariate(4.0))
            fate = random.random()
            if fate < 0.06:
                raise RuntimeError("it did not work")
            if fate < 0.07:
                raise Reject("it never will")
            if fate < 0.08:
                await worker.host.clock.sleep(self.settings["visibility_timeout"] * random.random() * 1.5)
            self.judge.ended(message)

        plugin.handler(handle, concurrency=random.choice([1, 4]), auto_extend=random.random() < 0.5)
        plugin.acked = self.judge.was_acked
        self.plugins[worker.name] = plugin
        while True:
            try:
                await plugin.start()
                break
            except (StoreError, CoordinationError):
                await worker.host.clock.sleep(1.0)
        worker.host.start(self.produce(plugin, worker.host, f"{worker.name}-{worker.starts}"))

    async def produce(self, plugin: S3QueuePlugin, host: Host, name: str) -> None:
        random = Random(f"{self.cluster.world.seed}/{name}/producer")
        key = f"{name}-key-{random.randrange(KEYS)}"
        while self.cluster.world.now < self.stops_at:
            await host.clock.sleep(random.expovariate(0.5))
            kind = random.random()
            try:
                if kind < 0.35:
                    body = self._draw()
                    self._accept(body, await plugin.enqueue({"n": body}))
                elif kind < 0.6:
                    body = self._draw()
                    self._accept(body, await plugin.enqueue({"n": body}, ordering_key=key))
                    self.judge.key_order[key].append(body)
                elif kind < 0.7:
                    body = self._draw()
                    delay = random.choice([0.5, 5.0, 30.0])
                    self._accept(body, await plugin.enqueue({"n": body}, delay=delay, priority=random.randrange(3)))
                elif kind < 0.85:
                    await self._with_dedup(plugin, random)
                else:
                    bodies = [self._draw() for _ in range(random.randrange(2, 12))]
                    ids = await plugin.enqueue_many(
                        [
                            Outgoing(body={"n": body}, priority=body % 2) if body % 3 == 0 else {"n": body}
                            for body in bodies
                        ]
                    )
                    for body, message_id in zip(bodies, ids, strict=True):
                        self._accept(body, message_id)
            except (StoreError, TenureError):
                self.judge.counts["enqueue refused or unknown"] += 1

    async def _with_dedup(self, plugin: S3QueuePlugin, random: Random) -> None:
        """Enqueued again, as a caller does that was told nothing, or does not remember."""
        body = self._draw()
        key = f"once-{body}"
        for _ in range(random.choice([1, 2, 3])):
            try:
                message_id = await plugin.enqueue({"n": body, "dedup": digest(key)}, dedup_key=key)
            except (StoreError, TenureError):
                self.judge.counts["enqueue refused or unknown"] += 1
            else:
                self._accept(body, message_id)

    def _draw(self) -> int:
        self._bodies += 1
        self.judge.sent.add(self._bodies)
        return self._bodies

    def _accept(self, body: int, message_id: str) -> None:
        self.judge.accepted[body] = message_id
        self.judge.counts["accepted"] += 1


def run_queue_seed(seed: int, plan: Plan) -> SeedResult:
    started = SYSTEM_CLOCK.read()
    with broken(plan.broken), World(seed) as world:
        random = Random(f"{seed}/queue")
        config = CoordinatorConfig.fast() if random.random() < 0.7 else CoordinatorConfig.standard()
        scenario: Scenario | None = None

        async def work(worker: SimulatedWorker) -> None:
            assert scenario is not None
            await scenario.work(worker)

        cluster = SimulatedCluster(
            world,
            plan.workers,
            config,
            work=work,
            rate=lambda: random.choice([0.99, 1.01, 1.0, random.uniform(0.99, 1.01)]),
            wall_offset=lambda: random.choice([0.0, random.uniform(-86400, 86400)]),
        )
        cluster.bucket.clock_offset = random.uniform(-3600, 3600)
        cluster.network.whole_second_times = random.random() < 0.5
        checkers = Checkers(cluster)
        judge = Judge(cluster, checkers)
        scenario = Scenario(cluster, judge, random, config)
        trouble = Trouble(cluster, random, plan.faults)
        outsider = world.host("producer", rate=random.uniform(0.99, 1.01))
        ends_at = plan.minutes * 60
        scenario.stops_at = ends_at
        cluster.start()
        client = scenario.plugin(producer_only=True)
        client.attach(Home(cluster, outsider, None), QUEUE)

        async def outside() -> None:
            await client.start()
            await scenario.produce(client, outsider, "outsider")

        outsider.start(outside())
        trouble.begin(ends_at)
        QueueTrouble(cluster, Random(f"{seed}/queue trouble"), ends_at)
        world.run_until(ends_at)
        if not checkers.violations:
            _quiesce(world, cluster, scenario, checkers, judge, config)
        checkers.check_defects()
        simulated = world.now
        world.close()
        for host, error in world.errors:
            if isinstance(error, StoreError):
                continue  # of several requests that were under way when a process crashed, some had failed
            checkers.report("defect", f"a task of {host} raised {error!r}")
        coverage = _coverage(cluster, world, trouble, checkers, judge, scenario)
    return SeedResult(
        seed=seed,
        violations=checkers.violations,
        simulated_seconds=simulated,
        wall_seconds=SYSTEM_CLOCK.read().leader_elapsed(started),
        faults=sum(trouble.hit.values()),
        terms=len(checkers.terms),
        coverage=coverage,
    )


def _quiesce(
    world: World,
    cluster: SimulatedCluster,
    scenario: Scenario,
    checkers: Checkers,
    judge: Judge,
    config: CoordinatorConfig,
) -> None:
    """Trouble is over: everything that was promised must come about within a bound."""
    bound = liveness_bound(config)
    world.run_until(world.now + _LATE_SECONDS + bound)
    checkers.check_liveness(bound)
    # Backoffs, delays, lapses one after the other, and messages one by one on few workers.
    attempts = scenario.settings["max_attempts"]
    visibility = scenario.settings["visibility_timeout"]
    end = world.now + attempts * (2.5 * visibility + 10.0) + 120.0
    reader = world.host("reader")
    store = ledger_store(SimulatedStore(cluster.bucket, reader, cluster.network), "s3-queue", QUEUE)

    async def read() -> LedgerState:
        while True:
            try:
                return await read_queue(store)
            except StoreError:
                await reader.clock.sleep(1.0)

    def look() -> LedgerState:
        task = reader.start(read())
        while not task.done():
            world.run_until(world.now + 0.5)
        return task.result()

    while True:
        world.run_until(world.now + 10.0)
        state = look()
        machine = state.machine
        assert isinstance(machine, QueueMachine)
        left = machine.ready_count + machine.delayed_count + machine.in_flight_count
        inbox = cluster.bucket.keys(FOLDER + "inbox/")
        if (not left and not inbox) or world.now >= end:
            break
    if inbox and world.now >= end:
        checkers.report(
            "liveness", f"{len(inbox)} objects lie in the inbox {end:.0f} s after the last fault: {inbox[0]}"
        )
    if checkers.violations:
        return
    dead, rest = _bodies(cluster, machine)
    judge.conclude(state, rest, dead)
    for name, worker in cluster.workers.items():
        plugin = scenario.plugins.get(name)
        tail = plugin.worker.tail if plugin is not None and plugin.worker is not None else None
        if worker.host.alive and tail is not None and tail.position < state.seq - 5:
            checkers.report("follower", f"{name} reads entry {tail.position}, and the log ends with {state.seq}")


def _bodies(cluster: SimulatedCluster, machine: QueueMachine) -> tuple[set[int], set[int]]:
    """Of the dead, and of those that still wait: from the segments in the bucket."""
    from tenure.plugins.queue.wire import Segment

    opened: dict[str, Segment] = {}

    def body_of(segment: str, index: int) -> int:
        if segment not in opened:
            stored = cluster.bucket.body(f"{FOLDER}seg/{segment}")
            if stored is None:
                return -1
            opened[segment] = Segment(stored)
        held = next(iter(opened[segment].messages(index, index + 1)))
        return int(msgspec.json.decode(held.body)["n"])

    dead = {body_of(segment, index) for segment, index in machine.dead}
    waiting = [run for queue in machine.ready.values() for run in queue]
    waiting += [run for queue in machine.keys.values() for run in queue.waiting]
    waiting += [run for _, _, run in machine.delayed if run.count]
    waiting += [run for ticket in machine.tickets.values() for run in ticket.runs]
    rest = {body_of(run.segment, index) for run in waiting for index in range(run.low, run.high)}
    return dead, rest


def _coverage(
    cluster: SimulatedCluster, world: World, trouble: Trouble, checkers: Checkers, judge: Judge, scenario: Scenario
) -> dict[str, int]:
    found: Counter[str] = Counter()
    for kind, count in trouble.hit.items():
        found[f"fault:{kind}"] += count
    for name, count in cluster.network.hits.items():
        found[f"network:{name}"] += count
    for (strike, where), count in world.strikes.items():
        for place in where.split(" | "):
            found[f"{strike}:{place}"] += count
    for name, count in judge.counts.items():
        found[f"queue:{name}"] += count
    found["queue:ghosts"] += judge.ghosts
    found["queue:entries"] += len(judge.entries)
    found["queue:handled"] += len(judge.handled)
    for plugin in scenario.plugins.values():
        if plugin.worker is not None:
            found["queue:resyncs"] += plugin.worker.counts["resyncs"]
            found["queue:late reports"] += plugin.worker.counts["late"]
    found["terms"] += len(checkers.terms)
    return dict(sorted(found.items()))

"""The fleet of a schedule's seed: processes that declare jobs, lead, run them, and change them at random."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.entropy import Random
from tenure.errors import CoordinationError, LedgerError, RequestNotAnswered, RequestRefused, StoreError, TenureError
from tenure.ledger import LedgerConfig, LedgerState
from tenure.ledger.layout import ledger_store
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler import Run, SchedulerPlugin, at, cron, every
from tenure.plugins.scheduler.job import Job, Schedule, job_from
from tenure.plugins.scheduler.looking import read_schedule
from tenure.plugins.scheduler.runs import RunFailed
from tenure.simulate.schedule_judge import Judge
from tenure.simulate.schedule_records import Code
from tenure.simulate.seed import Plan, SeedResult
from tenure.simulate.stage import STEP, Home, Stage, run_stage
from tenure.testing.bucket import SimulatedStore
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host
from tenure.testing.loop import Crashed

NAME, QUEUE = "scheduler", "post"
FUNCTIONS = ("quick", "slow", "flaky", "hangs", "stubborn")
RARE = "rare"
"""A function, and a job, that only some hosts have."""
LONGEST = 25.0
"""Seconds that a function takes, if it ends at all."""
ANSWER_WITHIN = 20.0


def run_schedule_seed(seed: int, plan: Plan) -> SeedResult:
    return run_stage(seed, plan, ScheduleStage)


class Flop(StoreError):
    """What functions raise. A process may crash right after that, before anybody has heard of it: such are forgiven."""


class Drawer:
    """Draws jobs."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def schedule(self, now_ms: int) -> Schedule:
        kind = self._random.random()
        if kind < 0.15:
            return cron(self._random.choice(["* * * * *", "*/2 * * * *", "0 * * * *"]))
        if kind < 0.3:
            return at(moment(now_ms + self._random.choice([-5_000, 500, 4_000, 30_000])))
        return every(self._random.choice([3, 5, 7, 11, 20]))

    def options(self) -> dict[str, Any]:
        random = self._random
        function = random.choice(["quick", "quick", "slow", "slow", "flaky", "flaky", "hangs", "stubborn"])
        grace = random.choice([1.0, 5.0, 20.0])
        return {
            "function": function,
            "timeout": random.choice([1.0, 4.0]) if function in ("hangs", "stubborn") else random.choice([0, 0, 8.0]),
            "jitter": random.choice([0, 0, 0, 2.0, 8.0]),
            "misfire": random.choice(["skip", "fire-once", "fire-all"]),
            "misfire_grace": grace,
            "misfire_window": random.choice([grace, 25.0, 60.0, 3600.0]),
            "catch_up": random.choice([2, 5]),
            "overlap": random.choice(["skip", "queue-one", "allow"]),
            "max_running": random.choice([1, 2, 5]),
            "interrupted": random.choice(["rerun", "rerun", "abandon"]),
            "max_interruptions": random.choice([0, 1, 3]),
            "retries": random.choice([0, 0, 1, 3]),
            "backoff": 0.5,
            "max_backoff": random.choice([1.0, 5.0]),
            "history": random.choice([5, 20, 100]),
        }

    def messages(self) -> dict[str, Any]:
        left_out = ("function", "timeout", "retries", "backoff", "max_backoff")
        options = {name: value for name, value in self.options().items() if name not in left_out}
        return {**options, "queue": QUEUE, "body": {"hello": 1}}


class ScheduleStage(Stage):
    """One fleet with a schedule, a queue that some of its jobs put messages on, and the judge."""

    name = "schedule"
    foreseen = (*Stage.foreseen, RunFailed)  # a run that thaws after its lease, in the moment of a crash (seed 703971)

    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, random: Random, config: CoordinatorConfig
    ) -> None:
        super().__init__(cluster, checkers, random, config)
        lease = config.lease_timeout
        self.ledger = LedgerConfig(
            trim_delay=2.2 * lease,
            retention=max(90.0, 8 * lease),
            snapshot_every=random.choice([5, 15, 60]),
            snapshot_age=60.0,
            send_timeout=5.0,
            give_up_after=15.0,
        )
        self.idle_budget = random.choice([100.0, 720.0, 3600.0])
        self.max_runs = Random(f"{cluster.world.seed}/max runs").choice([1000, 1000, 4])
        self.drawer = Drawer(random)
        self.code = self._draw_code()
        self.judge = Judge(cluster, checkers, NAME, QUEUE, self.code)
        self.judge.book.roomy = self.max_runs >= 1000
        self._running: dict[str, tuple[GlobalCoordinatorService, SchedulerPlugin, S3QueuePlugin]] = {}
        """By worker: what has started, and with which coordinator: a process that leaves and comes back has another."""
        self._lives: Counter[str] = Counter()
        self._at_work: dict[str, object] = {}
        self._stopped: set[SchedulerPlugin] = set()
        self._marks = 0
        self._names: list[str] = []
        """Of jobs that were added at some time."""

    def _draw_code(self) -> dict[str, Code]:
        drawer, now_ms = self.drawer, round(1000 * (1_700_000_000 + self.cluster.bucket.clock_offset))
        shared = [
            self._job("often", every(self.random.choice([1, 2, 3])), drawer.options()),
            self._job("minutely", cron("* * * * *"), drawer.options()),
            self._job("mailed", every(self.random.choice([5, 8, 13])), drawer.messages()),
            *(self._job(f"job-{number}", drawer.schedule(now_ms), drawer.options()) for number in range(3)),
        ]
        shared.append(
            self._job(
                "bounded",
                every(4),
                {**drawer.options(), "start": moment(now_ms + 20_000), "end": moment(now_ms + 140_000)},
            )
        )
        deployed = [self._job("deployed", every(period), {**drawer.options(), "history": 20}) for period in (6, 9)]
        deployed.append(msgspec.structs.replace(deployed[0], overlap=deployed[1].overlap, misfire=deployed[1].misfire))
        rare = self._job(RARE, every(5), {**drawer.options(), "function": RARE, "timeout": 0})
        code = {}
        for number, name in enumerate(self.cluster.workers):
            jobs = {job.id: [job] for job in shared}
            jobs["deployed"] = deployed
            functions = {*FUNCTIONS, RARE} if number % 2 else set(FUNCTIONS)
            if number % 2:
                jobs[RARE] = [rare]
            code[name] = Code(frozenset(functions), jobs)
        return code

    def _job(self, id: str, schedule: Schedule, options: dict[str, Any]) -> Job:
        return job_from(id, schedule, **options)

    # Processes

    async def work(self, worker: SimulatedWorker) -> None:
        """One process of the fleet: it declares, may lead, and changes jobs."""
        assert worker.service is not None
        if self._at_work.get(worker.name) is worker.service:
            return  # never two in one process
        self._at_work[worker.name] = worker.service
        self._lives[worker.name] += 1
        life = f"{worker.name}-{self._lives[worker.name]}"
        random = Random(f"{self.cluster.world.seed}/{life}/schedule")
        home = Home(self.cluster, worker.host, worker.service)
        queue = S3QueuePlugin(
            QUEUE,
            ledger=self.ledger,
            shutdown_timeout=2.0,
            dedup_window=3600.0,
            tick_interval=0.5,
            load_interval=0.5,
            idle_budget=360.0,
        )
        queue.attach(Home(self.cluster, worker.host, worker.service), QUEUE)
        if random.random() < 0.5:
            home.plugins[S3QueuePlugin.slug, QUEUE] = queue  # otherwise it opens one that only produces
        plugin = SchedulerPlugin(
            ledger=self.ledger, shutdown_timeout=2.0, idle_budget=self.idle_budget, max_runs=self.max_runs
        )
        plugin.attach(home, NAME)
        self._declare(plugin, worker.host, random)
        service = worker.service
        for each in (queue, plugin):
            while worker.service is service:
                try:
                    await each.start()
                    break
                except (StoreError, CoordinationError):
                    await worker.host.clock.sleep(1.0)
        if worker.service is not service:
            # It was asked to leave meanwhile: a plugin that starts would have the former service stand once more.
            await plugin.stop()
            await queue.stop()
            return
        self._running[worker.name] = (service, plugin, queue)
        plugin.on("plg:scheduler:halted", lambda event: self.halts.append(event.event.reason))
        queue.on("plg:s3-queue:halted", lambda event: self.halts.append(event.event.reason))
        plugin.on("plg:scheduler:job-unknown", lambda event: self._count("undeclared"))
        plugin.on("plg:scheduler:run-left-behind", lambda event: self._count("left behind by the term"))
        worker.host.start(self._change(plugin, worker.host, life))

    async def restart(self, worker: SimulatedWorker) -> None:
        """The plugins of a process are stopped politely, and started anew."""
        service, plugin, queue = self._running.get(worker.name, (None, None, None))
        if service is not worker.service or plugin is None or queue is None:
            # It has not quite started. What is known here may be of a coordinator that the same process had before:
            # whoever stopped that and started anew would do so beside the plugins that are starting already. Two of
            # one name would lead under one epoch, and begin the same jobs; a database refuses the second.
            return
        del self._running[worker.name]
        self._stopped.add(plugin)
        await plugin.stop()
        await queue.stop()
        await worker.host.clock.sleep(1.0)
        # It may have left meanwhile, or been started anew, and with it the plugins.
        if worker.service is service:
            self._at_work.pop(worker.name, None)
            await self.work(worker)

    def _count(self, what: str) -> None:
        self.judge.counts[what] += 1

    def _declare(self, plugin: SchedulerPlugin, host: Host, random: Random) -> None:
        code = self.code[host.name]
        behaviours = Behaviours(self.judge, host, random)
        for name in sorted(code.functions):
            plugin.function(name)(behaviours.function(name))
        for versions in code.jobs.values():
            plugin._declare(random.choice(versions))

    # Changes

    async def _change(self, plugin: SchedulerPlugin, host: Host, life: str) -> None:
        random = Random(f"{self.cluster.world.seed}/{life}/changes")
        drawer = Drawer(random)
        while True:
            await host.clock.sleep(random.expovariate(1 / 25))
            if self.cluster.world.now >= self.stops_at or plugin in self._stopped:
                return
            await self._change_once(plugin, host, random, drawer)

    async def _change_once(self, plugin: SchedulerPlugin, host: Host, random: Random, drawer: Drawer) -> None:
        what = random.random()
        added = self._names[-8:]
        known = [*added, "often", "minutely", "mailed", "job-0", "job-1", "deployed", RARE]
        if what < 0.25 or not added:
            id = f"{host.name}-{len(self._names)}" if random.random() < 0.85 or not added else random.choice(known)
            await self._add(plugin, id, random, drawer)
        elif what < 0.45:
            await self._update(plugin, random.choice(added if random.random() < 0.9 else known), random, drawer)
        elif what < 0.55:
            id = random.choice(added if random.random() < 0.8 else known)
            await self._call("remove", id, "", random, lambda **how: plugin.remove(id, **how))
        elif what < 0.7:
            job = random.choice([None, *known]) if random.random() < 0.9 else "none"
            await self._call("pause", job or "", "", random, lambda **how: plugin.pause(job, **how))
            await host.clock.sleep(random.uniform(1, 12))
            for _ in range(5):
                if await self._call("resume", job or "", "", random, lambda **how: plugin.resume(job, **how)):
                    break
                await host.clock.sleep(1.0)
        elif what < 0.75:
            job = random.choice([None, *known])
            await self._call("resume", job or "", "", random, lambda **how: plugin.resume(job, **how))
        elif what < 0.8:
            await self._look_at(plugin, random.choice([None, *known]))
        else:
            await self._run_now(plugin, random.choice(known), random)

    async def _look_at(self, plugin: SchedulerPlugin, id: str | None) -> None:
        try:
            self.judge.looked(await plugin.history(id, 50))
        except (StoreError, TenureError):
            self._count("look in vain")

    def _mark(self) -> int:
        self._marks += 1
        return self._marks

    def _target(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        mark = self._mark()
        return {**options, ("body" if "queue" in options else "payload"): {"n": mark}}, str(mark)

    async def _add(self, plugin: SchedulerPlugin, id: str, random: Random, drawer: Drawer) -> None:
        fate = random.random()
        options = drawer.messages() if fate < 0.2 else drawer.options()
        if fate > 0.9:
            options |= {"function": RARE, "timeout": 0}
        options, mark = self._target({**options, "enabled": random.random() < 0.95, "history": 100})
        schedule = drawer.schedule(self.judge.store_ms())
        self._names.append(id)
        replace = random.random() < 0.5
        await self._call(
            "add", id, mark, random, lambda **how: plugin.add(id, schedule, replace=replace, **options, **how)
        )

    async def _update(self, plugin: SchedulerPlugin, id: str, random: Random, drawer: Drawer) -> None:
        options = drawer.options()
        booked = self.judge.book.jobs.get(id)
        sends = booked is not None and "queue" in msgspec.to_builtins(booked.job.target)
        target = {"queue": QUEUE} if sends else {"function": options["function"], "timeout": options["timeout"]}
        fixed = {"function", "timeout", "history", "misfire_grace", "misfire_window"}
        chosen = random.sample(sorted(options.keys() - fixed), 4)
        changed, mark = self._target({**target, **{name: options[name] for name in chosen}})
        if random.random() < 0.15:
            changed["enabled"] = random.random() < 0.7
        schedule: Schedule | None = None
        if random.random() < 0.4:
            schedule = every(random.choice([3, 5, 8])) if random.random() < 0.7 else cron("* * * * *")
        elif random.random() < 0.1:
            schedule = at(moment(self.judge.store_ms() + random.choice([3_000, 10_000])))
        await self._call("update", id, mark, random, lambda **how: plugin.update(id, schedule, **changed, **how))

    async def _run_now(self, plugin: SchedulerPlugin, id: str, random: Random) -> None:
        wait = random.random() < 0.8
        try:
            run = await plugin.run_now(id, wait=wait, within=ANSWER_WITHIN)
        except (StoreError, TenureError):
            self._count("call refused or unknown")
            return
        mark = run.partition("#")[2]
        self.judge.commands.sends("run-now", id, mark)
        self.judge.commands.heeded("run-now", id, mark, decided=wait)

    async def _call(self, op: str, id: str, mark: str, random: Random, call: Callable[..., Awaitable[None]]) -> bool:
        """False: it is to be tried again."""
        wait = random.random() < 0.8
        self.judge.commands.sends(op, id, mark)
        try:
            await call(wait=wait, within=ANSWER_WITHIN)
        except RequestNotAnswered:
            self._count("call not answered")
            return False
        except RequestRefused:
            if wait and op != "update":  # which is refused without asking, if there is no such job
                self.judge.commands.turned_down(op, id, mark)
            self._count("call refused")
            return True
        except (StoreError, TenureError):
            self._count("call unknown")
            return False
        self.judge.commands.heeded(op, id, mark, decided=wait)
        return True

    # The end

    def conclude(self) -> None:
        world, judge, checkers = self.cluster.world, self.judge, self.checkers
        mark_ms = judge.book.calm_ms = judge.store_ms()
        # Those that wait for one another, each tried again and again.
        end = world.now + 8 * (LONGEST + 20.0)
        while world.now < end and not checkers.is_settled() and (self._unfinished(mark_ms) or judge.stale()):
            world.run_until(world.now + STEP)
        if checkers.is_settled():
            return
        if stale := judge.stale():
            checkers.report("liveness", f"{len(stale)} objects lie in an inbox long after the last fault: {stale[0]}")
        if left := self._unfinished(mark_ms):
            checkers.report("liveness", f"{len(left)} are unfinished long after the last fault: {left[0]}")
        try:
            state = self._look()
        except LedgerError as error:
            checkers.report("state", f"who starts now cannot read the log: {error}")
            return
        judge.conclude(state)

    def _unfinished(self, mark_ms: int) -> list[str]:
        leaders = self.cluster.leaders()
        return self.judge.unfinished(mark_ms, leaders[0]) if leaders else ["nobody leads"]

    def _look(self) -> LedgerState:
        """As a process that has just started sees it."""
        world = self.cluster.world
        reader = world.host("reader")
        bucket = SimulatedStore(self.cluster.bucket, reader, self.cluster.network)
        store = ledger_store(bucket, SchedulerPlugin.slug, NAME)

        async def read() -> LedgerState:
            while True:
                try:
                    return await read_schedule(store)
                except StoreError:
                    await reader.clock.sleep(1.0)

        task = reader.start(read())
        while not task.done():
            world.run_until(world.now + 0.5)
        return task.result()

    def coverage(self, found: Counter[str]) -> None:
        judge = self.judge
        for name, count in judge.counts.items():
            found[f"schedule:{name}"] += count
        found["schedule:ghosts"] += judge.ghosts
        found["schedule:entries"] += len(judge.entries)
        found["schedule:messages"] += judge.post.messages.total()
        found["schedule:messages dropped as duplicates"] += judge.post.duplicates


class Behaviours:
    """What functions do in one process."""

    def __init__(self, judge: Judge, host: Host, random: Random) -> None:
        self._judge = judge
        self._host = host
        self._random = random

    def function(self, name: str) -> Callable[[Run], Awaitable[None]]:
        behave = getattr(self, f"_{name}", self._quick)
        judge, host = self._judge, self._host

        async def call(run: Run) -> None:
            obedient = name != "stubborn"
            judge.began(run, host, host.name, obedient=obedient)
            how = "well"
            try:
                await behave()
            except (asyncio.CancelledError, Crashed):
                how = "cancelled" if host.alive else "gone"
                raise
            except Flop:
                how = "raised"
                raise
            finally:
                judge.ended(run, host, host.name, how if host.alive else "gone", obedient=obedient)

        return call

    async def _quick(self) -> None:
        await self._host.clock.sleep(self._random.expovariate(3.0))

    async def _slow(self) -> None:
        await self._host.clock.sleep(min(LONGEST, self._random.expovariate(1 / 6)))

    async def _flaky(self) -> None:
        await self._host.clock.sleep(self._random.expovariate(2.0))
        if self._random.random() < 0.5:
            raise Flop("it did not work")

    async def _hangs(self) -> None:
        if self._random.random() < 0.5:
            await self._quick()
        else:
            await self._host.loop.create_future()

    async def _stubborn(self) -> None:
        """It does not mind being cancelled."""
        clock, left = self._host.clock, self._random.choice([0.5, 3.0, LONGEST])
        while left > 0:
            try:
                await clock.sleep(min(left, 1.0))
            except asyncio.CancelledError:
                if not self._host.alive:
                    raise
            left -= 1.0


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)

"""The fleet of a seed with records that expire: processes that write, refresh, delete and lead, and their trouble."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tenure.coordinator.config import CoordinatorConfig
from tenure.database.records import Record
from tenure.database.resource import Resource
from tenure.entropy import Random
from tenure.errors import Conflict, CoordinationError, InvalidRecord, RecordNotFound, StoreError, TenureError
from tenure.ledger import LedgerConfig
from tenure.plugins.ttl import Expired, OnExpire, TTLPlugin
from tenure.simulate.seed import Plan, SeedResult
from tenure.simulate.stage import LATE_SECONDS, STEP, Home, Stage, run_stage
from tenure.simulate.strikes import Strikes
from tenure.simulate.ttl_judge import ACT, Judge
from tenure.simulate.ttl_rules import Act, Rule, Told, iso
from tenure.store import Rejected
from tenure.testing.bucket import SimulatedStore, _Request
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host
from tenure.testing.mixes import DRIFTING, EVERYTHING, SLOW, STALLED

GIVEN_IDS = 5
"""That come back after they were deleted, in each resource."""
QUARANTINE = 64.0
"""A quarter of it a write may take to be sent, and the rest must be longer than the latest landing."""
STRUCK = {"entry": 0.007, "record": 0.003}
"""Of the writes of index entries and records, so many are their process's last for a while."""
ARCHIVE = "archived"
_STRATEGIES = ("hard-delete", "soft-delete", "archive", "callback")
_LEAST_TICK = 2.5
"""Seconds: an index entry is due up to one late, and where listings show whole seconds a leader is in doubt for one."""
_SLACK = 1.0
_DOUBT = 3.0
"""Seconds more for which a leader is in doubt where no heartbeat tells it the store's time between two measurements."""

assert LATE_SECONDS < 0.75 * QUARANTINE


def run_ttl_seed(seed: int, plan: Plan) -> SeedResult:
    return run_stage(seed, plan, TtlStage)


class Kind:
    """What sets one seed's resources apart from another's: a stream of its own, on which nothing else depends."""

    def __init__(self, seed: int) -> None:
        random = Random(f"{seed}/ttl kind")
        self.conditional_delete = random.random() < 0.5
        self.tick = random.choice([1.0, 2.0, 3.0])
        self.rate_limit = 20.0 if random.random() < 0.15 else 0.0
        self.strangers = random.random() < 0.25
        self.rules = tuple(_rule(random, strategy) for strategy in random.sample(_STRATEGIES, 3))


def _rule(random: Random, strategy: str) -> Rule:
    counted, ttl = random.random(), random.choice([4.0, 12.0, 30.0])
    field = None if counted < 0.5 else "expires_at" if counted < 0.75 else "updated_at"
    return Rule(
        name=f"of-{strategy}",
        ttl=None if field == "expires_at" else ttl,
        field=field,
        strategy=strategy,
        archive=ARCHIVE if strategy == "archive" else None,
    )


class WatchedStore(SimulatedStore):
    """Tells the judge when the cleaner comes second.

    Where tombstones are removed nothing stands between a process and its store that sends a request twice: what was
    refused did not happen there, and a record that was deleted does not come back. No resource promises more.
    """

    counts: Counter[str]

    def _send(self, verb: str, key: str, apply: Callable[..., Any], arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        answer = super()._send(verb, key, apply, arguments)
        if verb in ("create", "replace") and key.startswith("resource=") and ACT.get() is None:
            what = "in the archive already" if verb == "create" else "swaps lost by the cleaner"
            answer.add_done_callback(functools.partial(self._count, what))
        return answer

    def _count(self, what: str, answer: asyncio.Future[Any]) -> None:
        self.counts[what] += not answer.cancelled() and isinstance(answer.result(), Rejected)

    def _send_badly(self, request: _Request, fault: str) -> None:
        once = self.info.conditional_delete or request.verb == "create"
        is_spared = fault == "repeated" and once and request.key.startswith("resource=")
        super()._send_badly(request, "" if is_spared else fault)


class TtlHome(Home):
    """With resources, whose writes are known to the judge by the ids that are drawn for them."""

    def __init__(self, stage: TtlStage, worker: SimulatedWorker) -> None:
        cluster, host = stage.cluster, worker.host
        super().__init__(cluster, host, worker.service)
        conditional = stage.kind.conditional_delete
        self.store = WatchedStore(cluster.bucket, host, cluster.network, conditional_delete=conditional)
        self.store.counts = stage.judge.counts
        self.draw_id = stage.judge.drawing(cluster.draw_id)
        self._resources: dict[str, Resource[Any]] = {}

    def resource(self, name: str, schema: type[Any] | None = None, *, reuse_ids: bool = True) -> Resource[Any]:
        if name not in self._resources:
            self._resources[name] = Resource(
                self.store, name, schema, reuse_ids=reuse_ids, clock=self.clock, draw_id=self.draw_id
            )
        return self._resources[name]

    def opened_resource(self, name: str) -> Resource[Any] | None:
        return self._resources.get(name)


class Life(msgspec.Struct, dict=True):
    """One process, from when its plugins start until they stop."""

    name: str
    host: Host
    home: TtlHome
    plugins: dict[str, TTLPlugin]
    random: Random
    tasks: list[asyncio.Task[None]] = []
    over: bool = False


def _kind_of(key: str) -> str | None:
    """Of a write: an entry of the index, or a record."""
    return "entry" if "/due/" in key else "record" if key.startswith("resource=") else None


class TtlStage(Stage):
    """One fleet, its resources, and the judge."""

    name = "ttl"
    mixes = (EVERYTHING, STALLED, DRIFTING, SLOW)

    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, random: Random, config: CoordinatorConfig
    ) -> None:
        super().__init__(cluster, checkers, random, config)
        self.kind = kind = Kind(cluster.world.seed)
        self.judge = Judge(cluster, checkers, kind.rules, quarantine=QUARANTINE)
        lease = config.lease_timeout
        self.ledger = LedgerConfig(
            trim_delay=2.2 * lease,
            retention=max(90.0, 8 * lease),
            snapshot_every=random.choice([5, 15, 60]),
            snapshot_age=60.0,
            send_timeout=5.0,
            give_up_after=15.0,
        )
        strikes = Random(f"{cluster.world.seed}/ttl strikes")
        Strikes(self, strikes, STRUCK, kind_of=_kind_of, counts=self.judge.counts)
        self._lives: dict[str, Life] = {}
        self._births: Counter[str] = Counter()
        self._numbers = 0

    # Life

    async def work(self, worker: SimulatedWorker) -> None:
        assert worker.service is not None
        former = self._lives.get(worker.name)
        if former is not None:
            if former.home._service is worker.service:
                return  # never two in one process
            former.over = True
        self._births[worker.name] += 1
        name = f"{worker.name}-{self._births[worker.name]}"
        random = Random(f"{self.cluster.world.seed}/{name}/user")
        self._lives[worker.name] = life = Life(name, worker.host, TtlHome(self, worker), {}, random)
        for rule in self.kind.rules:
            plugin = life.plugins[rule.name] = self._plugin(rule, worker, Random(f"{name}/{rule.name}/callback"))
            plugin.attach(life.home, rule.name)
            while not await self._started(plugin):
                if life.over:
                    return
                await worker.host.clock.sleep(1.0)
            plugin.on("plg:ttl:halted", lambda event: self.halts.append(event.event.reason))
        life.tasks += [worker.host.start(self._wander(life)), worker.host.start(self._lie_in_wait(life))]

    async def _started(self, plugin: TTLPlugin) -> bool:
        try:
            await plugin.start()
        except (StoreError, CoordinationError):
            return False
        return True

    def _plugin(self, rule: Rule, worker: SimulatedWorker, random: Random) -> TTLPlugin:
        options: dict[str, Any] = {
            "tick": self.kind.tick,
            "quarantine": QUARANTINE,
            "rate_limit": self.kind.rate_limit,
            "on_expire": OnExpire(rule.strategy),
        }
        if rule.strategy == "archive":
            options["archive"] = ARCHIVE
        if rule.strategy == "callback":
            options |= {"backoff": 1.0, "max_backoff": 5.0, "callback_timeout": rule.longest_call}
            options["callback"] = functools.partial(self._call_back, rule, worker, worker.host, random)
        return TTLPlugin(rule.name, ttl=rule.ttl, field=rule.field, ledger=self.ledger, shutdown_timeout=2.0, **options)

    async def restart(self, worker: SimulatedWorker) -> None:
        life = self._lives.get(worker.name)
        if life is None or life.over or not life.tasks:
            return
        life.over = True
        await asyncio.wait(life.tasks)
        for plugin in life.plugins.values():
            await plugin.stop()
        await worker.host.clock.sleep(1.0)
        # Its process may have been started anew meanwhile, and with it the plugins.
        if worker.service is not None and self._lives.get(worker.name) is life:
            del self._lives[worker.name]
            await self.work(worker)

    async def _call_back(
        self, rule: Rule, worker: SimulatedWorker, host: Host, random: Random, expired: Expired
    ) -> None:
        leads = worker.host is host and worker.is_leader()
        decision = self.judge.called(rule, expired, host.name, leads)
        fate = random.random()
        await host.clock.sleep(random.uniform(3.0, 8.0) if fate < 0.03 else random.expovariate(5.0))
        if fate > 0.85:
            raise RuntimeError("it did not work")
        if decision is not None:
            decision.successes += 1

    # What the processes do

    async def _wander(self, life: Life) -> None:
        """Anything, at any time."""
        random = life.random
        while self.cluster.world.now < self.stops_at and not life.over:
            await life.host.clock.sleep(random.expovariate(0.45))
            rule = random.choice(self.kind.rules)
            what = random.random()
            if what < 0.28:
                await self._insert(life, rule, self._given(random))
            elif what < 0.43:
                await self._insert(life, rule, None)
            elif what < 0.50:
                await self._insert_many(life, rule)
            elif what < 0.53 and self.kind.strangers:
                await self._write_past_the_plugin(life, rule)
            else:
                await self._change(life, rule, self._known(random, rule), what)

    async def _change(self, life: Life, rule: Rule, id: str, what: float) -> None:
        if what < 0.68:
            await self._refresh(life, rule, id)
        elif what < 0.73:
            await self._persist(life, rule, id)
        elif what < 0.80:
            await self._patch(life, rule, id)
        elif what < 0.83:
            await self._note(life, rule, id)
        elif what < 0.92:
            await self._delete(life, rule, id)
        elif what < 0.97:
            await self._ask(life, rule, id)
        else:
            await self._clean_up(life, rule)

    async def _lie_in_wait(self, life: Life) -> None:
        """At the last instant: just before a record expires, and until the cleaner has come."""
        random, world, tick = (
            Random(f"{self.cluster.world.seed}/{life.name}/waiting"),
            self.cluster.world,
            self.kind.tick,
        )
        while world.now < self.stops_at and not life.over:
            await life.host.clock.sleep(random.expovariate(0.3))
            near = self.judge.near(3.0)
            if not near:
                continue
            name, id = random.choice(near)
            rule = next(rule for rule in self.kind.rules if rule.name == name)
            expiry = self.judge.expiry_of((name, id))
            assert expiry is not None
            until = self.judge.true_time(expiry) + random.uniform(-0.1, 1.2 * tick + 1.0)
            await life.host.clock.sleep(max(0.0, until - world.now))
            what = random.random()
            if what < 0.55:
                await self._refresh(life, rule, id, at_last_instant=True)
            elif what < 0.65:
                await self._patch(life, rule, id)
            elif what < 0.8:
                await self._delete(life, rule, id)
            if what >= 0.7 and not id.startswith("auto-"):
                await self._insert(life, rule, id)

    async def _insert(self, life: Life, rule: Rule, id: str | None) -> None:
        act = self._act("insert", rule, id, lasts=rule.ttl if rule.field is None else None)
        await self._do(act, life.home.resource(rule.name).insert(self._data(life.random, rule), id))

    async def _insert_many(self, life: Life, rule: Rule) -> None:
        act = self._act("insert many", rule, None, lasts=rule.ttl if rule.field is None else None)
        lasts = life.random.choice([3.0, 20.0])
        items = [self._data(life.random, rule, lasts) for _ in range(life.random.randrange(2, 10))]
        done = await self._do(act, life.home.resource(rule.name).insert_many(items))
        for each in done or ():
            if each.record is not None:
                self.judge.inserted(act, each.id, each.record.version)

    async def _refresh(self, life: Life, rule: Rule, id: str, *, at_last_instant: bool = False) -> None:
        plugin, random = life.plugins[rule.name], life.random
        if rule.field is not None and random.random() < 0.5:
            act = self._act("patch the time", rule, id, at_last_instant=at_last_instant)
            changes = {rule.field: self._moment(random, rule)}
            await self._do(act, life.home.resource(rule.name).patch(id, changes))
            return
        ttl = random.choice([2.0, 8.0, 30.0, 150.0]) if rule.ttl is None or random.random() < 0.5 else None
        act = self._act("touch", rule, id, lasts=ttl if ttl is not None else rule.ttl, at_last_instant=at_last_instant)
        until = await self._do(act, plugin.touch(id, ttl=ttl))
        if act.told is Told.DONE:
            self.judge.touched(act, until)

    async def _persist(self, life: Life, rule: Rule, id: str) -> None:
        await self._do(self._act("persist", rule, id, keeps=True), life.plugins[rule.name].persist(id))

    async def _patch(self, life: Life, rule: Rule, id: str) -> None:
        change = {"n": self._number()}
        await self._do(self._act("patch", rule, id), life.home.resource(rule.name).patch(id, change))

    async def _note(self, life: Life, rule: Rule, id: str) -> None:
        """Something that another plugin keeps with the key."""
        note = self._number()
        change = life.home.resource(rule.name).rewrite(id, lambda data, reserved: (data, {**reserved, "note": note}))
        await self._do(self._act("note", rule, id), change)

    async def _delete(self, life: Life, rule: Rule, id: str) -> None:
        await self._do(self._act("delete", rule, id), life.home.resource(rule.name).delete(id))

    async def _ask(self, life: Life, rule: Rule, id: str) -> None:
        began = self.cluster.world.now
        try:
            told = await life.plugins[rule.name].expires_at(id)
        except (StoreError, RecordNotFound):
            return
        self.judge.expiry_told(rule.name, id, began, told)

    async def _write_past_the_plugin(self, life: Life, rule: Rule) -> None:
        """As a process that does not have it."""
        random, home = life.random, life.home
        resource: Resource[Any] = Resource(home.store, rule.name, clock=home.clock, draw_id=home.draw_id)
        what, id = random.random(), self._known(random, rule)
        if what < 0.3:
            await self._do(self._act("insert", rule, None, is_strange=True), resource.insert(self._data(random, rule)))
        elif what < 0.8 and rule.field is not None:
            change = {rule.field: self._moment(random, rule) if random.random() < 0.8 else None}
            await self._do(self._act("patch the time", rule, id, is_strange=True), resource.patch(id, change))
        else:
            await self._do(self._act("delete", rule, id, is_strange=True), resource.delete(id))

    async def _reindex(self, life: Life, rule: Rule) -> None:
        while True:
            try:
                done = await life.plugins[rule.name].reindex()  # as the cleaner: it writes what others have written
            except TenureError:
                await life.host.clock.sleep(1.0)
            else:
                self.judge.counts["reindexed"] += done.indexed
                return

    async def _clean_up(self, life: Life, rule: Rule) -> None:
        if life.random.random() < 0.3:
            await self._do(self._act("dry run", rule, None), life.plugins[rule.name].run_cleanup(dry_run=True))
            return
        try:
            await life.plugins[rule.name].run_cleanup()
        except (TenureError, TimeoutError):
            pass
        else:
            self.judge.counts["cleanups by hand"] += 1

    def _act(self, verb: str, rule: Rule, id: str | None, **more: Any) -> Act:
        return Act(verb, rule.name, id, self.cluster.world.now, **more)

    async def _do(self, act: Act, call: Awaitable[Any]) -> Any:
        """Make a call, so that the judge knows whose writes are whose and what its caller was told."""
        token = ACT.set(act)
        try:
            result = await call
        except (Conflict, RecordNotFound, InvalidRecord):
            self.judge.told(act, Told.NO)
        except (StoreError, TenureError):
            self.judge.told(act, Told.UNKNOWN)
        else:
            version = result.version if isinstance(result, Record) else None
            self.judge.told(act, Told.DONE, version)
            return result
        finally:
            ACT.reset(token)
        return None

    def _given(self, random: Random) -> str:
        return f"id-{random.randrange(GIVEN_IDS)}"

    def _known(self, random: Random, rule: Rule) -> str:
        """Somebody's record, drawn ids included."""
        known = [id for name, id in self.judge.expiring if name == rule.name] if random.random() < 0.7 else []
        return random.choice(known) if known else self._given(random)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _data(self, random: Random, rule: Rule, lasts: float | None = None) -> dict[str, Any]:
        data: dict[str, Any] = {"n": self._number()}
        if rule.field is not None and random.random() < 0.95:  # else it does not expire
            data[rule.field] = self._moment(random, rule, lasts)
        return data

    def _moment(self, random: Random, rule: Rule, lasts: float | None = None) -> Any:
        """A time for the field, in one of the forms that are allowed."""
        ahead = 0.0 if rule.ttl is not None else lasts if lasts is not None else random.choice([2.0, 10.0, 40.0, 120.0])
        at_ms = self.judge.store_ms() + ahead * 1000
        return random.choice([iso(at_ms), int(at_ms), round(at_ms / 1000), at_ms / 1000])

    # The end

    def conclude(self) -> None:
        world, judge, checkers = self.cluster.world, self.judge, self.checkers
        life = next((life for life in self._lives.values() if life.host.alive and life.tasks and not life.over), None)
        if life is None:
            checkers.report("liveness", "there is no process in which all plugins run")
            return
        slack = max(self.kind.tick, _LEAST_TICK) + _SLACK + (0.0 if self.config.membership else _DOUBT)
        if self.kind.strangers:
            # What was written past the plugin is found from here on: nothing of it is strange any more.
            self.see_through(life.host, *(self._reindex(life, rule) for rule in self.kind.rules))
            judge.strange.clear()
        self.cluster.network.reset()  # the last of the trouble may have left the everyday faults on
        world.run_until(world.now + STEP + 1.0)  # and requests that were lost until now are given up
        judge.begin_calm(slack if not self.kind.rate_limit else float("inf"))
        self.see_through(life.host, *(self._write_in_peace(life, rule) for rule in self.kind.rules))
        # What was written last is in quarantine until then, and callbacks are tried again.
        end = world.now + 1.1 * QUARANTINE + 60.0
        while world.now < end and not checkers.is_settled():
            world.run_until(world.now + STEP)
            if not judge.unfinished(slack) and not judge.waits_for_quarantine():
                break
        for what in judge.unfinished(slack)[:3]:
            checkers.report("liveness", what)
        if not checkers.is_settled():
            self.see_through(life.host, *(self._compare_totals(life, rule) for rule in self.kind.rules))
            judge.check_bounds()

    async def _write_in_peace(self, life: Life, rule: Rule) -> None:
        """Records that expire one after the other while nothing goes wrong: each in time."""
        act = self._act("insert many", rule, None, lasts=rule.ttl if rule.field is None else None)
        items = [self._data(life.random, rule, lasts=2.0) for _ in range(5)]
        for number, each in enumerate(await self._do(act, life.home.resource(rule.name).insert_many(items)) or ()):
            if each.record is not None:
                seconds = 1.0 + number
                touch = self._act("touch", rule, each.id, lasts=seconds)
                await self._do(touch, life.plugins[rule.name].touch(each.id, ttl=seconds))

    async def _compare_totals(self, life: Life, rule: Rule) -> None:
        while True:
            try:
                totals = (await life.plugins[rule.name].stats()).totals
            except TenureError:
                await life.host.clock.sleep(1.0)
            else:
                self.judge.check_totals(rule, totals.expired, totals.archived, totals.called)
                return

    def coverage(self, found: Counter[str]) -> None:
        for name, count in self.judge.counts.items():
            found[f"ttl:{name}"] += count

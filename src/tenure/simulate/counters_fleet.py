"""The fleet of a seed with counters: processes that count and lead, change the same records, and their trouble."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter as Tally
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import msgspec

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database.ids import key_of
from tenure.database.records import Envelope, encode
from tenure.database.resource import Resource
from tenure.entropy import Random
from tenure.errors import (
    Conflict,
    CoordinationError,
    InvalidRecord,
    RecordNotFound,
    RequestNotAnswered,
    StoreError,
    TenureError,
    WriteUnknown,
)
from tenure.ledger import LedgerConfig
from tenure.plugins.counters import EventualConsistencyPlugin, Period
from tenure.simulate.counters_books import Call, LevelBook, Told
from tenure.simulate.counters_judge import (
    ACT,
    BASE,
    FIELDS,
    FOLDER,
    HIGH,
    LATEST,
    LEVEL,
    LIKES,
    LOW,
    MINE,
    PAID,
    RESOURCE,
    SUMS,
    VIEWS,
    WEIGHT,
    Act,
    Judge,
)
from tenure.simulate.counters_kinds import CountersKind
from tenure.simulate.seed import Plan, SeedResult
from tenure.simulate.stage import STEP, Home, Stage, run_stage
from tenure.simulate.strikes import Strikes
from tenure.testing.bucket import SimulatedStore, Write, _Request
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster, SimulatedWorker
from tenure.testing.host import Host
from tenure.testing.mixes import DRIFTING, EVERYTHING, STALLED

RECORDS = ("hot", "warm", "cold")
BARE = ("bare-1", "bare-2")
"""Ids that nobody ever inserts."""
STRUCK = {"record": 0.012, "entry": 0.004, "page": 0.01}
"""Of the writes of records, log entries and pages, so many are their process's last for a while."""
CALL_TIMEOUT = 15.0
_AFTER_CALLS = 40.0
"""Seconds after which a call whose process may have died is taken up by another."""
_ALL = 10_000
_MOST_OWN = 6
"""Of the counters that are one process's alone, so many are gone through at the end once more."""


def run_counters_seed(seed: int, plan: Plan) -> SeedResult:
    with CountersKind(seed).bounds():
        return run_stage(seed, plan, CountersStage)


class OnceStore(SimulatedStore):
    """Where tombstones are removed nothing stands between a process and its store that sends a request twice: what was
    refused did not happen there, and a record that was deleted does not come back. No resource promises more."""

    def _send_badly(self, request: _Request, fault: str) -> None:
        once = self.info.conditional_delete or request.verb == "create"
        is_spared = fault == "repeated" and once and request.key.startswith("resource=")
        super()._send_badly(request, "" if is_spared else fault)


class CountersHome(Home):
    """With a resource, whose writes are known to the judge by the ids that are drawn for them."""

    def __init__(self, stage: CountersStage, host: Host, service: GlobalCoordinatorService | None) -> None:
        super().__init__(stage.cluster, host, service)
        conditional = stage.kind.conditional_delete
        self.store = OnceStore(stage.cluster.bucket, host, stage.cluster.network, conditional_delete=conditional)
        self.draw_id = stage.judge.drawing(stage.cluster.draw_id)
        self.records = self._opened()
        """Shaped by the counters, once they are attached ..."""
        self.strange = self._opened()
        """... and as a process sees them that does not have the plugin."""

    def _opened(self) -> Resource[Any]:
        return Resource(self.store, RESOURCE, clock=self.clock, draw_id=self.draw_id)

    def opened_resource(self, name: str) -> Resource[Any] | None:
        return self.records if name == RESOURCE else None


class Life(msgspec.Struct, dict=True):
    """One process, from when its plugin starts until it stops."""

    name: str
    host: Host
    home: CountersHome
    plugin: EventualConsistencyPlugin
    random: Random
    own: str
    """The id of which it counts a field alone."""
    tasks: list[asyncio.Task[None]] = []
    over: bool = False
    started: bool = False


class CountersStage(Stage):
    """One fleet, its counters, and the judge."""

    name = "counters"
    mixes = (EVERYTHING, STALLED, DRIFTING)

    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, random: Random, config: CoordinatorConfig
    ) -> None:
        super().__init__(cluster, checkers, random, config)
        seed = cluster.world.seed
        self.kind = kind = CountersKind(seed)
        if kind.clock_offset is not None:
            cluster.bucket.clock_offset = kind.clock_offset
        self.judge = Judge(cluster, checkers)
        lease = config.lease_timeout
        self.ledger = LedgerConfig(
            trim_delay=2.2 * lease,
            retention=max(90.0, 8 * lease),
            snapshot_every=random.choice([5, 15, 60]),
            snapshot_age=60.0,
            objects_per_tick=random.choice([12, 1000]),
            send_timeout=5.0,
            give_up_after=15.0,
            in_flight=random.choice([1, 3, 8]),
        )
        shares = Random(f"{seed}/counters strikes")
        Strikes(self, shares, STRUCK, kind_of=_kind_of, counts=self.judge.counts)
        cluster.bucket.watchers.append(self._watch_rest)
        self._lives: dict[str, Life] = {}
        self._births: Tally[str] = Tally()
        self._numbers = itertools.count(1)
        self._outsider: Life | None = None

    # Life

    def begin(self) -> None:
        """One process only counts: it takes no part in the election."""
        host = self.cluster.world.host("producer", rate=self.random.uniform(0.99, 1.01))
        self._outsider = life = self._born("producer", host, None, producer_only=True)

        async def outside() -> None:
            while not await self._started(life):
                await host.clock.sleep(1.0)
            self._go(life)

        host.start(outside())

    async def work(self, worker: SimulatedWorker) -> None:
        assert worker.service is not None
        former = self._lives.get(worker.name)
        if former is not None:
            if former.home._service is worker.service:
                return  # never two in one process
            former.over = True
        life = self._lives[worker.name] = self._born(worker.name, worker.host, worker.service)
        while not await self._started(life):
            if life.over:
                return
            await worker.host.clock.sleep(1.0)
        self._go(life)

    def _born(self, name: str, host: Host, service: GlobalCoordinatorService | None, **options: Any) -> Life:
        kind = self.kind
        self._births[name] += 1
        each = f"{name}-{self._births[name]}"
        plugin = EventualConsistencyPlugin(
            RESOURCE,
            FIELDS,
            ledger=self.ledger,
            shutdown_timeout=2.0,
            interval=kind.interval,
            fold_interval=kind.fold_interval,
            at_once=kind.at_once,
            retention=kind.retention,
            timezone=kind.timezone,
            idle_budget=1800.0,
            **options,
        )
        home = CountersHome(self, host, service)
        plugin.attach(home, RESOURCE)
        return Life(each, host, home, plugin, Random(f"{self.cluster.world.seed}/{each}/user"), f"own-{each}")

    async def _started(self, life: Life) -> bool:
        try:
            await life.plugin.start()
        except (StoreError, CoordinationError):
            return False
        return True

    def _go(self, life: Life) -> None:
        life.started = True
        if life is not self._outsider:
            life.plugin.on("plg:eventual-consistency:halted", lambda event: self.halts.append(event.event.reason))
        for habit in (self._count, self._count_alone, self._look, self._use_records):
            life.tasks.append(life.host.start(habit(life)))

    async def restart(self, worker: SimulatedWorker) -> None:
        life = self._lives.get(worker.name)
        if life is None or life.over or not life.tasks:
            return
        life.over = True
        await asyncio.wait(life.tasks)
        await life.plugin.stop()
        await worker.host.clock.sleep(1.0)
        # Its process may have been started anew meanwhile, and with it the plugin.
        if worker.service is not None and self._lives.get(worker.name) is life:
            del self._lives[worker.name]
            await self.work(worker)

    async def _goes_on(self, life: Life, random: Random, a_second: float) -> bool:
        """After a pause: does it do something more?"""
        if self.cluster.world.now < self.stops_at and not life.over:
            await life.host.clock.sleep(random.expovariate(a_second))
        return self.cluster.world.now < self.stops_at and not life.over

    # Counting

    async def _count(self, life: Life) -> None:
        """What everybody counts: some calls at once, and what others did not hear of."""
        random = life.random
        while await self._goes_on(life, random, 0.16):
            calls = [self._some(life) for _ in range(random.choice([1, 1, 2, 4]))]
            await asyncio.gather(*(self._give(life, call, random.random()) for call in calls if call is not None))
            if random.random() < 0.2:
                await self._take_up(life)

    def _some(self, life: Life) -> Call | None:
        random = life.random
        id = random.choice(RECORDS[:1] * 3 + RECORDS + BARE)
        field = random.choice([VIEWS, VIEWS, VIEWS, LIKES, LIKES, PAID, WEIGHT, BASE, LOW, HIGH, LATEST, LEVEL])
        book = self.judge.book(id, field)
        if not book.has_room:
            return None
        verb = "add"
        if field in (LIKES, PAID, WEIGHT) and random.random() < 0.4:
            verb = "sub"
        elif isinstance(book, LevelBook) and (random.random() < 0.6 or not book.may_be_added_to):
            verb = "set"
        op_id = f"op-{next(self._numbers)}" if field in SUMS and random.random() < 0.3 else None
        return self._call(life, id, field, verb, op_id)

    def _call(self, life: Life, id: str, field: str, verb: str, op_id: str | None = None) -> Call:
        return Call(id, field, verb, self._amount(life.random, field), life.name, self.cluster.world.now, op_id)

    def _amount(self, random: Random, field: str) -> Any:
        """From so many that a sum tells which of them are in it."""
        if field in (PAID, HIGH):
            return Decimal(random.randrange(1, 10**18)).scaleb(-random.choice([0, 2, 6]))
        if field == WEIGHT:
            return random.randrange(1, 2**42) / 1024
        return random.randrange(1, 2**52)

    async def _give(self, life: Life, call: Call, habit: float, *, sync: bool = False) -> None:
        """`habit`: what it does when it is not told. With an `op_id` it gives again; and sometimes for no reason."""
        self.judge.gives(call)
        told = await self._try(life, call, sync=sync)
        tries = 0
        while call.op_id is not None and (told is Told.UNKNOWN or habit < 0.3) and tries < 2:
            tries += 1
            habit = 1.0
            told = await self._try(life, call, sync=sync)
        self.judge.book(call.id, call.field).heard(call)
        if sync and told is Told.DONE:
            self.judge.is_synced(call)

    async def _try(self, life: Life, call: Call, *, sync: bool = False) -> Told:
        plugin = life.plugin
        verbs: dict[str, Callable[..., Awaitable[None]]] = {"add": plugin.add, "sub": plugin.sub, "set": plugin.set}
        self.judge.tries(call)
        options: dict[str, Any] = {"mode": "sync", "timeout": CALL_TIMEOUT} if sync else {}
        try:
            await verbs[call.verb](call.id, call.field, call.amount, op_id=call.op_id, **options)
        except RequestNotAnswered:
            self.judge.counts["sync not answered"] += 1
            self.judge.told(call, Told.DONE)  # it is counted all the same
            return Told.NO
        except WriteUnknown:
            told = Told.UNKNOWN
        except StoreError:
            told = Told.NO
        except TenureError:  # stopped meanwhile
            told = Told.UNKNOWN
        else:
            told = Told.DONE
        self.judge.told(call, told)
        return told

    async def _take_up(self, life: Life) -> None:
        """What some process did not hear of, or could not, is given again by another one."""
        limit = self.cluster.world.now - _AFTER_CALLS
        left = [call for call in self.judge.ops.values() if call.began < limit and call.field != MINE]
        if left:
            self.judge.counts["taken up by another"] += 1
            await self._try(life, life.random.choice(left))

    async def _count_alone(self, life: Life) -> None:
        """A counter of its own: what it gives one after the other is counted in that order."""
        random = Random(f"{self.cluster.world.seed}/{life.name}/own")
        book = self.judge.book(life.own, MINE)
        while book.has_room and await self._goes_on(life, random, 0.08):
            for _ in range(random.randrange(1, 5)):
                verb = random.choice(["add", "add", "sub", "set"])
                op_id = f"op-{next(self._numbers)}" if random.random() < 0.3 else None
                call = self._call(life, life.own, MINE, verb, op_id)
                await self._give(life, call, random.random(), sync=random.random() < 0.1)
                if random.random() < 0.3:
                    await self._look_consistently(life, life.own)

    # Looking

    async def _look(self, life: Life) -> None:
        random = Random(f"{self.cluster.world.seed}/{life.name}/looks")
        while await self._goes_on(life, random, 0.13):
            what, id = random.random(), random.choice((*RECORDS, *BARE, life.own))
            if what < 0.35:
                await self._look_consistently(life, id)
            elif what < 0.55:
                await self._look_at_record(life, id)
            elif what < 0.68:
                await self._count_and_wait(life, random)
            elif what < 0.79:
                await self._consolidate(life, id if random.random() < 0.6 else None)
            elif what < 0.89:
                await self._recalculate(life, id)
            else:
                await self._look_back(life, random, id)

    async def _look_consistently(self, life: Life, id: str) -> None:
        marks = self.judge.marks(id)
        found = await self._quietly(life.plugin.get(id, consistent=True))
        if found is not None:
            self.judge.check_consistent(id, marks, found)

    async def _look_at_record(self, life: Life, id: str) -> None:
        began = self.cluster.world.now
        found = await self._quietly(life.plugin.get(id))
        if found is not None:
            self.judge.check_look(id, began, found)

    async def _count_and_wait(self, life: Life, random: Random) -> None:
        id, field = random.choice((*RECORDS, *BARE)), random.choice(SUMS)
        if self.judge.book(id, field).has_room:
            op_id = f"op-{next(self._numbers)}" if random.random() < 0.5 else None
            await self._give(life, self._call(life, id, field, "add", op_id), random.random(), sync=True)

    async def _consolidate(self, life: Life, id: str | None) -> bool:
        marks = self.judge.marks(id)
        try:
            await life.plugin.consolidate(id, timeout=CALL_TIMEOUT)
        except (TenureError, TimeoutError):
            self.judge.counts["consolidate not answered"] += 1
            return False
        self.judge.check_records("consolidated", marks)
        return True

    async def _recalculate(self, life: Life, id: str) -> bool:
        marks = self.judge.marks(id)
        try:
            found = await life.plugin.recalculate(id, timeout=CALL_TIMEOUT)
        except (TenureError, TimeoutError):
            self.judge.counts["recalculate not answered"] += 1
            return False
        self.judge.check_recalculated(id, marks, found)
        return True

    async def _look_back(self, life: Life, random: Random, id: str) -> None:
        """Whatever it finds: what is right is judged at the end. Here it must only be readable."""
        field, period = random.choice(SUMS), random.choice(["hour", "day", "week", "month"])
        look = random.random()
        if look < 0.5:
            await self._quietly(life.plugin.history(id if look < 0.3 else None, field, period=period))
        else:
            await self._quietly(life.plugin.top(field, period=period) if look < 0.8 else life.plugin.stats())

    async def _quietly(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except TenureError:
            return None

    # The users' own code

    async def _use_records(self, life: Life) -> None:
        """The same records, by processes with the plugin and without."""
        random = Random(f"{self.cluster.world.seed}/{life.name}/records")
        while await self._goes_on(life, random, 0.16):
            id = random.choice((*RECORDS, *RECORDS, life.own))
            is_shaped = random.random() < 0.7
            records = life.home.records if is_shaped else life.home.strange
            what = random.random()
            data = {"n": next(self._numbers)}
            if what < 0.4:
                given = {**data, BASE: random.randrange(1, 2**50)} if random.random() < 0.4 else data
                await self._do(Act("insert", id, is_shaped, data), records.insert(given, id))
            elif what < 0.6:
                await self._do(Act("patch", id, is_shaped, data), records.patch(id, data))
            elif what < 0.72:
                await self._do(Act("update", id, is_shaped, data), records.update(id, data))
            elif what < 0.8 and not is_shaped and VIEWS in self.judge.totals_of(id):
                # What is written to a total past the plugin is undone with the next amount.
                self.judge.counts["written past the plugin"] += 1
                await self._do(Act("patch", id, False, data), records.patch(id, {**data, VIEWS: 7}))
            else:
                await self._do(Act("delete", id, is_shaped), records.delete(id))

    async def _do(self, act: Act, call: Awaitable[Any]) -> None:
        token = ACT.set(act)
        try:
            await call
        except (Conflict, RecordNotFound, InvalidRecord):
            self.judge.act_told(act, Told.NO)
        except TenureError:
            self.judge.act_told(act, Told.UNKNOWN)
        else:
            self.judge.act_told(act, Told.DONE)
        finally:
            ACT.reset(token)

    def _watch_rest(self, write: Write) -> None:
        """Did a leader hold back what came on top of what it offers?"""
        if write.key.startswith("resource=") and (life := self._lives.get(write.host)) is not None:
            leading = life.plugin._leading
            clerk = leading.clerk if leading is not None else None
            if clerk is not None:
                self.judge.counts["held back"] += any(each.rest is not None for each in clerk.machine.waiting.values())

    # The end

    def conclude(self) -> None:
        world, judge, checkers = self.cluster.world, self.judge, self.checkers
        lives = [life for life in self._lives.values() if life.host.alive and life.started and not life.over]
        if not lives:
            checkers.report("liveness", "there is no process in which the counters run")
            return
        life = lives[0]
        self.cluster.network.reset()  # the last of the trouble may have left the everyday faults on
        world.run_until(world.now + STEP + 1.0)  # and requests that were lost until now are given up
        self.see_through(life.host, self._until(lambda: self._consolidate(life, None), life))
        if checkers.is_settled():
            return
        judge.settle()
        judge.check_finals()
        if stale := judge.stale():
            checkers.report("liveness", f"{len(stale)} objects lie in the inbox long after the last fault: {stale[0]}")
        own = [id for id in judge.ids() if id.startswith("own-")]
        ids = [id for id in judge.ids() if id not in own] + self.random.sample(own, min(_MOST_OWN, len(own)))
        self.see_through(life.host, *(self._count_in_peace(life, id) for id in ids))
        if checkers.is_settled():
            return
        judge.check_finals()
        judge.check_shown(ids)
        self.see_through(life.host, *(self._compare(life, id) for id in ids), self._compare_all(life))
        if not checkers.is_settled():
            self._damage(ids)
            self.see_through(life.host, *(self._put_right(life, id) for id in ids))
            judge.check_shown(ids)
            judge.check_bounds()

    async def _until(self, call: Callable[[], Awaitable[bool]], life: Life) -> None:
        while not await call():
            await life.host.clock.sleep(0.5)

    async def _count_in_peace(self, life: Life, id: str) -> None:
        """Once more for each counter, so that what is shown in records is right from here on; and one amount twice."""
        calls = []
        for field in self.judge.fields_of(id):
            op_id = f"op-{next(self._numbers)}" if field == VIEWS else None
            calls.append(self._call(life, id, field, "add", op_id))
        await asyncio.gather(*(self._give(life, call, 0.0, sync=True) for call in calls))

    async def _compare(self, life: Life, id: str) -> None:
        judge, plugin = self.judge, life.plugin
        judge.check_exactly("consistent", id, await plugin.get(id, consistent=True))
        judge.check_exactly("look", id, await plugin.get(id))
        for field in judge.fields_of(id):
            period = life.random.choice(list(Period)[:4])
            judge.check_history(id, field, await plugin.history(id, field, period=period, limit=_ALL))

    async def _compare_all(self, life: Life) -> None:
        judge, plugin = self.judge, life.plugin
        for field in {field for _, field in judge.books}:
            rollup = await plugin.history(None, field, period="month", limit=_ALL)
            judge.check_rollup(field, rollup, whole=self.kind.keeps_all_months)
        for field in SUMS:
            judge.check_top(field, await plugin.top(field, 10))

    def _damage(self, ids: list[str]) -> None:
        """Somebody removes objects, or writes other totals to them, past every rule."""
        bucket, random = self.cluster.bucket, self.random
        for id in ids:
            envelope = self.judge.records[id]
            counted = envelope.reserved["counters"][RESOURCE]
            fate = random.random()
            if fate < 0.2 and not counted.get("starts"):
                bucket.remove(key_of(RESOURCE, id))
                self.judge.counts["removed by hand"] += 1
            elif fate < 0.5:
                totals = {field: 1 if FIELDS[field].kind.value != "decimal" else "1" for field in counted["totals"]}
                bucket.corrupt(key_of(RESOURCE, id), _with_totals(envelope, {**counted, "totals": totals}))
                self.judge.counts["overwritten by hand"] += 1

    async def _put_right(self, life: Life, id: str) -> None:
        """From history alone: as it was before it was damaged, or was not damaged at all."""
        judge = self.judge
        right = {field: judge.books[id, field].total for field in judge.fields_of(id)}
        found = await life.plugin.recalculate(id, timeout=CALL_TIMEOUT)
        judge.check_put_right(id, right, found)

    def coverage(self, found: Tally[str]) -> None:
        for name, count in self.judge.counts.items():
            found[f"counters:{name}"] += count


def _kind_of(key: str) -> str | None:
    """Of a write: a record, an entry of the log, or a page of history."""
    if key.startswith("resource="):
        return "record"
    if not key.startswith(FOLDER):
        return None
    rest = key.removeprefix(FOLDER)
    return "entry" if rest.startswith("log/") else "page" if rest.startswith("pages/") else None


def _with_totals(envelope: Envelope, counted: dict[str, Any]) -> bytes:
    reserved = {**envelope.reserved, "counters": {RESOURCE: counted}}
    return encode(msgspec.structs.replace(envelope, reserved=reserved))

"""The fleet of a seed with a lock: processes that contend for it, hold it for a while, let go, and begin again."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from tenure.coordinator.config import Hosting
from tenure.coordinator.lock import DistributedLock, Held, LockKeeper
from tenure.coordinator.lock.records import LockRecord, decode_lock
from tenure.coordinator.lock.tenancy import Tenancy
from tenure.election.records import encode
from tenure.entropy import Random
from tenure.errors import LockError, LockLost, LockTimeout, StoreError
from tenure.simulate.lock_judge import KEY, LOCK, LockJudge, would_be_held
from tenure.simulate.process_trouble import ROUGH, ProcessTrouble, play_trouble
from tenure.simulate.seed import Plan, Played, SeedResult, play
from tenure.testing.bucket import SimulatedBucket, SimulatedStore
from tenure.testing.mixes import Mix
from tenure.testing.network import Network
from tenure.testing.world import World

TTLS = (1.5, 3.0, 3.0, 4.0, 6.0)
LATE_SECONDS = 8.0
CALM_TTLS = 4.0
"""For each process, in which nothing goes wrong: all of them must get the lock within the sum."""

EVERYTHING = Mix(name="everything", seconds_between_faults=2.5, struck_when_leaving=0.5)
EDGE = Mix(
    name="edge",
    faults=("silence", "freeze", "suspend", "slew", "slow-reads"),
    seconds_between_faults=30.0,
    settings={"ttls": (20.0, 30.0, 40.0)},
    extreme_rates=True,
    struck_when_leaving=0.9,
)
"""Holders stand still now and then, and clocks drift by more within one lease than others take to look."""
LEAVING = Mix(
    name="leaving",
    faults=("cancel", "freeze", "rough", "crash", "touch", "stutter", "stall", "slow-reads", "slow-answers"),
    seconds_between_faults=4.0,
    struck_when_leaving=1.0,
)
"""The lock is given back all the time, and attempts to get it are given up."""
LOSING = Mix(
    name="losing",
    faults=("cut", "stutter", "slow-answers", "slow-reads"),
    seconds_between_faults=6.0,
    settings={"ttls": (4.0, 6.0, 9.0)},
    extreme_rates=True,
    struck_when_leaving=0.0,
)
"""Holders lose the store while they are at work, and nobody stands still: all must end in time."""
LOCK_MIXES = (EVERYTHING, EDGE, LEAVING, LOSING)


class Contender:
    """One process. Its machine outlives it."""

    def __init__(self, fleet: LockFleet, name: str, ttl: float, rate: float) -> None:
        self.fleet = fleet
        self.name = name
        self.ttl = ttl
        self.random = Random(f"{fleet.world.seed}/{name}")
        self.host = fleet.world.host(name, rate=rate)
        self.tenancies: list[Tenancy] = []
        self.grants = 0
        self.paused_at = -1.0
        self.body_since: float | None = None
        self.attempt: asyncio.Task[None] | None = None
        self.ends: Counter[str] = Counter()
        self._starts = itertools.count(1)
        self._ids = itertools.count(1)
        self.start()

    def start(self) -> None:
        if not self.host.alive:
            self.host = self.host.respawn()
        self.tenancies = []
        self.body_since = None
        start = next(self._starts)
        self.keeper = LockKeeper(clock=self.host.clock, hosting=Hosting.LOOP)
        install = self.keeper.install

        def noted(tenancy: Tenancy) -> None:
            install(tenancy)
            self.tenancies.append(tenancy)
            del self.tenancies[:-4]
            self.grants += 1
            self.fleet.judge.granted(self, tenancy.held.token)

        self.keeper.install = noted  # type: ignore[method-assign]
        self.lock = DistributedLock(
            SimulatedStore(self.fleet.bucket, self.host, self.fleet.network),
            LOCK,
            ttl=self.ttl,
            owner=self.name,
            clock=self.host.clock,
            random=Random(f"{self.fleet.world.seed}/{self.name}/{start}"),
            draw_id=lambda: f"{self.name}-{next(self._ids):06d}",
            keeper=self.keeper,
        )
        if self.fleet.busy:
            self.host.start(self._live())

    # What it does

    async def _live(self) -> None:
        while True:
            self.attempt = asyncio.get_running_loop().create_task(self._once())
            await asyncio.wait([self.attempt])
            if not self.attempt.cancelled():
                self.attempt.result()
            await self.host.clock.sleep(self.random.uniform(0.02, 1.0 if self.fleet.calm else 0.4 * self.ttl))

    async def _once(self) -> None:
        dice = self.random.random()
        judge = self.fleet.judge
        try:
            if dice < 0.6:
                async with self.lock as held:
                    await self._body(held)
                    self.ends["released" if held.ended is None else "over"] += 1
                    overtaken = judge.highest > held.token
                if overtaken:
                    judge.left(self.name, held.token, True)
            elif dice < 0.85:
                held = await self.lock.acquire(timeout=self.random.uniform(0.2, 3.0) * self.ttl)
                await self._bare(held)
            else:
                found = await self.lock.try_acquire()
                if found is not None:
                    try:
                        await self.host.clock.sleep(self.random.uniform(0.0, 0.3) * self.ttl)
                        await found.renew()
                    finally:
                        await found.release()
                    self.ends["tried"] += 1
        except LockLost:
            self.ends["lost"] += 1
        except LockTimeout:
            self.ends["timeout"] += 1
        except StoreError:
            self.ends["store"] += 1

    async def _body(self, held: Held) -> None:
        """What is done in `async with`: it is cancelled when the lock is lost, and winds up."""
        self.body_since = self.fleet.world.now
        try:
            await self.host.clock.sleep(self._seconds())
        finally:
            try:
                await self.host.clock.sleep(0.08 * self.ttl)
            finally:
                self.body_since = None

    async def _bare(self, held: Held) -> None:
        """What is done between `acquire()` and `release()`: it asks from time to time, and is told at the end."""
        judge = self.fleet.judge
        overtaken = False
        try:
            seconds, times = self._seconds(), self.random.choice([1, 8])
            for _ in range(times):
                await self.host.clock.sleep(seconds / times)
                held.is_held()
        finally:
            overtaken = judge.highest > held.token  # before this one let it go
            ours = await held.release()
            self.ends["still ours" if ours else "not ours"] += 1
            if overtaken:
                judge.left(self.name, held.token, ours)

    def _seconds(self) -> float:
        return self.random.uniform(0.02, 0.2 if self.fleet.calm else 1.6) * self.ttl

    # For the fleet

    def believing(self) -> list[int]:
        """Tokens that `is_held()` would say true for."""
        live = [each.held for each in self.tenancies if each.held._ended is None] if self.host.alive else []
        return [held.token for held in live if would_be_held(held)]

    def entitled(self) -> list[int]:
        """Tokens under which it may still be winding up."""
        live = [each.held for each in self.tenancies if each.held._holding.lasts > 0] if self.host.alive else []
        return [held.token for held in live if held.time_to_wind_up() > 0]


class LockFleet:
    """Processes and one lock."""

    def __init__(
        self, world: World, workers: int = 5, mix: Mix = EVERYTHING, *, busy: bool = True, until: str | None = None
    ) -> None:
        """`busy`: its processes contend all the time; otherwise they do what they are made to do."""
        self.world = world
        self.mix = mix
        self.busy = busy
        self.calm = False
        self.bucket = SimulatedBucket(world)
        self.network = Network(world)
        self.network.change(None, late_seconds=LATE_SECONDS, slow_seconds=4.0)
        self.random = world.random
        self.judge = LockJudge(world, until)
        rates = [0.99, 1.01, *(mix.rate(self.random) for _ in range(workers - 2))][:workers]
        self.random.shuffle(rates)
        known: tuple[float, ...] = mix.settings.get("ttls", TTLS)
        ttls = [known[number % len(known)] for number in range(workers)]
        self.random.shuffle(ttls)
        self.longest_ttl = max(ttls)
        self.unit = sorted(known)[len(known) // 2]
        """Seconds: a usual ttl."""
        self.bucket.watchers.append(self.judge.written)
        self.nodes = [Contender(self, f"n{number}", ttls[number], rates[number]) for number in range(workers)]
        self.judge.contenders = self.nodes
        world.on_step = self.judge.stepped

    def touch(self) -> None:
        """Somebody who is no contender writes the record again, and changes nothing in it."""
        body = self.bucket.body(KEY)
        if body is not None:
            record = decode_lock(body, LOCK)
            if not isinstance(record, LockRecord):
                return  # by a broken variant
            touched = json.loads(encode(record)) | {"writeId": f"outsider-{self.bucket.versions}"}
            self.bucket.corrupt(KEY, json.dumps(touched).encode())

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)

    def takeover_bound(self) -> float:
        """Seconds within which somebody has the lock after its holder died: its ttl, a poll, and some requests."""
        return self.longest_ttl * 1.02 / 0.99 + 0.1 + 2.5

    def conclude(self, longest_pause: float) -> None:
        """Trouble is over. Somebody gets the lock; when a holder dies, another; in the end all do."""
        judge = self.judge
        self.calm = True
        for node in self.nodes:
            if node.attempt is not None and node.host.alive and not node.host.frozen and not node.believing():
                node.attempt.cancel()  # who gives up must leave nothing behind
        self._see_grants(max(LATE_SECONDS, longest_pause) + self.takeover_bound())
        self._see_death_of_a_holder()
        counts = Counter({node.name: node.grants for node in self.nodes})
        seconds = CALM_TTLS * self.unit * len(self.nodes)
        self.run(seconds)
        judge.check_each_got_it(counts, seconds)

    def _see_grants(self, bound: float) -> None:
        before = len(self.judge.grants)
        self.run(bound)
        self.judge.check_taken_over(before, bound)

    def _see_death_of_a_holder(self) -> None:
        for _ in range(2_000):
            holding = [node for node in self.nodes if node.believing()]
            if holding:
                break
            self.run(0.05)
        else:
            return
        [holder] = holding[:1]
        holder.host.crash()
        bound = self.takeover_bound()
        for number in range(int(bound / 0.3)):
            self.world.call_at(self.world.now + 0.3 * number, self.touch)
        if len(self.nodes) > 1:
            self._see_grants(bound)
        holder.start()


class LockTrouble(ProcessTrouble):
    """With callers that give up, an outsider who touches the record, and reads that are long on their way."""

    def __init__(self, fleet: LockFleet, random: Random, mix: Mix) -> None:
        self._fleet = fleet
        self._stalled: set[str] = set()
        """Who stands still as soon as it sends its next renewal."""
        super().__init__(fleet.world, fleet.network, fleet.nodes, random, mix, fleet.unit)
        fleet.network.on_request = self._sent

    def matters(self, process: Any) -> bool:
        return bool(process.believing())

    def cancel(self) -> bool:
        node: Contender | None = self._some()
        if node is None or node.attempt is None or node.host.frozen:
            return False
        node.attempt.cancel()
        return True

    def touch(self) -> bool:
        for number in range(self._random.randint(1, 12)):
            self._later(0.7 * number, self._fleet.touch)
        return True

    def silence(self) -> bool:
        if (holder := self._holder()) is None:
            return False
        self._silence(holder)
        return True

    def stutter(self) -> bool:
        """The holder hears errors or nothing, for a moment all is well, then it stands still or is cut off."""
        if (holder := self._holder()) is None:
            return False
        network, random, ttl = self._network, self._random, holder.ttl
        deaf, well = random.uniform(0.2, 0.6) * ttl, random.uniform(0.02, 0.2) * ttl
        if random.random() < 0.5:
            network.cut_replies(holder.name)
            self._later(deaf, lambda: network.heal(holder.name))
        else:
            network.change(holder.name, **dict.fromkeys(ROUGH, 0.0) | {"server_error": 1.0})
            self._later(deaf, lambda: network.reset(holder.name))
        self._later(deaf + well, lambda: self._silence(holder))
        return True

    def stall(self) -> bool:
        """The holder stands still when it has sent a renewal, until after its deadline."""
        if (holder := self._holder()) is None:
            return False
        self._stalled.add(holder.name)
        return True

    def _sent(self, host: str, verb: str, key: str, now: float) -> None:
        if verb == "replace" and host in self._stalled:
            self._stalled.discard(host)
            node = next(node for node in self._fleet.nodes if node.name == host)
            if node.believing() and now < self.ends_at:
                seconds = self._random.uniform(0.42, 0.74) * node.ttl
                self._world.call_at(now, lambda: node.host.freeze(seconds) if node.host.alive else None)

    def slow_reads(self) -> bool:
        """Requests of all but the holder are long on their way, and then that one falls silent."""
        if (holder := self._holder()) is None:
            return False
        network, seconds = self._network, self._random.uniform(0.3, 0.7) * holder.ttl
        for node in self._fleet.nodes:
            if node is not holder:
                late = 0.45 * node.lock._rules.request_timeout
                network.change(node.name, latency=(0.5 * late, late))
                self._later(seconds + 0.5 * holder.ttl, lambda name=node.name: network.reset(name))  # type: ignore[misc]
        self._later(seconds, lambda: self._silence(holder))
        return True

    def slow_answers(self) -> bool:
        """The holder hears late of what it wrote, and then falls silent."""
        if (holder := self._holder()) is None:
            return False
        network, seconds = self._network, self._random.uniform(0.5, 1.0) * holder.ttl
        late = 0.9 * holder.lock._rules.request_timeout
        network.change(holder.name, **dict.fromkeys(ROUGH, 0.0) | {"slow_reply": 0.8, "slow_seconds": late})
        self._later(seconds, lambda: network.reset(holder.name))
        self._later(seconds, lambda: self._silence(holder))
        return True

    def _holder(self) -> Contender | None:
        return next((node for node in self._fleet.nodes if node.believing()), None)

    def _silence(self, node: Contender) -> None:
        """For longer than a lease: it stands still, or is cut off."""
        seconds = self._random.uniform(1.3, 2.0) * node.ttl
        if node.host.alive and self._random.random() < self._fleet.mix.struck_when_leaving:
            node.host.freeze(seconds)
            return
        self._network.cut(node.name)
        self._later(seconds, lambda: self._network.heal(node.name))

    kinds: ClassVar[dict[str, tuple[int, Callable[[Any], bool]]]] = {
        "freeze": (5, ProcessTrouble.freeze),
        "suspend": (3, ProcessTrouble.suspend),
        "crash": (4, ProcessTrouble.crash),
        "cancel": (3, cancel),
        "cut": (5, ProcessTrouble.cut),
        "cut-replies": (3, ProcessTrouble.cut_replies),
        "stutter": (4, stutter),
        "outage": (1, ProcessTrouble.outage),
        "rough": (5, ProcessTrouble.rough),
        "slow": (2, ProcessTrouble.slow),
        "slew": (2, ProcessTrouble.slew),
        "wall": (1, ProcessTrouble.wall),
        "touch": (2, touch),
        "silence": (3, silence),
        "stall": (2, stall),
        "slow-reads": (2, slow_reads),
        "slow-answers": (2, slow_answers),
        "network": (1, ProcessTrouble.quirks),
    }


def run_lock_seed(seed: int, plan: Plan) -> SeedResult:
    def run(world: World, mix: Mix) -> Played:
        fleet = LockFleet(world, plan.workers, mix, until=plan.until)
        trouble = LockTrouble(fleet, Random(f"{seed}/lock trouble"), mix)
        return play_trouble(
            fleet,
            trouble,
            plan.minutes,
            terms=lambda: len(fleet.judge.grants),
            seen=partial(_seen, fleet),
            foreseen=(LockError, StoreError),
        )

    return play(seed, plan, LOCK_MIXES, run)


def _seen(fleet: LockFleet, found: Counter[str]) -> None:
    found["lock:granted"] += len(fleet.judge.grants)
    for node in fleet.nodes:
        for end, count in node.ends.items():
            found[f"lock:{end}"] += count

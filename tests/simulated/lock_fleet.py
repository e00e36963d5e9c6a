"""Processes that contend for one lock in simulated time, everything that goes wrong with them, and what must hold.

The checkers know true time and the bucket; they never call `is_held()`, since an answer of false is remembered and may
hide a defect.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenure.coordinator.config import Hosting
from tenure.coordinator.lock import DistributedLock, Held, LockKeeper
from tenure.coordinator.lock.records import LockRecord, decode_lock, lock_key
from tenure.coordinator.lock.tenancy import Tenancy
from tenure.election.records import encode
from tenure.entropy import Random
from tenure.errors import LockError, LockLost, LockTimeout, StoreError
from tenure.testing import Host, Network, SimulatedBucket, SimulatedStore, World
from tenure.testing.bucket import OUTSIDE, Write

NAME = "job"
KEY = lock_key(NAME)
TTLS = (1.5, 3.0, 3.0, 4.0, 6.0)
LATE_SECONDS = 8.0
FAULTS_SECONDS = 100.0
CALM_SECONDS = 60.0

_CALM = {"lost_request": 0.004, "lost_reply": 0.01, "late_landing": 0.006, "repeated": 0.01, "slow_request": 0.006}
_ROUGH = {
    "lost_request": 0.06,
    "lost_reply": 0.15,
    "late_landing": 0.12,
    "repeated": 0.08,
    "slow_request": 0.10,
    "slow_reply": 0.10,
    "server_error": 0.10,
}


class Violation(AssertionError):
    """A promise was broken."""


class Node:
    """One process: contends, holds for a while, lets go, and begins again. Its machine outlives it."""

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
            self.fleet.granted(self, tenancy)

        self.keeper.install = noted  # type: ignore[method-assign]
        self.lock = DistributedLock(
            SimulatedStore(self.fleet.bucket, self.host, self.fleet.network),
            NAME,
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
        try:
            if dice < 0.6:
                async with self.lock as held:
                    await self._body()
                    self.ends["released" if held.ended is None else "over"] += 1
                    overtaken = self._overtaken(held)
                if overtaken:
                    self.fleet.violation = f"{self.name} was not told that token {held.token} had passed on"
            elif dice < 0.85:
                held = await self.lock.acquire(timeout=self.random.uniform(0.2, 3.0) * self.ttl)
                try:
                    await self._body(bare=True)
                finally:
                    overtaken = self._overtaken(held)
                    ours = await held.release()
                    self.ends["still ours" if ours else "not ours"] += 1
                    if ours and overtaken:
                        self.fleet.violation = f"{self.name} was told that token {held.token} was its own to the end"
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

    def _overtaken(self, held: Held) -> bool:
        """Did somebody else get it, before this one let it go?"""
        return self.fleet.highest > held.token

    async def _body(self, *, bare: bool = False) -> None:
        if not bare:
            self.body_since = self.fleet.world.now
        try:
            await self.host.clock.sleep(self.random.uniform(0.02, 0.2 if self.fleet.calm else 1.6) * self.ttl)
        finally:
            try:
                if not bare:
                    await self.host.clock.sleep(0.08 * self.ttl)  # winding up takes a while
            finally:
                self.body_since = None

    # What the checkers ask

    def believing(self) -> list[int]:
        """Tokens that `is_held()` would say true for."""
        live = [t.held for t in self.tenancies if t.held._ended is None] if self.host.alive else []
        if not live:
            return []
        now = self.host.clock.read()
        return [held.token for held in live if held._holding.leading(now) > 0]

    def entitled(self) -> list[int]:
        """Tokens under which it may still be winding up."""
        live = [t.held for t in self.tenancies if t.held._holding.lasts > 0] if self.host.alive else []
        if not live:
            return []
        now = self.host.clock.read()
        return [held.token for held in live if held._holding.remaining(now) > 0]


class LockFleet:
    """Five processes and one lock. What breaks a promise raises `Violation` out of `run`."""

    def __init__(self, seed: int, *, busy: bool = True) -> None:
        self.world = World(seed)
        self.busy = busy
        self.calm = False
        self.bucket = SimulatedBucket(self.world)
        self.network = Network(self.world)
        self.network.change(None, late_seconds=LATE_SECONDS, slow_seconds=4.0)
        self.random = self.world.random
        self.grants: list[tuple[float, str, int]] = []
        self.hit: Counter[str] = Counter()
        self.highest = 0
        self.violation: str | None = None
        self._highest_written = 0
        self._taken: dict[int, str] = {}
        rates = [0.99, 1.01, *(self.random.uniform(0.99, 1.01) for _ in range(3))]
        self.random.shuffle(rates)
        ttls = list(TTLS)
        self.random.shuffle(ttls)
        self.bucket.watchers.append(self._written)
        self.nodes = [Node(self, f"n{i}", ttls[i], rates[i]) for i in range(5)]
        self.world.on_step = self._check

    # What must hold

    def granted(self, node: Node, tenancy: Tenancy) -> None:
        """Called inside the process that got it: what is wrong is noted, and raised where nothing can swallow it."""
        token = tenancy.held.token
        if token <= self.highest:
            self.violation = self.violation or f"token {token} was given to {node.name} after token {self.highest}"
        self.highest = token
        self.grants.append((self.world.now, node.name, token))
        for other in self.nodes:
            # A body that was stopped with its whole process cannot have been cancelled in time; any other must.
            began = other.body_since
            if (
                other is not node
                and began is not None
                and other.host.alive
                and other.paused_at < began
                and not other.host.frozen
            ):
                self.violation = f"{node.name} holds token {token} while the body of {other.name} still runs"

    def _check(self, host: Host) -> None:
        if self.violation is not None:
            raise Violation(f"{self.violation} at {self.world.now}")
        for node in self.nodes:
            if node.host.frozen:
                node.paused_at = self.world.now
        entitled = [(node.name, token) for node in self.nodes for token in node.entitled()]
        if len(entitled) > 1:
            raise Violation(f"{entitled} are held at once at {self.world.now}")
        believing = [(node.name, token) for node in self.nodes for token in node.believing()]
        if len(believing) > 1:
            raise Violation(f"{believing} would all say is_held() at {self.world.now}")

    def _written(self, write: Write) -> None:
        if write.key != KEY or write.host == OUTSIDE:
            return
        record = decode_lock(write.new or b"", NAME)
        if not isinstance(record, LockRecord):
            raise Violation(f"{write.host} wrote a record that cannot be read: {record}")
        if record.token < self._highest_written:
            raise Violation(f"{write.host} wrote token {record.token} after token {self._highest_written}")
        if self._taken.setdefault(record.token, record.uid) != record.uid:
            raise Violation(f"token {record.token} was taken by {self._taken[record.token]} and by {record.uid}")
        self._highest_written = record.token

    # What goes wrong

    def trouble(self, until: float) -> None:
        self.network.change(None, **_CALM)
        kinds = [kind for kind, share in KINDS.items() for _ in range(share)]

        def strike() -> None:
            if self.world.now < until:
                kind = self.random.choice(kinds)
                if getattr(self, f"_{kind}")():
                    self.hit[kind] += 1
                self.world.call_at(min(until, self.world.now + self.random.expovariate(1 / 2.5)), strike)

        self.world.call_at(self.world.now + 1.0, strike)
        self.world.call_at(until, self._put_right)

    def _put_right(self) -> None:
        self.calm = True
        self.network.outage(False)
        self.network.reset()
        self.network.latency_factor = 1.0
        for node in self.nodes:
            self.network.heal(node.name)
            node.host.disarm()
            node.host.set_slew(0.0)
            if not node.host.alive:
                node.start()

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self.world.call_at(self.world.now + seconds, call)

    def _some(self) -> Node | None:
        """Whoever holds it as often as all others together, since that is where trouble matters."""
        live = [node for node in self.nodes if node.host.alive]
        holding = [node for node in live if node.believing()]
        if holding and self.random.random() < 0.5:
            return holding[0]
        return self.random.choice(live) if live else None

    def _ttls(self, least: float, most: float) -> float:
        return self.random.uniform(least, most) * 3.0

    def _freeze(self) -> bool:
        if (node := self._some()) is None:
            return False
        node.host.freeze_after(self.random.randint(1, 40), self._ttls(0.1, 2.5))
        return True

    def _suspend(self) -> bool:
        if (node := self._some()) is None:
            return False
        node.host.suspend_after(self.random.randint(1, 40), self._ttls(0.1, 2.5))
        return True

    def _crash(self) -> bool:
        if (node := self._some()) is None:
            return False
        node.host.crash_after(self.random.randint(1, 60))
        self._later(self._ttls(0.1, 2.0), lambda: node.start() if not node.host.alive else None)
        return True

    def _cancel(self) -> bool:
        if (node := self._some()) is None or node.attempt is None or node.host.frozen:
            return False
        node.attempt.cancel()
        return True

    def _cut(self) -> bool:
        if (node := self._some()) is None:
            return False
        self.network.cut(node.name)
        self._later(self._ttls(0.2, 1.5), lambda: self.network.heal(node.name))
        return True

    def _deaf(self) -> bool:
        if (node := self._some()) is None:
            return False
        self.network.cut_replies(node.name)
        self._later(self._ttls(0.1, 0.9), lambda: self.network.heal(node.name))
        return True

    def _stutter(self) -> bool:
        """Answers are lost, for a moment all is well, then nothing passes: a renewal that is counted wrongly shows."""
        if (node := self._some()) is None:
            return False
        deaf, well, dead = self._ttls(0.1, 0.6), self.random.uniform(0.005, 0.15), self._ttls(1.2, 2.5)
        self.network.cut_replies(node.name)
        self._later(deaf, lambda: self.network.heal(node.name))
        self._later(deaf + well, lambda: self.network.cut(node.name))
        self._later(deaf + well + dead, lambda: self.network.heal(node.name))
        return True

    def _outage(self) -> bool:
        self.network.outage(True)
        self._later(self._ttls(0.1, 1.0), lambda: self.network.outage(False))
        return True

    def _rough(self) -> bool:
        node = self._some() if self.random.random() < 0.6 else None
        self.network.change(node.name if node else None, **_ROUGH)
        seconds = self._ttls(0.5, 2.0)
        if node is None:
            self._later(seconds, lambda: None if self.calm else self.network.change(None, **_CALM))
            return True
        self._later(seconds, lambda: self.network.reset(node.name))
        if self.random.random() < 0.6:
            self._later(seconds, lambda: None if self.calm else self.network.cut(node.name))
            self._later(seconds + self._ttls(1.2, 2.0), lambda: self.network.heal(node.name))
        return True

    def _slow(self) -> bool:
        self.network.latency_factor = self.random.uniform(5, 25)
        self._later(self._ttls(0.5, 2.0), lambda: setattr(self.network, "latency_factor", 1.0))
        return True

    def _slew(self) -> bool:
        if (node := self._some()) is None:
            return False
        node.host.set_slew(self.random.choice([-0.08, 0.08]))
        self._later(self._ttls(2.0, 4.0), lambda: node.host.set_slew(0.0) if node.host.alive else None)
        return True

    def _wall(self) -> bool:
        if (node := self._some()) is None:
            return False
        node.host.step_wall(self.random.choice([-86400.0, -5.0, 0.5, 5.0, 86400.0]))
        return True

    def _touch(self) -> bool:
        """Somebody who is no contender writes the record again and again, and changes nothing in it."""
        for number in range(self.random.randint(1, 12)):
            self._later(0.7 * number, self.touch)
        return True

    def touch(self) -> None:
        body = self.bucket.body(KEY)
        if body is not None:
            record = decode_lock(body, NAME)
            assert isinstance(record, LockRecord)
            touched = json.loads(encode(record)) | {"writeId": f"outsider-{self.bucket.versions}"}
            self.bucket.corrupt(KEY, json.dumps(touched).encode())

    # Running

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)

    def close(self) -> None:
        self.world.on_step = None
        self.world.close()


KINDS = {
    "freeze": 5,
    "suspend": 3,
    "crash": 4,
    "cancel": 3,
    "cut": 5,
    "deaf": 3,
    "stutter": 4,
    "outage": 1,
    "rough": 5,
    "slow": 2,
    "slew": 2,
    "wall": 1,
    "touch": 2,
}


@contextmanager
def lock_fleet(seed: int = 1, *, busy: bool = True) -> Iterator[LockFleet]:
    fleet = LockFleet(seed, busy=busy)
    try:
        yield fleet
    finally:
        fleet.close()


def run_seed(seed: int) -> LockFleet:
    """Trouble, then calm in which everybody must get the lock. Raises `Violation`."""
    with lock_fleet(seed) as fleet:
        fleet.trouble(FAULTS_SECONDS)
        fleet.run(FAULTS_SECONDS)
        # What the last fault left behind: a pause that was under way, a late landing, and then one ttl to lapse.
        longest_pause = 7.5
        bound = max(LATE_SECONDS, longest_pause) + max(TTLS) * 1.02 + 0.1 + 2.5
        before = len(fleet.grants)
        fleet.run(bound)
        if len(fleet.grants) == before:
            raise Violation(f"nobody has held the lock for {bound:g} s since the last fault")
        counts = {node.name: node.grants for node in fleet.nodes}
        fleet.run(CALM_SECONDS)
        starved = [node.name for node in fleet.nodes if node.grants == counts[node.name]]
        if starved:
            raise Violation(f"{starved} did not get the lock within {CALM_SECONDS:g} s of calm")
        errors = [error for _, error in fleet.world.errors if not isinstance(error, LockError | StoreError)]
        if errors:
            raise Violation(f"errors in the programs: {errors[:3]!r}") from errors[0]
        return fleet

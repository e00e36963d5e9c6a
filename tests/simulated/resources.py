"""Processes that write the same few records over a network that misbehaves, and a judge that sees every write.

The judge goes by the bucket alone: each change of each object, in order, and by what each call was told. Its rules:

1. A version of a key is given once. It is one more than that of the object it was written over.
2. What is removed is a tombstone with nothing in `reserved`.
3. A call that returned made exactly one write, as it said; one that said no made none; any other made at most one.
4. A write with `if_version` was made over the very record that its caller had read.
5. A write without one was made over the record that it says it was made from: nothing was lost in between.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tenure.database.records import Envelope
from tenure.database.resource import Resource
from tenure.entropy import Random
from tenure.errors import Conflict, RecordNotFound, StoreError, WriteUnknown
from tenure.testing import Host, Network, SimulatedBucket, SimulatedStore, World
from tenure.testing.bucket import Write

NAME = "things"
HOSTS, IDS = 4, 2


class Mode(msgspec.Struct, frozen=True):
    """A kind of store, and how its resource is used."""

    name: str
    conditional_delete: bool
    drawn: bool
    faults: dict[str, float]


FAULTS = {
    "lost_request": 0.05,
    "lost_reply": 0.06,
    "late_landing": 0.09,
    "slow_request": 0.03,
    "slow_reply": 0.03,
    "server_error": 0.04,
    "late_seconds": 2.0,
    "slow_seconds": 3.0,
    "timeout": 1.0,
}
MODES = (
    Mode("bucket", False, False, {**FAULTS, "repeated": 0.06}),
    # Where tombstones are removed nothing may stand between us and the store that repeats a request.
    Mode("bucket with drawn ids", False, True, FAULTS),
    Mode("directory", True, False, FAULTS),
)


class Call(msgspec.Struct):
    """One call of a method, as its caller saw it."""

    verb: str
    write_ids: list[str]
    told: str = "nothing"
    """`done`, `no`, `unknown`, or `nothing` if its process died."""
    version: int | None = None
    read: tuple[int, str] | None = None
    """With `if_version`: the version and the mark of the record that it was based on."""


class Scenario:
    def __init__(self, seed: int, mode: Mode) -> None:
        self.world = World(seed)
        self.bucket = SimulatedBucket(self.world)
        self.network = Network(self.world)
        self.network.change(**mode.faults)
        self.mode = mode
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self.known = [f"id{number}" for number in range(IDS)] if not mode.drawn else []
        self.told: Counter[str] = Counter()
        self.removed = 0
        self._numbers = itertools.count(1)
        self._writes: dict[str, list[tuple[Envelope | None, Envelope]]] = {}  # by write id
        self._versions: set[tuple[str, int]] = set()
        self.bucket.watchers.append(self._watch)

    def run(self, seconds: float = 40.0) -> None:
        try:
            hosts = [self.world.host(f"h{number}") for number in range(HOSTS)]
            for number, host in enumerate(hosts):
                self._start(host, Random(f"{self.world.seed}/{number}"))
            dice = Random(f"{self.world.seed}/trouble")
            while self.world.now < seconds:
                self.world.run_until(self.world.now + dice.uniform(0.5, 3.0))
                self._trouble(dice)
            self.network.reset()  # the last calls end in peace
            self.world.run_until(seconds + 15.0)
        finally:
            self.world.close()
        self.violations += [f"a process failed: {error}" for error in self.world.errors]
        self._judge()

    def _start(self, host: Host, dice: Random) -> None:
        store = SimulatedStore(self.bucket, host, self.network, conditional_delete=self.mode.conditional_delete)
        host.start(self._work(host, store, dice))

    def _trouble(self, dice: Random) -> None:
        name = f"h{dice.randrange(HOSTS)}"
        host = self.world.hosts[name]
        roll = dice.random()
        if not host.alive:
            return
        if roll < 0.15:
            host.crash_after(dice.randrange(1, 20))
            self.world.call_at(self.world.now + dice.uniform(0.5, 2), self._respawn, name, dice.random())
        elif roll < 0.4:
            host.freeze_after(dice.randrange(1, 10), dice.uniform(0.5, 5.0))

    def _respawn(self, name: str, salt: float) -> None:
        host = self.world.hosts[name]
        if not host.alive:
            self._start(host.respawn(), Random(f"{self.world.seed}/{name}/{salt}"))

    async def _work(self, host: Host, store: SimulatedStore, dice: Random) -> None:
        while True:
            await host.clock.sleep(dice.uniform(0.0, 0.4))
            if self.mode.drawn and (not self.known or dice.random() < 0.15):
                await self._insert(host, store, None)
                continue
            id = dice.choice(self.known[-3:])
            verb = dice.choice(("insert", "insert", "update", "update", "rewrite", "delete", "delete-version"))
            if verb == "insert":
                if not self.mode.drawn:
                    await self._insert(host, store, id)
            elif verb == "rewrite":
                await self._call(host, store, verb, lambda things, mark, id=id: things.rewrite(id, _one_more(mark)))
            elif verb == "delete":
                await self._call(host, store, verb, lambda things, mark, id=id: things.delete(id))
            else:
                await self._by_version(host, store, verb, id, dice)

    async def _insert(self, host: Host, store: SimulatedStore, id: str | None) -> None:
        record = await self._call(host, store, "insert", lambda things, mark: things.insert({"mark": mark, "n": 0}, id))
        if record is not None and id is None:
            self.known.append(record.id)

    async def _by_version(self, host: Host, store: SimulatedStore, verb: str, id: str, dice: Random) -> None:
        things: Resource[dict[str, Any]] = Resource(store, NAME, clock=host.clock, draw_id=_no_write)
        try:
            record = await things.get(id)
        except (StoreError, RecordNotFound):
            return
        await host.clock.sleep(dice.uniform(0.0, 2.0))
        read = (record.version, record.data["mark"])
        data = {"n": record.data["n"] + 1}
        if verb == "update":
            await self._call(
                host, store, verb, lambda things, mark: things.update(id, {**data, "mark": mark}, record.version), read
            )
        else:
            await self._call(host, store, verb, lambda things, mark: things.delete(id, record.version), read)

    async def _call(
        self,
        host: Host,
        store: SimulatedStore,
        verb: str,
        method: Callable[..., Awaitable[Any]],
        read: tuple[int, str] | None = None,
    ) -> Any:
        call = Call(verb, [], read=read)
        self.calls.append(call)

        def draw_id() -> str:
            call.write_ids.append(f"w{next(self._numbers):08d}")
            return call.write_ids[-1]

        things: Resource[dict[str, Any]] = Resource(store, NAME, clock=host.clock, draw_id=draw_id)
        result = None
        try:
            result = await method(things, f"m{next(self._numbers)}")
            call.told = "done"
            call.version = result.version if result is not None else None
        except (Conflict, RecordNotFound):
            call.told = "no"
        except WriteUnknown:
            call.told = "unknown"
        except StoreError:
            # A read failed. Before the first write that means "no", after it "unknown"; only the caller's view counts.
            call.told = "unknown"
        self.told[f"{verb} {call.told}"] += 1
        return result

    def _watch(self, write: Write) -> None:
        old = None if write.old is None else msgspec.json.decode(write.old, type=Envelope)
        if write.new is None:
            self.removed += 1
            assert old is not None
            if not old.deleted or old.reserved:
                self._object(f"{write.verb} by {write.host} removed a living record: {old.data}, version {old.version}")
            return
        new = msgspec.json.decode(write.new, type=Envelope)
        if (write.key, new.version) in self._versions:
            self._object(f"version {new.version} of {write.key} was given twice")
        self._versions.add((write.key, new.version))
        if old is not None and new.version != old.version + 1:
            self._object(f"version {new.version} of {write.key} was written over {old.version}")
        if old is not None and not old.deleted and not new.deleted and new.data["n"] != old.data["n"] + 1:
            self._object(f"{new.data} was written over {old.data}: an update was lost")
        if old is not None and not old.deleted and new.data.get("n") == 0:
            self._object(f"an insert overwrote {old.data}")
        self._writes.setdefault(new.write_id, []).append((old, new))

    def _judge(self) -> None:
        for call in self.calls:
            made = [write for write_id in call.write_ids for write in self._writes.get(write_id, [])]
            if len(made) > 1:
                self._object(f"{call.verb}, told {call.told!r}, made {len(made)} writes")
            if call.told == "done" and len(made) != 1:
                self._object(f"{call.verb} was acknowledged, and made {len(made)} writes")
            if call.told == "no" and made:
                self._object(f"{call.verb} was told no, and was applied")
            for old, new in made:
                if call.version is not None and new.version != call.version:
                    self._object(f"{call.verb} was told version {call.version}, and wrote {new.version}")
                if call.read is not None and (old is None or (old.version, old.data.get("mark")) != call.read):
                    self._object(f"{call.verb} of version {call.read} was made over {old}")

    def _object(self, violation: str) -> None:
        self.violations.append(f"{self.mode.name}, seed {self.world.seed}: {violation}")


def _one_more(mark: str) -> Any:
    return lambda data, reserved: ({"n": data["n"] + 1, "mark": mark}, reserved)


def _no_write() -> str:
    raise AssertionError("a read drew a write id")

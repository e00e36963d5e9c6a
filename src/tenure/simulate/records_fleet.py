"""The fleet of a seed with records: processes that insert, update and delete the same few, each with its own client."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar

from tenure.database.ids import key_of
from tenure.database.resource import Resource
from tenure.entropy import Random
from tenure.errors import Conflict, RecordNotFound, StoreError, WriteUnknown
from tenure.simulate.process_trouble import ProcessTrouble, play_trouble
from tenure.simulate.records_judge import Call, RecordsJudge
from tenure.simulate.seed import Plan, Played, SeedResult, play
from tenure.testing.bucket import SimulatedBucket, SimulatedStore
from tenure.testing.mixes import Mix
from tenure.testing.network import Network
from tenure.testing.world import World

RESOURCE = "things"
IDS = ("id0", "id1")
LATE_SECONDS = 2.0
UNIT = 2.0
"""Seconds that a usual fault lasts."""
CALM_SECONDS = 10.0
"""In which processes go on, and nothing goes wrong any more."""

_OFTEN = {
    "lost_request": 0.05,
    "lost_reply": 0.06,
    "late_landing": 0.09,
    "slow_request": 0.03,
    "slow_reply": 0.03,
    "server_error": 0.04,
}
_TIMES = {"late_seconds": LATE_SECONDS, "slow_seconds": 3.0, "timeout": 1.0}
RECORDS_MIXES = (
    Mix(name="bucket", seconds_between_faults=2.5),
    Mix(name="drawn-ids", seconds_between_faults=2.5, settings={"drawn": True, "repeated": False}),
    Mix(name="directory", seconds_between_faults=2.5, settings={"conditional_delete": True, "repeated": False}),
)
"""Kinds of store, and how they are used. Where tombstones are removed nothing may repeat a request."""


class Client:
    """One process."""

    def __init__(self, fleet: RecordsFleet, name: str, rate: float) -> None:
        self.fleet = fleet
        self.name = name
        self.host = fleet.world.host(name, rate=rate)
        self._starts = itertools.count(1)
        self.start()

    def start(self) -> None:
        if not self.host.alive:
            self.host = self.host.respawn()
        conditional = self.fleet.conditional_delete
        self._store = SimulatedStore(self.fleet.bucket, self.host, self.fleet.network, conditional_delete=conditional)
        self._random = Random(f"{self.fleet.world.seed}/{self.name}/{next(self._starts)}")
        self.host.start(self._live())

    async def _live(self) -> None:
        random, fleet = self._random, self.fleet
        while fleet.is_open:
            await self.host.clock.sleep(random.uniform(0.0, 0.4))
            if fleet.drawn and (not fleet.known or random.random() < 0.15):
                await self._insert(None)
                continue
            id = random.choice(fleet.known[-3:])
            verb = random.choice(("insert", "insert", "update", "update", "rewrite", "delete", "delete-version"))
            if verb == "insert":
                if not fleet.drawn:
                    await self._insert(id)
            elif verb == "rewrite":
                await self._call(verb, lambda things, mark, id=id: things.rewrite(id, _one_more(mark)))
            elif verb == "delete":
                await self._call(verb, lambda things, mark, id=id: things.delete(id))
            else:
                await self._by_version(verb, id)

    async def _insert(self, id: str | None) -> None:
        record = await self._call("insert", lambda things, mark: things.insert({"mark": mark, "n": 0}, id))
        if record is not None and id is None:
            self.fleet.known.append(record.id)

    async def _by_version(self, verb: str, id: str) -> None:
        try:
            record = await self._opened(_no_write).get(id)
        except (StoreError, RecordNotFound):
            return
        await self.host.clock.sleep(self._random.uniform(0.0, 2.0))
        read = (record.version, record.data["mark"])
        data = {"n": record.data["n"] + 1}
        if verb == "update":
            update = lambda things, mark: things.update(id, {**data, "mark": mark}, record.version)  # noqa: E731
            await self._call(verb, update, read)
        else:
            await self._call(verb, lambda things, mark: things.delete(id, record.version), read)

    async def _call(self, verb: str, method: Callable[..., Awaitable[Any]], read: tuple[int, str] | None = None) -> Any:
        call, fleet = Call(verb, [], read=read), self.fleet
        # Where ids are drawn a record that is gone may have been ours: on a bucket that leaves a caller in doubt.
        calm = fleet.calm and not fleet.drawn
        fleet.judge.began(call)

        def draw_id() -> str:
            call.write_ids.append(f"w{next(fleet.numbers):08d}")
            return call.write_ids[-1]

        result = None
        try:
            result = await method(self._opened(draw_id), f"m{next(fleet.numbers)}")
            call.told = "done"
            call.version = result.version if result is not None else None
        except (Conflict, RecordNotFound):
            call.told = "no"
        except (WriteUnknown, StoreError):
            # A read that failed before the first write means "no", but not to its caller.
            call.told = "unknown"
        fleet.judge.ended(call, calm)
        return result

    async def look(self) -> None:
        """Read all there is, when nobody writes."""
        for id in self.fleet.known[-20:]:
            try:
                version = (await self._opened(_no_write).get(id)).version
            except RecordNotFound:
                version = None
            self.fleet.judge.check_read(key_of(RESOURCE, id), version)

    def _opened(self, draw_id: Callable[[], str]) -> Resource[dict[str, Any]]:
        return Resource(self._store, RESOURCE, clock=self.host.clock, draw_id=draw_id)


class RecordsFleet:
    """Processes and one resource."""

    def __init__(self, world: World, workers: int, mix: Mix, until: str | None = None) -> None:
        self.world = world
        self.conditional_delete = bool(mix.settings.get("conditional_delete"))
        self.drawn = bool(mix.settings.get("drawn"))
        self.calm = False
        self.is_open = True
        self.bucket = SimulatedBucket(world)
        self.network = Network(world)
        self.network.change(None, **_TIMES)
        self.judge = RecordsJudge(world, until)
        self.bucket.watchers.append(self.judge.written)
        self.known: list[str] = [] if self.drawn else list(IDS)
        self.numbers = itertools.count(1)
        self.clients = [Client(self, f"h{number}", mix.rate(world.random)) for number in range(workers)]

    def conclude(self, longest_pause: float) -> None:
        """Trouble is over. What is on its way lands; then all go on for a while, stop, and read what there is."""
        world = self.world
        world.run_until(world.now + max(10.0, longest_pause) + LATE_SECONDS)
        self.calm = True
        world.run_until(world.now + CALM_SECONDS)
        self.is_open = False
        world.run_until(world.now + 5.0)
        for client in self.clients:
            client.host.start(client.look())
        world.run_until(world.now + 5.0)
        self.judge.check_calls()


class RecordsTrouble(ProcessTrouble):
    """Answers are lost, and writes land late, all the time."""

    callbacks = 20
    calm: ClassVar[dict[str, float]] = {**_OFTEN, "repeated": 0.06}
    kinds: ClassVar[dict[str, tuple[int, Callable[[Any], bool]]]] = {
        "freeze": (5, ProcessTrouble.freeze),
        "suspend": (1, ProcessTrouble.suspend),
        "crash": (4, ProcessTrouble.crash),
        "cut": (1, ProcessTrouble.cut),
        "cut-replies": (2, ProcessTrouble.cut_replies),
        "outage": (1, ProcessTrouble.outage),
        "rough": (2, ProcessTrouble.rough),
        "slow": (1, ProcessTrouble.slow),
        "wall": (1, ProcessTrouble.wall),
        "network": (8, ProcessTrouble.quirks),
    }


def run_records_seed(seed: int, plan: Plan) -> SeedResult:
    def run(world: World, mix: Mix) -> Played:
        # With faults of its own choice a seed has the store that it would have had.
        store = RECORDS_MIXES[seed % len(RECORDS_MIXES)] if plan.faults else mix
        fleet = RecordsFleet(world, plan.workers, store, plan.until)
        never = () if store.settings.get("repeated", True) else ("repeated",)
        random = Random(f"{seed}/records trouble")
        trouble = RecordsTrouble(world, fleet.network, fleet.clients, random, mix, UNIT, never=never)
        return play_trouble(
            fleet,
            trouble,
            plan.minutes,
            terms=lambda: len(fleet.judge.calls),
            seen=partial(_seen, fleet),
            foreseen=(StoreError,),
        )

    return play(seed, plan, RECORDS_MIXES, run)


def _seen(fleet: RecordsFleet, found: Counter[str]) -> None:
    for what, count in fleet.judge.told.items():
        found[f"records:{what}"] += count
    found["records:tombstones removed"] += fleet.judge.removed


def _one_more(mark: str) -> Any:
    return lambda data, reserved: ({"n": data["n"] + 1, "mark": mark}, reserved)


def _no_write() -> str:
    raise AssertionError("a read drew a write id")

"""Leaders that follow each other, producers and readers in simulated time, on a bucket that misbehaves.

The machine is a list of texts. At the end every text that was acknowledged is in it once, in its producer's order;
whoever read along was told what is in the log, and nothing else.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from tenure.entropy import Random
from tenure.errors import LeadershipLost, LedgerError, StoreError, WriteUnknown
from tenure.ledger import LedgerConfig, LedgerState, LedgerTerm, LogEntry, Producer, Resync, Tail, ledger_store
from tenure.ledger.layout import log_key, parse_number
from tenure.ledger.leader import Overtaken
from tenure.ledger.records import decode_entry
from tenure.testing import Host, Network, SimulatedBucket, SimulatedStore, World
from tenure.testing.bucket import Write
from tenure.testing.machine import EPOCH_SECONDS
from tests.support.lease import ScriptedLease
from tests.unit.ledgers import Notes, NotesClerk, compose

FOLDER = "plugin=notes/name=n/"
CONFIG = LedgerConfig(
    trim_delay=12.0,
    retention=90.0,
    snapshot_every=6,
    snapshot_age=30.0,
    objects_per_tick=10,
    send_timeout=5.0,
    give_up_after=15.0,
    in_flight=3,
    batch_bytes=40,
)
TERM = 20.0


class Scene:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.random = Random(f"{seed}/ledger")
        self.bucket = SimulatedBucket(self.world)
        self.network = Network(self.world)
        self.entries: dict[int, bytes] = {}
        self.ghosts = 0
        self.acknowledged: dict[str, list[str]] = {}
        self.unknown = 0
        self.read: dict[str, dict[int, bytes]] = {}
        self.resyncs = 0
        self.terms = 0
        self.halted: list[str] = []
        self._ids = itertools.count(1)
        self.bucket.watchers.append(self._written)

    def _written(self, write: Write) -> None:
        key = write.key.removeprefix(FOLDER)
        number = parse_number(key) if key.startswith("log/") else None
        if number is not None and write.new is not None:
            if number in self.entries:
                self.ghosts += write.new != self.entries[number]
                assert write.old is None, f"entry {number} was written over"
            else:
                self.entries[number] = write.new

    def draw_id(self) -> str:
        return f"id{next(self._ids):08d}"

    def store(self, host: Host) -> Any:
        return ledger_store(SimulatedStore(self.bucket, host, self.network), "notes", "n")

    def lead(self, name: str, epoch: int) -> Host:
        """From now on, for less than `TERM`."""
        host = self.world.host(name)
        host.start(self._lead(host, ScriptedLease(epoch, left=TERM * 0.95, clock=host.clock)))
        return host

    async def _lead(self, host: Host, lease: ScriptedLease) -> None:
        async def now() -> float:
            return EPOCH_SECONDS + self.world.now

        while True:
            term = LedgerTerm(
                self.store(host),
                lease,
                NotesClerk(),
                config=CONFIG,
                clock=host.clock,
                draw_id=self.draw_id,
                now=now,
            )
            try:
                await term.begin()
                self.terms += 1
                while True:
                    try:
                        more = (await term.tick()).more
                    except StoreError:
                        more = False
                    if not more:
                        await host.clock.sleep(0.2)
            except LeadershipLost:
                return
            except (StoreError, Overtaken):
                await host.clock.sleep(0.3)
            except LedgerError as error:
                self.halted.append(str(error))
                return
            finally:
                await term.aclose()

    async def produce(self, host: Host, name: str, until: float) -> None:
        random = Random(f"{self.world.seed}/{name}")
        producer = Producer(self.store(host), compose, config=CONFIG, clock=host.clock, draw_id=self.draw_id)
        told = self.acknowledged[name] = []
        for number in itertools.count(1):
            if self.world.now >= until:
                return
            text = f"{name}-{number}"
            try:
                await producer.submit(text, 10)
                told.append(text)
            except WriteUnknown:
                self.unknown += 1
            except StoreError:
                pass
            await host.clock.sleep(random.choice([0.05, 0.5, 2.0]))
            if random.random() < 0.02:
                await host.clock.sleep(CONFIG.retention + 30.0)  # silent for so long that it is forgotten

    async def follow(self, host: Host, name: str) -> None:
        tail = Tail(self.store(host), config=CONFIG, clock=host.clock)
        seen = self.read[name] = {}
        while True:
            try:
                if not tail.position:
                    await tail.start()
                found = await tail.poll()
            except StoreError:
                await host.clock.sleep(0.5)
                continue
            if found is Resync.LOST:
                self.resyncs += 1
                tail.position = 0
            elif isinstance(found, LogEntry):
                seen[found.seq] = found.write_id.encode()
                tail.took(found)
            else:
                await host.clock.sleep(0.3)

    def conclude(self) -> Notes:
        machine = Notes()
        state = LedgerState(machine)
        for number in range(1, max(self.entries) + 1):
            entry = decode_entry(self.entries[number], number)
            assert isinstance(entry, LogEntry)
            state.apply(entry)
        for name, seen in self.read.items():
            for number, write_id in seen.items():
                real = decode_entry(self.entries[number], number)
                assert isinstance(real, LogEntry)
                assert real.write_id.encode() == write_id, f"{name} has read a ghost of entry {number}"
        return machine


@pytest.mark.req("SQ-1")
@pytest.mark.parametrize("seed", [3, 4, 21, 117, 136, 159])
def test_acknowledged_once_and_in_order(seed: int) -> None:
    scene = Scene(seed)
    world, random = scene.world, scene.random
    end = 420.0
    with world:
        scene.network.change(
            lost_request=0.01, lost_reply=0.02, late_landing=0.02, repeated=0.01, slow_reply=0.01, server_error=0.01
        )
        for name in ("p", "q"):
            host = world.host(name)
            host.start(scene.produce(host, name, end))
        readers = [world.host(name) for name in ("r", "s")]
        for host in readers:
            host.start(scene.follow(host, host.name))
        epoch = 0
        while world.now < end + 400.0:
            epoch += 1
            leader = scene.lead(f"leader{epoch}", epoch)
            calm = world.now >= end
            if calm:
                scene.network.reset()
            if not calm:
                fate = random.random()
                if fate < 0.3:
                    leader.crash_after(random.randrange(1, 400))
                elif fate < 0.6:
                    leader.freeze_after(random.randrange(1, 400), random.uniform(5.0, 60.0))
                if random.random() < 0.3:
                    random.choice(readers).freeze(random.uniform(5.0, 40.0))
            world.run_until(world.now + TERM)
        assert scene.halted == []
        machine = scene.conclude()
        assert len(machine.texts) == len(set(machine.texts)), "folded twice"
        for name, told in scene.acknowledged.items():
            assert len(told) > 20
            mine = set(told)
            assert [text for text in machine.texts if text in mine] == told, f"of {name}: lost, or out of order"
        assert scene.bucket.keys(FOLDER + "inbox/") == []
        assert len(scene.bucket.keys(FOLDER + "log/")) < len(scene.entries), "nothing was ever trimmed"
        assert min(len(seen) for seen in scene.read.values()) > 20
        assert scene.terms > 15
    assert all(isinstance(error, StoreError) for _, error in world.errors)


def test_a_ghost_below_the_trim_is_read_by_nobody() -> None:
    """A leader is paused with its entry under way, until that number was trimmed and the entry lands once more."""
    scene = Scene(77)
    world = scene.world
    with world:
        host = world.host("p")
        host.start(scene.produce(host, "p", 200.0))
        reader = world.host("r")
        reader.start(scene.follow(reader, "r"))
        for epoch in range(1, 9):
            scene.lead(f"leader{epoch}", epoch)
            world.run_until(world.now + TERM)
        numbers = [parse_number(key.removeprefix(FOLDER)) for key in scene.bucket.keys(FOLDER + "log/")]
        lowest = min(number for number in numbers if number is not None)
        assert lowest > 5
        reader.freeze(CONFIG.trim_delay + 1.0)
        for number in range(1, lowest):
            ghost = LogEntry(write_id="ghost", seq=number, epoch=1, time_ms=0, events=msgspec.Raw(b'["ghost"]'))
            scene.bucket.corrupt(FOLDER + log_key(number), msgspec.json.encode(ghost))
        for epoch in range(9, 13):
            scene.lead(f"leader{epoch}", epoch)
            world.run_until(world.now + TERM)
        assert scene.ghosts
        assert "ghost" not in scene.conclude().texts
        assert scene.halted == []

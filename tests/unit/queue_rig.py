"""A queue in simulated time: one leader whose lease is valid, workers, producers, and a store that does as it is told.

Nothing here is drawn at random but latencies, and those by a seed: a run is the same each time. What was acked in time
is remembered, and `again` holds what was given out afterwards nevertheless.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import msgspec

from tenure.database.time import StoreTime
from tenure.entropy import Random
from tenure.ledger import LedgerConfig, LogEntry, Producer, Receipt, ledger_store
from tenure.ledger.records import decode_entry
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.queue.hand import Hand
from tenure.plugins.queue.leading import Leading
from tenure.plugins.queue.outgoing import compose, encode_messages, options_from
from tenure.plugins.queue.records import Ticket, Work
from tenure.plugins.queue.settings import settings_from
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.wire import Command, Outcome
from tenure.plugins.queue.worker import QueueWorker
from tenure.testing import Conditions, Host, Network, SimulatedBucket, SimulatedStore, World, Write
from tests.support.lease import ScriptedLease
from tests.support.store import ScriptedStore

FOLDER = "plugin=s3-queue/name=jobs/"
LOG = FOLDER + "log/"
INBOX = FOLDER + "inbox/"


class Leader:
    def __init__(self, rig: Rig, epoch: int, rate: float, name: str) -> None:
        self.host = rig.world.host(name, rate=rate)
        self.store = rig.store(self.host)
        self.lease = ScriptedLease(epoch)
        self.leading = Leading(
            ledger_store(self.store, "s3-queue", "jobs"),
            self.lease,  # type: ignore[arg-type]
            rig.settings,
            ledger=rig.ledger,
            clock=self.host.clock,
            random=Random(1),
            draw_id=rig.draw_id,
            time=StoreTime(self.store, clock=self.host.clock, draw_id=rig.draw_id),
            bell=asyncio.Event(),
            is_alive=lambda name: None,
            emit=rig.events.append,
            on_entry=lambda entry: self.on_entry(entry),
        )
        self.on_entry: Callable[[LogEntry], None] = lambda entry: None
        self.host.start(self.leading.run())

    @property
    def machine(self) -> QueueMachine:
        assert self.leading.machine is not None, f"nobody decides: {self.leading.halted}"
        return self.leading.machine


class Worker:
    def __init__(
        self, rig: Rig, handler: Callable[..., Any] | None, name: str, host: Host | None, options: Any
    ) -> None:
        self.host = host if host is not None else rig.world.host(name)
        self.store = rig.store(self.host)
        store = ledger_store(self.store, "s3-queue", "jobs")
        self.producer = Producer(store, compose, config=rig.ledger, clock=self.host.clock, draw_id=rig.draw_id)
        self.queue = QueueWorker(
            store,
            self.producer,
            name=name,
            settings=rig.settings,
            ledger=rig.ledger,
            clock=self.host.clock,
            handler=handler,
            on_acked=rig.was_acked,
            **options,
        )
        self.host.start(self.queue.start())


class Client:
    """Enqueues, and takes no part in anything else."""

    def __init__(self, rig: Rig, name: str) -> None:
        self.host = rig.world.host(name)
        self.store = rig.store(self.host)
        self.producer = Producer(
            ledger_store(self.store, "s3-queue", "jobs"),
            compose,
            config=rig.ledger,
            clock=self.host.clock,
            draw_id=rig.draw_id,
        )


class _Home:
    """What a plugin is attached to."""

    def __init__(self, rig: Rig, host: Host) -> None:
        self.clock = host.clock
        self.worker_id = host.name
        self.store = rig.store(host)
        self.random = Random(1)
        self.draw_id = rig.draw_id


class Rig:
    def __init__(self, *, ledger: LedgerConfig | None = None, seed: int = 1, **settings: Any) -> None:
        self.world = World(seed)
        self.network = Network(self.world, Conditions(latency=(0.002, 0.02), timeout=30.0))
        self.bucket = SimulatedBucket(self.world)
        quick = {"tick_interval": 0.05, "load_interval": 0.05, "poll_interval": 0.1}
        self.settings = settings_from({**quick, **settings})
        self.ledger = ledger if ledger is not None else LedgerConfig()
        self.handled: list[Any] = []
        """Whatever handlers put into it."""
        self.acked: set[tuple[str, int]] = set()
        self.again: list[str] = []
        self.tickets: list[tuple[float, Ticket]] = []
        self.entry_sizes: list[int] = []
        self.events: list[Any] = []
        self._latest: dict[tuple[str, int], int] = {}
        self._ids = itertools.count(1)
        self.bucket.watchers.append(self._written)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.world.close()
        if kind is None:
            assert not self.world.errors

    # Who there is

    def lead(self, epoch: int = 1, rate: float = 1.0, name: str = "leader") -> Leader:
        return Leader(self, epoch, rate, name)

    def work(
        self, handler: Callable[..., Any] | None, name: str = "w", *, host: Host | None = None, **options: Any
    ) -> Worker:
        return Worker(self, handler, name, host, options)

    def client(self, name: str = "client") -> Client:
        return Client(self, name)

    def plugin(self, name: str = "client") -> tuple[S3QueuePlugin, Host, ScriptedStore]:
        """A whole plugin that only enqueues; to be started."""
        host = self.world.host(name)
        home = _Home(self, host)
        plugin = S3QueuePlugin("jobs", producer_only=True, ledger=self.ledger)
        plugin.attach(home, "jobs")  # type: ignore[arg-type]
        return plugin, host, home.store

    def store(self, host: Host) -> Any:
        return ScriptedStore(inner=SimulatedStore(self.bucket, host, self.network))

    def draw_id(self) -> str:
        return f"id{next(self._ids):012d}"

    # What they do

    def at(self, time: float, host: Host, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.world.call_at(time, lambda: host.start(call()))

    def enqueue(self, time: float, producer: Client | Worker, *bodies: Any, **options: Any) -> None:
        async def call() -> None:
            await self.submit(producer.producer, *bodies, **options)

        self.at(time, producer.host, call)

    async def submit(self, producer: Producer, *bodies: Any, **options: Any) -> Receipt:
        messages, size = encode_messages(bodies, options_from(**options), self.settings)
        return await producer.submit(messages, size, ordered=messages.ordered)

    async def command(self, producer: Producer, op: str, *refs: str) -> None:
        await producer.submit(Command(op, list(refs)), 300)

    def run(self, until: float) -> None:
        self.world.run_until(until)

    # What came of it

    def _written(self, write: Write) -> None:
        if write.new is None or not write.key.startswith(LOG):
            return
        self.entry_sizes.append(len(write.new))
        entry = decode_entry(write.new, int(write.key[-20:]))
        assert isinstance(entry, LogEntry)
        if entry.decided is None:
            return
        for ticket in msgspec.json.decode(entry.decided, type=Work).tickets:
            self.tickets.append((self.world.now, ticket))
            for run in ticket.runs:
                for place in ((run.segment, index) for index in range(run.low, run.high)):
                    self._latest[place] = ticket.seq
                    if place in self.acked:
                        self.again.append(f"{self.world.now:.2f} s: {place} was acked, and is in ticket {ticket.id}")

    def was_acked(self, hand: Hand, outcome: Outcome) -> None:
        places = [(run.segment, index) for run in hand.runs for index in range(run.low, run.high)]
        if not outcome.all_done:
            places = [(piece.segment, index) for piece in outcome.done for index in range(piece.low, piece.high)]
        for place in places:
            self.acked.add(place)
            if self._latest[place] > hand.token:
                self.again.append(
                    f"{self.world.now:.2f} s: {place} was acked under {hand.id}, and was given out before"
                )

    @property
    def inbox(self) -> list[str]:
        return self.bucket.keys(INBOX)

"""A schedule in simulated time: leaders whose leases the test ends, and a store that does as it is told."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from tenure.database.time import StoreTime
from tenure.entropy import Random
from tenure.ledger import LedgerConfig, LogEntry, Producer, ledger_store
from tenure.ledger.records import decode_entry
from tenure.plugins.scheduler.calls import Calls
from tenure.plugins.scheduler.job import JobOptions, Origin, Schedule, encode_job, job_from
from tenure.plugins.scheduler.leading import ScheduleLeading
from tenure.plugins.scheduler.queues import Queues
from tenure.plugins.scheduler.records import Event, Fired, Passed, decode_work
from tenure.plugins.scheduler.registry import Registry
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.wire import Command, compose
from tenure.testing import Conditions, Host, Network, SimulatedBucket, SimulatedStore, World, Write
from tests.support.lease import ScriptedLease
from tests.support.store import ANY, Request, ScriptedStore

FOLDER = "plugin=scheduler/name=scheduler/"
LOG = FOLDER + "log/"
START_MS = 1_700_000_000_000
"""The store's clock when the world begins."""


class Home:
    """What a plugin is attached to."""

    def __init__(self, rig: Rig, host: Host) -> None:
        self.clock = host.clock
        self.worker_id = host.name
        self.store = rig.store(host)
        self.random = Random(1)
        self.draw_id = rig.draw_id


class Leader:
    def __init__(self, rig: Rig, registry: Registry, epoch: int, rate: float, name: str) -> None:
        self.host = rig.world.host(name, rate=rate)
        self.store = rig.store(self.host)
        self.lease = ScriptedLease(epoch)
        self.bell = asyncio.Event()
        self.idle = 0
        self.leading = ScheduleLeading(
            ledger_store(self.store, "scheduler", "scheduler"),
            self.lease,
            ledger=rig.ledger,
            clock=self.host.clock,
            draw_id=rig.draw_id,
            time=StoreTime(self.store, clock=self.host.clock, draw_id=rig.draw_id),
            bell=self.bell,
            emit=rig.told.append,
            registry=registry,
            queues=Queues(Home(rig, self.host)),
            name="scheduler",
            worker=name,
            random=Random(1),
            idle_budget=720.0,
            on_idle=self._looked,
        )
        self.task = self.host.start(self.leading.run())

    def _looked(self) -> None:
        self.idle += 1

    @property
    def machine(self) -> ScheduleMachine:
        assert self.leading.machine is not None, f"nobody decides: {self.leading.halted}"
        return self.leading.machine


class Caller:
    """A process that gives commands, and leads nothing."""

    def __init__(self, rig: Rig, name: str) -> None:
        self.host = rig.world.host(name)
        store = ledger_store(rig.store(self.host), "scheduler", "scheduler")
        self.producer = Producer(store, compose, config=rig.ledger, clock=self.host.clock, draw_id=rig.draw_id)
        self.calls = Calls(store, self.producer, ledger=rig.ledger, clock=self.host.clock)
        self.answers: list[str | Exception | None] = []

    async def give(self, command: Command, timeout: float | None = 30.0) -> None:
        try:
            self.answers.append(await self.calls.give(command, timeout))
        except Exception as error:
            self.answers.append(error)

    async def add(self, id: str, schedule: Schedule, **options: Unpack[JobOptions]) -> None:
        job = job_from(id, schedule, origin=Origin.STORED, **options)
        await self.give(Command("add", id, msgspec.Raw(encode_job(job))))


class Rig:
    def __init__(self, *, ledger: LedgerConfig | None = None, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world, Conditions(latency=(0.002, 0.02), timeout=30.0))
        self.bucket = SimulatedBucket(self.world)
        self.ledger = ledger if ledger is not None else LedgerConfig()
        self.told: list[Any] = []
        self.entries: list[tuple[float, LogEntry]] = []
        self.events: list[tuple[float, Event]] = []
        """All that was decided, and when its entry was created."""
        self.requests: Counter[str] = Counter()
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

    def lead(self, registry: Registry, epoch: int = 1, rate: float = 1.0, name: str = "leader") -> Leader:
        return Leader(self, registry, epoch, rate, name)

    def caller(self, name: str = "caller") -> Caller:
        return Caller(self, name)

    def store(self, host: Host) -> Any:
        store = ScriptedStore(inner=SimulatedStore(self.bucket, host, self.network))

        async def count(request: Request) -> None:
            self.requests[request.verb] += 1

        store.always(ANY, ANY, count)
        return store

    def draw_id(self) -> str:
        return f"id{next(self._ids):012d}"

    def at(self, time: float, host: Host, call: Callable[[], Any]) -> None:
        self.world.call_at(time, lambda: host.start(call()))

    def run(self, until: float) -> None:
        self.world.run_until(until)

    def fired(self, job: str | None = None) -> list[tuple[float, int]]:
        """When an occurrence was decided to fire, and its instant (ms)."""
        return [
            (time, event.scheduled_ms)
            for time, event in self.events
            if isinstance(event, Fired) and job in (None, event.job)
        ]

    def decided(self, job: str, period_ms: int) -> list[int]:
        """Instants of a job that were decided, in the order in which that happened."""
        found: list[int] = []
        for _, event in self.events:
            if isinstance(event, Fired | Passed) and event.job == job and not event.manual:
                last = event.last_ms if isinstance(event, Passed) else event.scheduled_ms
                found += range(event.scheduled_ms, last + 1, period_ms)
        return found

    def _written(self, write: Write) -> None:
        if write.new is None or not write.key.startswith(LOG):
            return
        entry = decode_entry(write.new, int(write.key[-20:]))
        assert isinstance(entry, LogEntry)
        self.entries.append((self.world.now, entry))
        if entry.decided is not None:
            self.events += [(self.world.now, event) for event in decode_work(entry.decided).events]

"""A TTL in simulated time: processes that write records, leaders whose leases last as long as the test says, and a
store that does as it is told. Everything that is written is seen as it happens, with the true time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import msgspec

from tenure.database.expiry import Expiry, expiry_of
from tenure.database.ids import key_of, parse_key
from tenure.database.records import Envelope
from tenure.database.resource import Resource
from tenure.entropy import Random
from tenure.plugins.ttl import TTLPlugin
from tenure.plugins.ttl.leading import TTLLeading
from tenure.testing import Conditions, Host, Network, SimulatedBucket, SimulatedStore, World, Write
from tenure.testing.machine import EPOCH_SECONDS
from tests.support.lease import ScriptedLease
from tests.support.store import ScriptedStore

NAME = "things"
FOLDER = f"plugin=ttl/name={NAME}/"
DUE = FOLDER + "due/"


class Home:
    """What a plugin is attached to: a database, as far as it needs one."""

    def __init__(self, rig: Rig, host: Host, conditional_delete: bool) -> None:
        self.clock = host.clock
        self.worker_id = host.name
        self.store: Any = ScriptedStore(
            inner=SimulatedStore(rig.bucket, host, rig.network, conditional_delete=conditional_delete)
        )
        self.random = Random(1)
        self.draw_id = rig.draw_id
        self._resources: dict[str, Resource[Any]] = {}

    def resource(self, name: str) -> Resource[Any]:
        if name not in self._resources:
            self._resources[name] = Resource(self.store, name, clock=self.clock, draw_id=self.draw_id)
        return self._resources[name]

    def opened_resource(self, name: str) -> Resource[Any] | None:
        return self._resources.get(name)


class Node:
    """One process with the plugin. It leads only if the test says so."""

    def __init__(self, rig: Rig, host: Host) -> None:
        self.rig = rig
        self.host = host
        self.home = Home(rig, host, rig.conditional_delete)
        self.store = self.home.store
        self.things = self.home.resource(NAME)
        self.ttl = TTLPlugin(NAME, takes_part=False, **rig.settings)
        self.ttl.attach(self.home, NAME)  # type: ignore[arg-type]
        self.ttl.emit = lambda what, event: rig.events.append(event)  # type: ignore[method-assign]
        self.leading: TTLLeading | None = None
        self.lease: ScriptedLease | None = None
        host.start(self.ttl.start())

    def lead(self, epoch: int = 1) -> None:
        self.lease = ScriptedLease(epoch)

        async def run() -> None:
            assert self.lease is not None
            self.leading = self.ttl.new_leading(self.lease)  # type: ignore[arg-type]
            await self.leading.run()

        self.host.start(run())

    def do(self, call: Callable[[], Coroutine[Any, Any, Any]], at: float | None = None) -> list[Any]:
        """Have it done, now or later. What it gave, or raised, is in the list that is given back, once it has ended."""
        outcome: list[Any] = []

        async def run() -> None:
            try:
                outcome.append(await call())
            except Exception as error:
                outcome.append(error)

        if at is None:
            self.host.start(run())
        else:
            self.rig.world.call_at(at, lambda: self.host.start(run()) if self.host.alive else None)
        return outcome


class Rig:
    def __init__(self, *, seed: int = 1, conditional_delete: bool = True, **settings: Any) -> None:
        self.world = World(seed)
        self.network = Network(self.world, Conditions(latency=(0.002, 0.02), timeout=5.0))
        self.bucket = SimulatedBucket(self.world)
        self.conditional_delete = conditional_delete
        self.settings = {"ttl": 20.0, "tick": 2.0, "quarantine": 120.0, **settings}
        self.events: list[Any] = []
        self._ids = itertools.count(1)
        self.ends: list[tuple[float, str, str, Envelope]] = []
        """(true time, host, id, envelope): records that lived, and then did not."""
        self.bucket.watchers.append(self._watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.world.close()
        if kind is None:
            assert not self.world.errors

    def draw_id(self) -> str:
        return f"id{next(self._ids):014d}"

    def node(self, name: str = "a", **clocks: Any) -> Node:
        node = Node(self, self.world.host(name, **clocks))
        self.run(self.world.now + 0.5)
        return node

    def run(self, until: float) -> None:
        self.world.run_until(until)

    def wait(self, seconds: float) -> None:
        self.run(self.world.now + seconds)

    def done(self, node: Node, call: Callable[[], Coroutine[Any, Any, Any]], within: float = 2.0) -> Any:
        """What a call gives that takes its time."""
        outcome = node.do(call)
        self.wait(within)
        assert outcome, "it has not ended"
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    # What is there

    def envelope(self, id: str, name: str = NAME) -> Envelope | None:
        body = self.bucket.body(key_of(name, id))
        return None if body is None else msgspec.json.decode(body, type=Envelope)

    def lives(self, id: str) -> bool:
        envelope = self.envelope(id)
        return envelope is not None and not envelope.deleted

    def alive(self, name: str = NAME) -> list[str]:
        return [id for id in self.ids(name) if not self.envelope(id, name).deleted]  # type: ignore[union-attr]

    def ids(self, name: str = NAME) -> list[str]:
        return [parsed[1] for key in self.bucket.keys(f"resource={name}/") if (parsed := parse_key(key)) is not None]

    def expiry(self, id: str) -> Expiry:
        envelope = self.envelope(id)
        assert envelope is not None
        found = expiry_of(envelope.reserved)
        assert isinstance(found, Expiry)
        return found

    @property
    def entries(self) -> list[str]:
        return [key.removeprefix(DUE) for key in self.bucket.keys(DUE)]

    @property
    def now_ms(self) -> int:
        """The store's clock."""
        return int((EPOCH_SECONDS + self.bucket.clock_offset + self.world.now) * 1000)

    def requests(self, host: str) -> dict[str, int]:
        return {verb: count for (name, verb), count in self.network.requests.items() if name == host}

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def _watch(self, write: Write) -> None:
        parsed = parse_key(write.key)
        if parsed is None or parsed[0] != NAME or write.old is None:
            return
        if write.verb == "corrupt" or write.old.startswith(b"not"):
            return
        old = msgspec.json.decode(write.old, type=Envelope)
        new = None if write.new is None else msgspec.json.decode(write.new, type=Envelope)
        if not old.deleted and (new is None or new.deleted):
            self.ends.append((write.at, write.host, old.id, old))

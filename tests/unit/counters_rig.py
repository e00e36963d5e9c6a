"""Counters in simulated time: processes that count, leaders whose leases last as long as the test says, and a store
that does as it is told. Besides: what property tests draw, and the smallest model of what counting means.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterable
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

import msgspec
from hypothesis import strategies as st

from tenure.database.counted import Counted, counted_of
from tenure.database.ids import key_of
from tenure.database.records import Envelope, encode
from tenure.database.resource import Resource
from tenure.election.records import encode as encode_record
from tenure.entropy import Random
from tenure.ledger import LedgerConfig, LogEntry
from tenure.ledger.agreed import LEDGER, AgreedLedger
from tenure.ledger.layout import ledger_folder
from tenure.ledger.records import decode_entry
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.counters.cell import Cell
from tenure.plugins.counters.leading import CountersLeading
from tenure.plugins.counters.numbers import Counter, Kind, Number, Reducer
from tenure.testing import Conditions, Host, Network, SimulatedBucket, SimulatedStore, World, Write
from tests.support.lease import ScriptedLease
from tests.support.store import ScriptedStore

NAME = "pages"
FOLDER = f"plugin=eventual-consistency/name={NAME}/"
LOG = FOLDER + "log/"
INBOX = FOLDER + "inbox/"
PAGES = FOLDER + "pages/"

COUNTERS = [Counter(kind, reducer) for kind in Kind for reducer in Reducer]
Call = tuple[str, Number]
"""`add`, `sub` or `set`, and what it is given."""


def amounts(counter: Counter) -> st.SearchStrategy[Any]:
    """What can be given to a counter; of floats, such as are added up without rounding."""
    if counter.kind is Kind.INT:
        return st.one_of(st.integers(-5, 5), st.integers(-(2**63) + 1, 2**63 - 1))
    if counter.kind is Kind.FLOAT:
        return st.integers(-(2**20), 2**20).map(lambda eighths: eighths / 8)
    digits = st.integers(-(10**40), 10**40)
    return st.builds(lambda number, places: Decimal(number).scaleb(-places), digits, st.integers(11, 30))


def calls(counter: Counter, most: int = 6) -> st.SearchStrategy[list[Call]]:
    verbs = ["add", "sub", "set"] if counter.reducer is Reducer.SUM else ["add", "set"]
    return st.lists(st.tuples(st.sampled_from(verbs), amounts(counter)), max_size=most)


def cell_of(counter: Counter, given: Iterable[Call]) -> Cell:
    cell = Cell.blank(counter)
    for verb, amount in given:
        getattr(cell, verb)(counter, amount)
    return cell


def total_of(counter: Counter, given: Iterable[Call], total: Any) -> Any:
    """What calls mean, one after the other, without cells."""
    for verb, amount in given:
        if verb == "set" or counter.reducer is Reducer.LAST:
            total = amount
        elif counter.reducer is Reducer.SUM:
            total = (total or 0) + (amount if verb == "add" else -amount)
        else:
            total = amount if total is None else (min if counter.reducer is Reducer.MIN else max)(total, amount)
    return total if total is not None else counter.zero


class Home:
    """What a plugin is attached to: a database, as far as it needs one."""

    def __init__(self, rig: Rig, host: Host) -> None:
        self.clock = host.clock
        self.worker_id = host.name
        self.store: Any = ScriptedStore(
            inner=SimulatedStore(rig.bucket, host, rig.network, conditional_delete=rig.conditional_delete)
        )
        self.random = Random(1)
        self.draw_id = rig.draw_id
        self._rig = rig
        self._resources: dict[str, Resource[Any]] = {}

    def resource(self, name: str) -> Resource[Any]:
        if name not in self._resources:
            self._resources[name] = Resource(
                self.store, name, clock=self.clock, draw_id=self.draw_id, reuse_ids=self._rig.reuse_ids
            )
        return self._resources[name]

    def opened_resource(self, name: str) -> Resource[Any] | None:
        return self._resources.get(name)


class Node:
    """One process with the plugin. It leads only if the test says so."""

    def __init__(self, rig: Rig, host: Host) -> None:
        self.rig = rig
        self.host = host
        self.home = Home(rig, host)
        self.store = self.home.store
        self.pages = self.home.resource(NAME)
        self.counters = EventualConsistencyPlugin(
            NAME, rig.fields, producer_only=True, ledger=rig.ledger, **rig.settings
        )
        self.counters.attach(self.home, NAME)  # type: ignore[arg-type]
        self.counters.emit = lambda what, event: rig.events.append(event)  # type: ignore[method-assign]
        self.leading: CountersLeading | None = None
        self.lease: ScriptedLease | None = None
        host.start(self.counters.start())

    def lead(self, epoch: int = 1) -> None:
        self.lease = ScriptedLease(epoch)

        async def run() -> None:
            assert self.lease is not None
            self.leading = self.counters.new_leading(self.lease)  # type: ignore[arg-type]
            await self.leading.run()

        self.host.start(run())

    def do(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Have it done. What it gave, or raised, is in the list that is given back, once it has ended."""
        outcome: list[Any] = []

        async def run() -> None:
            try:
                outcome.append(await call())
            except Exception as error:
                outcome.append(error)

        self.host.start(run())
        return outcome


class Rig:
    def __init__(
        self,
        *,
        fields: Any = ("views",),
        seed: int = 1,
        conditional_delete: bool = True,
        reuse_ids: bool = True,
        ledger: LedgerConfig | None = None,
        **settings: Any,
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world, Conditions(latency=(0.002, 0.02), timeout=5.0))
        self.bucket = SimulatedBucket(self.world)
        self.conditional_delete = conditional_delete
        self.reuse_ids = reuse_ids
        self.ledger = ledger
        self.fields = fields
        self.settings = {"interval": 1.0, **settings}
        self.events: list[Any] = []
        self.entries: list[LogEntry] = []
        self._ids = itertools.count(1)
        self._agree(ledger if ledger is not None else LedgerConfig())
        self.bucket.watchers.append(self._watch)

    def _agree(self, ledger: LedgerConfig) -> None:
        """On what those agree who take part. Here nobody does, since the test says who leads."""
        agreed = AgreedLedger(
            write_id="first",
            retention_ms=round(ledger.retention * 1000),
            trim_delay_ms=round(ledger.trim_delay_seconds * 1000),
        )
        self.bucket.restore(f"{ledger_folder(EventualConsistencyPlugin.slug, NAME)}{LEDGER}", encode_record(agreed))

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
        self.wait(0.5)
        return node

    def leader(self, name: str = "leader", epoch: int = 1) -> Node:
        node = self.node(name)
        node.lead(epoch)
        self.wait(1.0)
        assert node.leading is not None and node.leading.clerk is not None, "it has not begun"
        return node

    def wait(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)

    def until(self, condition: Callable[[], bool], within: float = 30.0) -> None:
        end, step = self.world.now + within, 0.01
        while not condition():
            assert self.world.now < end, "it does not come"
            self.wait(step)
            step = min(1.0, step * 1.05)

    def done(self, node: Node, call: Callable[[], Coroutine[Any, Any, Any]], within: float = 40.0) -> Any:
        """What a call gives that takes its time."""
        outcome = node.do(call)
        self.until(lambda: bool(outcome), within)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    # What is there

    def envelope(self, id: str) -> Envelope | None:
        body = self.bucket.body(key_of(NAME, id))
        return None if body is None else msgspec.json.decode(body, type=Envelope)

    def counted(self, id: str) -> Counted | None:
        envelope = self.envelope(id)
        found = counted_of(envelope.reserved, NAME) if envelope is not None else None
        assert not isinstance(found, str), found
        return found

    def total(self, id: str, field: str = "views") -> Any:
        found = self.counted(id)
        return None if found is None else found.totals.get(field)

    def corrupt(self, id: str, envelope: Envelope | None) -> None:
        """Somebody changes the object by other means."""
        key = key_of(NAME, id)
        if envelope is None:
            self.bucket.remove(key)
        else:
            self.bucket.corrupt(key, encode(envelope))

    def _watch(self, write: Write) -> None:
        if write.new is not None and write.key.startswith(LOG):
            entry = decode_entry(write.new, int(write.key[-20:]))
            assert isinstance(entry, LogEntry)
            self.entries.append(entry)

"""The state of counters: what a log says is what its leader decided, and whoever applies it counts each number once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.database.counted import still_counted
from tenure.database.records import Envelope
from tenure.ledger import Stamp
from tenure.plugins.counters import image, state
from tenure.plugins.counters.calendar import DAY_MS, HOUR_MS
from tenure.plugins.counters.numbers import Counter, Kind, Reducer
from tenure.plugins.counters.records import Answer, Asked, Chunk, Level, Moment, Page, Sealed, Work
from tenure.plugins.counters.settings import OnDirectWrite, Retention
from tenure.plugins.counters.state import CountersMachine, Offer
from tenure.plugins.counters.totals import CountedShape, Key
from tenure.plugins.ledgered import image as ledgered_image
from tests.unit.counters_rig import COUNTERS, calls, cell_of

VIEWS = Counter()
IDS = ["a", "b", "c"]
WORDS = {counter.word.replace(":", "-"): counter for counter in COUNTERS}


def _stamp(seq: int, hours: float = 0.0) -> Stamp:
    return Stamp(seq, 1, round(hours * HOUR_MS))


def _moment(hours: float) -> Moment:
    hour = int(hours)
    return Moment(hour * HOUR_MS, hour // 24 * DAY_MS, hour // 720 * 30 * DAY_MS)


@st.composite
def _works(draw: st.DrawFn) -> list[tuple[Work, Stamp]]:
    """Entries as a leader could write them: it is known what is sealed, and which pages there are."""
    machine, entries, hours = CountersMachine(), [], 0.0
    for seq in range(1, draw(st.integers(1, 8)) + 1):
        hours += draw(st.sampled_from([0.0, 0.2, 1.0, 30.0]))
        work = Work(ledger="log" if seq == 1 else "")
        for field in draw(st.lists(st.sampled_from(sorted(WORDS)), unique=True, max_size=3)):
            counter = WORDS[field]
            if field not in machine.counters:
                work.fields = {**work.fields, field: counter.word}
            rows = {
                id: cell_of(counter, draw(calls(counter, 3))).plain()
                for id in draw(st.lists(st.sampled_from(IDS), unique=True, min_size=1))
            }
            work.rows = {**work.rows, field: rows}
            work.moment = _moment(hours)
        work.applied = {id: draw(st.integers(0, seq - 1)) for id in draw(st.lists(st.sampled_from(IDS), unique=True))}
        work.ops = [f"op{seq}-{number}" for number in range(draw(st.integers(0, 2)))]
        work.forgotten = draw(st.integers(0, 2))
        work.duplicates = draw(st.integers(0, 3))
        work.asked = {f"r{seq}": Asked("consolidate", "", seq)} if draw(st.booleans()) else {}
        work.covered = list(machine.asked)[:1]
        work.answered = [Answer(request) for request in list(machine.asked)[1:2]]
        work.seal = draw(st.booleans())
        work.paged = [
            Page(Level.HOUR, sealed.moment, sealed.number, [Chunk(f"p{sealed.number}", "a", "c", 3, "0")])
            for sealed in machine.sealed[: draw(st.integers(0, 2))]
        ]
        if len(machine.pages) > 1 and draw(st.booleans()):
            last = machine.pages[1]
            work.merged = [Page(Level.DAY, machine.pages[0].moment, last.number)]
            work.replaced = [[page.number for page in machine.pages[:2]]]
        stamp = _stamp(seq, hours)
        machine.enact(work, stamp)
        entries.append((work, stamp))
    return entries


def _picture(machine: CountersMachine) -> Any:
    """Everything that there is to a state."""
    return {name: value for name, value in vars(machine).items() if name != "retention"}


@settings(max_examples=25)
@given(_works())
def test_what_the_log_says_is_what_was_decided(entries: list[tuple[Work, Stamp]]) -> None:
    decided, read = CountersMachine(), CountersMachine()
    for work, stamp in entries:
        decided.enact(work, stamp)
        read.apply(msgspec.json.encode(work), stamp)
        assert _picture(decided) == _picture(read)


@settings(max_examples=25)
@given(_works())
def test_a_snapshot_is_the_same_state_and_goes_on_as_it_does(entries: list[tuple[Work, Stamp]]) -> None:
    machine = CountersMachine()
    for work, stamp in entries[: len(entries) // 2]:
        machine.apply(msgspec.json.encode(work), stamp)
    twin = CountersMachine()
    twin.apply(b'{"ledger":"another"}', _stamp(99))
    twin.restore([bytes(chunk) for chunk in machine.snapshot()])
    assert _picture(twin) == _picture(machine)
    for work, stamp in entries[len(entries) // 2 :]:
        machine.apply(msgspec.json.encode(work), stamp)
        twin.apply(msgspec.json.encode(work), stamp)
    assert _picture(twin) == _picture(machine)


def test_a_snapshot_keeps_numbers_of_every_kind() -> None:
    machine = CountersMachine()
    given_amounts = {
        Counter(): 2**63 - 1,
        Counter(Kind.FLOAT): 0.1,
        Counter(Kind.DECIMAL): Decimal("0.000000000000000000000000000001"),
        Counter(Kind.DECIMAL, Reducer.MIN): Decimal("-0"),
        Counter(Kind.INT, Reducer.LAST): -5,
    }
    for seq, (counter, amount) in enumerate(given_amounts.items(), start=1):
        row = cell_of(counter, [("add", amount), ("add", amount), ("set", amount), ("add", amount)]).plain()
        work = Work(fields={counter.word: counter.word}, moment=_moment(0), rows={counter.word: {"x": row}})
        machine.enact(work, _stamp(seq))
    twin = CountersMachine()
    twin.restore(machine.snapshot())
    assert _picture(twin) == _picture(machine)
    assert [type(cell.net) for offer in twin.unapplied("x") for cell in offer.cells.values()] == [
        type(cell.net) for offer in machine.unapplied("x") for cell in offer.cells.values()
    ]


def test_no_part_of_a_snapshot_is_larger_than_an_object_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to become pages went into one object, up to twenty hours of it."""
    monkeypatch.setattr(image, "LARGEST", 2**20)
    monkeypatch.setattr(image, "MAX_CELLS", 2000)
    machine = CountersMachine()
    fields = [f"f{number}" for number in range(10)]
    rows = {field: {f"{number:0128}": [1, number] for number in range(1000)} for field in fields}
    for seq in range(1, 5):
        said = dict.fromkeys(fields, VIEWS.word) if seq == 1 else {}
        machine.enact(Work(fields=said, moment=_moment(seq), rows=rows), _stamp(seq, seq))
    assert len(machine.sealed) == 3
    chunks = machine.snapshot()
    assert max(map(len, chunks)) < 2**20 + 100
    twin = CountersMachine()
    twin.restore(chunks)
    assert twin.sealed == machine.sealed
    assert _picture(twin) == _picture(machine)


@pytest.mark.parametrize("is_large", [False, True], ids=["as ever", "too large for one object"])
def test_who_cannot_put_pieces_together_refuses_them(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    """An older process filed the first one, and dropped the others: amounts that somebody was told are counted."""

    class Older(msgspec.Struct, omit_defaults=True):
        waiting: list[image.WaitingImage] = []
        op_ids: list[tuple[str, int]] = []
        asked: list[Any] = []
        tally: list[Any] = []
        sealed: list[Sealed] = []
        pages: list[Any] = []
        sums: list[Any] = []

    machine = CountersMachine()
    rows = {field: {f"{number:05}": [1, 1] for number in range(20_000)} for field in ("a", "b", "c")}
    said = dict.fromkeys(rows, VIEWS.word)
    machine.enact(Work(fields=said, moment=_moment(0), rows=rows), _stamp(1))
    machine.enact(Work(seal=True), _stamp(2))
    if is_large:
        monkeypatch.setattr(image, "LARGEST", 2**19)
    chunks = machine.snapshot()
    if is_large:
        with pytest.raises(ValueError, match="were written"):
            ledgered_image.decode(chunks, image.Frame, Older)
    else:
        _, contents = ledgered_image.decode(chunks, image.Frame, Older)
        assert contents.sealed == machine.sealed
    twin = CountersMachine()
    twin.restore(chunks)
    assert twin.sealed == machine.sealed


def test_several_of_one_number_are_one_whatever_their_order() -> None:
    """As they were written before pieces had a place of their own."""
    moment = _moment(0)
    parts = [Sealed(2, moment, {"a": {"x": [1, 1]}}), Sealed(2, moment, {"a": {"y": [1, 2]}, "b": {"x": [1, 3]}})]
    later = Sealed(7, moment, {"a": {"x": [1, 4]}})
    whole = Sealed(2, moment, {"a": {"x": [1, 1], "y": [1, 2]}, "b": {"x": [1, 3]}})
    assert image.joined([later, *parts]) == [whole, later]


def test_a_snapshot_of_unknown_counters_is_refused_and_so_is_an_entry() -> None:
    machine = CountersMachine()
    with pytest.raises(ValueError, match="not known here"):
        machine.apply(b'{"fields":{"x":"int:avg"}}', _stamp(1))
    machine = CountersMachine()
    machine.enact(Work(fields={"x": "int:sum"}), _stamp(1))
    chunks = [bytes(chunk).replace(b"int:sum", b"int:avg") for chunk in machine.snapshot()]
    with pytest.raises(ValueError, match="not known here"):
        CountersMachine().restore(chunks)


# What is offered


def _folded(numbers: Sequence[int], machine: CountersMachine | None = None) -> CountersMachine:
    machine = machine if machine is not None else CountersMachine()
    for number in numbers:
        work = Work(fields={"views": "int:sum"}, moment=_moment(0), rows={"views": {"x": [1, 10**number]}})
        machine.enact(work, _stamp(number))
    return machine


def _net(offer: Offer) -> int:
    return int(offer.cells["views"].net)


def test_beyond_so_many_the_rest_waits_until_all_before_it_are_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_OFFERED", 2)
    machine = _folded([1, 2, 3, 4])
    assert [offer.number for offer in machine.offered("x")] == [1, 2]
    assert [(offer.number, _net(offer)) for offer in machine.unapplied("x")] == [(1, 10), (2, 100), (4, 11000)]
    machine.enact(Work(applied={"x": 1}), _stamp(5))
    _folded([6], machine)
    assert [offer.number for offer in machine.offered("x")] == [2], "what was put together is not offered in part"
    machine.enact(Work(applied={"x": 2}), _stamp(7))
    assert [(offer.number, _net(offer)) for offer in machine.offered("x")] == [(6, 1011000)]
    _folded([8], machine)
    assert [(offer.number, _net(offer)) for offer in machine.offered("x")] == [(6, 1011000), (8, 10**8)]
    machine.enact(Work(applied={"x": 8}), _stamp(9))
    assert not machine.waiting


def test_an_applied_number_that_comes_late_or_from_nobody_changes_nothing() -> None:
    machine = _folded([5, 6])
    machine.enact(Work(applied={"x": 4, "stranger": 9}), _stamp(7))
    assert [offer.number for offer in machine.offered("x")] == [5, 6]
    assert machine.offered("stranger") == machine.unapplied("stranger") == []


def test_consolidated_is_what_nothing_waits_for() -> None:
    machine = _folded([3])
    assert machine.is_consolidated(2)
    assert not machine.is_consolidated(3)
    assert machine.is_consolidated(3, "another")
    machine.enact(Work(applied={"x": 3}), _stamp(4))
    assert machine.is_consolidated(100)


def test_op_ids_are_forgotten_from_the_oldest_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_OP_IDS", 3)
    machine = CountersMachine()
    machine.enact(Work(ops=["a", "b"]), _stamp(1))
    machine.enact(Work(forgotten=1, ops=["c"]), _stamp(2))
    assert list(machine.op_ids) == ["b", "c"]
    machine.enact(Work(ops=["d", "e"]), _stamp(3))
    assert list(machine.op_ids) == ["c", "d", "e"]
    machine.enact(Work(forgotten=99), _stamp(4))
    assert not machine.op_ids


def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_ASKED", 2)
    machine = CountersMachine()
    machine.enact(Work(asked={f"r{number}": Asked("consolidate", "", 0) for number in range(5)}), _stamp(1))
    assert list(machine.asked) == ["r0", "r1"]


def test_an_hour_that_is_over_is_sealed_and_an_earlier_one_never_comes_back() -> None:
    machine = _folded([1])
    later = Work(moment=_moment(5), rows={"views": {"y": [1, 7]}})
    machine.enact(later, _stamp(2))
    assert [(sealed.number, sealed.rows) for sealed in machine.sealed] == [(2, {"views": {"x": [1, 10]}})]
    machine.enact(Work(moment=_moment(4), rows={"views": {"y": [1, 7]}}), _stamp(3))
    assert machine.moment == _moment(5)
    assert machine.tally["y"]["views"].adds == 2


def test_sums_are_kept_for_as_long_as_this_process_keeps_them() -> None:
    machine = CountersMachine(Retention(hours=2, days=1, months=1))
    for hour in range(5):
        work = Work(fields={"views": "int:sum"}, moment=_moment(hour), rows={"views": {"x": [1, 1]}})
        machine.enact(work, _stamp(hour + 1))
    assert list(machine.sums[Level.HOUR]) == [3 * HOUR_MS, 4 * HOUR_MS]
    assert machine.sums[Level.DAY][0]["views"].adds == 5


def test_pages_that_are_not_there_cannot_be_put_together() -> None:
    machine = _folded([1])
    machine.enact(Work(seal=True), _stamp(2))
    page = Page(Level.HOUR, _moment(0), 2)
    machine.enact(Work(paged=[page]), _stamp(3))
    machine.enact(Work(paged=[page, Page(Level.HOUR, _moment(0), 77)]), _stamp(4))
    assert machine.pages == [page], "a page counts once, and only of what was sealed"
    with pytest.raises(ValueError, match="not all there"):
        machine.enact(Work(merged=[page], replaced=[[2, 3]]), _stamp(5))


# Whoever applies


class _Leader:
    """Knows the log as it was when it began, or when it last wrote to it."""

    def __init__(self, world: _World) -> None:
        self.machine = CountersMachine()
        for events, stamp in world.log:
            self.machine.apply(events, stamp)
        self.read: tuple[Envelope | None, int, list[Offer]] | None = None


class _World:
    """One record, its log, and leaders of whom only the last may write to the log."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes, Stamp]] = []
        self.envelope: Envelope | None = None
        self.version = 0
        """The store's, of the key: also of one that was removed."""
        self.leaders = [_Leader(self)]
        self.expected = 0

    def append(self, work: Work) -> None:
        work.ledger = "" if self.log else "log"
        stamp = _stamp(len(self.log) + 1)
        self.log.append((msgspec.json.encode(work), stamp))
        self.leaders[-1].machine.enact(work, stamp)

    def fold(self, amount: int) -> None:
        self.expected += amount
        self.append(Work(fields={"n": "int:sum"}, moment=_moment(0), rows={"n": {"x": [1, amount]}}))

    def elect(self) -> None:
        self.leaders.append(_Leader(self))

    def look(self, which: int) -> None:
        leader = self.leaders[which % len(self.leaders)]
        leader.read = self.envelope, self.version, leader.machine.offered("x")

    def swap(self, which: int) -> None:
        """On what it has read: an eternity may have passed."""
        leader = self.leaders[which % len(self.leaders)]
        if leader.read is None:
            return
        envelope, version, offers = leader.read
        leader.read = None
        written = Key(envelope, "n").applied(offers, leader.machine.counters, leader.machine.ledger) if offers else None
        if written is not None:
            if version != self.version:
                return
            base = envelope if envelope is not None else _envelope(deleted=True)
            data = {} if base.deleted else written.data
            self.write(msgspec.structs.replace(base, data=data, reserved=written.reserved))
        if offers and leader is self.leaders[-1]:
            self.append(Work(applied={"x": offers[-1].number}))

    def put_right(self, which: int) -> None:
        """From history, which here is the sum of what was folded; only a leader for whom nothing waits does so."""
        leader = self.leaders[which % len(self.leaders)]
        machine = leader.machine
        if leader.read is None or not machine.ledger or machine.unapplied("x"):
            return
        envelope, version, _ = leader.read
        leader.read = None
        key = Key(envelope, "n", is_mended=True)
        if version != self.version or key.through("log") > machine.seq or "x" not in machine.tally:
            return
        cell = machine.tally["x"]["n"]
        right = {"n": cell.applied_to(VIEWS, key.start("n", VIEWS, "log"))}
        written = key.put_right(right, machine.counters, "log", machine.seq)
        base = envelope if envelope is not None else _envelope(deleted=True)
        data = {} if base.deleted else written.data
        self.write(msgspec.structs.replace(base, data=data, reserved=written.reserved))

    def insert(self, start: int) -> None:
        if self.envelope is not None and not self.envelope.deleted:
            return
        key = Key(self.envelope, "n")
        start = 0 if key.held is not None else start
        shape = CountedShape("r", "n", {"n": VIEWS}, OnDirectWrite.REFUSE)
        data = shape.shaped("x", self.envelope, {"n": start, "other": 1})
        self.expected += start
        reserved = still_counted(self.envelope.reserved, {}) if self.envelope is not None else {}
        self.write(_envelope(data=data, reserved=reserved))

    def delete(self) -> None:
        """A tombstone that keeps nothing is removed, and what the record held of its own goes with it."""
        if self.envelope is None or self.envelope.deleted:
            return
        if Key(self.envelope, "n").held is None:
            self.expected -= int(self.envelope.data["n"])
        kept = still_counted(self.envelope.reserved, {})
        self.write(_envelope(deleted=True, reserved=kept) if kept else None)

    def change(self) -> None:
        if self.envelope is not None and not self.envelope.deleted:
            other = self.envelope.data["other"] + 1
            self.write(msgspec.structs.replace(self.envelope, data={**self.envelope.data, "other": other}))

    def write(self, envelope: Envelope | None) -> None:
        self.envelope = envelope
        self.version += 1

    def settle(self) -> int:
        self.elect()
        _work_off(self)
        return int(Key(self.envelope, "n").total("n", VIEWS) or 0)


def _envelope(**changes: Any) -> Envelope:
    fields: dict[str, Any] = {"data": {}, **changes}
    return Envelope(id="x", version=1, first_version=1, write_id="w", recent_writes=("w",), created_at="1", **fields)


def _work_off(world: _World) -> None:
    """The leader brings the record up to date, and has it in the log."""
    while world.leaders[-1].machine.waiting:
        world.look(-1)
        world.swap(len(world.leaders) - 1)


def _recalculate(world: _World) -> None:
    world.look(-1)
    world.put_right(len(world.leaders) - 1)


_leader = st.integers(0, 2)
STEPS: st.SearchStrategy[Callable[[_World], None]] = st.one_of(
    st.integers(1, 9).map(lambda amount: lambda world: world.fold(amount)),
    st.integers(-9, -1).map(lambda amount: lambda world: [world.fold(amount), world.fold(amount)]),
    st.integers(1, 9).map(lambda amount: lambda world: [world.fold(amount) for _ in "abc"]),
    _leader.map(lambda which: lambda world: world.look(which)),
    _leader.map(lambda which: lambda world: world.swap(which)),
    _leader.map(lambda which: lambda world: [world.look(which), world.swap(which)]),
    _leader.map(lambda which: lambda world: world.put_right(which)),
    st.just(_work_off),
    st.just(_recalculate),
    st.just(lambda world: world.elect()),
    st.integers(0, 5).map(lambda start: lambda world: world.insert(start)),
    st.just(lambda world: world.delete()),
    st.just(lambda world: world.change()),
)


@pytest.mark.req("EC-1")
@settings(max_examples=300)
@given(st.lists(STEPS, min_size=12, max_size=30))
def test_whoever_applies_and_whenever_each_number_counts_once(steps: list[Callable[[_World], None]]) -> None:
    """Also while the record is deleted and inserted again, and by leaders whose time has long passed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "MAX_OFFERED", 2)
        world = _World()
        for step in steps:
            step(world)
        assert world.settle() == world.expected
        shown = world.envelope.data.get("n") if world.envelope is not None and not world.envelope.deleted else None
        assert shown in (None, world.expected)

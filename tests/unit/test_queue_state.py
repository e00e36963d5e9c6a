"""The state of a queue, as a function of its log: whoever applies the entries has what the leader had.

Any sequence of arrivals, reports (true, false, late, repeated), comings and goings, and commands is tried; after every
entry the leader's state, that of a reader and that of one restored from a snapshot are the same in every field, and
every message is in exactly one place.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.ledger import Stamp
from tenure.plugins.queue.keyqueue import KeyQueue
from tenure.plugins.queue.records import Control, Run, Settled, Ticket, Work, parse_ref, ref_of
from tenure.plugins.queue.settings import Ordering
from tenure.plugins.queue.state import MAX_DEDUP, MAX_HISTORY, QueueMachine
from tenure.plugins.queue.wire import Command, Failure, Options, Outcome, Piece, WorkerNote, digest
from tests.unit.queues import START_MS, Desk, failures, fields, messages_of, pieces

UIDS = ("w1", "w2", "w3")
small = st.integers(0, 7)

arrivals = st.tuples(
    st.just("put"),
    st.lists(
        st.tuples(
            st.integers(1, 6),
            st.none()
            | st.builds(
                Options,
                delay_ms=st.sampled_from([0, 0, 0, 500, 5000]),
                priority=st.sampled_from([0, 0, 0, 1, -1, 5]),
                key=st.sampled_from(["", "", "k1", "k2"]),
                visibility_ms=st.sampled_from([0, 0, 1000, 60_000]),
                max_attempts=st.sampled_from([0, 0, 1, 2]),
                dedup=st.sampled_from(["", "", "", digest("a"), digest("b")]),
            ),
        ),
        min_size=1,
        max_size=3,
    ),
)
reports = st.tuples(
    st.just("report"),
    small,
    st.sampled_from(["all", "part", "failed", "final", "back", "extend", "mixed", "nonsense", "empty"]),
    st.sampled_from(["right", "right", "right", "wrong"]),
    small,
    small,
)
comings = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(UIDS), st.integers(0, 12)),
    st.tuples(st.just("leave"), st.sampled_from(UIDS)),
    st.tuples(st.just("rejoin"), st.sampled_from(UIDS), st.integers(0, 12), small, small),
    st.tuples(st.just("join and leave"), st.sampled_from(UIDS)),
)
controls = st.tuples(
    st.just("control"),
    st.sampled_from(["pause", "resume", "resume", "purge", "redrive", "redrive", "purge-dead"]),
    small,
)
times = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.02, 0.6, 2.0, 20.0, 400.0])),
    st.tuples(st.just("lapse")),
    st.tuples(st.just("slow"), st.sampled_from([0, 500, 5000])),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("new leader")),
)
steps = st.lists(
    st.tuples(st.one_of(arrivals, arrivals, reports, reports, reports, comings, controls, times), st.booleans()),
    min_size=10,
    max_size=50,
)
desks = st.fixed_dictionaries(
    {
        "ordering": st.sampled_from(list(Ordering)),
        "key_concurrency": st.sampled_from([1, 1, 3]),
        "max_in_flight": st.sampled_from([0, 0, 7]),
        "rate_limit": st.sampled_from([0.0, 0.0, 5.0]),
        "max_attempts": st.sampled_from([1, 3]),
        "dedup_window": st.sampled_from([0.0, 1.0, 300.0]),
        "backoff": st.sampled_from([0.0, 1.0]),
    }
)


class Play:
    """Does on a desk what a list of steps says."""

    def __init__(self, **chosen: Any) -> None:
        self.desk = Desk(**chosen)
        self.old: list[Ticket] = []
        self.slow_ms = 0
        self.join("w1", 8)
        self.join("w2", 5)
        self.put([(6, None), (3, Options(key="k1")), (2, Options(key="k2", max_attempts=1))])
        self.tick()

    def tick(self) -> None:
        desk = self.desk
        work = desk.tick(slow_ms=self.slow_ms)
        self.slow_ms = 0
        if work is not None:
            self.old += work.tickets
            self.check_limits(work)

    def check_limits(self, work: Work) -> None:
        machine, chosen = self.desk.machine, self.desk.settings
        if work.tickets:
            assert not machine.paused
        if chosen.max_in_flight and work.tickets:
            assert machine.in_flight_count <= chosen.max_in_flight
        for uid in {ticket.uid for ticket in work.tickets}:
            assert machine.workers[uid].held <= machine.workers[uid].capacity
        if chosen.key_concurrency == 1:
            keys = [run.key for ticket in machine.tickets.values() for run in {r.key: r for r in ticket.runs}.values()]
            keyed = [key for key in keys if key]
            assert len(keyed) == len(set(keyed)), "two tickets hold messages of one ordering key"
        else:
            for key in {run.key for ticket in work.tickets for run in ticket.runs if run.key}:
                assert machine.keys[key].in_flight <= chosen.key_concurrency

    def do(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0].replace(" ", "_").replace("-", "_"))(*step[1:])

    def put(self, spans: list[tuple[int, Options | None]]) -> None:
        self.desk.send(spans)

    def report(self, which: int, kind: str, who: str, low: int, more: int) -> None:
        tickets = [*self.desk.tickets(), *self.old[-3:]]
        if not tickets:
            return
        ticket = tickets[which % len(tickets)]
        run = ticket.runs[low % len(ticket.runs)] if ticket.runs else Run("1-tag1-1", 0, 1, 0)
        first = run.low + more % run.count
        outcome = {
            "all": Outcome(ticket.id, all_done=True),
            "part": Outcome(ticket.id, done=[Piece(run.segment, first, run.high), Piece(run.segment, run.low, first)]),
            "failed": Outcome(ticket.id, failed=failures([run])),
            "final": Outcome(ticket.id, failed=[Failure(run.segment, first, "no", True)] * 2),
            "back": Outcome(ticket.id, back=[Piece(run.segment, first, first + 1)]),
            "extend": Outcome(ticket.id, extend=True),
            "mixed": Outcome(
                ticket.id,
                done=pieces([run]),
                failed=failures(ticket.runs),
                back=[*pieces(ticket.runs), *pieces(ticket.runs)],
                extend=True,
            ),
            "nonsense": Outcome(
                ticket.id,
                done=[Piece(run.segment, first + 1, first), Piece("elsewhere", 0, 9)],
                failed=[Failure(run.segment, run.high + 1000, "?"), Failure("elsewhere", 0, "?")],
                back=[Piece(run.segment, first, first), Piece(run.segment, run.high, run.low)],
            ),
            "empty": Outcome(ticket.id),
        }[kind]
        uid = ticket.uid if who == "right" else next(each for each in UIDS if each != ticket.uid)
        self.desk.report(uid, outcome)

    def join(self, uid: str, capacity: int) -> None:
        self.desk.join(uid, capacity)

    def leave(self, uid: str) -> None:
        self.desk.leave(uid)

    def join_and_leave(self, uid: str) -> None:
        self.desk.join(uid, 5)
        self.desk.leave(uid)

    def rejoin(self, uid: str, capacity: int, back: int, held: int) -> None:
        mine = [ticket.id for ticket in self.desk.tickets(uid)]
        self.desk.join(uid, capacity, since=max(0, self.desk.seq + 1 - back), held=mine[:held])

    def control(self, op: str, which: int) -> None:
        refs = [ref_of(*ref) for ref in self.desk.machine.dead][: which % 3]
        self.desk.command(op, *refs, *(["x:²", "nothing"] if which == 5 else []))

    def wait(self, seconds: float) -> None:
        self.desk.wait(seconds)

    def lapse(self) -> None:
        self.desk.wait(65.0)

    def slow(self, slow_ms: int) -> None:
        self.slow_ms = slow_ms
        self.desk.wait(slow_ms / 1000)

    def snapshot(self) -> None:
        self.desk.reread()

    def new_leader(self) -> None:
        self.tick()
        self.desk.new_leader()

    def drain(self) -> None:
        """With one good worker, and nobody in the way, everything comes to its end."""
        desk = self.desk
        for uid in list(desk.machine.workers):
            desk.leave(uid)
        desk.command("resume")
        self.tick()
        for _ in range(300):
            desk.wait(1.0)
            desk.join("good", 50)
            desk.finish_all()
            self.tick()
            machine = desk.machine
            if not (machine.ready_count or machine.delayed_count or machine.in_flight_count):
                break
        else:
            raise AssertionError(f"something is stuck: {fields(desk.machine)}")
        assert set(desk.machine.dead) == desk.auditor.open
        assert not desk.machine.keys


@pytest.mark.req("SQ-1")
@settings(max_examples=100)
@given(desks, steps)
def test_whoever_reads_the_log_has_what_the_leader_has_and_nothing_is_lost(
    chosen: dict[str, Any], steps: list[tuple[tuple[Any, ...], bool]]
) -> None:
    play = Play(**chosen)
    for step, is_last_of_entry in steps:
        play.do(step)
        if is_last_of_entry:
            play.tick()
    play.tick()
    play.drain()


@settings(max_examples=100)
@given(desks, steps, st.integers(0, 40))
def test_a_leader_that_begins_from_a_snapshot_decides_as_the_one_before_would_have(
    chosen: dict[str, Any], steps: list[tuple[tuple[Any, ...], bool]], cut: int
) -> None:
    play = Play(**chosen)
    for number, (step, is_last_of_entry) in enumerate(steps):
        play.do(step)
        if number == cut:
            play.tick()
            before = play.desk.machine
            other = QueueMachine()
            other.restore(play.desk.reader.snapshot())
            machines = [before, other]
            order = [
                [messages_of(group) for group in machine.in_order(60_000, play.desk.now_ms, 1, 16)]
                for machine in machines
            ]
            assert order[0] == order[1]
        elif is_last_of_entry:
            play.tick()


def test_snapshots_hold_all_that_is_there() -> None:
    desk = Desk(max_attempts=2)
    desk.send([(3, None), (2, Options(key="k", priority=3)), (2, Options(delay_ms=9000)), (1, Options(dedup="d"))])
    desk.join(capacity=4)
    desk.tick()
    (ticket, *_) = desk.tickets()
    run = ticket.runs[0]
    desk.report("w", Outcome(ticket.id, failed=[Failure(run.segment, run.low, "no", True)]))
    desk.command("pause")
    desk.tick()
    assert desk.machine.dead
    assert desk.machine.delayed_count == 2
    desk.reread()
    damaged = desk.reader.snapshot()
    with pytest.raises(ValueError, match="were written"):
        QueueMachine().restore(damaged[:-1])


@pytest.mark.req("SQ-3")
def test_a_purge_leaves_what_workers_hold_and_the_dead() -> None:
    desk = Desk(max_attempts=1)
    desk.join(capacity=2)
    desk.put(2)
    desk.tick()
    (ticket,) = desk.tickets()
    desk.report("w", Outcome(ticket.id, failed=failures([ticket.runs[0].part(0, 1)])), capacity=1)
    desk.send([(5, None), (3, Options(key="k")), (3, Options(delay_ms=1000, key="k"))])
    desk.tick()
    desk.command("purge")
    desk.tick()
    machine = desk.machine
    assert (machine.ready_count, machine.delayed_count, machine.in_flight_count) == (0, 0, 1)
    assert machine.totals.purged == 11
    assert len(machine.dead) == 1
    assert not machine.keys
    # The key can be used again, and nothing of what was dropped comes back.
    desk.put(1, key="k")
    desk.finish_all()
    desk.wait(10)
    desk.tick()
    assert desk.machine.in_flight_count == 1


@pytest.mark.parametrize("ref", ["", ":", "a:²", "a:" + "9" * 5000, "a:-1", "a:٣", ":1", "a:1:x"])
def test_a_reference_that_is_none_refers_to_nothing(ref: str) -> None:
    assert parse_ref(ref)[1] == -1 or parse_ref(ref)[0] == ""
    desk = Desk()
    desk.put()
    desk.command("redrive", ref)
    assert desk.tick() is not None


def test_references_are_read_as_they_are_written() -> None:
    assert parse_ref(ref_of("1-tag-3", 17)) == ("1-tag-3", 17)


def test_a_piece_that_ends_before_it_begins_is_none() -> None:
    desk = Desk()
    desk.put(10)
    desk.join()
    desk.tick()
    (ticket,) = desk.tickets()
    segment = ticket.runs[0].segment
    back = [Piece(segment, 5, 3), Piece(segment, 4, 4), Piece(segment, 20, 30)]
    desk.report("w", Outcome(ticket.id, back=back, done=back))
    desk.tick()
    assert desk.machine.in_flight_count == 10
    assert ticket.runs == [Run(segment, 0, 10, START_MS)]


def test_pieces_that_overlap_are_settled_once() -> None:
    desk = Desk()
    desk.put(10)
    desk.join()
    desk.tick()
    (ticket,) = desk.tickets()
    segment = ticket.runs[0].segment
    desk.report("w", Outcome(ticket.id, done=[Piece(segment, 2, 6), Piece(segment, 4, 8), Piece(segment, 4, 5)]))
    desk.tick()
    assert desk.machine.totals.done == 6
    assert messages_of(desk.tickets()[0].runs) == [(segment, index) for index in (0, 1, 8, 9)]


def test_what_is_given_back_keeps_its_order() -> None:
    desk = Desk()
    desk.send([(1, Options(visibility_ms=1000 + 1000 * (index % 2))) for index in range(8)])
    desk.put(2)
    desk.join(capacity=8)
    desk.tick()
    order = sorted(desk.given())
    desk.leave()
    desk.join("v", 20)
    desk.tick()
    first = [run for queue in desk.machine.ready.values() for run in queue]
    assert not first
    taken = sorted(desk.given())
    assert taken[:8] == order


def test_returned_runs_are_first_in_their_old_order() -> None:
    machine = QueueMachine()
    machine.arrive({"s": 6}, [Run("s", index, index + 1, 5, visibility_ms=index + 1) for index in range(6)], {}, 0)
    runs = [run for queue in machine.ready.values() for run in queue]
    machine.publish([Ticket("1-0", "w", 1, 10, 10, runs[:4])])
    machine.settle(Settled("1-0", lapsed=True), Stamp(2, 1, 20))
    assert messages_of(machine.ready[0]) == [("s", index) for index in range(6)]


def test_a_ticket_that_is_published_twice_is_refused() -> None:
    machine = QueueMachine()
    machine.arrive({"s": 3}, [Run("s", 0, 2, 5), Run("s", 2, 3, 5, key="k")], {}, 0)
    for runs in ([Run("s", 0, 2, 5), Run("s", 1, 2, 5)], [Run("s", 2, 3, 5, key="k")] * 2, [Run("t", 0, 1, 5)]):
        fresh = QueueMachine()
        fresh.restore(machine.snapshot())
        with pytest.raises(ValueError, match="not ready"):
            fresh.publish([Ticket("1-0", "w", 1, 10, 10, runs)])


def test_history_is_bounded_and_ends_with_the_message() -> None:
    desk = Desk(max_attempts=MAX_HISTORY + 5, backoff=0.0)
    desk.put()
    desk.join()
    for _ in range(MAX_HISTORY + 4):
        desk.tick()
        (ticket,) = desk.tickets()
        desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs)))
        desk.tick()
        desk.wait(0.01)
    (notes,) = desk.machine.history.values()
    assert [note.attempt for note in notes] == list(range(5, MAX_HISTORY + 5))
    desk.tick()
    desk.finish_all()
    desk.tick()
    assert not desk.machine.history
    assert not desk.machine.dead


def test_deduplication_keys_are_forgotten_when_their_time_is_over_and_above_the_bound() -> None:
    machine = QueueMachine()
    machine.arrive({}, [], {"a": 10, "b": 20, "c": 20}, 0)
    machine.advance(10)
    assert list(machine.dedup) == ["b", "c"]
    machine.dedup.update((str(number), 10**9) for number in range(MAX_DEDUP))
    machine.advance(10)
    assert len(machine.dedup) == MAX_DEDUP
    assert "b" not in machine.dedup


@given(st.lists(st.tuples(st.sampled_from(["add", "take", "middle"]), st.integers(0, 50)), max_size=200))
def test_a_key_queue_is_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    queue, model = KeyQueue(), dict[int, Run]()
    for what, number in steps:
        ordered = [model[order] for order in sorted(model)]
        if what == "add" and number not in model:
            model[number] = Run("s", number, number + 1, 0, key="k", order=number)
            queue.add(model[number])
        elif ordered and what != "add":
            run = ordered[0 if what == "take" else number % len(ordered)]
            del model[run.order]
            assert queue.take(run.part(run.low, run.high))
            assert not queue.take(run)
        ordered = [model[order] for order in sorted(model)]
        assert queue.waiting == ordered
        assert len(queue) == len(ordered)
        assert queue.first == (ordered[0] if ordered else None)
        assert queue.begin_with(3) == ordered[:3]


def test_commands_that_are_not_known_change_nothing() -> None:
    machine = QueueMachine()
    before = fields(machine)
    machine.control(Control("explode"), Stamp(1, 1, 1))
    assert fields(machine) == before
    desk = Desk()
    desk.send(commands=[Command("explode")])
    assert desk.tick() is None
    assert desk.clerk.counts["unknown_commands"] == 1


def test_what_an_entry_says_is_not_changed_by_what_comes_after() -> None:
    """The entry may still be on its way when the next is decided on."""
    desk = Desk(audited=False)
    desk.send([(4, None), (4, Options(key="k"))])
    desk.join(capacity=20)
    desk.tick()
    kept = desk.clerk._work
    assert kept is not None
    before = msgspec.json.encode(kept)
    for ticket in desk.tickets():
        desk.report("w", Outcome(ticket.id, done=pieces(ticket.runs[:1]), failed=failures(ticket.runs[1:])))
    desk.tick()
    desk.leave()
    desk.tick()
    assert msgspec.json.encode(kept) == before


def test_a_note_of_an_unknown_worker_that_leaves_is_nothing() -> None:
    desk = Desk()
    desk.send(notes=[WorkerNote("stranger", "stranger", leaving=True)])
    assert desk.tick() is None


# Found by mutants


def test_rates_are_those_of_the_last_minute_however_many_entries_it_has() -> None:
    machine = QueueMachine()
    for second in range(120):
        machine.begin(0, Stamp(second + 1, 1, START_MS + 1000 * second))
        machine.totals.enqueued += 60 if second < 100 else 0
        machine.totals.done += 30
    assert machine.rates(START_MS + 120_000) == (40.0, 30.0)

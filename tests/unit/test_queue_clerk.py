"""What a queue's leader decides: who gets what, in which order, within which limits, and what is tried again."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.clock import SYSTEM_CLOCK
from tenure.entropy import Random
from tenure.errors import StoreError
from tenure.ledger import InboxName, LogEntry, Poison, TooNewLetter
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.plugins.queue.clerk import (
    CHAIN,
    FEWER,
    FORGET_AFTER,
    MAX_BURIED,
    MAX_TICKET,
    MAX_TICKETED,
    QueueClerk,
    _quotas,
)
from tenure.plugins.queue.records import Run, Ticket, ref_of
from tenure.plugins.queue.settings import IDLE_PRESENCE, IDLE_PRESENCE_KNOWN, Ordering, QueueSettings
from tenure.plugins.queue.state import NO_REPORT, QueueMachine
from tenure.plugins.queue.wire import Failure, Options, Outcome, Piece, WorkerNote, digest
from tenure.store.memory import MemoryStore
from tests.support.store import ANY, ScriptedStore
from tests.unit.queues import START_MS, Desk, Message, failures, messages_of, pieces, run_now

STEP = 60_000


def keyed_in(ticket: Ticket) -> set[str]:
    return {run.key for run in ticket.runs if run.key}


class TestOrderingKeys:
    @pytest.mark.req("SQ-3")
    @settings(max_examples=40)
    @given(st.data())
    def test_messages_of_a_key_are_finished_in_order_whatever_fails(self, data: st.DataObject) -> None:
        """Workers that keep to the rules: they handle a chain in order, and give the rest back when one fails."""
        desk = Desk(max_attempts=3, backoff=data.draw(st.sampled_from([0.0, 0.5])))
        order: dict[str, list[Message]] = defaultdict(list)
        ended: set[Message] = set()
        for uid in ("w1", "w2"):
            desk.join(uid, data.draw(st.integers(1, 30)))

        def note_new() -> None:
            for run in desk.works[-1].arrived if desk.works else ():
                order[run.key] += messages_of([run])

        for _ in range(data.draw(st.integers(1, 25))):
            for _ in range(data.draw(st.integers(0, 2))):
                visibility = data.draw(st.sampled_from([0, 0, 2000, 60_000]))
                desk.put(data.draw(st.integers(1, 25)), key=data.draw(st.sampled_from("ab")), visibility_ms=visibility)
            if desk.tick() is not None:
                note_new()
            holders = Counter(key for ticket in desk.tickets() for key in keyed_in(ticket))
            assert all(count == 1 for count in holders.values())
            for ticket in desk.tickets():
                fate = data.draw(st.sampled_from(["done", "part", "fail", "leave", "silent", "extend"]))
                upto = data.draw(st.integers(0, len(ticket.runs)))
                if fate == "leave":
                    desk.leave(ticket.uid)
                    desk.join(ticket.uid + "'", 20)
                elif fate == "extend":
                    desk.report(ticket.uid, Outcome(ticket.id, extend=True))
                elif fate != "silent":
                    if fate == "done":
                        upto = len(ticket.runs)
                    by_key: dict[str, list[Run]] = defaultdict(list)
                    for run in ticket.runs:
                        by_key[run.key].append(run)
                    done, failed, back = [], [], []
                    for runs in by_key.values():
                        done += runs[:upto]
                        if fate == "fail":
                            failed += runs[upto : upto + 1]
                            back += runs[upto + 1 :]
                    outcome = Outcome(ticket.id, done=pieces(done), failed=failures(failed), back=pieces(back))
                    desk.report(ticket.uid, outcome)
            desk.wait(data.draw(st.sampled_from([0.02, 1.0, 100.0])))
            if desk.tick() is not None:
                note_new()
            ended = desk.auditor.gone | set(desk.machine.dead)
            for messages in order.values():
                over = [message in ended for message in messages]
                assert over == sorted(over, reverse=True), "a later one was over before an earlier one"

    def test_one_key_has_one_ticket_though_its_messages_have_different_timeouts(self) -> None:
        desk = Desk()
        desk.join()
        desk.send([(1, Options(key="k", visibility_ms=1000 * (1 + index % 2))) for index in range(4)])
        desk.tick()
        assert len(desk.tickets()) == 1
        assert desk.machine.in_flight_count == 1
        for _ in range(3):
            desk.finish_all()
            desk.tick()
            assert desk.machine.in_flight_count == 1

    def test_a_chain_is_bounded_and_goes_to_one_worker(self) -> None:
        desk = Desk()
        desk.join("w1", 100)
        desk.join("w2", 100)
        desk.put(50, key="k")
        desk.tick()
        (ticket,) = desk.tickets()
        assert ticket.count == CHAIN

    def test_a_chain_is_cut_short_where_its_worker_has_no_more_room(self) -> None:
        desk = Desk()
        desk.join("w1", 3)
        desk.join("w2", 3)
        desk.put(9, key="k")
        desk.tick()
        (ticket,) = desk.tickets()
        assert [index for _, index in messages_of(ticket.runs)] == [0, 1, 2]

    def test_a_failed_message_keeps_those_behind_it_waiting(self) -> None:
        desk = Desk(backoff=10.0, max_backoff=10.0)
        desk.join()
        desk.put(3, key="k")
        desk.tick()
        (ticket,) = desk.tickets()
        first, *rest = ticket.runs
        desk.report("w", Outcome(ticket.id, failed=failures([first]), back=pieces(rest)))
        desk.tick()
        desk.put(1, key="k")
        desk.wait(4.9)
        desk.tick()
        assert desk.machine.in_flight_count == 0
        assert desk.machine.ready_count == 4
        desk.wait(5.2)
        work = desk.tick()
        assert work is not None
        assert [run.attempt for run in work.tickets[0].runs] == [2, 1, 1, 1]
        assert [index for _, index in desk.given()] == [0, 1, 2, 0]

    def test_with_pass_those_behind_a_failed_message_go_on_and_it_comes_after_them(self) -> None:
        desk = Desk(ordering=Ordering.PASS, backoff=10.0, max_backoff=10.0)
        desk.join()
        desk.put(3, key="k")
        desk.tick()
        (ticket,) = desk.tickets()
        first, *rest = ticket.runs
        desk.report("w", Outcome(ticket.id, failed=failures([first]), back=pieces(rest)))
        desk.tick()
        assert [index for _, index in desk.given()] == [1, 2]
        desk.finish_all()
        desk.wait(10)
        desk.tick()
        assert [index for _, index in desk.given()] == [0]

    def test_with_pass_all_of_a_key_may_fail_together(self) -> None:
        desk = Desk(ordering=Ordering.PASS, max_attempts=2, backoff=1.0)
        desk.join()
        desk.put(3, key="k")
        for _ in range(2):
            desk.tick()
            (ticket,) = desk.tickets()
            desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs)))
            desk.tick()
            desk.wait(2)
        assert len(desk.machine.dead) == 3
        assert not desk.machine.keys

    @pytest.mark.req("SQ-3")
    @given(st.integers(2, 5), st.lists(st.integers(0, 3), max_size=20), st.sampled_from(list(Ordering)))
    def test_no_more_of_a_key_are_out_than_it_may_have(self, limit: int, fates: list[int], ordering: Ordering) -> None:
        desk = Desk(key_concurrency=limit, ordering=ordering, backoff=0.5, max_attempts=4)
        desk.join("w1", 3)
        desk.join("w2", 100)
        desk.put(20, key="k")
        desk.put(5, key="l")
        desk.tick()
        assert desk.machine.keys["k"].in_flight == limit
        for fate in fates:
            for ticket in desk.tickets():
                run = ticket.runs[0]
                outcome = [
                    Outcome(ticket.id, done=pieces([run])),
                    Outcome(ticket.id, failed=failures([run])),
                    Outcome(ticket.id, back=pieces([run])),
                    Outcome(ticket.id, all_done=True),
                ][fate]
                desk.report(ticket.uid, outcome)
            desk.wait(0.2)
            desk.tick()
            out = Counter(run.key for ticket in desk.tickets() for run in ticket.runs)
            assert all(count <= limit for count in out.values())

    def test_a_delayed_message_of_a_key_does_not_hold_up_the_others(self) -> None:
        desk = Desk()
        desk.join()
        desk.put(1, key="k", delay_ms=5000)
        desk.put(1, key="k")
        desk.tick()
        desk.finish_all()
        desk.wait(5)
        desk.tick()
        assert desk.machine.in_flight_count == 1
        assert desk.machine.totals.done == 1

    def test_arrivals_for_a_key_that_waits_leave_nothing_behind(self) -> None:
        """Each look at a key in its backoff used to leave a reminder: one for each entry, for as long as it lasted."""
        desk = Desk(backoff=1000.0, max_backoff=1000.0, audited=False)
        desk.join()
        desk.put(1, key="k")
        desk.tick()
        (ticket,) = desk.tickets()
        desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs)))
        for _ in range(200):
            desk.put(1, key="k")
            desk.wait(0.02)
            desk.tick()
        assert len(desk.machine.delayed) == 1
        assert sum(map(len, desk.machine.key_heaps.values())) <= 2

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3), st.integers(0, 200)), min_size=1, max_size=60))
    def test_offers_do_not_pile_up(self, puts: list[tuple[int, int, int]]) -> None:
        desk = Desk()
        for key, priority, age in puts:
            desk.send([(1, Options(key=f"k{key}", priority=priority))], modified_ms=START_MS - age * 1000)
        desk.join(capacity=1)
        for _ in puts:
            desk.tick()
            desk.finish_all()
            assert sum(map(len, desk.machine.key_heaps.values())) <= len(puts)
        desk.tick()
        assert not desk.machine.keys


@pytest.mark.req("SQ-3")
class TestPriorities:
    @given(
        st.lists(
            st.tuples(st.integers(-3, 3), st.integers(0, 400), st.sampled_from(["", "", "a", "b", "c", "d"])),
            min_size=1,
            max_size=30,
        )
    )
    def test_the_higher_and_the_older_go_first_ordered_by_key_or_not(self, puts: list[tuple[int, int, str]]) -> None:
        """One key for each message, so that only the place counts."""
        desk = Desk()
        desk.command("pause")
        place: dict[Message, int] = {}
        for number, (priority, age, key) in enumerate(sorted(puts, key=lambda each: -each[1])):
            options = Options(priority=priority, key=f"{key}{number}" if key else "")
            desk.send([(1, options)], modified_ms=START_MS - age * 1000)
        work = desk.tick()
        assert work is not None
        for run in work.arrived:
            for message in messages_of([run]):
                place[message] = run.at_ms - run.priority * STEP
        desk.command("resume")
        desk.join(capacity=1)
        given_out = []
        for _ in puts:
            desk.tick()
            given_out += [place[message] for message in desk.given()]
            desk.finish_all()
        assert given_out == sorted(place.values())

    def test_of_two_keys_the_one_with_the_higher_priority_is_first(self) -> None:
        desk = Desk()
        desk.put(1, key="low")
        desk.tick()
        desk.wait(1)
        desk.put(1, key="high", priority=5)
        desk.join(capacity=1)
        desk.tick()
        assert [run.key for ticket in desk.tickets() for run in ticket.runs] == ["high"]

    def test_the_place_of_a_key_is_that_of_its_first_message_now(self) -> None:
        """Once its old messages are gone, a key has no claim to their place."""
        desk = Desk()
        desk.send([(CHAIN, Options(key="a"))], modified_ms=START_MS - 100_000)
        desk.send([(1, Options(key="b"))], modified_ms=START_MS - 50_000)
        desk.send([(1, Options(key="a"))], modified_ms=START_MS)
        desk.join(capacity=CHAIN)
        desk.tick()
        desk.finish_all()
        desk.join(capacity=1)
        desk.tick()
        assert [run.key for run in desk.tickets()[0].runs] == ["b"]

    @pytest.mark.parametrize("key", ["", "k"])
    def test_nothing_waits_for_ever(self, key: str) -> None:
        """A message of priority 0 is passed by those of priority 3 that came up to three steps later, and no others."""
        desk = Desk(priority_step=10.0)
        desk.put(1, key=key)
        desk.join(capacity=1)
        desk.send([(1, Options(priority=3))])
        seconds = 0
        while seconds < 60:
            desk.tick()
            if any(run.priority == 0 for ticket in desk.tickets() for run in ticket.runs):
                break
            seconds += 1
            desk.wait(1)
            desk.send([(1, Options(priority=3))])
            desk.finish_all()
        assert 29 <= seconds <= 32


class TestLimits:
    @given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(1, 500), min_size=1), st.integers(0))
    def test_shares_are_fair(self, rooms: dict[str, int], total: int) -> None:
        total %= sum(rooms.values()) + 1
        quotas = _quotas(total, rooms)
        assert sum(quotas.values()) == total
        for uid, quota in quotas.items():
            assert 0 <= quota <= rooms[uid]
            # Who has less than another could have taken no more.
            assert quota == rooms[uid] or quota >= max(quotas.values()) - 1

    @pytest.mark.req("SQ-2")
    @settings(max_examples=60)
    @given(
        st.lists(st.integers(1, 40), min_size=1, max_size=6),
        st.lists(
            st.tuples(st.integers(1, 60), st.sampled_from(["", "", "", "a", "b"]), st.sampled_from([0, 1000])),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from([0, 13]),
    )
    def test_nobody_gets_more_than_it_can_hold_and_nothing_waits_that_could_go(
        self, capacities: list[int], puts: list[tuple[int, str, int]], most: int
    ) -> None:
        desk = Desk(max_in_flight=most)
        for number, capacity in enumerate(capacities):
            desk.join(f"w{number}", capacity)
        for count, key, visibility in puts:
            desk.put(count, key=key, visibility_ms=visibility)
        desk.tick()
        machine = desk.machine
        for worker in machine.workers.values():
            assert worker.held <= worker.capacity
        room = min(sum(capacities), most or 10**9)
        assert machine.in_flight_count <= room
        if not any(key for _, key, _ in puts):
            ready = sum(count for count, _, _ in puts)
            assert machine.in_flight_count == min(room, ready)
            fair = machine.in_flight_count // len(capacities)
            assert all(worker.held >= min(worker.capacity, fair) for worker in machine.workers.values())

    def test_what_one_cannot_take_goes_to_the_others_in_one_piece(self) -> None:
        """It used to be dealt one by one: an entry with as many runs as messages."""
        desk = Desk()
        desk.put(4000)
        for uid, capacity in (("a", 2000), ("b", 2000), ("c", 10)):
            desk.join(uid, capacity)
        desk.tick()
        assert desk.machine.in_flight_count == 4000
        assert sum(len(ticket.runs) for ticket in desk.tickets()) <= 5

    def test_tickets_are_bounded(self) -> None:
        desk = Desk(audited=False)
        desk.put(30_000)
        desk.put(40_000)
        for number in range(10):
            desk.join(f"w{number}", 10_000)
        desk.tick()
        assert desk.machine.in_flight_count == MAX_TICKETED
        assert max(ticket.count for ticket in desk.tickets()) == MAX_TICKET
        chains = Desk(audited=False)
        chains.send([(1, Options(key=f"k{number}")) for number in range(3 * MAX_TICKET)])
        chains.join(capacity=10_000)
        chains.tick()
        assert chains.machine.in_flight_count == 3 * MAX_TICKET
        assert max(ticket.count for ticket in chains.tickets()) <= MAX_TICKET + CHAIN

    @pytest.mark.parametrize("character", ["k", "€", "\x01", "😀"])
    def test_long_keys_do_not_make_an_entry_too_large(self, character: str) -> None:
        desk = Desk(audited=False)
        for start in range(0, 20_000, 1000):
            spans = [(1, Options(key=f"{number:06d}" + character * 250)) for number in range(start, start + 1000)]
            desk.send(spans)
            desk.tick()
        desk.join(capacity=20_000)
        work = desk.tick()
        assert work is not None
        assert work.tickets
        assert len(msgspec.json.encode(work)) < 0.75 * MAX_ENTRY_BYTES

    def test_a_large_entry_leaves_little_room_for_tickets_and_some(self) -> None:
        desk = Desk(audited=False)
        long = "k" * 200
        desk.send([(1, Options(key=f"{number}{long}")) for number in range(10_000)])
        desk.join(capacity=10_000)
        work = desk.tick()
        assert work is not None
        assert 500 < desk.machine.in_flight_count < 5000
        desk.tick()
        assert desk.machine.in_flight_count > 6000

    @given(st.sampled_from([0.5, 1.0, 7.0, 100.0]), st.lists(st.sampled_from([0.02, 0.3, 1.0, 5.0]), min_size=5))
    def test_the_rate_is_never_exceeded(self, rate: float, pauses: list[float]) -> None:
        desk = Desk(rate_limit=rate, audited=False)
        desk.put(5000)
        desk.join(capacity=5000)
        given_out: list[tuple[int, int]] = []
        for pause in pauses:
            work = desk.tick()
            if work is not None and work.tickets:
                given_out.append((desk.now_ms, sum(ticket.count for ticket in work.tickets)))
            desk.wait(pause)
        for first in range(len(given_out)):
            for last in range(first, len(given_out)):
                passed = (given_out[last][0] - given_out[first][0]) / 1000
                total = sum(count for _, count in given_out[first : last + 1])
                assert total <= max(1.0, rate) + passed * rate + 1e-6
        if sum(pauses) * rate > 2 * len(pauses):
            assert given_out, "a limit is not a stop"

    def test_a_slow_rate_is_still_a_rate(self) -> None:
        desk = Desk(rate_limit=0.1, visibility_timeout=1000.0, audited=False)
        desk.put(100)
        for _ in range(401):
            desk.join()
            desk.tick()
            desk.wait(0.25)
        assert 9 <= desk.machine.in_flight_count <= 10

    @pytest.mark.req("SQ-3")
    def test_a_paused_queue_gives_nothing_and_takes_reports(self) -> None:
        desk = Desk()
        desk.put(10)
        desk.join(capacity=4)
        desk.tick()
        desk.command("pause")
        desk.finish_all()
        work = desk.tick()
        assert work is not None
        assert not work.tickets
        assert desk.machine.totals.done == 4
        desk.command("resume")
        desk.tick()
        assert desk.machine.in_flight_count == 4


class TestWorkers:
    def test_who_comes_and_goes_within_one_entry_is_given_nothing(self) -> None:
        desk = Desk()
        desk.put(5)
        desk.join("w")
        desk.leave("w")
        desk.tick()
        assert not desk.machine.workers
        assert desk.machine.ready_count == 5

    def test_who_is_silent_or_not_a_member_is_given_nothing(self) -> None:
        desk = Desk(presence=10.0)
        desk.join("w")
        desk.tick()
        desk.wait(2.5 * IDLE_PRESENCE * 10 + 1)
        desk.put(5)
        desk.tick()
        assert not desk.tickets()
        desk.join("w")
        desk.alive = set()
        desk.tick()
        assert not desk.tickets()
        desk.alive = {"w"}
        desk.tick()
        assert desk.machine.in_flight_count == 5

    def test_whose_ticket_lapsed_is_given_nothing_until_it_is_heard_of(self) -> None:
        desk = Desk(visibility_timeout=1.0, presence=1000.0)
        desk.join("w")
        desk.put(1)
        desk.tick()
        desk.wait(4.5)
        desk.tick()
        assert desk.machine.totals.lapsed == 1
        assert not desk.tickets()
        desk.join("w")
        desk.tick()
        assert desk.machine.in_flight_count == 1

    def test_a_worker_whose_batches_are_not_read_keeps_its_tickets(self) -> None:
        """What it reported in time may be in them. Others do not suffer from that."""
        desk = Desk(visibility_timeout=1.0)
        desk.join("w", 1)
        desk.join("v", 1)
        desk.put(2)
        desk.tick()
        desk.wait(10)
        desk.tick(unread=["w-0123", "stranger-1", "nobody"])
        assert [ticket.uid for ticket in desk.tickets()] == ["w"]
        assert desk.machine.totals.lapsed == 1
        desk.tick()
        assert desk.machine.totals.lapsed == 2

    @pytest.mark.parametrize(("doubt_ms", "more_ms"), [(0, 0), (1000, 0), (1001, 1), (9000, 8000)])
    def test_a_third_of_the_margin_is_for_a_clock_and_more_doubt_is_more_time(
        self, doubt_ms: int, more_ms: int
    ) -> None:
        desk = Desk(visibility_timeout=10.0, margin=3.0)
        desk.join()
        desk.put()
        desk.tick(doubt_ms=doubt_ms)
        (ticket,) = desk.tickets()
        assert ticket.deadline_ms == desk.now_ms + 10_000 + more_ms
        desk.wait((13_000 + 2 * more_ms) / 1000)
        desk.tick(doubt_ms=doubt_ms)
        assert desk.tickets() == [ticket]
        desk.wait(0.001)
        desk.tick(doubt_ms=doubt_ms)
        assert desk.machine.totals.lapsed == 1

    def test_a_new_leader_that_doubts_the_time_gives_more_of_it(self) -> None:
        desk = Desk(visibility_timeout=10.0)
        desk.join()
        desk.put()
        desk.tick()
        desk.new_leader(doubt_ms=4000)
        assert desk.tickets()[0].deadline_ms == desk.now_ms + 14_000

    def test_who_holds_nothing_and_says_nothing_is_struck_off(self) -> None:
        desk = Desk()
        desk.join("idle")
        desk.join("busy", 1)
        desk.put(1, visibility_ms=10_000_000)
        desk.tick()
        busy = desk.tickets()[0].uid
        desk.wait(FORGET_AFTER + 1)
        desk.tick()
        assert len(desk.machine.workers) == 2, "where membership knows of it, it need not say so for longer"
        desk.wait(3 * IDLE_PRESENCE_KNOWN * 15)
        desk.tick()
        assert set(desk.machine.workers) == {busy}

    def test_who_begins_anew_loses_what_it_does_not_name(self) -> None:
        desk = Desk()
        desk.join("w", 4)
        desk.put(2)
        desk.tick()
        desk.put(2)
        desk.tick()
        first, second = desk.tickets()
        desk.join("w", 4, since=desk.seq + 1, held=[second.id])
        desk.command("pause")
        desk.tick()
        assert [ticket.id for ticket in desk.tickets()] == [second.id]
        assert desk.machine.ready_count == 2
        assert first.id not in desk.machine.tickets

    @pytest.mark.req("SQ-2")
    def test_a_report_of_somebody_else_or_too_late_counts_for_nothing(self) -> None:
        desk = Desk(visibility_timeout=1.0, presence=1000.0)
        desk.join("w")
        desk.put(2)
        desk.tick()
        (ticket,) = desk.tickets()
        desk.report("v", Outcome(ticket.id, all_done=True))
        desk.tick()
        assert desk.clerk.counts["late_reports"] == 1
        assert desk.machine.in_flight_count == 2
        desk.wait(5)
        desk.tick()
        assert desk.machine.ready_count == 2
        desk.report("w", Outcome(ticket.id, all_done=True))
        desk.tick()
        assert desk.clerk.counts["late_reports"] == 2
        assert desk.machine.totals.done == 0


class TestDeadlines:
    @pytest.mark.req("SQ-3")
    def test_a_ticket_lapses_only_by_a_sweep_that_began_after_its_deadline_and_the_margin(self) -> None:
        desk = Desk(visibility_timeout=10.0, margin=3.0)
        desk.join()
        desk.put()
        desk.tick()
        desk.wait(13.0)
        assert desk.tick() is None
        desk.wait(0.001)
        assert desk.tick(swept=False) is None
        assert desk.tick() is not None
        assert desk.machine.totals.lapsed == 1

    def test_a_report_in_the_same_entry_comes_before_the_lapse(self) -> None:
        desk = Desk(visibility_timeout=1.0)
        desk.join()
        desk.put()
        desk.tick()
        desk.wait(100)
        desk.finish_all()
        desk.tick()
        assert desk.machine.totals.done == 1
        assert desk.machine.totals.lapsed == 0

    def test_an_entry_that_took_long_gives_its_tickets_that_much_more(self) -> None:
        desk = Desk(visibility_timeout=10.0)
        desk.join()
        desk.put()
        desk.tick()
        (ticket,) = desk.tickets()
        before = ticket.deadline_ms
        desk.wait(20)
        desk.tick(slow_ms=20_000)
        assert desk.tickets()[0].deadline_ms == before + 20_000
        desk.tick(slow_ms=20_000)
        assert desk.tickets()[0].deadline_ms == before + 20_000

    def test_an_extension_whose_entry_took_long_is_that_much_longer(self) -> None:
        """Its worker counts from its last poll that did not see the entry: as it does for a new ticket."""
        desk = Desk(visibility_timeout=10.0)
        desk.join()
        desk.put()
        desk.tick()
        (ticket,) = desk.tickets()
        desk.wait(5)
        desk.report("w", Outcome(ticket.id, extend=True))
        desk.tick()
        assert desk.tickets()[0].deadline_ms == desk.now_ms + 10_000
        desk.wait(20)
        desk.tick(slow_ms=20_000)
        assert desk.tickets(), "it lapsed while its worker had ten seconds left"
        assert desk.tickets()[0].deadline_ms == desk.now_ms + 10_000

    def test_a_new_leader_gives_the_last_entry_of_the_old_one_its_whole_time(self) -> None:
        desk = Desk(visibility_timeout=10.0)
        desk.join(capacity=1)
        desk.put(1)
        desk.tick()
        desk.put(1)
        desk.join("v", 1)
        desk.tick()
        old, new = desk.tickets()
        desk.report(old.uid, Outcome(old.id, extend=True))
        desk.tick()
        desk.wait(8)
        desk.new_leader()
        deadlines = {ticket.id: ticket.deadline_ms for ticket in desk.tickets()}
        assert deadlines[old.id] == desk.now_ms + 10_000
        assert deadlines[new.id] == desk.now_ms + 2000

    @pytest.mark.parametrize(("margin", "slow_ms", "shifted"), [(3.0, 900, 0), (3.0, 1100, 1100), (0.0, 10, 10)])
    def test_what_the_margin_does_not_cover_is_added(self, margin: float, slow_ms: int, shifted: int) -> None:
        desk = Desk(margin=margin)
        desk.join()
        desk.put()
        desk.tick()
        before = desk.tickets()[0].deadline_ms
        desk.put()
        desk.tick(slow_ms=slow_ms)
        assert desk.tickets()[0].deadline_ms == before + shifted


class TestFailures:
    @pytest.mark.req("SQ-3")
    @pytest.mark.parametrize("key", ["", "k"])
    def test_after_so_many_attempts_it_is_dead_with_its_history(self, key: str) -> None:
        """Failures and lapses alike: each attempt is told."""
        desk = Desk(max_attempts=4, visibility_timeout=1.0, backoff=0.1)
        desk.put(1, key=key)
        for attempt in range(1, 5):
            desk.join("w")
            desk.tick()
            (ticket,) = desk.tickets()
            assert {run.attempt for run in ticket.runs} == {attempt}
            if attempt % 2:
                desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs, f"error {attempt}")))
                desk.tick()
            else:
                desk.wait(10)
                desk.tick()
            desk.wait(5)
        assert len(desk.machine.dead) == 1
        for letter in desk.machine.dead.values():
            assert letter.reason == "not settled in time 4 times"
            told = [(note.attempt, note.worker, note.error) for note in letter.history]
            assert told == [
                (1, "w", "error 1"),
                (2, "w", NO_REPORT),
                (3, "w", "error 3"),
                (4, "w", NO_REPORT),
            ]
        assert not desk.machine.history

    def test_what_lapses_is_held_by_ever_fewer_and_its_last_attempt_is_its_own(self) -> None:
        """One message that kills its worker must not take others with it for ever."""
        desk = Desk(max_attempts=4, visibility_timeout=1.0)
        desk.put(300)
        held = []
        for _ in range(4):
            desk.join("w", MAX_TICKET)
            desk.tick()
            by_attempt: Counter[int] = Counter()
            for ticket in desk.tickets():
                for run in ticket.runs:
                    by_attempt[run.attempt] += run.count
            held.append(dict(by_attempt))
            desk.wait(10)
            desk.tick()
        fewer, fewest = MAX_TICKET // FEWER, MAX_TICKET // FEWER**2
        assert held == [{1: 300}, {2: fewer}, {2: 300 - fewer, 3: fewest}, {3: fewest - 1, 4: 1}]
        assert len(desk.machine.dead) == 1

    def test_what_waits_for_others_of_its_kind_keeps_nobody_else_waiting(self) -> None:
        desk = Desk(max_attempts=2, visibility_timeout=1.0)
        desk.put(100)
        desk.join("w", 1000)
        desk.tick()
        desk.wait(10)
        desk.tick()
        desk.join("w", 1000)
        desk.join("v", 1000)
        desk.put(50)
        desk.tick()
        last = [(ticket.uid, run.count) for ticket in desk.tickets() for run in ticket.runs if run.attempt == 2]
        assert sorted(last) == [("v", 1), ("w", 1)]
        assert desk.machine.in_flight_count == 52

    @pytest.mark.parametrize("limits", [{}, {"max_in_flight": 2}])
    def test_a_suspect_goes_to_who_may_have_it_and_takes_no_room_if_nobody_may(self, limits: dict[str, int]) -> None:
        desk = Desk(max_attempts=2, visibility_timeout=1.0, **limits)
        desk.put(2)
        desk.join("dies", 2)
        desk.tick()
        desk.wait(10)
        desk.join("b", 20)
        desk.tick()
        assert [(ticket.uid, ticket.count) for ticket in desk.tickets()] == [("b", 1)], "its last attempt, alone"
        desk.put(50)
        desk.tick()
        assert desk.machine.in_flight_count == min(20, limits.get("max_in_flight", 20)), "others go out beside it"
        desk.join("a", 20)
        desk.finish_all("b")
        desk.tick()
        assert not desk.machine.dead
        assert [run.attempt for ticket in desk.tickets() for run in ticket.runs].count(2) == 1

    def test_what_failed_and_was_reported_is_given_out_as_before(self) -> None:
        desk = Desk(max_attempts=5, backoff=0.0)
        desk.join("w", 1000)
        desk.put(500)
        desk.tick()
        for _ in range(4):
            for ticket in desk.tickets():
                desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs, "down")))
            desk.tick()
            desk.wait(0.01)
            desk.tick()
            assert desk.machine.in_flight_count == 500

    def test_so_many_that_die_at_once_are_told_in_several_entries(self) -> None:
        desk = Desk(max_attempts=1, visibility_timeout=1.0, audited=False)
        uids = [f"w{number}" for number in range(15)]
        for uid in uids:
            desk.join(uid, MAX_TICKET)
        desk.put(15 * MAX_TICKET)
        desk.tick()
        desk.wait(10)
        desk.tick()
        assert len(desk.machine.dead) == MAX_BURIED
        desk.tick()
        assert len(desk.machine.dead) == 15 * MAX_TICKET

    def test_what_its_handler_refuses_is_dead_at_once(self) -> None:
        desk = Desk()
        desk.put(1)
        desk.join()
        desk.tick()
        (ticket,) = desk.tickets()
        desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs, final=True)))
        desk.tick()
        (letter,) = desk.machine.dead.values()
        assert letter.reason == "refused"
        assert len(letter.history) == 1

    def test_a_message_may_have_fewer_or_more_attempts_than_its_queue_gives(self) -> None:
        desk = Desk(max_attempts=2, backoff=0.0)
        desk.put(1, max_attempts=1)
        desk.put(1, max_attempts=3)
        desk.join()
        deaths = []
        for _ in range(4):
            desk.tick()
            for ticket in desk.tickets():
                desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs)))
            desk.wait(0.1)
            desk.tick()
            deaths.append(len(desk.machine.dead))
        assert deaths == [1, 1, 2, 2]

    @pytest.mark.req("SQ-3")
    @given(st.integers(1, 60), st.floats(0, 86_400), st.floats(0, 30 * 86_400))
    def test_backoff_grows_up_to_its_limit(self, attempt: int, backoff: float, longest: float) -> None:
        clerk = Desk(backoff=backoff, max_backoff=longest).clerk
        most = min(longest, backoff * 2 ** (attempt - 1))
        for _ in range(5):
            assert most * 500 - 1 <= clerk._backoff_ms(attempt) <= most * 1000 + 1

    @pytest.mark.req("SQ-3")
    def test_redriven_letters_begin_anew_at_the_end(self) -> None:
        desk = Desk(max_attempts=1)
        desk.send([(2, Options(key="k")), (2, None)])
        desk.join()
        desk.tick()
        for ticket in desk.tickets():
            desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs)))
        desk.tick()
        assert len(desk.machine.dead) == 4
        desk.command("pause")
        desk.put(1, key="k")
        desk.tick()
        wanted = next(ref for ref, letter in desk.machine.dead.items() if letter.run.key)
        desk.command("redrive", ref_of(*wanted), "nothing:7", ref_of(*wanted))
        desk.tick()
        assert len(desk.machine.dead) == 3
        assert [run.order for run in desk.machine.keys["k"].waiting] == [3, 4]
        desk.command("redrive")
        desk.command("resume")
        desk.wait(1)
        desk.tick()
        assert not desk.machine.dead
        assert desk.machine.in_flight_count == 5
        assert {run.attempt for ticket in desk.tickets() for run in ticket.runs} == {1}
        desk.finish_all()
        desk.tick()
        assert not desk.machine.segments

    def test_dead_letters_can_be_dropped(self) -> None:
        desk = Desk(max_attempts=1)
        desk.put(3)
        desk.join()
        desk.tick()
        (ticket,) = desk.tickets()
        desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs)))
        desk.tick()
        desk.command("purge-dead", ref_of(*next(iter(desk.machine.dead))))
        desk.tick()
        assert len(desk.machine.dead) == 2
        desk.command("purge-dead")
        desk.tick()
        assert not desk.machine.segments
        assert desk.machine.totals.purged == 3

    @pytest.mark.req("SQ-3")
    def test_what_is_given_back_was_not_an_attempt_and_is_given_at_once(self) -> None:
        desk = Desk(backoff=0.1)
        desk.put(1)
        desk.join()
        desk.tick()
        (ticket,) = desk.tickets()
        desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs)))
        desk.tick()
        desk.wait(1)
        desk.tick()
        (ticket,) = desk.tickets()
        desk.report("w", Outcome(ticket.id, back=pieces(ticket.runs)))
        desk.tick()
        (ticket,) = desk.tickets()
        assert ticket.runs[0].attempt == 2

    def test_an_empty_report_is_not_written_down(self) -> None:
        desk = Desk()
        desk.put(1)
        desk.join()
        desk.tick()
        desk.report("w", Outcome(desk.tickets()[0].id))
        assert desk.tick() is None


@pytest.mark.req("SQ-3")
class TestDeduplication:
    @given(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.sampled_from([0.0, 0.4, 1.1])), max_size=30)
    )
    def test_within_the_window_one_of_each_is_folded(self, puts: list[tuple[str, int, float]]) -> None:
        desk = Desk(dedup_window=1.0)
        seen: dict[str, int] = {}
        expected = dropped = 0
        for name, count, pause in puts:
            desk.put(count, dedup=digest(name))
            if desk.now_ms >= seen.get(name, 0):
                seen[name] = desk.now_ms + 1000
                expected, dropped = expected + 1, dropped + count - 1
            else:
                dropped += count
            desk.tick()
            desk.wait(pause)
        assert desk.machine.ready_count == expected
        assert desk.machine.totals.duplicates == dropped

    def test_two_of_one_entry_are_one(self) -> None:
        desk = Desk()
        for _ in range(3):
            desk.send([(2, None), (1, Options(dedup=digest("a"))), (1, None)])
        work = desk.tick()
        assert work is not None
        assert work.duplicates == 2
        assert desk.machine.ready_count == 10

    def test_a_segment_of_duplicates_alone_is_spent_at_once(self) -> None:
        desk = Desk()
        desk.put(1, dedup=digest("a"))
        desk.tick()
        desk.put(1, dedup=digest("a"))
        desk.tick()
        assert desk.machine.spent == ["1-tag1-2"]

    def test_no_window_is_no_deduplication(self) -> None:
        desk = Desk(dedup_window=0.0)
        for _ in range(2):
            desk.put(2, dedup=digest("a"))
        desk.tick()
        desk.put(1, dedup=digest("a"))
        desk.tick()
        assert desk.machine.ready_count == 5

    def test_it_outlives_the_leader(self) -> None:
        desk = Desk()
        desk.put(1, dedup=digest("a"))
        desk.tick()
        desk.new_leader()
        desk.put(1, dedup=digest("a"))
        desk.tick()
        assert desk.machine.ready_count == 1


@pytest.mark.req("SQ-3")
class TestDelays:
    def test_a_message_is_given_when_it_is_due_and_not_before(self) -> None:
        desk = Desk()
        desk.put(1, delay_ms=5000)
        desk.join()
        desk.tick()
        assert desk.machine.next_due_ms() == START_MS + 5000
        desk.wait(4.999)
        assert desk.tick() is None
        desk.wait(0.001)
        desk.join()
        desk.tick()
        assert desk.machine.in_flight_count == 1

    def test_a_message_that_was_long_on_its_way_is_not_delayed_again(self) -> None:
        desk = Desk()
        desk.send([(1, Options(delay_ms=5000))], modified_ms=START_MS - 5000)
        desk.join()
        desk.tick()
        assert desk.machine.in_flight_count == 1


class TestFolding:
    def test_messages_side_by_side_are_one_run(self) -> None:
        desk = Desk()
        for _ in range(5):
            desk.put(1000)
        work = desk.tick()
        assert work is not None
        assert len(work.arrived) == 1

    def test_an_entry_names_a_key_once_for_messages_side_by_side(self) -> None:
        """It used to have a run for each: a batch of 100,000 could not be written down."""
        desk = Desk(audited=False)
        for _ in range(3):
            desk.put(10_000, key="k" * 200)
        work = desk.tick()
        assert work is not None
        assert len(work.arrived) == 1
        assert len(desk.machine.keys["k" * 200]) == 30_000

    def test_what_cannot_be_read_is_poison_and_what_is_newer_is_left(self) -> None:
        clerk = Desk().clerk
        name = InboxName(0, "p", 1)
        with pytest.raises(Poison):
            clerk.read(name, b"garbage")
        with pytest.raises(TooNewLetter):
            clerk.read(name, b'{"schema":99,"shape":"new"}\n')


def big(count: int, kind: str) -> Desk:
    desk = Desk(audited=False)
    for start in range(0, count, 10_000):
        size = min(10_000, count - start)
        if kind == "plain":
            desk.put(size)
        elif kind == "delayed":
            desk.send([(1, Options(delay_ms=60_000 + start + number)) for number in range(size)])
        elif kind == "one key":
            desk.put(size, key="k")
        elif kind == "apart":
            desk.send([(1, Options(visibility_ms=1000 + number % 2)) for number in range(size)])
        else:
            desk.send([(1, Options(key=f"key-{start + number}")) for number in range(size)])
        desk.tick()
    return desk


class TestGrowth:
    @pytest.mark.req("SQ-4")
    @pytest.mark.parametrize("kind", ["plain", "apart", "delayed", "keys", "one key"])
    def test_a_message_that_waits_costs_less_than_a_kilobyte(self, kind: str) -> None:
        count = 5000
        gc.collect()
        tracemalloc.start()
        try:
            desk = big(count, kind)
            desk.works.clear()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] / count < 1000
            chunks = desk.machine.snapshot()
            del desk
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            machine = QueueMachine()
            machine.restore(chunks)
            gc.collect()
            assert (tracemalloc.get_traced_memory()[0] - before) / count < 1000
        finally:
            tracemalloc.stop()

    @pytest.mark.req("SQ-4")
    @pytest.mark.parametrize("kind", ["plain", "apart", "keys", "one key"])
    def test_a_decision_costs_the_same_however_many_wait(self, kind: str) -> None:
        """Counted in calls, not in time: a busy machine is no defect."""
        costs = []
        for count in (1000, 10_000):
            desk = big(count, kind)
            desk.join(capacity=300)
            costs.append(calls(desk.tick))
            desk.finish_all()
            costs.append(calls(desk.tick))
        assert max(costs[2:]) < 1.5 * max(costs[:2]) + 1000

    @pytest.mark.parametrize("kind", ["apart", "keys"])
    @pytest.mark.parametrize("fate", ["give", "done", "pieces", "fail", "back", "lapse", "leave", "workers"])
    def test_what_is_done_with_many_messages_costs_as_much_as_they_are(self, kind: str, fate: str) -> None:
        """Twice as many cost about twice as much, and not four times."""
        costs = []
        for count in (400, 1600):
            desk = big(1600, kind)
            if fate == "workers":
                for number in range(count // 10):
                    desk.join(f"w{number}", 10)
                costs.append(calls(desk.tick))
                continue
            desk.join(capacity=count)
            if fate == "give":
                costs.append(calls(desk.tick))
                continue
            desk.tick()
            desk.command("pause")
            for ticket in desk.tickets():
                runs = ticket.runs
                if fate == "done":
                    desk.report("w", Outcome(ticket.id, all_done=True))
                elif fate == "pieces":
                    desk.report("w", Outcome(ticket.id, done=pieces(runs)))
                elif fate == "fail":
                    desk.report("w", Outcome(ticket.id, failed=failures(runs)))
                elif fate == "back":
                    desk.report("w", Outcome(ticket.id, back=pieces(runs)))
            if fate == "lapse":
                desk.wait(1000)
            if fate == "leave":
                desk.leave()
            costs.append(calls(desk.tick))
            assert desk.machine.in_flight_count == 0
        assert costs[1] < 6 * costs[0] + 5000

    def test_a_retry_at_the_head_of_a_long_key_does_not_copy_it(self) -> None:
        costs = []
        for count in (500, 10_000):
            desk = big(count, "one key")
            desk.join()
            desk.tick()
            (ticket,) = desk.tickets()
            desk.report("w", Outcome(ticket.id, failed=failures(ticket.runs)))
            costs.append(calls(desk.tick))
        assert costs[1] < 1.5 * costs[0] + 500


def calls(function: Any) -> int:
    """How many lines of the queue's own code are gone through."""
    counted = 0

    def on_line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += event == "line"
        return on_line

    def on_call(frame: Any, event: str, argument: Any) -> Any:
        return on_line if "tenure/plugins/queue" in frame.f_code.co_filename.replace("\\", "/") else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        function()
    finally:
        sys.settrace(before)
    return counted


def test_segments_are_superfluous_once_they_are_spent() -> None:
    clerk = QueueClerk(MemoryStore(), QueueSettings(), epoch=1, tag="t", clock=SYSTEM_CLOCK, random=Random(1))
    entry = LogEntry(write_id="w", seq=1, epoch=1, time_ms=1)
    clerk.machine.spent = ["1-t-1"]
    assert clerk.committed(entry, ()) == ["seg/1-t-1"]
    assert clerk.committed(entry, ()) == []


def test_outcomes_of_many_messages_are_looked_up_in_any_order() -> None:
    desk = Desk()
    desk.send([(1, Options(key=f"k{number}")) for number in range(30)])
    desk.put(10)
    desk.join()
    desk.tick()
    (ticket,) = desk.tickets()
    wanted = list(reversed(messages_of(ticket.runs)))[::3]
    failed = [Failure(segment, index, "x") for segment, index in wanted]
    desk.report("w", Outcome(ticket.id, failed=[*failed, *failed, Failure("1-tag1-1", 999, "x")]))
    desk.tick()
    assert desk.machine.totals.failed == len(wanted)
    assert sorted(desk.machine.history) == sorted(wanted)


def test_several_notes_of_one_worker_in_one_entry() -> None:
    desk = Desk()
    desk.put(4)
    desk.join("w", 4)
    desk.tick()
    (ticket,) = desk.tickets()
    segment = ticket.runs[0].segment
    desk.send(
        notes=[
            WorkerNote("w", "w", 9, outcomes=[Outcome(ticket.id, done=[Piece(segment, 0, 2)])]),
            WorkerNote("w", "w", 5, outcomes=[Outcome(ticket.id, all_done=True)]),
            WorkerNote("w", "w", 5, outcomes=[Outcome(ticket.id, all_done=True)]),
        ]
    )
    desk.tick()
    assert desk.machine.totals.done == 4
    assert desk.machine.workers["w"].capacity == 5


@pytest.mark.req("SQ-3")
@pytest.mark.parametrize("first", ["messages", "purge"])
def test_a_purge_and_messages_in_one_entry(first: str) -> None:
    """What came before it goes, what came after it stays; segments of what is gone are spent."""
    desk = Desk()
    desk.put(3)
    desk.tick()
    if first == "messages":
        desk.put(5)
        desk.command("purge")
    else:
        desk.command("purge")
        desk.put(5)
    desk.put(2)
    desk.tick()
    stays = 2 if first == "messages" else 7
    assert desk.machine.ready_count == stays
    assert desk.machine.totals.purged == 10 - stays
    desk.join("w", 100)
    desk.tick()
    desk.finish_all()
    desk.tick()
    assert desk.machine.segments == {}
    assert desk.machine.totals.done == stays


@pytest.mark.req("SQ-3")
@pytest.mark.parametrize(("other", "earlier_ms", "stays"), [(True, 0, 5), (True, 1, 0), (False, 0, 0)])
def test_what_was_accepted_in_the_same_second_as_a_purge_stays(other: bool, earlier_ms: int, stays: int) -> None:
    """Listings of some stores tell whole seconds: it may have been accepted after the purge."""
    desk = Desk()
    desk.send([(5, None)], modified_ms=desk.now_ms - earlier_ms)
    desk.command("purge")
    if other:
        message = desk._inbox[0]
        desk._inbox[0] = msgspec.structs.replace(message, name=InboxName(message.name.known, "a", 1))
    desk.tick()
    assert desk.machine.ready_count == stays


SENT = st.tuples(
    st.sampled_from(["plain", "plain", "keyed", "delayed", "purge"]),
    st.sampled_from(["a", "b"]),  # the process that sends it
    st.sampled_from([0, 1000]),  # by so many milliseconds the listing says that it is older
)


@pytest.mark.req("SQ-3")
@given(st.lists(st.lists(SENT, max_size=5), min_size=1, max_size=4))
def test_a_purge_takes_what_came_before_it_and_spares_what_came_or_may_have_come_after(
    entries: list[list[tuple[str, str, int]]],
) -> None:
    """Each batch has twice as many messages as the one before, so that their sum names those that are left."""
    desk, count, left = Desk(), 1, 0
    for entry in entries:
        folded: list[tuple[str, int, int]] = []
        for kind, uid, age in entry:
            at = desk.now_ms - age
            if kind == "purge":
                before = [sent for by, when, sent in folded if by == uid or when < at]
                folded = [each for each in folded if each[2] not in before]
                left = 0
                desk.command("purge")
            else:
                options = {"keyed": Options(key="k"), "delayed": Options(delay_ms=60_000)}.get(kind)
                desk.send([(count, options)])
                folded.append((uid, at, count))
                count *= 2
            last = desk._inbox[-1]
            name = InboxName(last.name.known, uid, last.name.number)
            desk._inbox[-1] = msgspec.structs.replace(last, name=name, modified_ms=at)
        desk.tick()
        left += sum(sent for _, _, sent in folded)
        assert desk.machine.ready_count + desk.machine.delayed_count == left
        desk.wait(2)
    assert desk.machine.totals.purged == count - 1 - left


class TestSegments:
    @pytest.mark.parametrize("fates", [["rejected"], ["lost", "rejected"], ["kept", "denied"], ["twice"]])
    def test_bodies_are_there_before_an_entry_names_them(self, fates: list[str]) -> None:
        """WA-8: also where something answers 412 in the store's place."""
        desk = Desk()
        store = ScriptedStore(*fates, clock=desk.clock)
        desk.clerk._store = store
        desk.put(2)
        desk.tick()
        store.assert_script_was_met()
        assert run_now(store.keys("seg/")) == [f"seg/{segment}" for segment in desk.machine.segments] != []

    def test_without_them_nothing_is_decided(self) -> None:
        desk = Desk()
        desk.clerk._store = store = ScriptedStore(clock=desk.clock)
        store.always("create", ANY, "rejected")
        desk.put(2)
        with pytest.raises(StoreError, match="answered that it is there already, and it is not"):
            desk.tick()

"""A schedule's state is what its log says: from the beginning, or from any snapshot and the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.ledger import InboxName, Poison, Stamp, TooNewLetter
from tenure.plugins.ledgered import image
from tenure.plugins.scheduler.job import at, cron, every, job_from
from tenure.plugins.scheduler.records import (
    Begun,
    Contents,
    CutShort,
    Defined,
    Failed,
    Fired,
    Frame,
    Outcome,
    Passed,
    Paused,
    Refused,
    Removed,
    Resumed,
    State,
    Succeeded,
)
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.wire import Command, read_batch
from tests.unit.schedules import START_MS, Desk, declared, fields, run_now
from tests.unit.test_schedule_clerk import moment

STAMP = Stamp(7, 3, START_MS)
IDS = st.sampled_from(["a", "b", "c"])
SCHEDULES = st.one_of(
    st.sampled_from([1, 2, 7, 60]).map(every),
    st.sampled_from(["* * * * *", "*/5 * * * *", "30 22 * * *"]).map(cron),
    st.integers(-100, 1000).map(lambda seconds: at(moment(seconds))),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "misfire": st.sampled_from(["skip", "fire-once", "fire-all"]),
        "overlap": st.sampled_from(["skip", "queue-one", "allow"]),
        "interrupted": st.sampled_from(["rerun", "abandon"]),
        "misfire_grace": st.sampled_from([0, 5, 30]),
        "misfire_window": st.sampled_from([60, 300]),
        "catch_up": st.sampled_from([1, 3, 100]),
        "max_running": st.sampled_from([1, 3]),
        "max_interruptions": st.sampled_from([0, 2]),
        "retries": st.integers(0, 2),
        "backoff": st.sampled_from([0.5, 5]),
        "jitter": st.sampled_from([0, 3, 20]),
        "history": st.sampled_from([1, 4, 100]),
        "enabled": st.booleans(),
    },
)
STEPS = st.one_of(
    st.tuples(st.just("add"), IDS, SCHEDULES, OPTIONS, st.booleans()),
    st.tuples(st.just("update"), IDS, st.none() | SCHEDULES, OPTIONS),
    st.tuples(st.sampled_from(["remove", "pause", "resume", "run-now"]), IDS),
    st.tuples(st.sampled_from(["pause", "resume"]), st.just("")),
    st.tuples(st.just("wait"), st.sampled_from([0.3, 1, 5, 61, 400])),
    st.tuples(st.just("end"), st.none() | st.just("boom")),
    st.tuples(st.just("tick")),
    st.tuples(st.just("fail over"), st.booleans(), st.booleans()),
    st.tuples(st.just("room"), st.sampled_from([0, 1, 1000])),
)
DECLARED = [declared("code", every(9)), declared("more", cron("*/2 * * * *"), function="other")]


def follow(desk: Desk, step: tuple[Any, ...]) -> None:
    match step:
        case ("add", str(id), schedule, dict(options), bool(replace)):
            desk.add(id, schedule, replace=replace, **options)
        case ("update", str(id), schedule, dict(options)):
            if id in desk.machine.jobs:
                desk.update(id, schedule, **options)
        case ("wait", seconds):
            desk.wait(seconds)
            desk.settle()
        case ("end", error):
            desk.finish(error=error)
        case ("tick",):
            desk.settle()
        case ("fail over", bool(knows), bool(has)):
            desk.settle()  # what is in the inbox is not lost by a failover; here it is folded before
            desk.new_leader(functions=("work", "other") if knows else (), jobs=DECLARED if has else ())
        case ("room", int(room)):
            desk.room = room
        case (str(op), str(id)):
            desk.command(op, id, run=f"run{len(desk.log)}" if op == "run-now" else "")


class TestAnyHistory:
    @pytest.mark.req("SC-2")
    @given(st.lists(STEPS, max_size=25), st.data())
    def test_each_instant_is_decided_once_and_a_snapshot_is_as_good_as_the_log(
        self, steps: list[tuple[Any, ...]], data: st.DataObject
    ) -> None:
        """The desk compares leader and reader after each entry, and its auditor counts the instants."""
        desk = Desk(doubt_ms=data.draw(st.sampled_from([0, 250])))
        for step in steps:
            follow(desk, step)
        desk.room = 1000
        desk.settle()
        cut = data.draw(st.integers(0, len(desk.log)))
        machine = ScheduleMachine()
        for number, (stamp, events) in enumerate(desk.log):
            if number == cut:
                machine = restored(machine)
            if events is None:
                machine.began(stamp)
            else:
                machine.apply(events, stamp)
        assert fields(machine) == fields(desk.reader)
        assert fields(restored(machine)) == fields(machine)
        tokens: dict[int, int] = {}
        for start in desk.starts:
            assert start.token > tokens.get(start.number, 0)
            tokens[start.number] = start.token


def restored(machine: ScheduleMachine) -> ScheduleMachine:
    fresh = ScheduleMachine()
    fresh.jobs["rest"] = None  # type: ignore[assignment]  # whatever was there is gone
    fresh.restore(machine.snapshot())
    return fresh


class TestMachine:
    @pytest.mark.parametrize(
        "event",
        [
            Begun(5),
            Succeeded(5),
            Failed(5, "no"),
            Failed(5, "no", 3),
            CutShort(5, again=True),
            Removed("nobody"),
            Paused("nobody"),
            Resumed("nobody", 3),
            Refused("uid", 1, 0, "no"),
            Passed(5, "nobody", 3, Outcome.COALESCED),
            Fired(5, "nobody", 3, begins=False),
        ],
    )
    def test_apply_is_total(self, event: Any) -> None:
        machine = ScheduleMachine()
        machine.enact(event, STAMP, "w")
        restored(machine)

    def test_what_was_running_is_cut_short_when_a_term_begins(self) -> None:
        machine = ScheduleMachine()
        machine.enact(Defined(job_from("job", every(1), function="f", overlap="allow"), 0, 0), STAMP, "w")
        machine.enact(Fired(1, "job", 3, begins=True), STAMP, "w")
        machine.enact(Fired(2, "job", 4, begins=False), STAMP, "w")
        machine.began(STAMP)
        assert [each.state for each in machine.open.values()] == [State.CUT_SHORT, State.WAITING]
        assert list(machine.cut_short) == [1]
        assert fields(restored(machine)) == fields(machine)

    def test_a_record_of_several_in_a_row_does_not_go_back(self) -> None:
        machine = ScheduleMachine()
        machine.enact(Defined(job_from("job", every(10), function="f"), 0, 0), STAMP, "w")
        machine.enact(Passed(1, "job", 10_000, Outcome.MISSED_WINDOW, 30_000, 3), STAMP, "w")
        machine.enact(Passed(2, "job", 40_000, Outcome.MISSED_WINDOW), STAMP, "w")
        machine.enact(Defined(job_from("job", at(moment(15_000)), function="f"), 41_000, 14_999), STAMP, "w")
        machine.enact(Passed(3, "job", 15_000, Outcome.MISSED_WINDOW), STAMP, "w")
        told = [(each.scheduled_ms, each.last_ms, each.count) for each in machine.history.values()]
        assert told == [(10_000, 40_000, 4), (15_000, 15_000, 1)]

    def test_chunks_are_bounded(self) -> None:
        machine = ScheduleMachine()
        for number in range(100):
            job = job_from(f"job{number}", every(1), function="f", payload="x" * 40_000)
            machine.enact(Defined(job, 0, 0), STAMP, "w")
        for number in range(10_000):
            machine.enact(Passed(number + 1, f"job{number % 100}", number, Outcome.SKIPPED_OVERLAP), STAMP, "w")
        chunks = machine.snapshot()
        assert len(chunks) > 5
        assert max(map(len, chunks)) < 2 * 1024 * 1024 + 64 * 1024
        assert len(machine.history) == 10_000

    def test_a_snapshot_that_lacks_something_is_not_restored(self) -> None:
        desk = Desk()
        desk.add("job", every(1))
        desk.pass_time(5)
        chunks = desk.machine.snapshot()
        with pytest.raises(ValueError, match="were read"):
            ScheduleMachine().restore(chunks[:-1])
        frame, contents = image.decode(chunks, Frame, Contents)
        assert (len(contents.jobs), frame.last) == (1, 4)


class TestInbox:
    def test_poison_is_told_from_what_is_newer(self) -> None:
        for body in (b"", b"{}", b"[]", b"\xff", b'{"schema":1}', b'{"schema":0,"after":0}', b"[" * 100_000):
            with pytest.raises(Poison):
                read_batch(body)
        for body in (b'{"schema":2,"after":"?"}', b'{"schema":2,"after":0}'):
            with pytest.raises(TooNewLetter):
                read_batch(body)

    def test_a_job_that_cannot_be_is_no_poison(self) -> None:
        body = b'{"schema":1,"after":0,"commands":[{"op":"add","id":"x","job":{"id":7}},{"op":"pause"}]}'
        desk = Desk()
        place, batch = desk.clerk.read(InboxName(0, "u", 1), body)
        assert place.after == 0
        desk.give(*batch.commands)
        desk.settle()
        assert len(desk.refused()) == 1
        assert desk.machine.paused

    def test_preparing_searches_what_a_command_will_ask_for(self) -> None:
        desk = Desk()
        desk.add("job", every(1))
        desk.settle()
        desk.wait(100)
        desk.give(Command("pause", "job"))
        items = desk._inbox
        run_now(desk.clerk.prepare(items))
        course = desk.clerk.due.through("job", desk.now_ms)
        assert course is not None
        assert course.through_ms == desk.now_ms + 1000

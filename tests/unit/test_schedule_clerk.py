"""What a schedule's leader decides: policies, changes, failover. Time is what the test says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.errors import LedgerHalted
from tenure.plugins.scheduler import clerk as clerk_module
from tenure.plugins.scheduler.clerk import End
from tenure.plugins.scheduler.events import (
    JobUnknown,
    OccurrenceSkipped,
    OccurrencesMissed,
    RunFailed,
    RunFinished,
    RunFired,
    RunInterrupted,
)
from tenure.plugins.scheduler.job import Misfire, at, cron, every
from tenure.plugins.scheduler.records import Fired, Outcome, Passed, State
from tenure.plugins.scheduler.wire import Command
from tests.unit.schedules import START_MS, Desk, declared, run_now

HOUR = 3600.0
DAY = 86_400.0


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(START_MS / 1000 + seconds, UTC)


def desk_with(**options: Any) -> Desk:
    """A job every ten seconds."""
    desk = Desk()
    desk.add("job", every(10), **options)
    desk.settle()
    return desk


class TestFiring:
    @pytest.mark.req("SC-1")
    def test_each_occurrence_fires_once_at_its_time(self) -> None:
        desk = desk_with()
        desk.pass_time(60)
        assert desk.instants("job", Outcome.FIRED) == [10, 20, 30, 40, 50, 60]
        assert [start.scheduled_ms for start in desk.starts] == [START_MS + 10_000 * n for n in range(1, 7)]
        assert desk.machine.totals.succeeded == 6
        record = desk.machine.records_of("job")[-1]
        assert (record.started_ms, record.finished_ms) == (START_MS + 10_000, START_MS + 10_000)
        assert (record.epoch, record.worker, record.attempts) == (1, "w1", 1)
        assert [type(event) for event in desk.told[:2]] == [RunFired, RunFinished]

    @pytest.mark.req("SC-1")
    def test_cron_every_and_at_side_by_side(self) -> None:
        desk = Desk()
        desk.add("minutes", cron("* * * * *"))
        desk.add("once", at(moment(90)))
        desk.add("late", at(moment(-5)))
        desk.pass_time(180)
        assert desk.instants("minutes") == [40, 100, 160]
        assert desk.instants("once") == [90]
        assert desk.instants("late") == [-5], "a time that passed on the way to the leader is decided as well"

    def test_nothing_is_early_while_the_time_is_in_doubt(self) -> None:
        desk = Desk(doubt_ms=700)
        desk.add("job", every(10))
        desk.settle()
        desk.wait(10.6)
        assert desk.tick() is None
        desk.wait(0.1)
        assert desk.tick() is not None

    @pytest.mark.req("SC-2")
    def test_a_doubt_that_grows_does_not_part_what_is_passed_over_from_what_fires_in_its_place(self) -> None:
        """What was certain stays so (seed 704863): else an entry passes over some, and nothing fires in it."""
        desk = Desk(audited=False)
        desk.add("job", every(1), misfire=Misfire.FIRE_ONCE, misfire_grace=0.5)
        desk.settle()
        desk.wait(60.2)
        run_now(desk.clerk.due.compute(desk.now_ms))
        desk.doubt_ms = 5000
        work = desk.tick()
        assert work is not None
        assert [type(event) for event in work.events] == [Passed, Fired, Passed]
        assert desk.instants("job", Outcome.FIRED) == [59]
        desk.wait(1.0)
        assert desk.tick() is None, "nothing more is certain than was"

    def test_jitter_puts_off_and_is_always_the_same(self) -> None:
        desk = desk_with(jitter=5)
        dues = []
        for _ in range(2000):
            desk.wait(0.1)
            if (work := desk.tick()) is not None:
                dues += [desk.now_ms - event.scheduled_ms for event in work.events if isinstance(event, Fired)]
            desk.finish()
        assert len(dues) == 19
        assert all(0 <= due <= 5100 for due in dues)
        assert len(set(dues)) > 10
        assert desk.outcomes("job").count("fired") == 19, "none of them is late"

    def test_jitter_longer_than_the_period_makes_nothing_late(self) -> None:
        desk = Desk()
        desk.add("job", every(1), jitter=60, misfire="skip", misfire_grace=0, overlap="allow", max_running=1000)
        desk.pass_time(300)
        assert set(desk.outcomes("job")) == {"fired"}

    def test_a_delay_of_ten_years_is_fine(self) -> None:
        desk = Desk()
        desk.add("far", at(moment(10 * 365 * DAY)))
        desk.settle()
        assert desk.clerk.next_ms() == START_MS + 10 * 365 * 86_400_000
        desk.wait(10 * 365 * DAY)
        desk.settle()
        assert desk.outcomes("far") == ["fired"]

    def test_start_and_end(self) -> None:
        desk = Desk()
        desk.add("job", every(10), start=moment(25), end=moment(55))
        desk.pass_time(100)
        assert desk.instants("job") == [25, 35, 45]

    @pytest.mark.req("EF-9")
    def test_tokens_rise_from_run_to_run(self) -> None:
        desk = desk_with(retries=1)
        for seconds in (10, 5, 5, 10):
            desk.wait(seconds)
            desk.settle()
            desk.finish(error="no")
            desk.settle()
        tokens = [start.token for start in desk.starts]
        assert len(tokens) >= 4
        assert tokens == sorted(set(tokens))

    def test_nothing_begins_before_its_entry_is_written(self) -> None:
        desk = desk_with()
        begun = len(desk.starts)
        desk.wait(10)
        committed, desk.clerk.committed = desk.clerk.committed, lambda entry, items: ()  # type: ignore[method-assign]
        assert desk.tick() is not None
        assert len(desk.starts) == begun
        with pytest.raises(LedgerHalted, match="was not written"):
            desk.tick()
        committed(None, ())  # type: ignore[arg-type]
        assert len(desk.starts) == begun + 1


class TestMisfire:
    @pytest.mark.req("SC-1")
    def test_skip(self) -> None:
        desk = desk_with(misfire="skip")
        desk.wait(600)
        desk.settle()
        assert desk.outcomes("job") == ["missed-window"] * 56 + ["fired"] + ["skipped-overlap"] * 3
        assert len(desk.machine.records_of("job")) == 5, "those that are missed in a row are one record"
        record = desk.machine.records_of("job")[-1]
        assert (record.scheduled_ms, record.to_ms, record.count) == (START_MS + 10_000, START_MS + 560_000, 56)
        assert desk.events(OccurrencesMissed)[0].count == 56

    @pytest.mark.req("SC-1")
    def test_fire_once(self) -> None:
        desk = desk_with(misfire="fire-once", overlap="allow")
        desk.wait(600)
        desk.settle()
        assert desk.outcomes("job") == ["coalesced"] * 55 + ["fired"] * 5
        assert desk.instants("job", Outcome.FIRED) == [560, 570, 580, 590, 600]

    @pytest.mark.req("SC-1")
    def test_fire_all_up_to_the_limit(self) -> None:
        desk = desk_with(misfire="fire-all", catch_up=20, overlap="allow", max_running=100)
        desk.wait(600)
        desk.settle()
        assert desk.outcomes("job") == ["coalesced"] * 36 + ["fired"] * 24

    @pytest.mark.req("SC-1")
    @pytest.mark.parametrize("overlap", ["skip", "queue-one", "allow"])
    def test_what_is_caught_up_with_runs_one_after_the_other(self, overlap: str) -> None:
        desk = desk_with(misfire="fire-all", overlap=overlap, max_running=1)
        desk.wait(200)
        desk.settle()
        assert len(desk.running()) == 1
        assert desk.machine.waiting["job"] == 15
        ran = []
        while desk.running():
            ran += [(each.scheduled_ms - START_MS) // 1000 for each in desk.running()]
            assert len(desk.running()) == 1
            desk.finish()
            desk.settle()
        assert ran == list(range(10, 170, 10))
        assert desk.outcomes("job") == ["fired"] * 16 + ["skipped-overlap"] * 4

    @pytest.mark.parametrize("misfire", ["skip", "fire-once", "fire-all"])
    def test_what_is_older_than_the_window_never_fires(self, misfire: str) -> None:
        desk = desk_with(misfire=misfire, misfire_window=60, overlap="allow", max_running=1000)
        desk.wait(1000)
        desk.settle()
        fired = desk.instants("job", Outcome.FIRED)
        assert min(fired) >= {"skip": 970, "fire-once": 960, "fire-all": 940}[misfire]
        assert desk.outcomes("job").count("missed-window") >= 93

    def test_a_year_of_outage_of_a_job_that_fires_each_second(self) -> None:
        desk = Desk(audited=False)
        desk.add("job", every(1))
        desk.add("hours", cron("0 * * * *"))
        desk.settle()
        desk.wait(365 * DAY)
        desk.settle()
        records = desk.machine.records_of("job")
        assert sum(record.count for record in records) == 365 * 86_400
        assert len(records) < 40
        assert sum(record.count for record in desk.machine.records_of("hours")) == 365 * 24
        assert desk.clock.turns > 10, "the search gave others their turns"

    def test_a_grace_of_days_is_decided_some_at_a_time(self) -> None:
        desk = Desk()
        desk.add("job", every(1), misfire_grace=DAY / 2)
        desk.settle()
        desk.wait(10_000)
        desk.settle()
        assert len(desk.works) >= 5
        assert max(len(work.events) for work in desk.works) <= clerk_module.MAX_DECISIONS + 1
        assert desk.auditor.decided["job"] == 10_000

    def test_missed_in_a_row_are_one_record_also_over_entries(self) -> None:
        desk = desk_with(misfire="skip")
        desk.wait(100)
        desk.settle()
        desk.add("other", every(1000))
        for _ in range(3):
            desk.new_leader(functions=())
            desk.settle()
            desk.wait(100)
        desk.new_leader()
        desk.settle()
        missed = [record for record in desk.machine.records_of("job") if record.outcome is Outcome.MISSED_WINDOW]
        assert len(missed) == 2


class TestOverlap:
    @pytest.mark.req("SC-1")
    def test_skip(self) -> None:
        desk = desk_with()
        for _ in range(3):
            desk.wait(10)
            desk.settle()
        desk.finish()
        desk.wait(10)
        desk.settle()
        assert desk.outcomes("job") == ["fired", "skipped-overlap", "skipped-overlap", "fired"]
        assert len(desk.events(OccurrenceSkipped)) == 2

    @pytest.mark.req("SC-1")
    def test_queue_one(self) -> None:
        desk = desk_with(overlap="queue-one")
        for _ in range(4):
            desk.wait(10)
            desk.settle()
        assert [(each.state, each.scheduled_ms - START_MS) for each in desk.machine.open.values()] == [
            (State.RUNNING, 10_000),
            (State.WAITING, 20_000),
        ]
        desk.finish()
        desk.wait(10)
        desk.settle()
        assert [start.scheduled_ms - START_MS for start in desk.starts] == [10_000, 20_000]
        assert desk.outcomes("job") == ["fired", "fired", "skipped-overlap", "skipped-overlap", "fired"]

    @pytest.mark.req("SC-1")
    def test_allow_up_to_so_many(self) -> None:
        desk = desk_with(overlap="allow", max_running=2)
        for _ in range(4):
            desk.wait(10)
            desk.settle()
        assert len(desk.running()) == 2
        assert desk.outcomes("job") == ["fired", "fired", "skipped-overlap", "skipped-overlap"]

    def test_one_that_backs_off_is_open(self) -> None:
        desk = desk_with(retries=5, backoff=100, max_backoff=100)
        desk.wait(10)
        desk.settle()
        desk.finish(error="no")
        desk.wait(10)
        desk.settle()
        assert desk.outcomes("job") == ["fired", "skipped-overlap"]

    def test_where_there_is_no_room_it_waits(self) -> None:
        desk = Desk()
        desk.room = 0
        for name in "abc":
            desk.add(name, every(10))
        desk.settle()
        desk.wait(10)
        desk.settle()
        assert not desk.running()
        assert len(desk.machine.open) == 3
        desk.room = 2
        desk.tick()
        assert [each.job for each in desk.running()] == ["a", "b"]

    def test_where_there_is_little_room_the_oldest_is_first_also_if_it_is_tried_again(self) -> None:
        desk = Desk()
        for name in "abcd":
            desk.add(name, every(1), overlap="queue-one", retries=5, backoff=1)
        desk.settle()
        for number in range(150):
            desk.wait(1)
            desk.room = 1
            desk.tick()
            assert len(desk.running()) <= 1
            desk.finish(error="no" if number % 3 else None)
            desk.room = 0
            desk.settle()
        assert min(desk.machine.open) > 100, "what is older is over"

    def test_one_job_does_not_keep_another_from_its_time(self) -> None:
        desk = desk_with()
        desk.add("other", every(10))
        desk.settle()
        for _ in range(3):
            desk.wait(10)
            desk.settle()
            desk.finish("other")
        assert desk.outcomes("other") == ["fired"] * 3


class TestEnds:
    @pytest.mark.req("SC-1")
    def test_what_fails_is_tried_again_later_each_time(self) -> None:
        desk = desk_with(retries=3, backoff=8, max_backoff=20, overlap="queue-one")
        desk.wait(10)
        desk.settle()
        pauses = []
        for _ in range(3):
            failed_at = desk.now_ms
            desk.finish(error="no luck")
            desk.settle()
            (open,) = [each for each in desk.machine.open.values() if each.state is State.BACKING_OFF]
            assert open.error == "no luck"
            pauses.append((open.retry_ms - failed_at) / 1000)
            while not desk.running():
                desk.wait(0.1)
                desk.settle()
            assert desk.now_ms >= open.retry_ms
        assert [4 <= pauses[0] <= 8, 8 <= pauses[1] <= 16, 10 <= pauses[2] <= 20] == [True] * 3
        desk.finish(error="no luck")
        desk.settle()
        record = desk.machine.history[1]
        assert (record.outcome, record.error, record.attempts, record.failures) == (Outcome.FAILED, "no luck", 4, 4)
        assert [event.retry_ms > 0 for event in desk.events(RunFailed)] == [True, True, True, False]

    def test_one_that_succeeds_in_the_end_has_no_error(self) -> None:
        desk = desk_with(retries=3)
        desk.wait(10)
        desk.settle()
        desk.finish(error="no")
        desk.settle()
        desk.wait(5)
        desk.settle()
        desk.finish()
        desk.settle()
        record = desk.machine.history[1]
        assert (record.outcome, record.error, record.attempts) == (Outcome.FIRED, "", 2)

    def test_an_end_of_another_attempt_does_not_count(self) -> None:
        desk = desk_with(retries=3)
        desk.wait(10)
        desk.settle()
        (first,) = desk.running()
        token = first.token
        desk.finish(error="no")
        desk.settle()
        desk.wait(5)
        desk.settle()
        desk.clerk.ended(End(first.number, token))
        desk.clerk.ended(End(99, 1))
        desk.settle()
        assert len(desk.running()) == 1

    def test_what_an_exception_says_need_not_be_text(self) -> None:
        desk = desk_with()
        desk.wait(10)
        desk.settle()
        desk.finish(error="\udcff" * 5000)
        desk.settle()
        assert desk.machine.history[1].error == "?" * 1000


class TestFailover:
    @pytest.mark.req("SC-2")
    @pytest.mark.req("EF-9")
    def test_what_was_cut_short_is_begun_again_with_a_higher_token(self) -> None:
        desk = desk_with(max_interruptions=3)
        desk.wait(10)
        desk.settle()
        for number in range(1, 4):
            before = desk.running()[0].token
            desk.new_leader()
            desk.settle()
            (open,) = desk.running()
            assert (open.interruptions, open.attempts, open.number) == (number, number + 1, 1)
            assert open.token > before
            assert open.worker == f"w{desk.epoch}"
        desk.new_leader()
        desk.settle()
        record = desk.machine.history[1]
        assert (record.outcome, record.interruptions) == (Outcome.INTERRUPTED, 4)
        assert [event.again for event in desk.events(RunInterrupted)] == [True, True, True, False]

    @pytest.mark.req("SC-2")
    def test_or_abandoned(self) -> None:
        desk = desk_with(interrupted="abandon")
        desk.wait(10)
        desk.settle()
        desk.new_leader()
        desk.settle()
        assert desk.outcomes("job") == ["interrupted"]
        assert len(desk.starts) == 1

    @pytest.mark.req("SC-2")
    def test_a_message_is_sent_again_whatever_the_policy_says(self) -> None:
        desk = Desk()
        desk.add("mail", every(10), queue="mails", body=1, interrupted="abandon", max_interruptions=0)
        desk.settle()
        desk.wait(10)
        desk.settle()
        for _ in range(5):
            desk.new_leader()
            desk.settle()
        (open,) = desk.running()
        assert (open.interruptions, open.attempts) == (0, 6)
        assert len({start.run for start in desk.starts}) == 1

    @pytest.mark.req("SC-2")
    def test_the_same_leader_that_begins_anew_has_lost_its_runs_as_well(self) -> None:
        desk = desk_with()
        desk.wait(10)
        desk.settle()
        desk.epoch -= 1
        desk.new_leader()
        desk.settle()
        assert desk.running()[0].interruptions == 1

    def test_a_retry_is_taken_over(self) -> None:
        desk = desk_with(retries=2, backoff=6)
        desk.wait(10)
        desk.settle()
        desk.finish(error="no")
        desk.settle()
        due = desk.machine.open[1].retry_ms
        desk.new_leader()
        desk.settle()
        assert not desk.running()
        assert desk.clerk.next_ms() == due
        desk.now_ms = due
        desk.settle()
        assert desk.running()[0].attempts == 2

    def test_what_waits_is_taken_over(self) -> None:
        desk = desk_with(overlap="queue-one", interrupted="abandon")
        for _ in range(2):
            desk.wait(10)
            desk.settle()
        desk.new_leader()
        desk.settle()
        assert desk.instants("job", Outcome.INTERRUPTED) == [10]
        assert desk.running()[0].scheduled_ms == START_MS + 20_000

    @pytest.mark.req("SC-2")
    def test_what_is_due_while_nobody_leads_is_decided_later_and_once(self) -> None:
        desk = desk_with()
        desk.pass_time(30)
        desk.wait(95)
        desk.new_leader()
        desk.settle()
        assert desk.auditor.decided["job"] == 12
        assert desk.instants("job", Outcome.FIRED) == [10, 20, 30, 90]


class TestChanges:
    @pytest.mark.req("SC-1")
    def test_another_schedule_neither_loses_nor_repeats(self) -> None:
        desk = desk_with()
        desk.wait(35)
        desk.update("job", every(7))
        desk.settle()
        assert desk.instants("job") == [10, 20, 30]
        desk.pass_time(15)
        assert desk.instants("job") == [10, 20, 30, 42, 49]

    def test_another_option_leaves_the_times_alone(self) -> None:
        desk = desk_with()
        desk.wait(35)
        desk.update("job", retries=4)
        desk.settle()
        desk.finish()
        desk.pass_time(15)
        assert desk.instants("job") == [10, 20, 30, 40, 50]
        assert desk.machine.jobs["job"].job.retries == 4
        assert desk.machine.jobs["job"].revision == 2

    def test_a_change_decides_at_once_what_jitter_had_put_off(self) -> None:
        desk = desk_with(jitter=9)
        desk.wait(10.001)
        desk.settle()
        assert not desk.outcomes("job")
        desk.update("job", every(100))
        desk.settle()
        assert desk.instants("job") == [10]

    def test_an_instant_that_was_decided_is_not_decided_again_as_a_single_time(self) -> None:
        desk = desk_with()
        desk.pass_time(25)
        desk.update("job", at(moment(20)))
        desk.pass_time(25)
        assert desk.instants("job") == [10, 20]
        desk.update("job", at(moment(48)))
        desk.pass_time(5)
        assert desk.instants("job") == [10, 20, 48]

    @pytest.mark.req("SC-1")
    def test_pause_and_resume(self) -> None:
        desk = desk_with()
        desk.wait(15)
        desk.command("pause", "job")
        desk.settle()
        desk.finish()
        desk.pass_time(40)
        assert desk.instants("job") == [10]
        assert desk.clerk.next_ms() is None
        desk.command("resume", "job")
        desk.settle()
        desk.pass_time(10)
        assert desk.instants("job") == [10, 60]

    @pytest.mark.req("SC-1")
    def test_pause_of_everything(self) -> None:
        desk = desk_with()
        desk.add("other", every(5))
        desk.add("own", every(5))
        desk.command("pause", "own")
        desk.settle()
        desk.wait(12)
        desk.command("pause")
        desk.settle()
        desk.finish()
        desk.pass_time(30)
        assert (desk.instants("job"), desk.instants("other")) == ([10], [5, 10])
        desk.new_leader()
        desk.command("resume")
        desk.settle()
        desk.pass_time(10)
        assert desk.instants("job") == [10, 50]
        assert desk.instants("own") == []

    def test_what_waits_does_not_begin_while_it_is_paused(self) -> None:
        desk = desk_with(overlap="queue-one", retries=3, backoff=1)
        for _ in range(2):
            desk.wait(10)
            desk.settle()
        desk.command("pause", "job")
        desk.settle()
        desk.finish(error="no")
        desk.settle()
        desk.wait(100)
        desk.settle()
        assert not desk.running()
        desk.command("resume", "job")
        desk.settle()
        assert [each.scheduled_ms - START_MS for each in desk.running()] == [10_000]

    def test_disabled_and_enabled(self) -> None:
        desk = desk_with()
        desk.wait(15)
        desk.update("job", enabled=False)
        desk.settle()
        desk.finish()
        desk.pass_time(30)
        desk.update("job", enabled=True)
        desk.settle()
        desk.pass_time(15)
        assert desk.instants("job") == [10, 50, 60]

    def test_removed_and_added_again(self) -> None:
        desk = desk_with(overlap="queue-one", retries=9)
        for _ in range(2):
            desk.wait(10)
            desk.settle()
        desk.wait(10)
        desk.command("remove", "job")
        desk.settle()
        assert "job" not in desk.machine.jobs
        assert desk.outcomes("job") == ["fired", "interrupted", "skipped-overlap"]
        desk.add("job", every(10))
        desk.settle()
        desk.wait(10)
        desk.settle()
        assert desk.outcomes("job")[-1] == "skipped-overlap", "the run of the removed one is still open"
        desk.finish(error="no")
        desk.settle()
        assert desk.machine.history[1].outcome is Outcome.FAILED, "nobody tries it again"

    @pytest.mark.req("SC-1")
    def test_run_now(self) -> None:
        desk = desk_with()
        desk.command("pause", "job")
        desk.command("run-now", "job", run="mine")
        desk.command("run-now", "job", run="mine")
        desk.settle()
        (open,) = desk.running()
        assert (open.manual, open.run) == ("mine", "job#mine")
        desk.command("run-now", "job", run="another")
        desk.settle()
        assert len(desk.refused()) == 1
        assert "overlap" in desk.refused()[0]
        assert desk.machine.totals.manual == 1
        desk.finish()
        desk.command("resume", "job")
        desk.pass_time(10)
        assert desk.outcomes("job") == ["fired", "skipped-overlap", "fired"]

    @pytest.mark.parametrize(
        ("command", "words"),
        [
            (Command("remove", "nobody"), "no job 'nobody'"),
            (Command("update", "nobody", changes={"retries": 1}), "no job 'nobody'"),
            (Command("pause", "nobody"), "no job 'nobody'"),
            (Command("run-now", ""), "no job ''"),
            (Command("update", "job", changes={"retries": -1}), "retries"),
            (Command("update", "job", changes={"id": "x"}), "'id'"),
            (Command("update", "job", changes={"rettries": 1}), "'rettries'"),
            (Command("update", "job", changes={"schedule": {"kind": "cron", "text": "99 * * * *"}}), "bad minute"),
            (Command("add", "x"), "job cannot be followed"),
            (Command("explode", "job"), "'explode'"),
            (Command("explode"), "no job ''"),
        ],
    )
    def test_what_cannot_be_is_refused(self, command: Command, words: str) -> None:
        desk = desk_with()
        before = desk.machine.jobs["job"].job
        desk.give(command)
        desk.settle()
        (reason,) = desk.refused()
        assert words in reason
        assert list(desk.machine.jobs) == ["job"]
        assert desk.machine.jobs["job"].job == before

    def test_what_is_there_is_not_added_again_unless_it_is_to_be_replaced(self) -> None:
        desk = desk_with()
        desk.add("job", every(3))
        desk.settle()
        assert "already" in desk.refused()[0]
        desk.add("job", every(3), replace=True)
        desk.settle()
        desk.pass_time(9)
        assert desk.instants("job") == [3, 6, 9]

    def test_too_many_jobs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clerk_module, "MAX_JOBS", 2)
        desk = desk_with()
        desk.add("b", every(1))
        desk.add("c", every(1))
        desk.settle()
        assert set(desk.machine.jobs) == {"job", "b"}
        assert len(desk.refused()) == 1

    def test_one_off_jobs_do_not_pile_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clerk_module, "MAX_FINISHED", 3)
        desk = desk_with()
        for number in range(10):
            desk.add(f"once{number}", at(moment(number + 1)))
        desk.pass_time(30)
        assert set(desk.machine.jobs) == {"job", "once7", "once8", "once9"}
        assert desk.machine.records_of("once0")[0].outcome is Outcome.FIRED


class TestCode:
    def test_the_leader_declares_what_its_code_has(self) -> None:
        desk = Desk()
        desk.new_leader(jobs=[declared("job", every(10))])
        desk.settle()
        desk.pass_time(20)
        desk.new_leader(jobs=[declared("job", every(10))])
        assert desk.tick() is None, "nothing has changed"
        desk.new_leader(jobs=[declared("job", every(5))])
        desk.settle()
        desk.pass_time(10)
        assert desk.instants("job") == [10, 20, 25, 30]

    def test_what_the_code_does_not_have_waits_for_a_leader_that_does(self) -> None:
        desk = Desk()
        job = declared("job", every(10))
        desk.new_leader(jobs=[job])
        desk.settle()
        desk.pass_time(10)
        desk.new_leader()
        desk.pass_time(60)
        assert desk.instants("job") == [10]
        assert [event.job for event in desk.events(JobUnknown)] == ["job"]
        desk.new_leader(jobs=[job])
        desk.settle()
        assert desk.auditor.decided["job"] == 7
        assert desk.instants("job", Outcome.FIRED) == [10, 30], "by its misfire policy"

    def test_a_stored_job_whose_function_is_not_known(self) -> None:
        desk = desk_with()
        desk.wait(10)
        desk.settle()
        desk.new_leader(functions=())
        desk.wait(10)
        desk.settle()
        assert not desk.running()
        assert [open.state for open in desk.machine.open.values()] == [State.WAITING]
        desk.command("run-now", "job")
        desk.settle()
        assert "no function 'work'" in desk.refused()[0]
        desk.registry.add_function("work", lambda: None)
        desk.settle()
        assert desk.running()[0].interruptions == 1
        assert desk.outcomes("job") == ["fired", "skipped-overlap"]

    def test_what_is_declared_in_code_is_changed_there(self) -> None:
        desk = Desk()
        job = declared("job", every(10))
        desk.new_leader(jobs=[job])
        desk.settle()
        desk.give(Command("remove", "job"))
        desk.give(Command("update", "job", changes={"retries": 1}))
        desk.add("job", every(3), replace=True)
        desk.settle()
        assert len(desk.refused()) == 3
        assert all("in code" in reason for reason in desk.refused())
        desk.command("pause", "job")
        desk.settle()
        assert desk.machine.jobs["job"].paused
        desk.new_leader()
        desk.command("remove", "job")
        desk.settle()
        assert not desk.machine.jobs, "no code has it any more"

    def test_code_takes_a_stored_job_over(self) -> None:
        desk = desk_with()
        desk.pass_time(10)
        desk.new_leader(jobs=[declared("job", every(10))])
        desk.pass_time(10)
        assert desk.instants("job") == [10, 20]

    def test_many_declarations_are_spread_over_entries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clerk_module, "MAX_DECLARED_BYTES", 1000)
        desk = Desk()
        desk.new_leader(jobs=[declared(f"job{number}", every(10)) for number in range(50)])
        desk.settle()
        assert len(desk.machine.jobs) == 50
        assert len(desk.works) > 5

    def test_a_zone_that_is_not_known_here_harms_only_its_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        desk = desk_with()
        desk.add("abroad", cron("* * * * *", timezone="Europe/Berlin"))
        desk.settle()

        def unknown(name: str) -> Any:
            raise ValueError(f"no zone {name}")

        monkeypatch.setattr("tenure.plugins.scheduler.timetable.zone_of", unknown)
        desk.new_leader()
        desk.audited = False
        desk.pass_time(120)
        assert "abroad" in desk.clerk.due.broken
        assert [event.job for event in desk.events(JobUnknown)] == ["abroad"]
        assert not desk.outcomes("abroad")
        assert len(desk.outcomes("job")) == 12
        desk.give(Command("pause"))
        desk.settle()
        assert desk.machine.paused


class TestMany:
    def test_a_tick_decides_on_a_bounded_number(self) -> None:
        desk = Desk(audited=False)
        for number in range(2500):
            desk.add(f"job{number}", every(10))
        desk.settle()
        desk.wait(10)
        first = desk.tick()
        assert first is not None
        assert len(first.events) == clerk_module.MAX_DECISIONS
        assert desk.clerk.more
        desk.settle()
        assert len(desk.running()) == 2500

    def test_history_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tenure.plugins.scheduler.state.MAX_RECORDS", 12)
        desk = Desk()
        desk.add("a", every(1), history=5)
        desk.add("b", every(1))
        desk.pass_time(20)
        assert len(desk.machine.history_of["a"]) <= 5
        assert len(desk.machine.history) == 12
        desk.update("b", history=2)
        desk.settle()
        assert len(desk.machine.history_of["b"]) == 2

    def test_all_that_is_decided_adds_up(self) -> None:
        desk = desk_with(misfire="skip")
        desk.pass_time(100)
        desk.wait(1000)
        desk.settle()
        totals = desk.machine.totals
        events = [event for work in desk.works for event in work.events]
        assert totals.missed_window == sum(event.count for event in events if isinstance(event, Passed)) - 3
        assert totals.fired == 11
        assert timedelta(seconds=1100) == timedelta(seconds=10) * (totals.fired + totals.missed_window + 3)


# Found by mutants


def test_a_job_declared_while_leading_is_news_until_it_is_decided() -> None:
    desk = desk_with()
    assert not desk.clerk.has_news
    desk.registry.declare(declared("new", every(5)))
    assert desk.clerk.has_news
    desk.settle()
    assert "new" in desk.machine.jobs
    assert not desk.clerk.has_news

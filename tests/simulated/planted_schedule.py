"""Histories of a schedule that no single mistake of the product leads to, or that are quicker planted than searched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from tenure.election.records import encode
from tenure.ledger import InboxName, LogEntry
from tenure.ledger.layout import ledger_folder, log_key
from tenure.plugins.scheduler import OccurrenceRecord, Run, SchedulerPlugin, at, every
from tenure.plugins.scheduler.job import Job, Origin, job_from
from tenure.plugins.scheduler.records import (
    Begun,
    Defined,
    Event,
    Failed,
    Fired,
    Outcome,
    Passed,
    Paused,
    Refused,
    Removed,
    Resumed,
    Succeeded,
    Work,
    decode_work,
)
from tenure.plugins.scheduler.wire import SCHEMA, Batch
from tenure.simulate.schedule_fleet import NAME, ScheduleStage, moment
from tenure.simulate.schedule_judge import Judge
from tenure.simulate.schedule_rules import Decision, check_misfires
from tenure.testing.bucket import Write
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster
from tenure.testing.world import World

from .calm import Change, calm, changed_once, forge, saying
from .checks import plants

E = TypeVar("E")
FOLDER = ledger_folder(SchedulerPlugin.slug, NAME)
STRANGER = InboxName(1, "stranger-1", 1)
FOLLOWS_ITSELF = msgspec.json.encode(Batch(SCHEMA, after=5))


def forged(change: Change, seconds: float = 10.0) -> Checkers:
    """The judge of a schedule in whose log entries say something else."""

    def before(stage: ScheduleStage) -> None:
        forge(stage, stage.judge, FOLDER, change)

    with calm(ScheduleStage, workers=2, seconds=seconds, before=before) as stage:
        return stage.checkers


Events = tuple[Event, ...]


def with_events(
    change: Callable[[LogEntry, Events], Events | None],
    *,
    seconds: float = 10.0,
) -> Checkers:
    """One entry has other events. `change`: none if it is not that one."""

    def changed(entry: LogEntry, body: bytes) -> bytes | None:
        work = decode_work(body)
        events = change(entry, work.events)
        return None if events is None else msgspec.json.encode(Work(work.worker, events))

    return forged(changed_once(changed), seconds=seconds)


def after(kind: type[E], *more: Callable[[E, LogEntry], Event]) -> Callable[[LogEntry, Events], Events | None]:
    """The first entry with an event of this kind goes on with what `more` makes of that."""

    def change(entry: LogEntry, events: Events) -> Events | None:
        found = next((event for event in events if isinstance(event, kind)), None)
        return None if found is None else (*events, *(each(found, entry) for each in more))

    return change


def instead_of_fired(other: Callable[[Fired], Event]) -> Callable[[LogEntry, Events], Events | None]:
    """Of the first entry in which occurrences fire: each is this instead."""

    def change(entry: LogEntry, events: Events) -> Events | None:
        if not any(isinstance(event, Fired) for event in events):
            return None
        return tuple(other(event) if isinstance(event, Fired) else event for event in events)

    return change


def with_runs(change: Callable[[dict[str, Any]], None]) -> Checkers:
    """The functions of runs are called with something else."""

    def before(stage: ScheduleStage) -> None:
        began = stage.judge.began

        def otherwise(run: Run, process: Any, host: str, *, obedient: bool) -> None:
            fields: dict[str, Any] = {
                "id": run.id,
                "job": run.job,
                "scheduled_ms": round(run.scheduled.timestamp() * 1000),
                "token": run.token,
                "epoch": run.epoch,
                "attempt": run.attempt,
                "payload": run.payload,
                "manual": run.manual,
                "remaining": run.remaining,
                "host": host,
            }
            change(fields)
            host = fields.pop("host")
            began(Run(**fields), process, host, obedient=obedient)

        stage.judge.began = otherwise  # type: ignore[method-assign]

    with calm(ScheduleStage, workers=2, before=before) as stage:
        return stage.checkers


# The bucket


@plants("schedule", "rejected")
def a_batch_of_commands_follows_itself() -> Checkers:
    with calm(ScheduleStage) as stage:
        stage.cluster.bucket.corrupt(FOLDER + STRANGER.key, FOLLOWS_ITSELF)
        stage.cluster.world.run_until(stage.cluster.world.now + 40)
        return stage.checkers


@plants("schedule", "lost")
def a_command_is_removed_before_it_is_folded() -> Checkers:
    with calm(ScheduleStage) as stage:
        stage.cluster.bucket.corrupt(FOLDER + STRANGER.key, FOLLOWS_ITSELF)
        stage.cluster.bucket.remove(FOLDER + STRANGER.key)
        return stage.checkers


@plants("schedule", "log")
def an_entry_of_the_schedule_cannot_be_read() -> Checkers:
    with calm(ScheduleStage) as stage:
        stage.cluster.bucket.corrupt(FOLDER + log_key(max(stage.judge.entries) + 1), b"{")
        return stage.checkers


@plants("schedule", "log")
def an_entry_of_the_schedule_leaves_out_a_number() -> Checkers:
    with calm(ScheduleStage) as stage:
        seq = max(stage.judge.entries) + 5
        stage.cluster.bucket.corrupt(FOLDER + log_key(seq), encode(LogEntry(write_id="-", seq=seq, epoch=1, time_ms=1)))
        return stage.checkers


@plants("schedule", "state")
def who_starts_cannot_read_the_log_of_the_schedule() -> Checkers:
    with calm(ScheduleStage, until="state") as stage:
        stage.cluster.bucket.corrupt(FOLDER + log_key(max(stage.judge.entries)), b"{")
        stage.judge.unfinished = lambda mark_ms, host: []  # type: ignore[method-assign]
        stage.conclude()
        return stage.checkers


# The log


@plants("schedule", "log")
def a_batch_is_folded_that_nobody_wrote() -> Checkers:
    def change(entry: LogEntry, write: Write) -> tuple[LogEntry, Write]:
        return msgspec.structs.replace(entry, folded={**entry.folded, "stranger-1": [entry.seq]}), write

    return forged(change)


@plants("schedule", "clock")
def an_entry_is_a_minute_ahead_of_the_store() -> Checkers:
    def change(entry: LogEntry, write: Write) -> tuple[LogEntry, Write]:
        return msgspec.structs.replace(entry, time_ms=entry.time_ms + 60_000), write

    return forged(change)


def by_another(entry: LogEntry, write: Write) -> tuple[LogEntry, Write]:
    """What ended well is said to have been written by somebody else."""
    events = decode_work(entry.decided).events if entry.decided is not None else ()
    if any(isinstance(event, Succeeded) for event in events):
        write = msgspec.structs.replace(write, host="b" if write.host == "a" else "a")
    return entry, write


@plants("schedule", "log")
def an_entry_names_another_leader_than_its_writer() -> Checkers:
    return forged(by_another)


@plants("schedule", "leader")
def a_run_is_ended_by_another_than_began_it() -> Checkers:
    return forged(by_another)


@plants("schedule", "state")
def a_run_ends_twice() -> Checkers:
    return saying("is over (fired)", with_events(after(Succeeded, lambda event, entry: event)))


@plants("schedule", "state")
def a_run_that_runs_begins() -> Checkers:
    return saying("is running", with_events(after(Fired, lambda event, entry: Begun(event.number))))


@plants("schedule", "unknown")
def an_occurrence_fires_of_a_job_that_is_not_there() -> Checkers:
    change = after(Fired, lambda event, entry: msgspec.structs.replace(event, job="none", number=event.number + 1000))
    return saying("none@", with_events(change))


@plants("schedule", "unknown")
def an_instant_is_passed_over_of_a_job_that_is_not_there() -> Checkers:
    change = after(Fired, lambda event, entry: Passed(event.number + 1000, "none", 1, Outcome.COALESCED))
    return saying("and there is no such job", with_events(change))


@plants("schedule", "unknown")
def a_run_of_a_job_that_was_removed_begins_again() -> Checkers:
    change = after(
        Fired,
        lambda event, entry: Removed(event.job),
        lambda event, entry: Failed(event.number, "", 1),
        lambda event, entry: Begun(event.number),
    )
    return saying("and its job was removed", with_events(change))


@plants("schedule", "twice")
def an_occurrence_fires_twice() -> Checkers:
    return with_events(after(Fired, lambda event, entry: msgspec.structs.replace(event, number=event.number + 1000)))


@plants("schedule", "early")
def an_occurrence_fires_ten_seconds_early() -> Checkers:
    def later(event: Fired) -> Event:
        return msgspec.structs.replace(event, scheduled_ms=event.scheduled_ms + 10_000)

    return with_events(instead_of_fired(later))


@plants("schedule", "early")
def a_run_begins_again_before_its_time() -> Checkers:
    change = after(
        Fired,
        lambda event, entry: Failed(event.number, "", entry.time_ms + 60_000),
        lambda event, entry: Begun(event.number),
    )
    return saying("before its retry", with_events(change))


@plants("schedule", "retries")
def a_run_is_given_up_on_that_has_attempts_left() -> Checkers:
    return saying("is tried again: 0", with_events(after(Fired, lambda event, entry: Failed(event.number, ""))))


@plants("schedule", "token")
def a_run_is_tried_again_in_the_entry_that_began_it() -> Checkers:
    change = after(Fired, lambda event, entry: Failed(event.number, "", 1), lambda event, entry: Begun(event.number))
    return saying("and had token", with_events(change))


@plants("schedule", "paused")
def an_occurrence_begins_in_the_entry_that_pauses_its_job() -> Checkers:
    def change(entry: LogEntry, events: Events) -> Events | None:
        fired = next((event for event in events if isinstance(event, Fired)), None)
        if fired is None:
            return None
        others = tuple(event for event in events if event is not fired)
        waits = msgspec.structs.replace(fired, begins=False)
        return (*others, waits, Paused(fired.job), Begun(fired.number))

    return saying("begins in entry", with_events(change))


@plants("schedule", "overlap")
def an_occurrence_is_skipped_with_nothing_in_its_way() -> Checkers:
    def skip(event: Fired) -> Event:
        return Passed(event.number, event.job, event.scheduled_ms, Outcome.SKIPPED_OVERLAP)

    return saying("nothing is in its way", with_events(instead_of_fired(skip)))


@plants("schedule", "not run")
def a_message_is_given_up_on() -> Checkers:
    def change(entry: LogEntry, write: Write) -> tuple[LogEntry, Write]:
        if entry.decided is None:
            return entry, write
        work = decode_work(entry.decided)
        events = tuple(Failed(each.number, "") if isinstance(each, Succeeded) else each for each in work.events)
        body = msgspec.json.encode(Work(work.worker, events))
        return msgspec.structs.replace(entry, events=msgspec.Raw(body)), write

    return saying("is given up on", forged(change, seconds=20))


# Definitions


def redefined(change: Callable[[Defined, LogEntry], Event]) -> Checkers:
    """One of the jobs that were declared is defined once more, in the same entry."""
    return with_events(after(Defined, change))


@plants("schedule", "defined")
def a_job_counts_from_another_time_though_its_times_are_the_same() -> Checkers:
    change = redefined(lambda event, entry: msgspec.structs.replace(event, anchor_ms=event.anchor_ms + 1))
    return saying("moves the anchor", change)


@plants("schedule", "defined")
def a_job_whose_times_change_is_decided_up_to_another_time() -> Checkers:
    def change(event: Defined, entry: LogEntry) -> Event:
        job = msgspec.structs.replace(event.job, schedule=every(17))
        return msgspec.structs.replace(event, job=job, decided_ms=entry.time_ms + 60_000)

    return saying("is another", redefined(change))


@plants("schedule", "defined")
def a_job_is_resumed_at_another_time() -> Checkers:
    return saying("Resumed(", redefined(lambda event, entry: Resumed(event.job.id, 1)))


@plants("schedule", "lost")
def a_change_leaves_out_what_a_job_has() -> Checkers:
    change = redefined(lambda event, entry: msgspec.structs.replace(event, decided_ms=event.decided_ms + 60_000))
    return saying("leaves out", change)


@plants("schedule", "twice")
def a_job_goes_back_to_a_time_that_was_decided() -> Checkers:
    def job(entry: LogEntry) -> Job:
        return job_from("once", at(moment(entry.time_ms - 5_000)), function="quick")

    def add(event: Defined, entry: LogEntry) -> Event:
        once = job(entry)
        return Defined(once, entry.time_ms, once.schedule.at_ms - 1)  # type: ignore[union-attr]

    def fire(event: Defined, entry: LogEntry) -> Event:
        return Fired(1000, "once", job(entry).schedule.at_ms, True)  # type: ignore[union-attr]

    def change(event: Defined, entry: LogEntry) -> Event:
        once = msgspec.structs.replace(job(entry), end_ms=entry.time_ms + 60_000)
        return Defined(once, entry.time_ms, once.schedule.at_ms - 1)  # type: ignore[union-attr]

    return saying("goes back", with_events(after(Defined, add, fire, change)))


# Misfires


LATE = 60_000
"""Milliseconds, of an instant that a policy decides on: it is over the grace, and within the window."""


def misfires(misfire: str, *decisions: Decision) -> Checkers:
    """What was decided on instants of a job at the time 0, with a grace of 10 s and a window of 100 s."""
    job = job_from(
        "job", every(1), function="quick", misfire=misfire, misfire_grace=10.0, misfire_window=100.0, catch_up=2
    )
    with World(1) as world:
        checkers = Checkers(SimulatedCluster(world))
        check_misfires(job, decisions, 0, 0, checkers.report)
        return checkers


@plants("schedule", "policy")
def an_instant_is_missed_that_is_in_time() -> Checkers:
    return saying("its time was not over", misfires("fire-once", Decision(-1, -1, 1, Outcome.MISSED_WINDOW)))


@plants("schedule", "policy")
def an_instant_that_is_in_time_is_coalesced() -> Checkers:
    return saying("should not have been", misfires("fire-once", Decision(-1, -1, 1, Outcome.COALESCED)))


@plants("schedule", "policy")
def an_instant_is_coalesced_into_nothing() -> Checkers:
    return saying("nothing fired in its place", misfires("fire-once", Decision(-LATE, -LATE, 1, Outcome.COALESCED)))


@plants("schedule", "policy")
def an_instant_fires_that_is_older_than_the_window() -> Checkers:
    return saying("is older than the window", misfires("fire-all", Decision(-200_000, -200_000, 1, Outcome.FIRED)))


@plants("schedule", "policy")
def an_instant_fires_late_though_that_is_to_be_skipped() -> Checkers:
    return saying("should have been missed", misfires("skip", Decision(-LATE, -LATE, 1, Outcome.FIRED)))


@plants("schedule", "policy")
def two_instants_fire_late_though_one_is_enough() -> Checkers:
    both = [Decision(at_ms, at_ms, 1, Outcome.FIRED) for at_ms in (-LATE, -LATE + 1000)]
    return saying("newer ones are late as well", misfires("fire-once", *both))


# Commands


@plants("schedule", "command")
def a_job_is_paused_and_nobody_asked_for_it() -> Checkers:
    return saying("nobody asked", with_events(after(Fired, lambda event, entry: Paused(event.job))))


@plants("schedule", "command")
def a_command_is_refused_that_is_not_folded() -> Checkers:
    change = after(Fired, lambda event, entry: Refused("stranger-1", 1, 0, "no"))
    return saying("refuses what it does not fold", with_events(change))


def of_a_command(refuses: bool) -> Callable[[LogEntry, Events], Events | None]:
    """An entry that follows an `add` has not done so."""

    def change(entry: LogEntry, events: Events) -> Events | None:
        added = [event for event in events if isinstance(event, Defined) and event.job.origin is Origin.STORED]
        if not entry.folded or not added:
            return None
        uid, numbers = next(iter(entry.folded.items()))
        said = (Refused(uid, numbers[0], 0, "no"),) if refuses else ()
        return (*(event for event in events if event not in added), *said)

    return change


@plants("schedule", "command")
def a_command_is_folded_without_an_effect() -> Checkers:
    return saying("has no effect", with_events(of_a_command(refuses=False), seconds=40))


@plants("schedule", "command")
def a_command_is_refused_without_a_reason() -> Checkers:
    return saying("and need not", with_events(of_a_command(refuses=True), seconds=40))


@plants("schedule", "command")
def a_caller_is_refused_and_no_entry_says_so() -> Checkers:
    with calm(ScheduleStage) as stage:
        stage.judge.commands.turned_down("add", "none", "1")
        return saying("and no entry says so", stage.checkers)


@plants("schedule", "command")
def a_call_was_acknowledged_and_is_not_in_the_log() -> Checkers:
    with calm(ScheduleStage) as stage:
        stage.judge.commands.sends("add", "none", "1")
        stage.judge.commands.heeded("add", "none", "1", decided=False)
        concludes(stage)
        return saying("acknowledged 1 times", stage.checkers)


# The end


def concludes(stage: ScheduleStage) -> None:
    stage.judge.conclude(stage._look())


def at_the_end(change: Callable[[Judge], None], *, seconds: float = 10.0) -> Checkers:
    """When it is over, the judge's book is another."""
    with calm(ScheduleStage, seconds=seconds) as stage:
        state = stage._look()
        change(stage.judge)
        stage.judge.conclude(state)
        return stage.checkers


@plants("schedule", "state")
def a_job_is_paused_that_the_log_has_not_paused() -> Checkers:
    def change(judge: Judge) -> None:
        judge.book.jobs["often"].paused = True

    return saying("another thing than the book", at_the_end(change))


@plants("schedule", "state")
def a_run_is_open_that_the_log_has_not_begun() -> Checkers:
    def change(judge: Judge) -> None:
        ran = next(iter(judge.book.runs.values()))
        judge.book.open_of[ran.job][ran.number] = ran

    return saying("open are", at_the_end(change))


@plants("schedule", "state")
def more_has_fired_than_the_log_says() -> Checkers:
    def change(judge: Judge) -> None:
        judge.counts["fired"] += 1

    return saying("totals are", at_the_end(change))


@plants("schedule", "state")
def all_entries_of_the_schedule_do_not_add_up() -> Checkers:
    def change(judge: Judge) -> None:
        judge.entries[2] = judge.entries[3]

    return saying("all entries do not add up", at_the_end(change))


@plants("schedule", "history")
def more_records_are_kept_than_a_job_says() -> Checkers:
    def change(judge: Judge) -> None:
        booked = judge.book.jobs["often"]
        booked.job = msgspec.structs.replace(booked.job, history=0)

    return saying("are kept, and not 0", at_the_end(change, seconds=20))


def message_of(judge: Judge) -> str:
    """What is remembered of the deduplication key of the first message that is in the queue."""
    return next(iter(judge.post.messages))


@plants("schedule", "message")
def an_occurrence_has_two_messages() -> Checkers:
    def change(judge: Judge) -> None:
        judge.post.messages[message_of(judge)] += 1

    return saying("has 2 messages", at_the_end(change, seconds=30))


@plants("schedule", "message")
def a_message_says_nothing_of_its_occurrence() -> Checkers:
    def change(judge: Judge) -> None:
        judge.post.headers[message_of(judge)] = {}

    return saying("has the message {}", at_the_end(change, seconds=30))


@plants("schedule", "message")
def a_message_was_sent_that_the_queue_does_not_have() -> Checkers:
    def change(judge: Judge) -> None:
        del judge.post.messages[message_of(judge)]

    return saying("the queue has no message of it", at_the_end(change, seconds=60))


@plants("schedule", "message")
def the_queue_has_a_message_of_what_never_fired() -> Checkers:
    def change(judge: Judge) -> None:
        judge.post.messages["none"], judge.post.headers["none"] = 1, {}

    return saying("of what never fired", at_the_end(change))


@plants("schedule", "liveness")
def a_command_lies_in_the_inbox_for_long() -> Checkers:
    with calm(ScheduleStage) as stage:
        stage.cluster.crash("a")
        stage.cluster.bucket.corrupt(FOLDER + STRANGER.key, FOLLOWS_ITSELF)
        stage.judge.unfinished = lambda mark_ms, host: []  # type: ignore[method-assign]
        stage.conclude()
        return saying("in an inbox long after the last fault", stage.checkers)


# Runs


@plants("schedule", "leader")
def a_run_begins_at_a_host_that_does_not_lead() -> Checkers:
    def change(fields: dict[str, Any]) -> None:
        fields["host"] = "b" if fields["host"] == "a" else "a"

    return with_runs(change)


@plants("schedule", "lease")
def a_run_begins_under_an_epoch_that_is_over() -> Checkers:
    def change(fields: dict[str, Any]) -> None:
        fields["epoch"] -= 1

    return with_runs(change)


@plants("schedule", "not written")
def a_run_begins_under_a_token_that_no_entry_gave() -> Checkers:
    def change(fields: dict[str, Any]) -> None:
        fields["token"] += 1000

    return with_runs(change)


@plants("schedule", "not written")
def a_run_begins_that_never_fired() -> Checkers:
    def change(fields: dict[str, Any]) -> None:
        fields["id"] = "none@1"

    return with_runs(change)


@plants("schedule", "early")
def a_run_begins_a_minute_early() -> Checkers:
    def before(stage: ScheduleStage) -> None:
        began = stage.judge.began

        def early(run: Run, process: Any, host: str, *, obedient: bool) -> None:
            stage.judge.book.by_name[run.id].instant += 60_000
            began(run, process, host, obedient=obedient)

        stage.judge.began = early  # type: ignore[method-assign]

    with calm(ScheduleStage, before=before) as stage:
        return saying("ms before its time", stage.checkers)


@plants("schedule", "token")
def a_run_begins_as_another_attempt_than_it_is() -> Checkers:
    def change(fields: dict[str, Any]) -> None:
        fields["attempt"] += 1

    return with_runs(change)


# Callers


def looked_up(**said: Any) -> Checkers:
    """What somebody reads of a run that has ended well is this."""
    with calm(ScheduleStage) as stage:
        ran = next(ran for ran in stage.judge.book.runs.values() if ran.finished and ran.outcome.value == "fired")
        fields: dict[str, Any] = dict.fromkeys(OccurrenceRecord.__struct_fields__, 0)
        fields |= {"run": ran.name, "job": ran.job, "outcome": "fired", "state": "done", "attempts": len(ran.tokens)}
        stage.judge.looked([OccurrenceRecord(**(fields | said))])
        return stage.checkers


@plants("schedule", "history")
def a_run_is_told_of_that_never_fired() -> Checkers:
    return looked_up(run="none@1")


@plants("schedule", "history")
def a_run_that_ended_well_is_told_to_have_failed() -> Checkers:
    return looked_up(outcome="failed")


@plants("schedule", "history")
def a_run_is_told_to_have_had_more_attempts() -> Checkers:
    return looked_up(attempts=99)

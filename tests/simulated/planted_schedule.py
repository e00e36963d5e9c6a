"""Histories of a schedule that no single mistake of the product leads to, or that are quicker planted than searched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tenure.election.records import encode
from tenure.ledger import InboxName, LogEntry
from tenure.ledger.layout import ledger_folder, log_key
from tenure.plugins.scheduler import OccurrenceRecord, Run, SchedulerPlugin
from tenure.plugins.scheduler.records import Event, Fired, Succeeded, Work, decode_work
from tenure.plugins.scheduler.wire import SCHEMA, Batch
from tenure.simulate.schedule_fleet import NAME, ScheduleStage
from tenure.testing.bucket import Write
from tenure.testing.checkers import Checkers

from .calm import Change, calm, changed_once, forge
from .checks import plants

FOLDER = ledger_folder(SchedulerPlugin.slug, NAME)
STRANGER = InboxName(1, "stranger-1", 1)
FOLLOWS_ITSELF = msgspec.json.encode(Batch(SCHEMA, after=5))


def forged(change: Change) -> Checkers:
    """The judge of a schedule in whose log one entry says something else."""

    def before(stage: ScheduleStage) -> None:
        forge(stage, stage.judge, FOLDER, change)

    with calm(ScheduleStage, workers=2, before=before) as stage:
        return stage.checkers


def with_events(change: Callable[[tuple[Event, ...]], tuple[Event, ...] | None]) -> Checkers:
    def changed(body: bytes) -> bytes | None:
        work = decode_work(body)
        events = change(work.events)
        return None if events is None else msgspec.json.encode(Work(work.worker, events))

    return forged(changed_once(changed))


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
    def change(events: tuple[Event, ...]) -> tuple[Event, ...] | None:
        ends = [event for event in events if isinstance(event, Succeeded)]
        return (*events, ends[0]) if ends else None

    return with_events(change)


@plants("schedule", "unknown")
def an_occurrence_fires_of_a_job_that_is_not_there() -> Checkers:
    def change(events: tuple[Event, ...]) -> tuple[Event, ...] | None:
        fired = [event for event in events if isinstance(event, Fired)]
        return (*events, msgspec.structs.replace(fired[0], job="none")) if fired else None

    return with_events(change)


@plants("schedule", "twice")
def an_occurrence_fires_twice() -> Checkers:
    def change(events: tuple[Event, ...]) -> tuple[Event, ...] | None:
        fired = [event for event in events if isinstance(event, Fired)]
        return (*events, msgspec.structs.replace(fired[0], number=fired[0].number + 1000)) if fired else None

    return with_events(change)


@plants("schedule", "early")
def an_occurrence_fires_ten_seconds_early() -> Checkers:
    def change(events: tuple[Event, ...]) -> tuple[Event, ...] | None:
        if not any(isinstance(event, Fired) for event in events):
            return None
        return tuple(
            msgspec.structs.replace(event, scheduled_ms=event.scheduled_ms + 10_000)
            if isinstance(event, Fired)
            else event
            for event in events
        )

    return with_events(change)


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

"""A schedule as anybody sees it who can read the bucket: no leader is asked, and nothing is written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from tenure.errors import ConfigError
from tenure.ledger import LedgerState
from tenure.ledger.catchup import catch_up
from tenure.ledger.layout import INBOX_NAMES
from tenure.plugins.ledgered import Onlooker
from tenure.plugins.scheduler.job import At, CommandTarget, Cron, Every, FunctionTarget, Job, Schedule, Target
from tenure.plugins.scheduler.records import JobState, Occurrence, State
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.timetable import Fire, timetable_of
from tenure.store import Store, ours


class OccurrenceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an occurrence, or of several in a row that were passed over (`count`, `to_ms`). Milliseconds of
    the store's clock; 0: not yet."""

    run: str
    job: str
    scheduled_ms: int
    decided_ms: int
    outcome: str
    """`fired`, `skipped-overlap`, `missed-window`, `coalesced`, `interrupted` or `failed` ..."""
    state: str
    """... and of one that fired `waiting`, `running`, `backing-off`, `cut-short` or `done`."""
    started_ms: int
    finished_ms: int
    epoch: int
    worker: str
    token: int
    attempts: int
    failures: int
    interruptions: int
    error: str
    manual: str
    to_ms: int
    count: int
    retry_ms: int


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and where it stands."""

    id: str
    schedule: str
    timezone: str
    target: str
    origin: str
    enabled: bool
    paused: bool
    """By itself, or with all others."""
    next_ms: int | None
    """Its next instant, without jitter; `None`: none, or it is paused or not enabled."""
    note: str
    """What a change of the clocks has to do with that; or why it cannot be told."""
    running: int
    waiting: int
    """For another run to end, or for another try."""
    last: OccurrenceRecord | None
    """What was decided last."""
    revision: int
    added_ms: int
    changed_ms: int
    definition: Job


class ScheduleStats(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a schedule. What lies in the inbox is durable, and not decided yet by any leader."""

    jobs: int
    paused: bool
    """Everything is."""
    running: int
    waiting: int
    backing_off: int
    inbox: int
    """Objects, each with one or more commands."""
    records: int
    """Occurrences that are over, and still known."""
    fired: int
    succeeded: int
    failed: int
    interrupted: int
    skipped_overlap: int
    missed_window: int
    coalesced: int
    retries: int
    interruptions: int
    manual: int
    seq: int
    epoch: int


async def read_schedule(store: Store) -> LedgerState:
    """The state of a schedule, from its newest snapshot and the log after that. `store` is the ledger's own."""
    state = LedgerState(ScheduleMachine())
    await catch_up(store, state, Onlooker())
    return state


def machine_of(state: LedgerState) -> ScheduleMachine:
    assert isinstance(state.machine, ScheduleMachine)
    return state.machine


def jobs_of(state: LedgerState, now_ms: int) -> list[JobView]:
    """Every job, by id."""
    machine = machine_of(state)
    return [_view(machine, machine.jobs[id], now_ms) for id in sorted(machine.jobs)]


def job_of(state: LedgerState, id: str, now_ms: int) -> JobView:
    return _view(machine_of(state), _known(state, id), now_ms)


def fires_of(state: LedgerState, id: str, count: int, now_ms: int) -> list[Fire]:
    """The next instants of a job, without jitter, as if it were neither paused nor disabled."""
    known = _known(state, id)
    return timetable_of(known.job, known.anchor_ms).fires(max(now_ms, known.decided_ms), count)


def history_of(state: LedgerState, id: str | None, limit: int) -> list[OccurrenceRecord]:
    """Occurrences that were decided, newest first; of one job, also of one that was removed, or of all."""
    machine = machine_of(state)
    if id is not None:
        if id not in machine.history_of and id not in machine.open_of:
            _known(state, id)
        return [record_of(each) for each in machine.records_of(id)[:limit]]
    newest = sorted((*machine.open, *machine.history), reverse=True)[:limit]
    return [record_of(machine.open.get(number) or machine.history[number]) for number in newest]


async def stats_of(store: Store, state: LedgerState) -> ScheduleStats:
    machine = machine_of(state)
    inbox = 0
    async for _ in ours(store, INBOX_NAMES):
        inbox += 1
    states = [occurrence.state for occurrence in machine.open.values()]
    return ScheduleStats(
        jobs=len(machine.jobs),
        paused=machine.paused,
        running=states.count(State.RUNNING),
        waiting=states.count(State.WAITING) + states.count(State.CUT_SHORT),
        backing_off=states.count(State.BACKING_OFF),
        inbox=inbox,
        records=len(machine.history),
        seq=state.seq,
        epoch=state.epoch,
        **_plain(machine.totals),
    )


def record_of(occurrence: Occurrence) -> OccurrenceRecord:
    fields = {name: getattr(occurrence, name) for name in OccurrenceRecord.__struct_fields__}
    fields["outcome"], fields["state"] = occurrence.outcome.value, occurrence.state.value
    return OccurrenceRecord(**fields)


def told_schedule(schedule: Schedule) -> str:
    match schedule:
        case Cron(text):
            return f"cron {text}"
        case Every(period_ms):
            return f"every {period_ms / 1000:g} s"
        case At(at_ms):
            return f"at {datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()}"


def told_target(target: Target) -> str:
    match target:
        case FunctionTarget(name):
            return f"function {name}"
        case CommandTarget(argv):
            return f"command {argv[0]}" + (" …" if len(argv) > 1 else "")
        case _:
            return f"queue {target.queue}"


def _view(machine: ScheduleMachine, known: JobState, now_ms: int) -> JobView:
    job = known.job
    open = [occurrence.state for occurrence in machine.of(job.id)]
    next_ms, note = None, ""
    if machine.is_active(known):
        try:
            fires = timetable_of(job, known.anchor_ms).fires(max(now_ms, known.decided_ms), 1)
            next_ms, note = (fires[0].at_ms, fires[0].note) if fires else (None, "")
        except ConfigError as error:
            note = str(error)
    last = machine.open.get(known.last) or machine.history.get(known.last)
    return JobView(
        id=job.id,
        schedule=told_schedule(job.schedule),
        timezone=job.schedule.timezone if isinstance(job.schedule, Cron) else "UTC",
        target=told_target(job.target),
        origin=job.origin.value,
        enabled=job.enabled,
        paused=known.paused or machine.paused,
        next_ms=next_ms,
        note=note,
        running=open.count(State.RUNNING),
        waiting=len(open) - open.count(State.RUNNING),
        last=record_of(last) if last is not None else None,
        revision=known.revision,
        added_ms=known.added_ms,
        changed_ms=known.changed_ms,
        definition=job,
    )


def _known(state: LedgerState, id: str) -> JobState:
    known = machine_of(state).jobs.get(id)
    if known is None:
        raise ConfigError(f"there is no job {id!r}: `tenure schedule list` shows those that there are")
    return known


def _plain(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}

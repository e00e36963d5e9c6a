"""What listeners are told of an event of the log, once it is written."""

from __future__ import annotations

from tenure.coordinator.events import NamedEvent
from tenure.plugins.scheduler.events import (
    OccurrenceSkipped,
    OccurrencesMissed,
    RunFailed,
    RunFinished,
    RunInterrupted,
)
from tenure.plugins.scheduler.records import (
    CutShort,
    Event,
    Failed,
    Occurrence,
    Outcome,
    Passed,
    Succeeded,
    run_name,
)
from tenure.plugins.scheduler.state import ScheduleMachine


def telling(event: Event, machine: ScheduleMachine) -> NamedEvent | None:
    """`None` for what is told otherwise, or not at all. `machine`: as it is after the event's entry."""
    match event:
        case Passed(outcome=Outcome.SKIPPED_OVERLAP):
            run = run_name(event.job, event.scheduled_ms, event.manual)
            return OccurrenceSkipped(event.job, run, event.scheduled_ms)
        case Passed():
            first, last = event.scheduled_ms, event.last_ms
            return OccurrencesMissed(event.job, event.outcome.value, first, last, event.count)
        case Succeeded() | Failed() | CutShort():
            record = machine.open.get(event.number) or machine.history.get(event.number)
            return _of_run(event, record) if record is not None else None
        case _:
            return None


def _of_run(event: Succeeded | Failed | CutShort, record: Occurrence) -> NamedEvent:
    job, run, scheduled_ms = record.job, record.run, record.scheduled_ms
    match event:
        case Succeeded():
            return RunFinished(job, run, scheduled_ms, record.token, record.attempts)
        case Failed():
            return RunFailed(job, run, scheduled_ms, record.token, event.error, event.retry_ms)
        case CutShort():
            return RunInterrupted(job, run, scheduled_ms, event.again, record.interruptions)

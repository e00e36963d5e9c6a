"""What a process knows of a schedule by itself, at no cost: for telemetry."""

from __future__ import annotations

import msgspec

from tenure.plugins.scheduler.clerk import ScheduleClerk
from tenure.plugins.scheduler.records import State, Totals


class ScheduleGlance(msgspec.Struct, frozen=True, kw_only=True):
    """The whole schedule, as its leader has decided on it."""

    jobs: int
    paused: bool
    running: int
    waiting: int
    backing_off: int
    overdue: float
    """Seconds by which what is due next is late; 0: nothing is, or the time is not known yet."""
    next_in: float | None
    """Seconds until something is due next, as far as that is known."""
    left_behind: int
    totals: Totals


def glance_of(clerk: ScheduleClerk, now_ms: int | None, left_behind: int) -> ScheduleGlance:
    machine = clerk.machine
    states = [occurrence.state for occurrence in machine.open.values()]
    due = clerk.next_ms()
    until = None if due is None or now_ms is None else (due - now_ms) / 1000
    return ScheduleGlance(
        jobs=len(machine.jobs),
        paused=machine.paused,
        running=states.count(State.RUNNING),
        waiting=states.count(State.WAITING) + states.count(State.CUT_SHORT),
        backing_off=states.count(State.BACKING_OFF),
        overdue=max(0.0, -until) if until is not None else 0.0,
        next_in=max(0.0, until) if until is not None else None,
        left_behind=left_behind,
        totals=msgspec.structs.replace(machine.totals),
    )

"""What the judge of a schedule knows of time and policies, worked out once more: none of the scheduler's own sums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
from cronsim import CronSim

from tenure.plugins.scheduler.job import Cron, Every, Job, Misfire
from tenure.plugins.scheduler.records import Outcome

LEAST_DOUBT_MS = 4000
"""By how much a leader's idea of the store's clock may be off though it was sure of it when its term began."""

Report = Callable[[str, str], None]


class Decision(msgspec.Struct, frozen=True):
    """Instants in a row, of one job, and what was decided on them; one that fires is alone."""

    first: int
    last: int
    count: int
    outcome: Outcome


def instants(job: Job, anchor_ms: int, after_ms: int) -> Iterator[int]:
    """Those of a job that come after, in milliseconds, ascending; maybe without end."""
    start = job.start_ms or 0
    end = job.end_ms if job.end_ms is not None else 2**62
    for instant in _unbounded(job, anchor_ms, max(after_ms, start - 1)):
        if instant >= end:
            return
        if instant > after_ms and instant >= start:
            yield instant


def _unbounded(job: Job, anchor_ms: int, after_ms: int) -> Iterator[int]:
    schedule = job.schedule
    if isinstance(schedule, Every):
        first = job.start_ms if job.start_ms is not None else anchor_ms + schedule.period_ms
        number = max(0, (after_ms - first) // schedule.period_ms + 1)
        while True:
            yield first + number * schedule.period_ms
            number += 1
    elif isinstance(schedule, Cron):
        assert schedule.timezone == "UTC"
        for moment in CronSim(schedule.text, datetime.fromtimestamp(after_ms // 1000, UTC)):
            yield int(moment.timestamp()) * 1000
    else:
        yield schedule.at_ms


def first_after(job: Job, anchor_ms: int, after_ms: int) -> int | None:
    return next(instants(job, anchor_ms, after_ms), None)


def jitter(job: Job, instant: int) -> int:
    if not job.jitter_ms:
        return 0
    drawn = hashlib.blake2b(f"{job.id}@{instant}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big") % (job.jitter_ms + 1)


def check_misfires(job: Job, decisions: Sequence[Decision], time_ms: int, certain_ms: int, report: Report) -> None:
    """What was decided on a job by one entry, in order, is what its policy says of instants that are that late.

    Between what is certainly late and what certainly is not lies the leader's doubt: there both are right.
    """
    late = time_ms - job.jitter_ms - job.misfire_grace_ms
    old = time_ms - job.jitter_ms - job.misfire_window_ms
    doubt = time_ms - certain_ms
    most = 1 if job.misfire is Misfire.FIRE_ONCE else job.catch_up
    for index, decision in enumerate(decisions):
        first, last, outcome = decision.first, decision.last, decision.outcome
        newer = decisions[index + 1 :]

        def say(what: str, decision: Decision = decision) -> None:
            late_by = (time_ms - decision.last) / 1000
            report(
                "policy",
                f"{job.id}@{decision.first} was {decision.outcome.value}, {late_by:.1f} s late, and {what} "
                f"({job.misfire.value}, grace {job.misfire_grace_ms} ms, window {job.misfire_window_ms} ms, "
                f"catch-up {job.catch_up})",
            )

        if outcome is Outcome.MISSED_WINDOW:
            if last >= old and (job.misfire is not Misfire.SKIP or last >= late):
                say("its time was not over")
        elif outcome is Outcome.COALESCED:
            takers = [each for each in newer if each.outcome in (Outcome.FIRED, Outcome.SKIPPED_OVERLAP)]
            if job.misfire is Misfire.SKIP or last >= late:
                say("should not have been")
            elif len(takers) < most or takers[most - 1].first >= late:
                say("nothing fired in its place")
        else:
            if first < old - doubt:
                say("is older than the window")
            elif first < late - doubt:
                surely_late = sum(each.count for each in newer if each.last < late - doubt)
                if job.misfire is Misfire.SKIP:
                    say("should have been missed")
                elif surely_late >= most:
                    say(f"{surely_late} newer ones are late as well")

"""What the jobs of one schedule have come to. Pure.

Guarantee: each job is counted once. They are folded in the order of their numbers, and the record says up to which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from tenure.election.records import Count, Damage, Record, Text, TooNew, decode
from tenure.plugins.poll.job import CheckResult, Detail, Epoch, Failure, Job, JobState, ScheduleName, Token
from tenure.store.outcome import NeverABool

MAX_KEPT = 1000
MAX_SUMMARY_BYTES = 256 * 1024


class Outcome(msgspec.Struct, NeverABool, frozen=True, rename="camel"):
    """One ended job, in short."""

    instead: ClassVar[str] = "not true or false: its `ok` is True, False, or None where nothing is known"

    number: Count
    state: JobState
    failure: Failure | None = None
    ok: bool | None = None
    """`None`: the check did not run to an answer, so nothing is known about the service."""
    latency_ms: float | None = None


class Summary(Record, frozen=True, kw_only=True, rename="camel"):
    """`results/schedule={name}.json`: readable from any worker."""

    schedule: ScheduleName
    epoch: Epoch = 0
    folded: Count = 0
    """Every job up to this number is counted here."""
    first_kept: Count = 1
    """The records of earlier jobs are gone, and what turns up under their names is not theirs."""
    last_token: Token = 0
    last_created_ms: Count = 0
    ok: Count = 0
    not_ok: Count = 0
    """The check ran, and the service did not answer as expected, or not in time."""
    no_worker: Count = 0
    timeout: Count = 0
    """Its worker was not heard of again. A check that itself took too long counts as `not_ok`."""
    execution_error: Count = 0
    consecutive_failures: Count = 0
    """Jobs since the last one that was ok, for whatever reason they were not."""
    availability: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """The share that was ok, of the kept jobs that say something about the service. `None`: none does."""
    latency_ms_p50: float | None = None
    """Of the kept jobs that were ok."""
    latency_ms_p95: float | None = None
    last_state: JobState | None = None
    last_failure: Failure | None = None
    last_detail: Detail = ""
    last_result: CheckResult | None = None
    last_ended_at: Text = ""
    last_worker_id: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    kept: Annotated[tuple[Outcome, ...], msgspec.Meta(max_length=MAX_KEPT)] = ()

    @property
    def total(self) -> int:
        return self.ok + self.not_ok + self.no_worker + self.timeout + self.execution_error


def fold(summary: Summary, job: Job, *, epoch: int, keep: int, keep_jobs: int) -> Summary:
    """With one more ended job. One that is counted already changes nothing."""
    assert job.state.final, job.state
    assert job.schedule == summary.schedule
    if job.number <= summary.folded:
        return summary
    outcome = outcome_of(job)
    kept = (*summary.kept, outcome)[-keep:]
    good = outcome.ok is True
    counts = {
        "ok": outcome.ok is True,
        "not_ok": outcome.ok is False,
        "no_worker": outcome.ok is None and job.failure is Failure.NO_WORKER,
        "timeout": outcome.ok is None and job.failure is Failure.TIMEOUT,
        "execution_error": outcome.ok is None and job.failure is Failure.EXECUTION_ERROR,
    }
    assert sum(counts.values()) == 1, job
    measured = [each.ok for each in kept if each.ok is not None]
    latencies = sorted(each.latency_ms for each in kept if each.ok and each.latency_ms is not None)
    return msgspec.structs.replace(
        summary,
        **{name: getattr(summary, name) + happened for name, happened in counts.items()},
        epoch=max(epoch, summary.epoch),
        folded=job.number,
        first_kept=max(summary.first_kept, job.number - keep_jobs + 1),
        last_token=max(summary.last_token, job.token),
        last_created_ms=job.created_ms,
        consecutive_failures=0 if good else summary.consecutive_failures + 1,
        availability=sum(measured) / len(measured) if measured else None,
        latency_ms_p50=percentile(latencies, 50),
        latency_ms_p95=percentile(latencies, 95),
        last_state=job.state,
        last_failure=job.failure,
        last_detail=job.detail,
        last_result=job.result,
        last_ended_at=job.ended_at,
        last_worker_id=job.worker_id,
        kept=kept,
    )


def outcome_of(job: Job) -> Outcome:
    result = job.result
    return Outcome(
        number=job.number,
        state=job.state,
        failure=job.failure,
        ok=None if result is None else result.ok and job.failure is None,
        latency_ms=None if result is None else result.latency_ms,
    )


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Nearest rank; `None` of nothing."""
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else None


def decode_summary(schedule: str, body: bytes) -> Summary | Damage | TooNew:
    summary = decode(body, Summary, MAX_SUMMARY_BYTES)
    if isinstance(summary, Summary) and summary.schedule != schedule:
        return Damage(f"it says that it is of schedule {summary.schedule}")
    return summary

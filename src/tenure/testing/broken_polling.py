"""Polling that is broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tenure.election.records import encode
from tenure.plugins.poll import desk as desk_module
from tenure.plugins.poll import orchestrator as orchestrator_module
from tenure.plugins.poll.book import Held, PollBook
from tenure.plugins.poll.decide import WAIT, GiveUp, next_step
from tenure.plugins.poll.desk import Desk
from tenure.plugins.poll.job import TOKENS_PER_EPOCH, JobState, Refusal, advance
from tenure.plugins.poll.worker import PollWorker
from tenure.store import Applied, Version
from tenure.testing.broken import Patch, Variant


def _changed_blindly() -> list[Patch]:
    async def blind(self: PollBook, held: Held, event: Any) -> Held | Refusal:
        after = advance(held.job, event)
        if isinstance(after, Refusal):
            return after
        after = msgspec.structs.replace(after, write_id=self._draw_id())
        version = await self._store.put(f"jobs/{after.id}.json", encode(after))
        return Held(after, version)

    return [(PollBook, "change", blind)]


def _begun_unstarted() -> list[Patch]:
    start = PollWorker._start_on

    async def stubborn(self: PollWorker, held: Held) -> Held | None:
        started = await start(self, held)
        return started if started is not None else held

    return [(PollWorker, "_start_on", stubborn)]


def _begun_again() -> list[Patch]:
    def is_ours(self: PollWorker, job: Any, attempt: int) -> bool:
        return job.state in (JobState.DISPATCHING, JobState.RUNNING) and job.uid == self.uid and job.attempt == attempt

    return [(PollWorker, "_is_ours", is_ours), (PollWorker, "_remember", lambda self, job_id: None)]


def _open_job_deleted() -> list[Patch]:
    async def clear(self: Any, numbers: Mapping[str, list[int]]) -> None:
        for name, found in numbers.items():
            await self._book.delete_jobs(*(f"{name}-{number:010d}" for number in found))

    return [(orchestrator_module._Term, "_clear_jobs", clear)]


def _token_repeated() -> list[Patch]:
    return [(desk_module, "next_token", lambda epoch, last: epoch * TOKENS_PER_EPOCH + 1)]


def _number_skipped() -> list[Patch]:
    found = Desk.found

    def found_one_more(self: Desk, numbers: list[int]) -> None:
        found(self, numbers)
        self._highest += 1

    return [(Desk, "found", found_one_more)]


def _never_given_up() -> list[Patch]:
    def patient(*arguments: Any, **known: Any) -> Any:
        step = next_step(*arguments, **known)
        return WAIT if isinstance(step, GiveUp) else step

    return [(desk_module, "next_step", patient)]


def _counted_blindly() -> list[Patch]:
    async def blind(self: PollBook, summary: Any, expected: Version | None) -> Version:
        key, body = f"results/schedule={summary.schedule}.json", encode(summary)
        if expected is None:
            outcome = await self._store.create(key, body)
        else:
            outcome = await self._store.replace(key, body, expected)
        return outcome.version if isinstance(outcome, Applied) else Version("?")

    return [(PollBook, "write_summary", blind)]


POLLING_VARIANTS = tuple(
    Variant(f"polling-{name}", leaves_out, check, patches)
    for name, leaves_out, check, patches in (
        ("changed-blindly", "a job is changed without a condition", "transition", _changed_blindly),
        ("begun-unstarted", "a check is begun though its start was refused", "not-running", _begun_unstarted),
        ("begun-again", "a worker forgets what it has begun", "begun-twice", _begun_again),
        ("open-job-deleted", "a sweep deletes jobs that are open", "deleted", _open_job_deleted),
        ("token-repeated", "every dispatch of a leader has the same token", "poll-token", _token_repeated),
        ("number-skipped", "a new leader leaves a number out", "numbers", _number_skipped),
        ("never-given-up", "a job that nobody finishes is waited for", "stuck", _never_given_up),
        ("counted-blindly", "a summary that was not written counts as written", "counted", _counted_blindly),
    )
)

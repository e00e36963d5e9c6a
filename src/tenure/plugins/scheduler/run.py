"""What a job's function is given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any


class Run:
    """One attempt at one occurrence of one job.

    `token` only rises from one attempt to the next, on whichever process: give it along with what the function writes
    elsewhere, so that a run that was paused for long can be told from the one that took over.
    """

    __slots__ = ("_remaining", "attempt", "epoch", "id", "job", "manual", "payload", "scheduled", "token")

    def __init__(
        self,
        *,
        id: str,
        job: str,
        scheduled_ms: int,
        token: int,
        epoch: int,
        attempt: int,
        payload: Any,
        manual: bool,
        remaining: Callable[[], float],
    ) -> None:
        self.id = id
        """The same through all attempts: job and scheduled time, or the id that `run_now` gave."""
        self.job = job
        self.scheduled = datetime.fromtimestamp(scheduled_ms / 1000, UTC)
        """When it was meant to be, without jitter; of a run by hand, when that was decided."""
        self.token = token
        self.epoch = epoch
        self.attempt = attempt
        """1 for the first; runs that were cut short count as well."""
        self.payload = payload
        self.manual = manual
        """It was asked for by `run_now`."""
        self._remaining = remaining

    def __repr__(self) -> str:
        return f"<Run {self.id}, attempt {self.attempt}, token {self.token}>"

    def remaining(self) -> float:
        """Seconds until its timeout, or until this process may lead no more if no renewal gets through any more."""
        return self._remaining()

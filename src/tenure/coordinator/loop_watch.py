"""Notices that the user's event loop stands still, or is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tenure.clock import Clock, Reading

_log = logging.getLogger("tenure.coordinator")

PING_SECONDS = 1.0
"""Each wakes two threads, for as long as a process lives: seldom enough to be cheap."""
_ASKED_AGAIN_SECONDS = 0.25
"""While one stays unanswered."""
REPORTED_AFTER_SECONDS = 1.0
_PINGS_PER_LIMIT = 4


class LoopWatch:
    """Pings a loop from another one.

    `stalled(seconds)` is called again and again, at ever longer intervals, while a ping stays unanswered; `recovered()`
    whenever one is answered; `gone()` once when the loop is closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        stalled: Callable[[float], None],
        recovered: Callable[[], None],
        gone: Callable[[], None],
        limit: float | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._stalled = stalled
        self._recovered = recovered
        self._gone = gone
        self._limit = limit
        self._answered = True

    async def run(self) -> None:
        while True:
            sent = self._clock.read()
            self._answered = False
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                self._gone()
                return
            await self._await_answer(sent)

    async def _await_answer(self, sent: Reading) -> None:
        next_report = REPORTED_AFTER_SECONDS if self._limit is None else min(REPORTED_AFTER_SECONDS, self._limit)
        pause = PING_SECONDS if self._limit is None else min(PING_SECONDS, self._limit / _PINGS_PER_LIMIT)
        while True:
            await self._clock.sleep(pause)
            pause = min(pause, _ASKED_AGAIN_SECONDS)
            if self._answered or self._loop.is_closed():
                self._recovered()
                return
            seconds = self._clock.read().leader_elapsed(sent)
            if seconds >= next_report:
                next_report = _following(seconds, self._limit)
                self._stalled(seconds)

    def _answer(self) -> None:
        self._answered = True


def _following(seconds: float, limit: float | None) -> float:
    """Twice as long each time; but when the limit is reached, that is told in time."""
    later = seconds * 2
    return min(later, limit) if limit is not None and seconds < limit else later

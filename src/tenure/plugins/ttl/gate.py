"""At most so many per second."""

from __future__ import annotations

from tenure.clock import Clock


class Gate:
    def __init__(self, rate: float, clock: Clock) -> None:
        """`rate` 0: no limit."""
        self._rate = rate
        self._clock = clock
        self._since = clock.read()
        self._next = 0.0

    async def passed(self) -> None:
        """Wait for one's turn."""
        if not self._rate:
            return
        now = self._clock.read().follower_elapsed(self._since)
        turn = max(now, self._next)
        self._next = turn + 1 / self._rate
        if turn > now:
            await self._clock.sleep(turn - now)

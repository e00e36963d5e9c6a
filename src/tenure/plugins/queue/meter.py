"""How many requests looking for work costs while there is none: what `idle_budget` bounds."""

from __future__ import annotations

from collections import deque

from tenure.clock import Clock, Reading

WINDOW = 600.0
_SLOTS = 60


class IdleMeter:
    """Counts looks that found nothing, over about the last ten minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.read()
        self._slots: deque[tuple[Reading, int]] = deque()
        self.total = 0

    def looked(self) -> None:
        now = self._clock.read()
        self.total += 1
        if self._slots and now.follower_elapsed(self._slots[-1][0]) < WINDOW / _SLOTS:
            began, count = self._slots.pop()
            self._slots.append((began, count + 1))
        else:
            self._slots.append((now, 1))
        while now.follower_elapsed(self._slots[0][0]) >= WINDOW:
            self._slots.popleft()

    def per_hour(self) -> float:
        """Requests; before ten minutes have passed, as it has been so far."""
        now = self._clock.read()
        over = min(WINDOW, max(1.0, now.follower_elapsed(self._since)))
        count = sum(count for began, count in self._slots if now.follower_elapsed(began) < WINDOW)
        return count * 3600.0 / over

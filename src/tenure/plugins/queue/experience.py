"""How much a worker asks for: as much as it handles in a second, by its own experience. Pure but for the reading."""

from __future__ import annotations

from tenure.clock import Reading

MAX_CAPACITY = 10_000
HOLD_SECONDS = 1.0
"""A worker asks for as much as it has lately handled in this time."""
_MEASURED_OVER = 0.1


class Experience:
    def __init__(self, concurrency: int, visibility: float, now: Reading, first: int) -> None:
        self._concurrency = concurrency
        self._visibility = visibility
        self.capacity = first
        self._since = now
        self.handled = 0
        """Since it was looked at last."""

    def learn(self, now: Reading) -> int:
        """The capacity from now on; never suddenly more."""
        passed = now.leader_elapsed(self._since)
        if passed < _MEASURED_OVER or not self.handled:
            return self.capacity
        rate = self.handled / passed
        # What it holds must be begun long before its time is over, however slow the handler is.
        in_time = int(rate * self._visibility / 4)
        wanted = max(self._concurrency, min(max(2 * self._concurrency, int(rate * HOLD_SECONDS)), in_time))
        wanted = min(MAX_CAPACITY, max(self.capacity // 2, min(wanted, 4 * self.capacity)))
        if wanted <= self._concurrency or 4 * abs(wanted - self.capacity) > self.capacity:
            self.capacity = wanted  # each change is written down: small ones are not worth it
        self._since, self.handled = now, 0
        return self.capacity

"""A leadership that ends when the test says so."""

from __future__ import annotations

from tenure.clock import Clock
from tenure.errors import LeadershipLost


class ScriptedLease:
    """What features ask of a `Lead`. It lasts for ever, unless the test sets `left` or `valid`, or gives it a clock.

    With a `clock` it is valid for `left` seconds of it: whoever is paused may find that it has lapsed.
    """

    namespace = "default"

    def __init__(self, epoch: int = 1, *, left: float = 1e6, clock: Clock | None = None) -> None:
        self.epoch = epoch
        self.left = left
        self.valid = True
        self._clock = clock
        self._since = clock.read() if clock is not None else None

    def remaining(self) -> float:
        if not self.valid:
            return 0.0
        if self._clock is None or self._since is None:
            return max(0.0, self.left)
        return self.left - self._clock.read().leader_elapsed(self._since)

    def time_to_wind_up(self) -> float:
        return self.remaining()

    def is_current(self) -> bool:
        return self.remaining() > 0

    def holds(self) -> bool:
        return self.is_current()

    def ensure(self, seconds: float = 0.0) -> None:
        if self.remaining() <= seconds:
            raise LeadershipLost(f"epoch {self.epoch} is over")

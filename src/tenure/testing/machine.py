"""The clocks of one simulated machine, as functions of true time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.clock import Reading

if TYPE_CHECKING:
    from tenure.testing.world import World

EPOCH_SECONDS = 1_700_000_000
"""The date at true time 0, on a wall clock that is right."""

_NS = 1_000_000_000
_TIMER_SLACK = 5e-9  # readings are whole nanoseconds: who slept for x must not read x - 1 ns


class Machine:
    """The clocks of one machine, which outlive its processes. They are straight lines between changes."""

    def __init__(self, world: World, rate: float, slew: float, wall_offset: float, uptime: float) -> None:
        if rate <= 0 or rate + slew <= 0:
            raise ValueError(f"rate is {rate} and slew {slew}: a clock that does not move forward cannot be simulated")
        self.rate = rate
        self.slew = slew
        self.resumes_at = 0.0
        """True time at which the current or last suspend ends."""
        self._world = world
        # The lines: values at true time `_since`, and seconds per second of true time from then on.
        self._since = world.now
        self._raw = self._monotonic = uptime
        self._suspended = 0.0
        self._raw_rate, self._monotonic_rate, self._suspended_rate = rate, rate + slew, 0.0
        self._wall_offset_ns = round((EPOCH_SECONDS - uptime + world.now + wall_offset) * _NS)

    def monotonic(self) -> float:
        return self._monotonic + (self._world.now - self._since) * self._monotonic_rate

    def read(self) -> Reading:
        passed = self._world.now - self._since
        monotonic = self._monotonic + passed * self._monotonic_rate
        boottime_ns = int((monotonic + self._suspended + passed * self._suspended_rate) * _NS)
        return Reading(
            boottime_ns,
            int(monotonic * _NS),
            int((self._raw + passed * self._raw_rate) * _NS),
            boottime_ns + self._wall_offset_ns,
        )

    def true_time_of(self, monotonic: float) -> float:
        """When the monotonic clock will show this; now, if it shows more already."""
        now = self._world.now
        ahead = monotonic - self._monotonic - (now - self._since) * self._monotonic_rate
        start = max(now, self.resumes_at)
        return start + ahead / (self.rate + self.slew) + _TIMER_SLACK if ahead > 0 else now

    def step_wall(self, seconds: float) -> None:
        self._wall_offset_ns += round(seconds * _NS)

    def set_slew(self, fraction: float) -> None:
        if self.rate + fraction <= 0:
            raise ValueError(f"slew is {fraction} at rate {self.rate}: a clock that stands still cannot be simulated")
        self.slew = fraction
        self.set_suspended(self._world.now < self.resumes_at)

    def set_suspended(self, suspended: bool) -> None:
        """A bend in the lines."""
        passed = self._world.now - self._since
        self._since = self._world.now
        self._raw += passed * self._raw_rate
        self._monotonic += passed * self._monotonic_rate
        self._suspended += passed * self._suspended_rate
        self._raw_rate = 0.0 if suspended else self.rate
        self._monotonic_rate = 0.0 if suspended else self.rate + self.slew
        self._suspended_rate = self.rate if suspended else 0.0

"""A host's clocks under the control of a test: drift, slew, suspend, and a wall clock that jumps."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from tenure.clock import Reading
from tenure.errors import ConfigError
from tenure.store.given import check_number

_NS = 1_000_000_000
_FASTEST = 1000.0
_EPOCH_NS = 1_700_000_000 * _NS  # any moment will do; tests that print it should look like a date


class SimulatedClock:
    """Time passes only when `advance` or `suspend` is called.

    `rate` is this host's drift: 1.01 runs one percent fast. `slew` is what an NTP daemon adds to BOOTTIME, MONOTONIC
    and the wall clock, but not to MONOTONIC_RAW.
    """

    def __init__(self, *, rate: float = 1.0, slew: float = 0.0) -> None:
        check_number("rate", rate, least=-_FASTEST, most=_FASTEST)
        check_number("slew", slew, least=-_FASTEST, most=_FASTEST)
        if rate <= 0 or rate + slew <= 0:
            raise ConfigError(f"rate is {rate} and slew {slew}: a clock that does not move forward cannot be simulated")
        self.rate = rate
        self.slew = slew
        self._true_ns = 0
        self._monotonic_ns = 0.0
        self._raw_ns = 0.0
        self._suspended_ns = 0.0
        self._wall_offset_ns = _EPOCH_NS
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    @property
    def true_seconds(self) -> float:
        """True time since the start, which no host can see."""
        return self._true_ns / _NS

    def read(self) -> Reading:
        boottime = int(self._monotonic_ns + self._suspended_ns)
        return Reading(
            boottime_ns=boottime,
            monotonic_ns=int(self._monotonic_ns),
            raw_ns=int(self._raw_ns),
            wall_ns=boottime + self._wall_offset_ns,
        )

    def advance(self, seconds: float) -> None:
        """Let `seconds` of true time pass, waking sleepers in the order in which they are due."""
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}: true time does not go back; step_wall() moves the wall clock")
        end_ns = self._true_ns + round(seconds * _NS)
        while self._sleepers:
            due_ns = self._true_at(self._sleepers[0][0])
            if due_ns > end_ns:
                break
            self._pass(max(0, due_ns - self._true_ns))
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)
        self._pass(end_ns - self._true_ns)

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: BOOTTIME and the wall clock count it, the other two do not, and nobody wakes."""
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}: a suspend takes time")
        self._true_ns += round(seconds * _NS)
        self._suspended_ns += seconds * _NS * self.rate

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock, forward or back."""
        self._wall_offset_ns += round(seconds * _NS)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop takes no time
            return
        sleeper = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic_ns + seconds * _NS, next(self._order), sleeper))
        await sleeper

    def _pass(self, true_ns: int) -> None:
        self._true_ns += true_ns
        self._raw_ns += true_ns * self.rate
        self._monotonic_ns += true_ns * (self.rate + self.slew)

    def _true_at(self, monotonic_ns: float) -> int:
        ahead = (monotonic_ns - self._monotonic_ns) / (self.rate + self.slew)
        return self._true_ns + max(0, round(ahead))

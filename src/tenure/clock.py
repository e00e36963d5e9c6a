"""Elapsed time on this host, counted through suspend.

Guarantee: a leader that measures its lease with `Reading.leader_elapsed` never believes that less time has passed than
a follower, using `Reading.follower_elapsed`, believes has passed, beyond the drift that the protocol allows for.

Assumption: each hardware clock runs within `drift` (1 %) of true time.

Not guaranteed: a hypervisor that stops every clock of a guest, or a VM that was cloned or restored, is invisible from
inside. Fenced writes are for those.

Wall clocks of two hosts are never compared. This host's wall clock may only ever *shorten* a leadership
(`Reading.wall_ran_ahead`).
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import msgspec

_NS = 1_000_000_000

# Linux counts suspend in CLOCK_BOOTTIME alone. Darwin has no such clock; there both monotonic clocks count sleep, so
# BOOTTIME := MONOTONIC makes the suspended time (BOOTTIME - MONOTONIC) zero and the rules below still hold.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# MONOTONIC_RAW is not slewed by NTP; a kernel without it falls back to the slewed clock.
_RAW = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)


class Reading(msgspec.Struct, frozen=True):
    """One look at every clock of this host. Only the difference of two readings of one process means anything."""

    boottime_ns: int
    monotonic_ns: int
    raw_ns: int
    wall_ns: int

    def leader_elapsed(self, since: Reading) -> float:
        """Seconds since `since`, never too few: what a leader counts against its own lease.

        NTP may slew BOOTTIME by several percent, MONOTONIC_RAW stands still in suspend; the larger of the two
        estimates errs on the side of giving up leadership early.
        """
        return max(self._boottime_since(since), self._unslewed_since(since)) / _NS

    def follower_elapsed(self, since: Reading) -> float:
        """Seconds since `since`, never too many: what a follower counts against another's lease."""
        return min(self._boottime_since(since), self._unslewed_since(since)) / _NS

    def wall_ran_ahead(self, since: Reading) -> float:
        """Seconds by which the wall clock gained on BOOTTIME since `since`; negative if it fell back.

        A guest that was paused without noticing may find its wall clock corrected afterwards. A gain of over a second
        is taken as such a pause: it ends a leadership, and never extends one.
        """
        return ((self.wall_ns - since.wall_ns) - self._boottime_since(since)) / _NS

    def _boottime_since(self, since: Reading) -> int:
        return self.boottime_ns - since.boottime_ns

    def _unslewed_since(self, since: Reading) -> int:
        suspended = (self.boottime_ns - self.monotonic_ns) - (since.boottime_ns - since.monotonic_ns)
        return (self.raw_ns - since.raw_ns) + suspended


class Clock(Protocol):
    """Where every layer gets its time from."""

    def read(self) -> Reading:
        """Every clock of this host, now."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds` (zero or less: after one turn of the event loop)."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def read(self) -> Reading:
        return Reading(
            boottime_ns=time.clock_gettime_ns(_BOOTTIME),
            monotonic_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
            raw_ns=time.clock_gettime_ns(_RAW),
            wall_ns=time.time_ns(),
        )

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


SYSTEM_CLOCK = SystemClock()

"""A clock on which sleeping takes no real time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

from tenure.testing import SimulatedClock

Act = Callable[[], object]


class ScriptedClock(SimulatedClock):
    """Time passes when somebody sleeps, at once, or when the test calls `advance`.

    `acts` happen one at each sleep, after it; once there are none left, `on_sleep` happens at each. Both may be async.
    Use it for one task that sleeps; where several wait for each other, use `SimulatedClock` or a `World`.
    """

    def __init__(self, *acts: Act, rate: float = 1.0) -> None:
        super().__init__(rate=rate)
        self.slept: list[float] = []
        """What was asked for, sleep by sleep."""
        self.on_sleep: Act | None = None
        self.acts = list(acts)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)
        self.advance(max(0.0, seconds))
        act = self.acts.pop(0) if self.acts else self.on_sleep
        if act is not None and inspect.isawaitable(done := act()):
            await done

    async def now(self) -> float:
        """The wall clock, in seconds since 1970: for a store that is on the same machine."""
        return self.read().wall_ns / 1e9

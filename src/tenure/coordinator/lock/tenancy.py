"""A lock that is held, where it is kept: renewed in the background, given up at its deadline, released once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tenure.clock import Clock
from tenure.coordinator.lock.desk import LockDesk, Ours, Spoilt, Standing, Taken, Unsure
from tenure.coordinator.lock.held import Held
from tenure.coordinator.lock.rules import LockRules
from tenure.errors import StoreError

_log = logging.getLogger("tenure.lock")

_TOUCHES = 3
"""Times that a renewal is sent again at once because somebody else touched the record."""


class Tenancy:
    """All of it runs on the keeper's loop. `over` is called once, when nothing is left to be kept."""

    def __init__(
        self,
        desk: LockDesk,
        held: Held,
        rules: LockRules,
        clock: Clock,
        user_loop: asyncio.AbstractEventLoop,
        over: Callable[[Tenancy], None],
    ) -> None:
        self.held = held
        self.user_loop = user_loop
        self._desk = desk
        self._rules = rules
        self._clock = clock
        self._over = over
        self._writing = asyncio.Lock()  # one write at a time: each must know the version before it
        self._tasks: list[asyncio.Task[None]] = []
        self._releasing: asyncio.Task[bool] | None = None
        self.outcome: bool | None = None
        """What the release found: was it ours?"""

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._renew_for_ever()), loop.create_task(self._watch_deadline())]

    # Renewing

    async def _renew_for_ever(self) -> None:
        pause = self._until_renewal()
        while True:
            await self._clock.sleep(pause)
            standing = await self.renew()
            if isinstance(standing, Taken | Spoilt):
                self._lose("taken" if isinstance(standing, Taken) else standing.reason)
                return
            confirmed = isinstance(standing, Ours) and standing.sent is not None
            pause = self._until_renewal() if confirmed else self._rules.renew_retry

    def _until_renewal(self) -> float:
        return max(0.0, self._rules.renew_every - self._clock.read().leader_elapsed(self.held.holding.since))

    async def renew(self) -> Standing:
        """One renewal. A write of ours that is in force is counted from its own sending (E-1)."""
        async with self._writing:
            for _ in range(_TOUCHES):
                sent = self._clock.read()  # before sending
                self.held.sending(sent, self._rules.lasts)
                standing = await self._desk.renew(sent)
                if isinstance(standing, Ours) and standing.sent is not None:
                    self.held.confirmed(standing.sent, self._rules.lasts, self._rules.held_for)
                    return standing
                if not (isinstance(standing, Ours) and standing.moved and self.held.is_held()):
                    return standing
            return standing

    async def renew_now(self) -> None:
        """For a caller who wants to know. Raises `StoreError` if the store did not say."""
        if self._releasing is not None or not self.held.is_held():
            return  # the caller finds that it is not held
        standing = await self.renew()
        if isinstance(standing, Taken | Spoilt):
            self._lose("taken" if isinstance(standing, Taken) else standing.reason)
        elif isinstance(standing, Unsure):
            raise standing.error
        elif standing.sent is None:
            raise StoreError(f"lock {self.held.name!r}: the renewal was turned down, and the lock is still ours")

    # Losing

    async def _watch_deadline(self) -> None:
        while (left := self.held.remaining()) > 0:
            await self._clock.sleep(min(left, self._rules.nap))
        self._lose("deadline")

    def _lose(self, reason: str) -> None:
        if self._releasing is not None or self.held.ended == "released":
            return  # or its user has just begun to release it, on a thread of its own
        self.held.end(reason)
        _log.warning("lock %r, token %d, was lost (%s)", self.held.name, self.held.token, self.held.ended)
        self._stop()
        self.held.lost()
        self._over(self)

    async def close(self) -> None:
        """Nobody will keep it any more. A body that runs under it is cancelled, and has the rest of the ttl to end in;
        then, or if there is none, it is released."""
        if self._releasing is None and self.held.has_body and self.user_loop.is_running():
            self._lose("closed")
            while self._releasing is None and self.held.time_to_wind_up() > 0:
                await self._clock.sleep(self._rules.nap / 2)
        await asyncio.wait([self.release()])

    def _stop(self) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        self._tasks = []

    # Releasing

    def release(self) -> asyncio.Task[bool]:
        """Begin to give it back, whoever asked; the same task for all who ask."""
        if self._releasing is None:
            self._releasing = asyncio.get_running_loop().create_task(self._release())
        return self._releasing

    async def _release(self) -> bool:
        was_valid = self.held.time_to_wind_up() > 0
        self.held.end("released")
        self._stop()
        try:
            async with self._writing:
                # Nothing of ours is on its way to begin with, but for a renewal that was cut short: the release has
                # the same condition, so that one of them lands.
                self.held.sending(self._clock.read(), 0.0)
                given = await self._desk.release()
        finally:
            self._over(self)
        if given is None:
            _log.warning("lock %r, token %d: the release got no answer; it lapses", self.held.name, self.held.token)
            given = was_valid
        self.outcome = given
        return given

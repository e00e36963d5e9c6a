"""A lock that this process holds, as one object: token and validity are read from the same place."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol

from tenure.clock import Clock, Reading
from tenure.coordinator.given import check_asked
from tenure.election.holding import Holding
from tenure.errors import ForkedProcess, LockLost


class Tenant(Protocol):
    """What keeps a lock, elsewhere."""

    async def renew_now(self) -> None: ...

    async def give_back(self) -> bool: ...


class Held:
    """One grant of a lock. It ends once, for good, by itself when its deadline passes, and never begins again.

    `token` is higher than that of every holder before: give it to whatever you write to, and have that refuse a lower
    one. It is true while it is held: `if held:` asks `is_held()`. This is a local comparison with this host's clock: no
    request, no loop that must have run. It may be called from any thread, and from a signal handler.
    """

    def __init__(self, *, name: str, owner: str, token: int, holding: Holding, clock: Clock) -> None:
        self.name = name
        self.owner = owner
        self.token = token
        self._clock = clock
        self._holding = holding
        # A signal handler may ask whether the lock is held while the code that it interrupted is inside.
        self._lock = threading.RLock()
        self._ended: str | None = None
        self._pid = os.getpid()
        self._tenant: Tenant | None = None
        self._on_loss: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Held {self.name!r}, token {self.token}, {self._ended or 'held'}>"

    # What its holder asks

    def __bool__(self) -> bool:
        return self.is_held()

    def is_held(self) -> bool:
        """Is it held by us, now? Once false, never true again; always false in a forked child."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """Seconds for which it is held even if no renewal gets through any more; 0.0: it is over."""
        if os.getpid() != self._pid:
            return 0.0
        with self._lock:
            if self._ended is not None:
                return 0.0
            left = self._holding.leading(self._clock.read())
            if left <= 0:
                # Latched here and now: whoever was told once that it is over is never told otherwise.
                self._ended = "deadline"
                return 0.0
            return left

    def ensure(self, seconds: float = 0.0) -> None:
        """Go on only if it is certain to be held for `seconds` more; raises `LockLost` otherwise."""
        seconds = check_asked("seconds", seconds)
        left = self.remaining()
        if left <= 0:
            raise LockLost(f"lock {self.name!r}, token {self.token}, is not held any more ({self.ended or 'forked'})")
        if left < seconds:
            raise LockLost(
                f"lock {self.name!r}, token {self.token}, is certain for {left:.1f} s more, and {seconds:g} s were "
                "asked for: do less at a time, or set a longer ttl"
            )

    @property
    def ended(self) -> str | None:
        """Why it is over; `None` while it is not."""
        return self._ended

    def time_to_wind_up(self) -> float:
        """Seconds until somebody else may hold it, if no renewal gets through any more."""
        if os.getpid() != self._pid:
            return 0.0
        with self._lock:
            return max(0.0, self._holding.remaining(self._clock.read()))

    async def renew(self) -> float:
        """Renew it now, beside the renewals that come by themselves; gives `remaining()`.

        Raises `LockLost` if it is not held any more, and `StoreError` if the store did not say.
        """
        await self._tenancy().renew_now()
        self.ensure()
        return self.remaining()

    async def release(self) -> bool:
        """Give it back. True: it was ours until now. False: it had been lost, and another may have held it meanwhile.

        `is_held()` is false from the call on. If the store cannot be reached, the lock lapses when its ttl is over.
        """
        return await self._tenancy().give_back()

    def _tenancy(self) -> Tenant:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"lock {self.name!r} does not pass to a forked child: open a Database in the child, after the fork"
            )
        assert self._tenant is not None
        return self._tenant

    # What the keeper tells it

    def sending(self, now: Reading, lasts: float) -> None:
        """A write of the record is about to be sent: E-1."""
        with self._lock:
            # A release ends it for good. By its own rule `Holding` would stay as it is while a wall clock that ran
            # ahead makes it look over, and come back with a wall clock that is put back.
            self._holding = self._holding.sending(now, lasts) if lasts > 0 else Holding(now, 0.0, 0.0)

    def confirmed(self, sent: Reading, lasts: float, held_for: float) -> bool:
        """A renewal was confirmed. False: it came too late, and this grant is over."""
        with self._lock:
            if self._ended is None and self._holding.leading(self._clock.read()) <= 0:
                self._ended = "deadline"
            self._holding = self._holding.confirmed(sent, lasts, held_for)
            return self._ended is None

    def end(self, reason: str) -> None:
        with self._lock:
            self._ended = self._ended or reason

    def lost(self) -> None:
        """Tell whoever runs under it. Each is told once."""
        with self._lock:
            callbacks, self._on_loss = self._on_loss, []
        for callback in callbacks:
            callback()

    @property
    def has_body(self) -> bool:
        """Does something run under it that must end first?"""
        return bool(self._on_loss)

    def on_loss(self, callback: Callable[[], None]) -> None:
        """Call `callback`, from whatever thread notices, when it is lost (not when it is released)."""
        with self._lock:  # a loss that another thread finds meanwhile comes before or after, and is told either way
            self._on_loss.append(callback)
            is_lost = self._ended not in (None, "released")
        if is_lost:
            self.lost()

    @property
    def holding(self) -> Holding:
        return self._holding

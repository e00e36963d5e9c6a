"""One term of leadership, as one object: whoever holds it reads leadership and epoch from the same place."""

from __future__ import annotations

import asyncio
import os
import threading
from types import TracebackType
from typing import Protocol

from tenure.clock import Clock, Reading
from tenure.coordinator.fenced import Fence, FencedValue, FencedWriter, read
from tenure.coordinator.given import check_asked
from tenure.election.holding import Holding
from tenure.entropy import NewId
from tenure.errors import ConfigError, CoordinationError, ForkedProcess, LeadershipLost
from tenure.store import Store


class BodyScope(Protocol):
    def enter(self) -> None: ...

    def leave_body(self, kind: type[BaseException] | None) -> bool: ...


class Lead:
    """A term. It ends once, for good, by itself when its deadline passes, and never begins again.

    It is true while it is current: `if lead:` asks `is_current()`. This is a local comparison with this host's clock:
    no request, no loop that must have run. It may be called from any thread, and from a signal handler.
    """

    def __init__(
        self,
        *,
        namespace: str,
        worker_id: str,
        epoch: int,
        grant_id: str,
        holding: Holding,
        clock: Clock,
        store: Store,
        draw_id: NewId,
    ) -> None:
        self.namespace = namespace
        self.worker_id = worker_id
        self.epoch = epoch
        self.grant_id = grant_id
        self._clock = clock
        self._store = store
        self._holding = holding
        # A signal handler may ask whether we lead while the code that it interrupted does.
        self._lock = threading.RLock()
        self._ended: str | None = None
        self._pid = os.getpid()
        self.scopes: dict[object, BodyScope] = {}
        """By task: what ends the body of `async with lead:`, in a loop over `terms()`."""
        self._writer = FencedWriter(store, Fence(namespace, epoch), draw_id, self.ensure)

    def __repr__(self) -> str:
        return f"<Lead of {self.namespace!r}, epoch {self.epoch}, {self._ended or 'current'}>"

    async def __aenter__(self) -> Lead:
        """Run a body that is cancelled, quietly, when this term ends. For `async for lead in coordinator.terms()`."""
        scope = self.scopes.get(asyncio.current_task())
        if scope is None:
            raise CoordinationError("`async with lead` is for a lead from terms(); leadership() is a scope of its own")
        scope.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self.scopes[asyncio.current_task()].leave_body(kind)

    # What its holder asks

    def __bool__(self) -> bool:
        return self.is_current()

    def is_current(self) -> bool:
        """Does this process lead, now?"""
        return self.remaining() > 0

    def remaining(self) -> float:
        """Seconds for which it leads even if no renewal gets through any more; 0.0: it is over."""
        if os.getpid() != self._pid:
            return 0.0  # a forked child never leads, from its first instruction on
        with self._lock:
            if self._ended is not None:
                return 0.0
            left = self._holding.leading(self._clock.read())
            if left <= 0:
                # Latched here and now: whoever was told once that it is over is never told otherwise.
                self._ended = "renew-deadline"
                return 0.0
            return left

    def ensure(self, seconds: float = 0.0) -> None:
        """Go on only if leadership is certain for `seconds` more; raises `LeadershipLost` otherwise."""
        seconds = check_asked("seconds", seconds)
        left = self.remaining()
        if left <= 0:
            raise LeadershipLost(f"epoch {self.epoch} of {self.namespace!r} is over ({self.ended or 'lost'})")
        if left < seconds:
            raise LeadershipLost(
                f"epoch {self.epoch} of {self.namespace!r} is certain for {left:.1f} s more, and {seconds:g} s were "
                "asked for: do less at a time, or set a longer lease"
            )

    @property
    def ended(self) -> str | None:
        """Why it is over; `None` while it is not."""
        return self._ended

    def holds(self) -> bool:
        """Is the lease still valid? True for some time after `is_current()` turned false, so that work can end before
        anybody else leads."""
        if os.getpid() != self._pid:
            return False
        return self._holding.remaining(self._clock.read()) > 0

    def time_to_wind_up(self) -> float:
        """Seconds until somebody else may lead, if no renewal gets through any more; 0.0 in a forked child."""
        if os.getpid() != self._pid:
            return 0.0
        return max(0.0, self._holding.remaining(self._clock.read()))

    # Fenced writes

    async def put(self, key: str, body: bytes) -> None:
        """Write `body` under `key`, unless a newer epoch has written or claimed it: then `Fenced`.

        Raises `LeadershipLost` before anything is sent if this term is over, `WriteUnknown` if the store did not say
        what became of the write.
        """
        self._check_process()
        if not isinstance(body, bytes):
            raise ConfigError(f"body is a {type(body).__name__}: give bytes, for example text.encode()")
        await self._writer.put(key, body)

    async def claim(self, key: str) -> bytes | None:
        """Take `key` over with its value unchanged, and return the value. Do this before you rely on what you read."""
        self._check_process()
        return await self._writer.claim(key)

    async def delete(self, key: str) -> None:
        """Remove the value. The fence stays, so that an older epoch cannot write it again."""
        self._check_process()
        await self._writer.delete(key)

    async def get(self, key: str) -> FencedValue | None:
        """What lies under a fenced key, whoever wrote it."""
        self._check_process()
        return await read(self._store, key)

    # What the coordinator tells it

    def sending(self, now: Reading, lasts: float) -> None:
        """A write of the lease is about to be sent: E-1."""
        with self._lock:
            self._holding = self._holding.sending(now, lasts)

    def confirmed(self, sent: Reading, lasts: float, leads_for: float) -> bool:
        """A renewal was confirmed. False: it came too late, and the term is over."""
        with self._lock:
            if self._ended is None and self._holding.leading(self._clock.read()) <= 0:
                self._ended = "renew-deadline"
            # A term that is being wound up still keeps its lease.
            self._holding = self._holding.confirmed(sent, lasts, leads_for)
            return self._ended is None

    def end(self, reason: str) -> None:
        with self._lock:
            self._ended = self._ended or reason

    @property
    def holding(self) -> Holding:
        return self._holding

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                "a leadership does not pass to a forked child: open a Database in the child, after the fork"
            )

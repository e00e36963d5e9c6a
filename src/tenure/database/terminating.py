"""A program that ends when it is told to, and gives back what it holds: SIGTERM and SIGINT end a block."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol

from tenure.clock import Clock, Reading
from tenure.errors import ConfigError

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_TWICE_SECONDS = 1.0
"""A second signal within so short a time is the same wish: GNU `timeout` sends two."""


class Closable(Protocol):
    """What `until_terminated` is given: `tenure.Database`."""

    clock: Clock

    async def connect(self) -> object: ...
    async def disconnect(self) -> None: ...


class Signalled:
    """Handlers for SIGTERM and SIGINT, for as long as a block runs. The second signal ends the process at once."""

    def __init__(self, clock: Clock, on_signal: Callable[[], None], what: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError(f"{what} was called on another thread: Python gives signals to the main thread only")
        self.signal: signal.Signals | None = None
        """Which one ended the block; None: none yet."""
        self._clock = clock
        self._on_signal = on_signal
        self._at: Reading | None = None
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        for number, handler in self._before.items():
            # None: it was not set by Python, and cannot be set again by it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = self._clock.read()
        if self._at is None:
            self._at, self.signal = now, signal.Signals(number)
            self._on_signal()
        elif now.leader_elapsed(self._at) > _TWICE_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class until_terminated:  # noqa: N801 - used like a function
    """Run the body until it ends, or SIGTERM or SIGINT comes; then give everything back that the database holds.

        db = tenure.Database("s3://bucket/app")
        async with tenure.until_terminated(db) as ended:
            await work(db)
        print("ended by", ended.signal)     # None: the body ended by itself

    The database is connected if it is not yet, and disconnected at the end: leases and locks are released, and another
    process takes over at once. A signal cancels the body, and the block ends without an exception, so that the program
    goes on behind it, and exits with the code that it gives. What the body raises itself is raised. A second signal,
    over a second later, ends the process at once, and the lease lapses.

    For the main thread. Handlers that were set before are set again at the end.
    """

    def __init__(self, database: Closable) -> None:
        # Also of the blocking API: its database has no disconnect().
        if not callable(getattr(database, "disconnect", None)):
            raise ConfigError(
                f"database is {type(database).__name__}: give a tenure.Database; for one of tenure.blocking there is "
                "tenure.blocking.until_terminated"
            )
        self._database = database
        self._is_over = self._was_cancelled = False

    async def __aenter__(self) -> Signalled:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            if not self._is_over:
                self._was_cancelled = True
                task.cancel()

        self._task, self._cancelling = task, task.cancelling()
        self._is_over = self._was_cancelled = False

        def wake() -> None:
            loop.call_soon_threadsafe(cancel)

        self._signalled = Signalled(self._database.clock, wake, "until_terminated()")
        await self._database.connect()  # until then there is nothing to give back
        self._signalled.install()
        return self._signalled

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._is_over = True
        try:
            ours = self._was_cancelled and self._task.uncancel() <= self._cancelling
            await self._database.disconnect()
        finally:
            self._signalled.restore()
        return ours and isinstance(error, asyncio.CancelledError)


__all__ = ["Signalled", "until_terminated"]

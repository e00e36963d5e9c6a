"""A lock as a scope: its body runs only while the lock is held, and is cancelled when that cannot be trusted."""

from __future__ import annotations

import asyncio

from tenure.coordinator.lock.held import Held


class LockScope:
    """The body of one `async with lock:`, in the task that entered it."""

    def __init__(self, held: Held) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.held = held
        self.task = task
        self._body: asyncio.Task[object] | None = task
        self._loop = asyncio.get_running_loop()
        self._cancelling = task.cancelling()
        self._cancelled = False
        held.on_loss(self._lost)

    def leave(self, kind: type[BaseException] | None) -> bool:
        """The body has ended. True: it was cancelled by us, and by nobody else.

        Another task than the one that entered may say so; what cancelled that one does not concern us.
        """
        task, self._body = self._body, None
        if task is None or not self._cancelled:
            return False
        alone = task.uncancel() <= self._cancelling and task is asyncio.current_task()
        return alone and kind is not None and issubclass(kind, asyncio.CancelledError)

    def _lost(self) -> None:
        """From whatever thread. Never at once: a task that cancels itself and then does not wait is left with a
        cancellation too many."""
        try:
            self._loop.call_soon_threadsafe(self._cancel_body)
        except RuntimeError:
            pass  # its loop is closed, and with it the body has ended

    def _cancel_body(self) -> None:
        if not self._cancelled and self._body is not None:
            self._cancelled = True
            self._body.cancel()

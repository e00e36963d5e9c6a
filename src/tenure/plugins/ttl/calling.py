"""What a callback is called with, and how."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from tenure.coordinator.apart import apart
from tenure.errors import TenureError
from tenure.plugins.failure import text_of
from tenure.plugins.queue.calling import is_async
from tenure.plugins.threads import in_thread

_log = logging.getLogger("tenure.ttl")

MAX_ERROR_CHARACTERS = 1000
MAX_LEFT_BEHIND = 1000
"""Threads of callbacks that have not ended; beyond that none is called until one of them has."""
_ANY = 10**9


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """A record that has expired and is deleted. The same one may be given again: after a crash, or after a failure."""

    resource: str
    id: str
    data: dict[str, Any]
    version: int
    expired_at: datetime
    """On the store's clock."""
    created_at: str
    """By the clock of whoever wrote it."""
    token: int
    """Of this call: it only rises. Whoever remembers the highest that it has seen can refuse an older one."""
    attempt: int
    """Which call of this record it is, the first being 1."""


Callback = Callable[[Expired], Awaitable[object] | object]


class NotCalled(TenureError):
    """There was no thread for it: that is no attempt, and it is called later."""


class Caller:
    """Calls a function: a coroutine function here, a plain one in a thread of its own, which nothing can end.

    A plain one that takes too long is left behind, and its place is another's: one that hangs keeps nobody else from
    being called.
    """

    def __init__(self, callback: Callback, *, timeout: float, threads: int) -> None:
        """`threads`: so many plain calls at a time, beside those that were left behind."""
        self._callback = callback
        self._timeout = timeout
        self._is_async = is_async(callback)
        self._places = asyncio.Semaphore(threads)
        self._unended = 0
        """Threads."""

    @property
    def room(self) -> int:
        """How many more may be called, though none of them should ever return."""
        return _ANY if self._is_async else max(0, MAX_LEFT_BEHIND - self._unended)

    async def call(self, expired: Expired) -> str | None:
        """`None`: it returned. Otherwise what went wrong. Raises `NotCalled`."""
        if self._is_async:
            return await self._outcome(self._call(expired))
        async with self._places:  # before its time begins: who waits for a thread has not been called
            return await self._outcome(self._call_in_thread(expired))

    async def _outcome(self, work: Awaitable[None]) -> str | None:
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            async with asyncio.timeout(self._timeout):
                await apart(work)
        except TimeoutError:
            return f"it took longer than {self._timeout:g} s, or raised a TimeoutError"
        except NotCalled:
            raise
        except asyncio.CancelledError as error:
            if task.cancelling() > before:
                raise
            return text_of(error, MAX_ERROR_CHARACTERS)  # it waited for something that was cancelled
        except (Exception, SystemExit) as error:  # one who calls sys.exit() has failed, and ends nothing else
            return text_of(error, MAX_ERROR_CHARACTERS)
        return None

    async def _call(self, expired: Expired) -> None:
        result = self._callback(expired)
        if inspect.isawaitable(result):
            await result

    async def _call_in_thread(self, expired: Expired) -> None:
        if not self.room:
            raise NotCalled(f"{self._unended:,} threads of earlier calls have not ended")
        has_ended = False

        def end() -> None:
            nonlocal has_ended
            has_ended = True
            self._unended -= 1

        try:
            returned = in_thread(functools.partial(self._callback, expired), name="ttl", on_end=end)
        except RuntimeError as error:
            raise NotCalled(str(error)) from error
        self._unended += 1
        try:
            result, raised = await returned
        finally:
            if not has_ended:
                _log.warning(
                    "the callback for record %r of %r has not ended, and is left behind in its thread (%s there)",
                    expired.id,
                    expired.resource,
                    f"{self._unended:,}",
                )
        if isinstance(raised, Exception | SystemExit):
            raise raised
        if raised is not None:
            raise RuntimeError(f"it raised {type(raised).__name__}") from raised
        if inspect.isawaitable(result):
            await result

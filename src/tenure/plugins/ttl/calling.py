"""What a callback is called with, and how."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import msgspec

from tenure.plugins.failure import text_of
from tenure.plugins.queue.calling import called, is_async

MAX_ERROR_CHARACTERS = 1000


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


class Caller:
    """Calls a function: a coroutine function here, a plain one in a thread."""

    def __init__(self, callback: Callback, *, timeout: float, threads: int) -> None:
        self._callback = callback
        self._timeout = timeout
        self._is_async = is_async(callback)
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None

    async def call(self, expired: Expired) -> str | None:
        """`None`: it returned. Otherwise what went wrong."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._call(expired)
        except TimeoutError:
            return f"it took longer than {self._timeout:g} s, or raised a TimeoutError"
        except (Exception, SystemExit) as error:  # one who calls sys.exit() has failed, and ends nothing else
            return text_of(error, MAX_ERROR_CHARACTERS)
        return None

    async def _call(self, expired: Expired) -> None:
        if self._is_async:
            result = self._callback(expired)
        else:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="ttl")
            call = functools.partial(called, self._callback, expired)
            result = await asyncio.get_running_loop().run_in_executor(self._executor, call)
        if inspect.isawaitable(result):
            await result

    def close(self) -> None:
        """Let go of the threads. What runs in one cannot be ended."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

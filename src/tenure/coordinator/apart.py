"""Users' code in a task of its own.

Timeouts of some libraries cancel the task that they are in, and never take that back: it would look as if whoever
called them had been told to end.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def apart(work: Awaitable[T], *, among: set[asyncio.Task[Any] | None] | None = None) -> T:
    """Wait for it. A cancellation of whoever waits is passed on to it, and none of its own is left with them.

    `among`: its task is one of these, for as long as it runs.
    """

    async def run() -> tuple[T] | BaseException:
        try:
            return (await work,)
        except (KeyboardInterrupt, SystemExit) as error:
            return error  # a task that ends by one of these stops its loop: that is for whoever waits

    task = asyncio.get_running_loop().create_task(run())
    if among is not None:
        among.add(task)
        task.add_done_callback(among.discard)
    try:
        ended = await task
    finally:
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()  # cancelled before it began
    if isinstance(ended, BaseException):
        raise ended
    return ended[0]

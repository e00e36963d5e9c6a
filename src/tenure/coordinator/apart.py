"""Users' code in a task of its own.

Timeouts of some libraries cancel the task that they are in, and never take that back: it would look as if whoever
called them had been told to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def apart(work: Awaitable[T]) -> T:
    """Wait for it. A cancellation of whoever waits is passed on to it, and none of its own comes back."""

    async def run() -> tuple[T] | BaseException:
        try:
            return (await work,)
        except (KeyboardInterrupt, SystemExit) as error:
            return error  # a task that ends by one of these stops its loop: that is for whoever waits

    ended = await asyncio.get_running_loop().create_task(run())
    if isinstance(ended, BaseException):
        raise ended
    return ended[0]

"""Many things, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def at_once(limit: int, work: Callable[[T], Awaitable[None]], over: Sequence[T]) -> None:
    """Up to `limit` of them at a time. The first error ends it, once all that was begun has ended."""
    pieces = iter(over)

    async def take() -> None:
        for piece in pieces:
            await work(piece)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(over), limit)):
                group.create_task(take())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None

"""Several requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def all_of(requests: Iterable[Awaitable[T]]) -> list[T]:
    """All results, in order; the first error, once all have ended: none of them goes on alone, or fails unheard."""
    results = await asyncio.gather(*requests, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]

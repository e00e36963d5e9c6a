"""A store whose listings end after so many rows: an inbox that nobody reads may hold millions of objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from tenure.store import Entry, Store
from tenure.store.readonly import ReadOnly


class Capped(ReadOnly):
    def __init__(self, inner: Store, most: int) -> None:
        super().__init__(inner)
        self._most = most

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        if self._most <= 0:
            return
        rows = 0
        async with aclosing(cast("AsyncGenerator[Entry, None]", super().list(prefix, after=after))) as entries:
            async for entry in entries:
                yield entry
                rows += 1
                if rows >= self._most:
                    return

"""A store whose every request ends within a given time, whatever the store behind it allows itself.

A lease of three seconds cannot wait five for an answer. What is cut short may still happen: it is `Unknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from tenure.errors import StoreUnavailable
from tenure.store.outcome import Entry, NotModified, Outcome, Stored, Unknown, Version
from tenure.store.protocol import Store, StoreInfo

_PAGE = 1000
"""As many rows as one request lists: what is held of a listing at any time, however long it is."""


class TimeLimited:
    """`list` is limited as a whole, to `list_seconds` of waiting for the store: the reader may take its time."""

    def __init__(self, inner: Store, seconds: float, list_seconds: float | None = None) -> None:
        self._inner = inner
        self._seconds = seconds
        self._list_seconds = list_seconds if list_seconds is not None else seconds

    @property
    def info(self) -> StoreInfo:
        return self._inner.info

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.get(key, unless=unless)
        except TimeoutError:
            raise self._late(f"get {key!r}") from None

    async def put(self, key: str, body: bytes) -> Version:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.put(key, body)
        except TimeoutError:
            raise self._late(f"put {key!r}") from None

    async def create(self, key: str, body: bytes) -> Outcome:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.create(key, body)
        except TimeoutError:
            return Unknown(self._late(f"create {key!r}"))

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.replace(key, body, expected)
        except TimeoutError:
            return Unknown(self._late(f"replace {key!r}"))

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        # Page by page, since there may be millions. Not a generator around the loop: `asyncio.timeout` may not be left
        # and entered by two tasks, so that it is left before each row is handed on.
        loop = asyncio.get_running_loop()
        left = self._list_seconds
        async with aclosing(cast("AsyncGenerator[Entry, None]", self._inner.list(prefix, after=after))) as rows:
            page: list[Entry] = []
            while True:
                page.clear()
                since = loop.time()
                try:
                    async with asyncio.timeout(left):
                        async for entry in rows:
                            page.append(entry)
                            if len(page) >= _PAGE:
                                break
                except TimeoutError:
                    raise self._late(f"list {prefix!r}", self._list_seconds) from None
                left -= loop.time() - since
                for entry in page:
                    yield entry
                if len(page) < _PAGE:
                    return

    async def delete(self, *keys: str) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._inner.delete(*keys)
        except TimeoutError:
            raise self._late(f"delete of {len(keys)} keys") from None

    async def discard(self, key: str, expected: Version) -> Outcome:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.discard(key, expected)
        except TimeoutError:
            return Unknown(self._late(f"discard {key!r}"))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _late(self, what: str, seconds: float | None = None) -> StoreUnavailable:
        return StoreUnavailable(f"{what}: no answer within {seconds or self._seconds:g} s")

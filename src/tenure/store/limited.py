"""A store whose every request ends within a given time, whatever the store behind it allows itself.

A lease of three seconds cannot wait five for an answer. What is cut short may still happen: it is `Unknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tenure.errors import StoreUnavailable
from tenure.store.outcome import Entry, NotModified, Outcome, Stored, Unknown, Version
from tenure.store.protocol import Store, StoreInfo


class TimeLimited:
    """`list` is limited as a whole, to `list_seconds`."""

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
        # Not a generator around the loop: `asyncio.timeout` may not be left and entered by two tasks.
        try:
            async with asyncio.timeout(self._list_seconds):
                found = [entry async for entry in self._inner.list(prefix, after=after)]
        except TimeoutError:
            raise self._late(f"list {prefix!r}", self._list_seconds) from None
        for entry in found:
            yield entry

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

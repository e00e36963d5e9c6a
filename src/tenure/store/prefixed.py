"""A folder of a store as a store of its own: nothing outside the folder can be seen or touched through it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from tenure.errors import NotFound
from tenure.store.keys import check_after, check_key, check_prefix
from tenure.store.outcome import Entry, NotModified, Outcome, Stored, Version
from tenure.store.protocol import Store, StoreInfo


class Prefixed:
    def __init__(self, inner: Store, prefix: str) -> None:
        self.inner = inner
        self.prefix = self._prefix = check_prefix(prefix)

    @property
    def info(self) -> StoreInfo:
        return self.inner.info

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        try:
            return await self.inner.get(self._full(key), unless=unless)
        except NotFound:
            raise NotFound(key) from None

    async def put(self, key: str, body: bytes) -> Version:
        return await self.inner.put(self._full(key), body)

    async def create(self, key: str, body: bytes) -> Outcome:
        return await self.inner.create(self._full(key), body)

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        return await self.inner.replace(self._full(key), body, expected)

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        check_after(after)
        full_after = None if after is None else self._prefix + after
        async for entry in self.inner.list(self._prefix + check_prefix(prefix), after=full_after):
            yield msgspec.structs.replace(entry, key=entry.key.removeprefix(self._prefix))

    async def delete(self, *keys: str) -> None:
        await self.inner.delete(*map(self._full, keys))

    async def discard(self, key: str, expected: Version) -> Outcome:
        return await self.inner.discard(self._full(key), expected)

    async def aclose(self) -> None:
        await self.inner.aclose()

    def _full(self, key: str) -> str:
        return self._prefix + check_key(key)

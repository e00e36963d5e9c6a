"""A store through which nothing can be changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NoReturn

from tenure.errors import ReadOnlyStore
from tenure.store.outcome import Entry, NotModified, Outcome, Stored, Version
from tenure.store.protocol import Store, StoreInfo


class ReadOnly:
    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def info(self) -> StoreInfo:
        return self._inner.info

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        return await self._inner.get(key, unless=unless)

    def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        return self._inner.list(prefix, after=after)

    async def put(self, key: str, body: bytes) -> Version:
        self._refuse(f"put {key!r}")

    async def create(self, key: str, body: bytes) -> Outcome:
        self._refuse(f"create {key!r}")

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        self._refuse(f"replace {key!r}")

    async def delete(self, *keys: str) -> None:
        self._refuse(f"delete {len(keys)} keys")

    async def discard(self, key: str, expected: Version) -> Outcome:
        self._refuse(f"discard {key!r}")

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _refuse(self, what: str) -> NoReturn:
        raise ReadOnlyStore(f"{what}: {self._inner.info.url} was opened with Access.READ_ONLY")

"""Counts what goes through a store: requests by verb and outcome, bytes, and USD at public prices.

Counted is what we send. A client that retries reads on its own may send more; a listing is counted by its pages.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.errors import NotFound, StoreError
from tenure.store.given import check_instance
from tenure.store.outcome import Entry, NotModified, Outcome, Stored, Version, name_of
from tenure.store.protocol import Store, StoreInfo
from tenure.store.providers import DELETES_PER_REQUEST, FREE, KEYS_PER_LISTING, PRICES, Prices


class Usage(msgspec.Struct, frozen=True):
    """What had gone through the store when `Metered.usage()` was called."""

    requests: Mapping[str, Mapping[str, int]]
    """By verb (get, put, create, replace, list, delete, discard), then by outcome (ok, applied, rejected, …)."""
    bytes_sent: int
    bytes_received: int
    usd: float
    seconds: float = 0.0
    """Since the meter was made."""

    @property
    def total(self) -> int:
        return sum(sum(outcomes.values()) for outcomes in self.requests.values())


class Metered:
    """Counts on any thread: a coordinator uses the store on one of its own. `usage` may be asked on any other."""

    def __init__(self, inner: Store, prices: Prices | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        if prices is not None:
            check_instance("prices", prices, Prices)
        self._inner = inner
        self._clock = clock
        self._began = clock.read()
        self._lock = threading.Lock()
        provider = inner.info.provider
        self._prices = prices if prices is not None else PRICES.get(provider, FREE)
        self._keys_per_listing = KEYS_PER_LISTING.get(provider, 1000)
        self._deletes_per_request = DELETES_PER_REQUEST.get(provider, 1)
        self._requests: Counter[tuple[str, str]] = Counter()
        self._bytes_sent = 0
        self._bytes_received = 0

    @property
    def info(self) -> StoreInfo:
        return self._inner.info

    def wrap(self, around: Callable[[Store], Store]) -> None:
        """From the next request on, have everything that is counted here go through `around(store)`."""
        self._inner = around(self._inner)

    def usage(self) -> Usage:
        """A snapshot of the counts since this meter was made."""
        with self._lock:
            counts = sorted(self._requests.items())
            sent, received = self._bytes_sent, self._bytes_received
        requests: dict[str, dict[str, int]] = {}
        for (verb, outcome), count in counts:
            requests.setdefault(verb, {})[outcome] = count
        usd = sum(self._prices.of(verb) * count for (verb, _), count in counts)
        return Usage(requests, sent, received, usd, self._clock.read().leader_elapsed(self._began))

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        try:
            found = await self._inner.get(key, unless=unless)
        except NotFound:
            self._count("get", "missing")
            raise
        except StoreError:
            self._count("get", "error")
            raise
        if isinstance(found, Stored):
            self._count("get", "ok", received=len(found.body))
        else:
            self._count("get", "not-modified")
        return found

    async def put(self, key: str, body: bytes) -> Version:
        try:
            version = await self._inner.put(key, body)
        except StoreError:
            self._count("put", "error", sent=len(body))
            raise
        self._count("put", "ok", sent=len(body))
        return version

    async def create(self, key: str, body: bytes) -> Outcome:
        return self._conditional("create", body, await self._inner.create(key, body))

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        return self._conditional("replace", body, await self._inner.replace(key, body, expected))

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        keys = 0
        try:
            async for entry in self._inner.list(prefix, after=after):
                if keys % self._keys_per_listing == 0:
                    self._count("list", "ok")
                keys += 1
                yield entry
        except StoreError:
            self._count("list", "error")
            raise
        if keys == 0:
            self._count("list", "ok")

    async def delete(self, *keys: str) -> None:
        if not keys:
            return
        requests = -(-len(keys) // self._deletes_per_request)
        try:
            await self._inner.delete(*keys)
        except StoreError:
            self._count("delete", "error", requests)
            raise
        self._count("delete", "ok", requests)

    async def discard(self, key: str, expected: Version) -> Outcome:
        return self._conditional("discard", b"", await self._inner.discard(key, expected))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _conditional(self, verb: str, body: bytes, outcome: Outcome) -> Outcome:
        self._count(verb, name_of(outcome), sent=len(body))
        return outcome

    def _count(self, verb: str, outcome: str, requests: int = 1, *, sent: int = 0, received: int = 0) -> None:
        with self._lock:
            self._requests[verb, outcome] += requests
            self._bytes_sent += sent
            self._bytes_received += received

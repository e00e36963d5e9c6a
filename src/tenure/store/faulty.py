"""A store that misbehaves as networks do, from a seed: lost requests, lost replies, late landings, repeated requests.

It tells the truth about what it did in `hit`, so that a test can fail if a fault it relies on never happened.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn, TypeVar

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.entropy import Random
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.store.given import check_instance, check_number
from tenure.store.guard import check_body, check_conditional_delete
from tenure.store.keys import check_key
from tenure.store.outcome import Entry, NotModified, Outcome, Stored, Unknown, Version
from tenure.store.protocol import Store, StoreInfo

T = TypeVar("T")

_LONGEST = 86_400.0


class Faults(msgspec.Struct, frozen=True):
    """How often each fault happens, from 0 (never) to 1; of the faults of a write at most one happens to a request."""

    lost_request: float = 0.0
    """A write never reaches the store; the caller is told nothing."""
    lost_reply: float = 0.0
    """A write happens; the caller is told nothing."""
    late_landing: float = 0.0
    """The caller is told nothing at once, and the write happens up to `late_seconds` later."""
    repeated: float = 0.0
    """A write is sent twice, and the caller gets the answer to the second."""
    failed_read: float = 0.0
    """A read or listing gets no answer."""
    late_seconds: float = 1.0
    max_latency: float = 0.0
    """Each request takes up to this many seconds."""

    def __post_init__(self) -> None:
        for name in ("lost_request", "lost_reply", "late_landing", "repeated", "failed_read"):
            check_number(name, getattr(self, name), least=0.0, most=1.0)
        for name in ("late_seconds", "max_latency"):
            check_number(name, getattr(self, name), least=0.0, most=_LONGEST)
        if self.lost_request + self.lost_reply + self.late_landing + self.repeated > 1.0:
            raise ConfigError("lost_request, lost_reply, late_landing and repeated together are over 1")


class Faulty:
    def __init__(self, inner: Store, faults: Faults, *, random: Random, clock: Clock = SYSTEM_CLOCK) -> None:
        check_instance("faults", faults, Faults)
        self._inner = inner
        self._faults = faults
        self._random = random
        self._clock = clock
        self._late: set[asyncio.Task[None]] = set()
        self.hit: Counter[str] = Counter()

    @property
    def info(self) -> StoreInfo:
        return self._inner.info

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        await self._before_read(f"get {key!r}")
        return await self._inner.get(key, unless=unless)

    async def put(self, key: str, body: bytes) -> Version:
        _check(body, key)
        return await self._write(f"put {key!r}", lambda: self._inner.put(key, body), _raise)

    async def create(self, key: str, body: bytes) -> Outcome:
        _check(body, key)
        return await self._write(f"create {key!r}", lambda: self._inner.create(key, body), Unknown)

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        _check(body, key)
        return await self._write(f"replace {key!r}", lambda: self._inner.replace(key, body, expected), Unknown)

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        await self._before_read(f"list {prefix!r}")
        async for entry in self._inner.list(prefix, after=after):
            yield entry

    async def delete(self, *keys: str) -> None:
        _check(b"", *keys)
        await self._write(f"delete {keys!r}", lambda: self._inner.delete(*keys), _raise)

    async def discard(self, key: str, expected: Version) -> Outcome:
        _check(b"", key)
        check_conditional_delete(self.info)
        return await self._write(f"discard {key!r}", lambda: self._inner.discard(key, expected), Unknown)

    async def aclose(self) -> None:
        await self.drain()
        await self._inner.aclose()

    async def drain(self) -> None:
        """Return when every late write has landed."""
        while self._late:
            landed = set(self._late)
            await asyncio.gather(*landed)
            self._late -= landed  # tasks that are done are not awaited, so their own callback may never have run

    async def _write(self, what: str, send: Callable[[], Awaitable[T]], nothing_said: Callable[[StoreError], T]) -> T:
        await self._latency()
        fault = self._draw()
        if fault == "none":
            return await send()
        self.hit[fault] += 1
        if fault == "repeated":
            await send()
            return await send()
        if fault == "lost_reply":
            await send()
        elif fault == "late_landing":
            task = asyncio.ensure_future(self._land_late(send))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        return nothing_said(StoreUnavailable(f"{what}: no answer (injected: {fault})"))

    def _draw(self) -> str:
        roll = self._random.random()
        for name in ("lost_request", "lost_reply", "late_landing", "repeated"):
            roll -= getattr(self._faults, name)
            if roll < 0:
                return name
        return "none"

    async def _land_late(self, send: Callable[[], Awaitable[T]]) -> None:
        await self._clock.sleep(self._random.uniform(0, self._faults.late_seconds))
        await send()

    async def _before_read(self, what: str) -> None:
        await self._latency()
        if self._random.random() < self._faults.failed_read:
            self.hit["failed_read"] += 1
            raise StoreUnavailable(f"{what}: no answer (injected: failed_read)")

    async def _latency(self) -> None:
        if self._faults.max_latency:
            await self._clock.sleep(self._random.uniform(0, self._faults.max_latency))


def _check(body: bytes, *keys: str) -> None:
    """What cannot be sent cannot be lost: it is refused before a fault is drawn, as by every store."""
    for key in keys:
        check_body(check_key(key), body)


def _raise(error: StoreError) -> NoReturn:
    raise error

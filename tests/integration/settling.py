"""A faulty store made certain, as tenure's own layers do it: every conditional write goes through `commit`.

Each body is stored behind a header of fixed size with the ids of the last writes to the key, so that what is read back
proves which of them happened (`Remembers.EVERY_WRITE`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from tenure.clock import SystemClock
from tenure.entropy import new_id
from tenure.errors import NotFound, StoreError, StoreUnavailable
from tenure.store import (
    Applied,
    Attempt,
    Entry,
    Faulty,
    NotModified,
    Outcome,
    Remembers,
    Stored,
    StoreInfo,
    Unknown,
    Version,
    commit,
)
from tenure.store.guard import check_conditional_delete

_ID_BYTES = 32
_IDS = 64
HEADER_BYTES = _ID_BYTES * _IDS
_TRIES = 40


class ImpatientClock(SystemClock):
    """Waits a hundredth of what it is asked to, so that settling takes its steps and not their time."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds / 100, 0.005))


class Settling:
    def __init__(self, inner: Faulty) -> None:
        self.inner = inner
        self.clock = ImpatientClock()

    @property
    def info(self) -> StoreInfo:
        return msgspec.structs.replace(self.inner.info, conditional_delete=False)

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        found = await self._read(key, unless)
        if isinstance(found, NotModified):
            return found
        return Stored(found.body[HEADER_BYTES:], found.version)

    async def put(self, key: str, body: bytes) -> Version:
        write_id = new_id()
        for _ in range(_TRIES):
            try:
                return await self.inner.put(key, _header([write_id]) + body)
            except StoreUnavailable:
                await self.inner.drain()  # an unconditional write that lands late would undo what comes after it
                try:
                    found = await self._read(key)
                except NotFound:
                    continue
                assert isinstance(found, Stored)
                if write_id in ids_of(found.body):
                    return found.version
        raise AssertionError(f"put of {key} failed {_TRIES} times")

    async def create(self, key: str, body: bytes) -> Outcome:
        return await self._commit(key, body, None, [])

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        history: list[str] = []
        try:
            found = await self._read(key)
            assert isinstance(found, Stored)
            if expected.matches(found.version):
                history = ids_of(found.body)
        except NotFound:
            pass  # rejected, as the store itself is to say
        return await self._commit(key, body, expected, history)

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        for _ in range(_TRIES):
            try:
                entries = [entry async for entry in self.inner.list(prefix, after=after)]
                break
            except StoreUnavailable:
                continue
        for entry in entries:
            yield msgspec.structs.replace(entry, size=entry.size - HEADER_BYTES)

    async def delete(self, *keys: str) -> None:
        for _ in range(_TRIES):
            await self.inner.drain()
            try:
                await self.inner.delete(*keys)
            except StoreUnavailable:
                continue
            return
        raise AssertionError(f"delete failed {_TRIES} times")

    async def discard(self, key: str, expected: Version) -> Outcome:
        """What is gone has no write id: one's own discard cannot be told from another's."""
        check_conditional_delete(self.info)
        raise AssertionError

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def _commit(self, key: str, body: bytes, expected: Version | None, history: list[str]) -> Outcome:
        settled = await commit(
            self.inner,
            Attempt(key, expected),
            lambda write_id: _header([*history, write_id]) + body,
            write_ids=ids_of,
            remembers=Remembers.EVERY_WRITE,
            clock=self.clock,
            tries=_TRIES,
        )
        # A replace of a missing key cannot be told from one whose object was deleted since: the store's word counts.
        if isinstance(settled.outcome, Unknown) and isinstance(settled.outcome.error, NotFound) and expected:
            await self.inner.drain()
            return await self._asked_again(key, body, expected)
        assert not isinstance(settled.outcome, Unknown), f"not settled in {_TRIES} tries: {settled.outcome}"
        return settled.outcome

    async def _asked_again(self, key: str, body: bytes, expected: Version) -> Outcome:
        for _ in range(_TRIES):
            outcome = await self.inner.replace(key, body, expected)
            assert not isinstance(outcome, Applied)
            if not isinstance(outcome, Unknown):
                return outcome
        raise AssertionError("no decisive answer")

    async def _read(self, key: str, unless: Version | None = None) -> Stored | NotModified:
        trouble: StoreError | None = None
        for _ in range(_TRIES):
            try:
                return await self.inner.get(key, unless=unless)
            except StoreUnavailable as error:
                trouble = error
        assert trouble is not None
        raise trouble


def ids_of(body: bytes) -> list[str]:
    return [
        body[start : start + _ID_BYTES].decode()
        for start in range(0, HEADER_BYTES, _ID_BYTES)
        if body[start : start + 1] not in (b".", b"")
    ]


def _header(ids: list[str]) -> bytes:
    return "".join(ids[-_IDS:]).encode().ljust(HEADER_BYTES, b".")

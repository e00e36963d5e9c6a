"""A store in this process's memory: for tests, and for trying things out. Gone when the process ends."""

from __future__ import annotations

import bisect
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.errors import NotFound
from tenure.store.guard import OpenGuard, check_body
from tenure.store.keys import check_after, check_key, check_prefix
from tenure.store.outcome import Applied, Entry, NotModified, Outcome, Rejected, Stored, Version
from tenure.store.protocol import StoreInfo

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE = 1000


class Contents:
    """The objects of one memory store; stores opened under one name share them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # two event loops, in two threads, may share one store
        self.objects: dict[str, tuple[bytes, int, int]] = {}  # body, version, wall time in ns
        self.keys: list[str] = []  # sorted
        self.writes = 0


class MemoryStore:
    """Versions count up and are never used twice."""

    def __init__(self, *, name: str = "", contents: Contents | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._guard = OpenGuard("the memory store")
        self._contents = contents if contents is not None else Contents()
        self._clock = clock
        self.info = StoreInfo(provider="memory", url=f"memory://{name}", conditional_delete=True)

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        self._check(key)
        with self._contents.lock:
            found = self._contents.objects.get(key)
        if found is None:
            raise NotFound(key)
        version = _version(found[1])
        if unless is not None and unless.matches(version):
            return NotModified(version)
        return Stored(found[0], version)

    async def put(self, key: str, body: bytes) -> Version:
        self._check(key, body)
        with self._contents.lock:
            return self._write(key, body)

    async def create(self, key: str, body: bytes) -> Outcome:
        self._check(key, body)
        with self._contents.lock:
            if key in self._contents.objects:
                return Rejected()
            return Applied(self._write(key, body))

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        self._check(key, body)
        with self._contents.lock:
            found = self._contents.objects.get(key)
            if found is None or not expected.matches(_version(found[1])):
                return Rejected()
            return Applied(self._write(key, body))

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        self._guard.check()
        check_prefix(prefix)
        check_after(after)
        cursor, inclusive = (after, False) if after is not None and after >= prefix else (prefix, True)
        while page := self._page(prefix, cursor, inclusive):
            for entry in page:
                yield entry
            cursor, inclusive = page[-1].key, False

    async def delete(self, *keys: str) -> None:
        for key in keys:
            self._check(key)
        with self._contents.lock:
            for key in keys:
                self._remove(key)

    async def discard(self, key: str, expected: Version) -> Outcome:
        self._check(key)
        with self._contents.lock:
            found = self._contents.objects.get(key)
            if found is None or not expected.matches(_version(found[1])):
                return Rejected()
            self._remove(key)
            return Applied(expected)

    async def aclose(self) -> None:
        self._guard.close()

    def _check(self, key: str, body: bytes = b"") -> None:
        self._guard.check()
        check_key(key)
        check_body(key, body)

    def _write(self, key: str, body: bytes) -> Version:
        contents = self._contents
        contents.writes += 1
        if key not in contents.objects:
            bisect.insort(contents.keys, key)
        contents.objects[key] = (bytes(body), contents.writes, self._clock.read().wall_ns)
        return _version(contents.writes)

    def _remove(self, key: str) -> None:
        if self._contents.objects.pop(key, None) is not None:
            del self._contents.keys[bisect.bisect_left(self._contents.keys, key)]

    def _page(self, prefix: str, cursor: str, inclusive: bool) -> Sequence[Entry]:
        find = bisect.bisect_left if inclusive else bisect.bisect_right
        with self._contents.lock:
            start = find(self._contents.keys, cursor)
            keys = [key for key in self._contents.keys[start : start + _PAGE] if key.startswith(prefix)]
            return [_entry(key, *self._contents.objects[key]) for key in keys]


def _version(number: int) -> Version:
    return Version(e_tag=str(number))


def _entry(key: str, body: bytes, number: int, wall_ns: int) -> Entry:
    modified = _UNIX_EPOCH + timedelta(microseconds=wall_ns // 1000)
    return Entry(key=key, version=_version(number), size=len(body), modified=modified)

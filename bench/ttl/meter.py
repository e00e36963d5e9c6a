"""Requests by what they were for, and what S3 charges for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping

from tenure import Database
from tenure.database.ids import RESOURCES, folder_of
from tenure.store import Entry, Metered, NotModified, Outcome, Store, Stored, Usage, Version

RECORDS, ARCHIVE, INDEX, LEDGER, COORDINATION = "records", "archive", "index", "ledger", "coordination"
FREE_VERBS = ("delete", "discard")
"""S3 charges nothing for DELETE. `discard` is what a directory has in its place."""

Requests = dict[str, dict[str, int]]
"""By what they were for, then by verb."""


class SortedMeter(Metered):
    """A `Metered` store for each kind of key, over one store."""

    def __init__(self, inner: Store, resource: str, plugin: str = "ttl") -> None:
        super().__init__(inner)
        self._folders = {
            folder_of(resource): RECORDS,
            RESOURCES: ARCHIVE,
            f"plugin={plugin}/name={resource}/due/": INDEX,
            f"plugin={plugin}/name={resource}/": LEDGER,
        }
        self._parts = {name: Metered(inner) for name in (RECORDS, ARCHIVE, INDEX, LEDGER, COORDINATION)}

    @classmethod
    def watch(cls, database: Database, resource: str, plugin: str = "ttl") -> SortedMeter:
        """Have everything that this database does from here on go through such a meter."""
        meter = cls(database.store, resource, plugin)
        database._store = meter
        return meter

    def usages(self) -> list[Usage]:
        return [part.usage() for part in self._parts.values()]

    def requests(self) -> Requests:
        return {name: by_verb(part.usage()) for name, part in self._parts.items()}

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        return await self._of(key).get(key, unless=unless)

    async def put(self, key: str, body: bytes) -> Version:
        return await self._of(key).put(key, body)

    async def create(self, key: str, body: bytes) -> Outcome:
        return await self._of(key).create(key, body)

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        return await self._of(key).replace(key, body, expected)

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        listing = self._of(prefix).list(prefix, after=after)
        try:
            async for entry in listing:
                yield entry
        finally:
            await listing.aclose()  # type: ignore[attr-defined]  # whoever leaves it early closes this one

    async def delete(self, *keys: str) -> None:
        kinds: dict[str, list[str]] = {}
        for key in keys:
            kinds.setdefault(self._kind(key), []).append(key)
        for kind, some in kinds.items():
            await self._parts[kind].delete(*some)

    async def discard(self, key: str, expected: Version) -> Outcome:
        return await self._of(key).discard(key, expected)

    def _kind(self, key: str) -> str:
        return next((name for folder, name in self._folders.items() if key.startswith(folder)), COORDINATION)

    def _of(self, key: str) -> Metered:
        return self._parts[self._kind(key)]


def by_verb(usage: Usage) -> dict[str, int]:
    return {verb: sum(outcomes.values()) for verb, outcomes in usage.requests.items()}


def together(requests: Requests) -> dict[str, int]:
    total: Counter[str] = Counter()
    for verbs in requests.values():
        total.update(verbs)
    return dict(total)


def since(after: Requests, before: Requests) -> Requests:
    """What was sent between two looks; what nothing was sent for is left out."""
    found = {
        kind: {verb: count - before.get(kind, {}).get(verb, 0) for verb, count in verbs.items()}
        for kind, verbs in after.items()
    }
    spent = {kind: {verb: count for verb, count in verbs.items() if count} for kind, verbs in found.items()}
    return {kind: verbs for kind, verbs in spent.items() if verbs}


def billed(verbs: Mapping[str, int]) -> int:
    """Requests that S3 charges for. A listing counts once for each thousand keys, and so does the meter count it."""
    return sum(count for verb, count in verbs.items() if verb not in FREE_VERBS)

"""A simulated bucket that counts what passes through it."""

from __future__ import annotations

from collections import Counter

from tenure.errors import NotFound
from tenure.store.outcome import Applied, Entry, NotModified, Rejected, Stored, Version
from tenure.testing.bucket import SimulatedBucket

_LISTED = (
    "<Contents><Key></Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;"
    "d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>000</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
"""One object in S3's answer to a LIST, without its key."""


class CountingBucket(SimulatedBucket):
    """Bytes of bodies, and of listings as S3 would write them. Headers are not counted."""

    sent: Counter[str]
    received: Counter[str]

    def reset(self) -> None:
        self.sent, self.received = Counter(), Counter()

    def _get(self, key: str, unless: Version | None) -> Stored | NotModified | NotFound:
        answer = super()._get(key, unless)
        if isinstance(answer, Stored):
            self.received["get"] += len(answer.body)
        return answer

    def _create(self, key: str, body: bytes, host: str) -> Applied | Rejected:
        self.sent["create"] += len(body)
        return super()._create(key, body, host)

    def _replace(self, key: str, body: bytes, expected: Version, host: str) -> Applied | Rejected:
        self.sent["replace"] += len(body)
        return super()._replace(key, body, expected, host)

    def _page(self, prefix: str, after: str | None, whole_seconds: bool) -> list[Entry]:
        page = super()._page(prefix, after, whole_seconds)
        self.received["list"] += sum(len(_LISTED) + len(entry.key) for entry in page)
        return page

"""Letters in the inbox that this process has read already, for consistent reads.

While nobody leads the inbox grows, and every consistent read needs all that is in it. If all of it were fetched each
time, the store would be so busy that nobody could come to lead, and an outage would last for as long as people read
(`make chaos STORE=ministack MINUTES=30 SEED=7` found one). A letter never changes under its name (L-6): each is fetched
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec

from tenure.ledger import InboxName, Place
from tenure.plugins.counters.wire import Letter

MOST_BYTES = 16 * 2**20
"""Of letters as they are stored. What is more is fetched each time."""


class Shelved(msgspec.Struct, frozen=True):
    size: int
    place: Place
    letter: Letter | None
    """`None`: it cannot be read, and is never folded."""


class Shelf:
    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._letters: dict[InboxName, Shelved] = {}
        self.fetching = asyncio.Lock()
        """Held by whoever fetches: others who want the same find it here then."""

    def __len__(self) -> int:
        return len(self._letters)

    def find(self, name: InboxName) -> Shelved | None:
        return self._letters.get(name)

    def put(self, name: InboxName, read: Shelved) -> None:
        if name not in self._letters and self._bytes + read.size <= self._most:
            self._letters[name] = read
            self._bytes += read.size

    def keep(self, listed: Collection[InboxName]) -> None:
        """What is not in the inbox any more was folded, and is not asked for again."""
        for name in self._letters.keys() - listed:
            self._bytes -= self._letters.pop(name).size

"""Looking through the inbox, some objects at a time, round and round (L-1)."""

from __future__ import annotations

from contextlib import aclosing

import msgspec

from tenure.ledger.layout import INBOX_NAMES, InboxName, parse_inbox_key
from tenure.store import Store, Strangers, ours


class Letter(msgspec.Struct, frozen=True):
    """One object, before it is read."""

    name: InboxName
    size: int
    modified_ms: int
    """On the store's clock; listings may round it down to a second."""


class Look(msgspec.Struct):
    letters: list[Letter]
    foreign: list[str]
    """Names that no producer of ours gives, some of them."""
    first: bool
    """A sweep began with this look ..."""
    last: bool
    """... and ended with it: with those before, it saw everything that was there when the sweep began."""


class InboxSweep:
    def __init__(self, store: Store, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._cursor: str | None = None
        self._strangers = Strangers(told=False)

    async def look(self) -> Look:
        """The next so many objects."""
        cursor = self._cursor
        look = Look([], [], cursor is None, True)
        seen = 0
        # What lies before or behind all names of ours does not count, or a sweep among a million others would not end.
        if cursor is None:
            self._strangers.met.clear()
        async with aclosing(ours(self._store, INBOX_NAMES, after=cursor, strangers=self._strangers)) as rows:
            async for entry in rows:
                if seen >= self._limit:
                    look.last = False
                    break
                seen += 1
                cursor = entry.key
                name = parse_inbox_key(entry.key)
                if name is None:
                    look.foreign.append(entry.key)
                else:
                    look.letters.append(Letter(name, entry.size, round(entry.modified.timestamp() * 1000)))
        if look.last:
            look.foreign += self._strangers.met
        self._cursor = None if look.last else cursor
        return look

    def again(self) -> None:
        """Begin anew."""
        self._cursor = None

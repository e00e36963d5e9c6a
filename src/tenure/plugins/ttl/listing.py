"""Reading the index from its beginning, page by page, up to the first slot that lies ahead."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import aclosing

from tenure.plugins.ttl.index import DUE, MAX_GROUP, Listed, parse
from tenure.store import Names, Store, Strangers, ours

_log = logging.getLogger("tenure.ttl")

_NAMES = Names(DUE, f"{DUE}0", f"{DUE}:")
_NAMED = 10
PAGE = 1000
"""Entries: as many as one request lists, and one deletes."""


class DueListing:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._foreign: set[str] = set()
        self._strangers = Strangers(told=False)

    async def page(self, cursor: str | None, limit_ms: int) -> tuple[list[Listed], str | None]:
        """The next entries that are due, and where to go on; `None`: that was all of them."""
        page: list[Listed] = []
        rows = 0
        ahead = f"{DUE}{limit_ms + 1:013d}"
        async with aclosing(ours(self._store, _NAMES, after=cursor, strangers=self._strangers)) as entries:
            async for row in entries:
                entry = parse(row)
                if entry is None:
                    self._name_foreign(row.key)
                elif entry.slot_ms <= limit_ms:
                    page.append(entry)
                if row.key >= ahead:
                    break  # also at another's: nothing behind it is due
                rows += 1
                if rows >= PAGE:
                    return page, row.key
        for key in self._strangers.met:
            self._name_foreign(key)
        return page, None

    def _name_foreign(self, key: str) -> None:
        if key not in self._foreign and len(self._foreign) < _NAMED:
            self._foreign.add(key)
            more = "; there may be more" if len(self._foreign) == _NAMED else ""
            _log.warning("%r lies in the index, and no writer of ours gives such a name: move it away%s", key, more)


def in_parts(page: Sequence[Listed]) -> Iterator[Sequence[Listed]]:
    """Each of about as many ids as a page has entries: a group may hold hundreds."""
    part: list[Listed] = []
    weight = 0
    for entry in page:
        part.append(entry)
        weight += 1 if entry.id is not None else MAX_GROUP
        if weight >= PAGE:
            yield part
            part, weight = [], 0
    if part:
        yield part

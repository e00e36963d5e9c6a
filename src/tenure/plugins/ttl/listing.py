"""Reading the index from its beginning, page by page, up to the first slot that lies ahead."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import cast

from tenure.plugins.ttl.index import DUE, MAX_GROUP, Listed, parse
from tenure.store import Entry, Store

_log = logging.getLogger("tenure.ttl")

PAGE = 1000
"""Entries: as many as one request lists, and one deletes."""


class DueListing:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._foreign: set[str] = set()

    async def page(self, cursor: str | None, limit_ms: int) -> tuple[list[Listed], str | None]:
        """The next entries that are due, and where to go on; `None`: that was all of them."""
        page: list[Listed] = []
        rows = 0
        listing = cast("AsyncGenerator[Entry, None]", self._store.list(DUE, after=cursor))
        async with aclosing(listing) as entries:
            async for row in entries:
                entry = parse(row)
                if entry is None:
                    self._name_foreign(row.key)
                elif entry.slot_ms > limit_ms:
                    return page, None
                else:
                    page.append(entry)
                rows += 1
                if rows >= PAGE:
                    return page, row.key
        return page, None

    def _name_foreign(self, key: str) -> None:
        if key not in self._foreign and len(self._foreign) < PAGE:
            self._foreign.add(key)
            _log.warning("%s lies in the index, and no writer of ours gives such a name: move it away", key)


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

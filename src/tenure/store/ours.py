"""Listing the names in a folder that can be ours, however many objects of others lie beside them.

Guarantee: everything between the first and the last name that tenure gives is listed. Of what lies before or behind,
as much is looked at as comes with one request; the rest is leapt over, and told of once by name.

Not guaranteed: that objects of others whose names lie between ours cost nothing. They come page by page, and whoever
lists has a bound of its own for them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import msgspec

from tenure.store.outcome import Entry
from tenure.store.prefixed import Prefixed
from tenure.store.protocol import Store

_log = logging.getLogger("tenure.store")

PASSED = 1000
"""Objects of others that are looked at on either side of ours: as many as one request lists."""


class Names(msgspec.Struct, frozen=True):
    """Ours lie in `folder`, after the key `first` and before the key `last`, which nobody gives."""

    folder: str
    first: str
    last: str


def numbered(folder: str) -> Names:
    """Names that begin with a number of twenty digits: none of ours is over 10**18, so all begin with 00 or 01.

    What begins with a year is another tool's, and lies behind.
    """
    return Names(folder, f"{folder}0", f"{folder}02")


class Strangers:
    """What was met beside ours, by whoever lists. Kept from listing to listing, it tells of too many once."""

    def __init__(self, *, told: bool = True) -> None:
        """`told=False`: it is not yet; say so in the log."""
        self.met: dict[str, None] = {}
        """Their keys, in the order in which they were met; of very many the first."""
        self.leapt = False
        """There are more, which were not looked at."""
        self._told = told

    def meet(self, key: str) -> None:
        if len(self.met) < 2 * PASSED:
            self.met[key] = None

    def leap(self, where: str) -> None:
        self.leapt = True
        if not self._told:
            self._told = True
            _log.warning(
                "%r and at least %s other objects in %r are not tenure's, and are passed over: move them away",
                next(iter(self.met)),
                f"{PASSED - 1:,}",
                where,
            )


async def ours(
    store: Store, names: Names, *, after: str | None = None, strangers: Strangers | None = None
) -> AsyncGenerator[Entry, None]:
    """What lies between the names, in order, after the key `after`.

    One listing. One more, which begins at the first of ours, if a whole page of others comes before.
    """
    before = behind = 0
    where = (store.prefix if isinstance(store, Prefixed) else "") + names.folder
    strangers = Strangers() if strangers is None else strangers
    while True:
        leaps = False
        rows = cast("AsyncGenerator[Entry, None]", store.list(names.folder, after=after))
        async with aclosing(rows) as entries:
            async for entry in entries:
                if names.first < entry.key < names.last:
                    yield entry
                    continue
                strangers.meet(entry.key)
                if entry.key >= names.last:
                    behind += 1
                    if behind >= PASSED:
                        strangers.leap(where)
                        return
                else:
                    before += 1
                    if before >= PASSED:
                        strangers.leap(where)
                        after, leaps = names.first, True
                        break
        if not leaps:
            return

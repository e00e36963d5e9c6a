"""The segments that a worker has fetched lately: several tickets often name the same one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from tenure.clock import Clock
from tenure.errors import NotFound, StoreError
from tenure.ledger.layout import SEGMENTS
from tenure.plugins.queue.wire import Segment, Unreadable
from tenure.store import Store, Stored

SEGMENTS_KEPT = 8
_TRIES = 6
_PAUSE = 0.5


class FetchedSegments:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._kept: OrderedDict[str, asyncio.Future[Segment]] = OrderedDict()

    async def get(self, name: str) -> Segment:
        found = self._kept.get(name)
        if found is None:
            found = self._kept[name] = asyncio.ensure_future(self._get_segment(name))
            while len(self._kept) > SEGMENTS_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(name)
        try:
            return await asyncio.shield(found)
        except BaseException:
            if found.done():
                self._kept.pop(name, None)
            raise

    def forget(self, name: str) -> None:
        """What was read of it makes no sense: whoever asks next reads it anew."""
        self._kept.pop(name, None)

    async def _get_segment(self, name: str) -> Segment:
        """It was whole when the log named it. So one answer that it is not there, or not whole, is not believed."""
        is_doubtful = False
        for last in (*([False] * (_TRIES - 1)), True):
            try:
                stored = await self._store.get(SEGMENTS + name)
                assert isinstance(stored, Stored)
                return Segment(stored.body)
            except (StoreError, Unreadable) as error:
                is_told_again = is_doubtful and isinstance(error, NotFound | Unreadable)
                is_doubtful = is_doubtful or isinstance(error, NotFound | Unreadable)
                if last or is_told_again:
                    raise
                await self._clock.sleep(_PAUSE)
        raise AssertionError("unreachable")

"""History: what was folded in an hour, a day, a month, or before, as objects that are written once.

A page is sorted by record and cut into chunks, so that the history of one record is one read a page, and two pages are
put together without either being in memory. A page counts once the log names it. What the log does not name is a
leader's that did not come to it, and is removed by the next one. Names begin with the leader's epoch: who led before
and goes on without knowing removes nothing of those who came after.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from tenure.election.records import told
from tenure.entropy import NewId
from tenure.errors import LedgerDamaged
from tenure.plugins.counters.calendar import DAY_MS, HOUR_MS
from tenure.plugins.counters.cell import Cell, cell_from
from tenure.plugins.counters.numbers import Counter
from tenure.plugins.counters.records import Chunk, Level, Moment, Page, Rows, Sealed
from tenure.plugins.counters.settings import Retention
from tenure.store import Store, Stored, numbered, ours

PAGES = "pages/"
CHUNK_ROWS = 5000
CHUNK_BYTES = 8 * 2**20
"""Of a part, and at most one row more: names of many fields are long, and an object has a limit."""
MANY_PAGES = 16
"""Of one hour: then they are put together before it is over."""
MAX_RUN = 64
"""Pages that are put together at a time."""

Row = tuple[str, dict[str, list[Any]]]
"""A record, and its cells by field."""


class _Body(msgspec.Struct):
    rows: list[Row]


class Merge(msgspec.Struct, frozen=True):
    """Pages that follow each other, and what they become."""

    pages: list[Page]
    level: Level


def next_merge(pages: Sequence[Page], now: Moment, retention: Retention, busy: frozenset[int]) -> Merge | None:
    """The first that is due; `busy`: hours of which more is to come. Pure."""
    old_days = now.hour_ms - retention.hours * HOUR_MS
    old_months = now.day_ms - retention.days * DAY_MS
    too_old = now.month_ms - retention.months * 31 * DAY_MS

    def target(page: Page) -> tuple[Level, int]:
        """What it belongs into by now, and which one of those."""
        moment = page.moment
        if page.level is Level.ALL or moment.month_ms < too_old:
            return Level.ALL, 0
        if page.level is Level.MONTH or moment.month_ms + 32 * DAY_MS < old_months:
            return Level.MONTH, moment.month_ms
        if page.level is Level.DAY or moment.day_ms + 26 * HOUR_MS < old_days:
            return Level.DAY, moment.day_ms
        return Level.HOUR, moment.hour_ms

    run: list[Page] = []
    for page in [*pages, None]:
        if run and (page is None or target(page) != target(run[0]) or len(run) >= MAX_RUN):
            level = target(run[0])[0]
            is_open = level is Level.HOUR and len(run) < MANY_PAGES
            is_open = is_open and (run[0].moment.hour_ms >= now.hour_ms or run[0].moment.hour_ms in busy)
            if (len(run) > 1 or run[0].level is not level) and not is_open:
                return Merge(run, level)
            run = []
        if page is not None:
            run.append(page)
    return None


class PageBook:
    """Reads and writes pages. `store` is the ledger's own."""

    def __init__(self, store: Store, draw_id: NewId = lambda: "", epoch: int = 0) -> None:
        """`draw_id` and `epoch`: of the leader that writes pages."""
        self._store = store
        self._draw_id = draw_id
        self._epoch = epoch

    async def write(self, sealed: Sealed) -> Page:
        """What was sealed, as a page."""

        async def rows() -> AsyncIterator[Row]:
            for row in sorted_rows(sealed.rows):
                yield row

        return await self._write(Level.HOUR, sealed.moment, sealed.number, rows())

    async def merge(self, merge: Merge, counters: dict[str, Counter]) -> Page:
        """Several pages as one. A single one is only called by another name."""
        first, last = merge.pages[0], merge.pages[-1]
        if len(merge.pages) == 1:
            return msgspec.structs.replace(first, level=merge.level)
        return await self._write(merge.level, first.moment, last.number, self._merged(merge.pages, counters))

    async def cells(self, page: Page, id: str, counters: dict[str, Counter]) -> dict[str, Cell]:
        """What it has of one record, by field."""
        for chunk in page.chunks:
            if chunk.first <= id <= chunk.last:
                for each, cells in await self._read(chunk):
                    if each == id:
                        return _cells(chunk.key, cells, counters)
        return {}

    async def rows(self, page: Page) -> AsyncIterator[Row]:
        for chunk in page.chunks:
            for row in await self._read(chunk):
                yield row

    async def orphans(self, pages: Sequence[Page]) -> list[str]:
        """Objects of former leaders that no page names."""
        named = {chunk.key for page in pages for chunk in page.chunks}
        found = []
        async for entry in ours(self._store, numbered(PAGES)):
            epoch = entry.key.removeprefix(PAGES).partition("-")[0]
            if epoch.isdigit() and int(epoch) < self._epoch and entry.key not in named:
                found.append(entry.key)
        return found

    async def _merged(self, pages: Sequence[Page], counters: dict[str, Counter]) -> AsyncIterator[Row]:
        readers = [self.rows(page) for page in pages]
        heap: list[tuple[str, int, dict[str, list[Any]]]] = []

        async def advance(index: int) -> None:
            async for id, cells in readers[index]:
                heapq.heappush(heap, (id, index, cells))
                return

        for index in range(len(readers)):
            await advance(index)
        while heap:
            id, index, cells = heapq.heappop(heap)
            await advance(index)
            if not heap or heap[0][0] != id:
                yield id, cells
                continue
            whole = _cells(_named(pages[index]), cells, counters)
            while heap and heap[0][0] == id:  # those of later pages come later: their index is higher
                _, index, more = heapq.heappop(heap)
                await advance(index)
                for field, cell in _cells(_named(pages[index]), more, counters).items():
                    if field in whole:
                        whole[field].followed_by(counters[field], cell)
                    else:
                        whole[field] = cell
            yield id, {field: cell.plain() for field, cell in whole.items()}

    async def _write(self, level: Level, moment: Moment, number: int, rows: AsyncIterator[Row]) -> Page:
        tag = self._draw_id()
        chunks: list[Chunk] = []
        piece: list[Row] = []
        encoded: list[bytes] = []
        size = 0

        async def flush() -> None:
            body = b'{"rows":[%s]}' % b",".join(encoded)
            key = f"{PAGES}{self._epoch:020d}-{number:020d}-{tag}-{len(chunks):06d}"
            # Unconditional: the name is ours alone, and the same bytes may land twice without harm.
            await self._store.put(key, body)
            chunks.append(Chunk(key, piece[0][0], piece[-1][0], len(piece), sha256(body).hexdigest()))
            piece.clear()
            encoded.clear()

        async for row in rows:
            piece.append(row)
            encoded.append(msgspec.json.encode(row))
            size += len(encoded[-1])
            if len(piece) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                await flush()
                size = 0
        if piece:
            await flush()
        return Page(level, moment, number, chunks)

    async def _read(self, chunk: Chunk) -> list[Row]:
        """Raises `NotFound` for one that was replaced meanwhile."""
        stored = await self._store.get(chunk.key)
        assert isinstance(stored, Stored)
        if sha256(stored.body).hexdigest() != chunk.sha256:
            raise LedgerDamaged(f"{chunk.key} is not what was written: put it back from a backup")
        return read_page(chunk.key, stored.body)


def read_page(key: str, body: bytes) -> list[Row]:
    """The rows of a part of a page. Raises `LedgerDamaged`: a checksum in the log says who wrote it, and not what."""
    try:
        return _body.decode(body).rows
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LedgerDamaged(f"{key} is no page of history ({told(error)}): put it back from a backup") from None


def _cells(where: str, rows: dict[str, list[Any]], counters: dict[str, Counter]) -> dict[str, Cell]:
    try:
        return {field: cell_from(counters[field], row) for field, row in rows.items()}
    except KeyError as unknown:
        raise LedgerDamaged(f"{where} has a field {unknown.args[0]!r:.80} that is not counted here") from None
    except ValueError as error:
        raise LedgerDamaged(f"{where} has what is no count ({error}): put it back from a backup") from None


def _named(page: Page) -> str:
    return page.chunks[0].key if page.chunks else f"page {page.number} of history"


def sorted_rows(rows: Rows) -> list[Row]:
    """By record."""
    found: dict[str, dict[str, list[Any]]] = {}
    for field, cells in rows.items():
        for id, row in cells.items():
            found.setdefault(id, {})[field] = row
    return sorted(found.items())


_body = msgspec.json.Decoder(_Body)

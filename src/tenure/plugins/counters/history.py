"""What was ever counted of a record, from the pages and what is in none yet."""

from __future__ import annotations

import msgspec

from tenure.ledger.together import all_of
from tenure.plugins.counters.cell import Cell, cell_from
from tenure.plugins.counters.pages import PageBook
from tenure.plugins.counters.records import Level, Moment
from tenure.plugins.counters.state import CountersMachine

_AT_ONCE = 16


class Share(msgspec.Struct, frozen=True):
    """Of one record: what an hour, a day, a month, or the time before, has of it."""

    level: Level
    moment: Moment
    cells: dict[str, Cell]


async def shares(book: PageBook, machine: CountersMachine, id: str) -> list[Share]:
    """Oldest first. What is in memory is taken at once, before anything is waited for."""
    recent: list[Share] = []
    for sealed in machine.sealed:
        rows = {field: cells[id] for field, cells in sealed.rows.items() if id in cells}
        if rows:
            cells = {field: cell_from(machine.counters[field], row) for field, row in rows.items()}
            recent.append(Share(Level.HOUR, sealed.moment, cells))
    if id in machine.tally and machine.moment is not None:
        recent.append(Share(Level.HOUR, machine.moment, {f: cell.copy() for f, cell in machine.tally[id].items()}))
    pages, counters = list(machine.pages), dict(machine.counters)
    found: list[Share] = []
    for start in range(0, len(pages), _AT_ONCE):
        part = pages[start : start + _AT_ONCE]
        read = await all_of(book.cells(page, id, counters) for page in part)
        found += [Share(page.level, page.moment, cells) for page, cells in zip(part, read, strict=True) if cells]
    return found + recent


async def recorded(book: PageBook, machine: CountersMachine, id: str) -> dict[str, Cell]:
    """Everything that was ever folded for a record, by field: one cell each."""
    counters = dict(machine.counters)
    whole: dict[str, Cell] = {}
    for share in await shares(book, machine, id):
        for field, cell in share.cells.items():
            if field in whole:
                whole[field].followed_by(counters[field], cell)
            else:
                whole[field] = cell
    return whole

"""What several calls do to one counter, put together. Pure.

Any number of `add`, `sub` and `set`, one after the other, is the same as at most one `set` followed by one amount. So a
batch, an entry of the log and a year of history each hold one cell for a counter, however many calls that were; and two
cells of which one comes after the other are one cell again. Besides it counts the calls, and adds up what they gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tenure.plugins.counters.numbers import INT, SUM, Counter, Number, Reducer, minus, plus, written

_LONG = 7


class Cell(msgspec.Struct, gc=False):
    """There may be a hundred thousand, and they hold numbers alone: the garbage collector need not look at them."""

    adds: int
    added: Any
    """What was given to `add`, added up ..."""
    subs: int
    subbed: Any
    """... and to `sub`."""
    sets: int
    base: Any
    """What the last `set` gave; `None`: there was none."""
    net: Any
    """Since then: the sum, or the extreme."""

    @classmethod
    def blank(cls, counter: Counter) -> Cell:
        """Nothing was done yet."""
        if counter.reducer is SUM:
            zero = counter.zero
            return cls(0, zero, 0, zero, 0, None, zero)
        return cls(0, 0, 0, 0, 0, None, None)

    @property
    def calls(self) -> int:
        return self.adds + self.subs + self.sets

    def add(self, counter: Counter, amount: Number, times: int = 1) -> None:
        """`times`: how many calls that was, together `amount`."""
        self.adds += times
        if counter.kind is INT and counter.reducer is SUM:  # nearly always: without a further call
            self.added += amount
            self.net += amount
        else:
            self.added = plus(self.added, amount)
            self._take(counter, None, amount)

    def sub(self, counter: Counter, amount: Number) -> None:
        self.subs += 1
        self.subbed = plus(self.subbed, amount)
        self._take(counter, None, minus(amount))

    def set(self, counter: Counter, value: Number) -> None:
        self.sets += 1
        self._take(counter, value, None)

    def followed_by(self, counter: Counter, later: Cell) -> None:
        """Become both, the other after this one."""
        self.adds += later.adds
        self.added = plus(self.added, later.added)
        if later.subs:
            self.subs += later.subs
            self.subbed = plus(self.subbed, later.subbed)
        self.sets += later.sets
        self._take(counter, later.base, later.net)

    def copy(self) -> Cell:
        return Cell(self.adds, self.added, self.subs, self.subbed, self.sets, self.base, self.net)

    def applied_to(self, counter: Counter, total: Number | None) -> Number | None:
        """What the total becomes."""
        start: Any = self.base if self.base is not None else total
        if counter.reducer is SUM:
            start = plus(start if start is not None else counter.zero, self.net)
        elif counter.reducer is not Reducer.LAST and self.net is not None:
            start = self.net if start is None else _extreme(counter, start, self.net)
        became: Number | None = start
        return became

    def _take(self, counter: Counter, base: Any, net: Any) -> None:
        reducer = counter.reducer
        if reducer is Reducer.LAST:
            # An amount is the total, as if it had been set.
            if net is not None:
                base, net = net, None
            if base is not None:
                self.base = base
        elif base is not None:
            self.base, self.net = base, net if net is not None else counter.zero
        elif reducer is SUM:
            self.net = plus(self.net, net)
        elif net is not None:
            self.net = net if self.net is None else _extreme(counter, self.net, net)

    # As it is written

    def plain(self) -> list[Any]:
        """`[adds, net]` where that says it all, which it nearly always does."""
        if not self.subs and not self.sets and self.base is None and self.net == self.added:
            return [self.adds, written(self.net)]
        numbers = (self.added, self.subbed, self.base, self.net)
        added, subbed, base, net = (written(number) for number in numbers)
        return [self.adds, added, self.subs, subbed, self.sets, base, net]


def cell_from(counter: Counter, row: Any) -> Cell:
    """The cell that was written so. Raises `ValueError`."""
    if type(row) is not list:
        raise ValueError(f"{row!r:.80} is no row")
    if len(row) == 2:
        adds, net = row
        if type(adds) is not int or adds < 0 or (number := counter.read(net)) is None:
            raise ValueError(f"{row!r:.80} is no row of {counter.word}")
        if counter.reducer is SUM:
            return Cell(adds, number, 0, counter.zero, 0, None, number)
        cell = Cell.blank(counter)
        cell.add(counter, number, adds)
        return cell
    if len(row) != _LONG:
        raise ValueError(f"a row has {len(row)} parts")
    counts = (row[0], row[2], row[4])
    numbers = [row[1], row[3], row[5], row[6]]
    read = [None if value is None else counter.read(value) for value in numbers]
    if (
        any(type(count) is not int or count < 0 for count in counts)
        or any(was is not None and now is None for was, now in zip(numbers, read, strict=True))
        or read[0] is None
        or read[1] is None
        or (read[3] is None and counter.reducer is SUM)
    ):
        raise ValueError(f"{row!r:.80} is no row of {counter.word}")
    (adds, subs, sets), (added, subbed, based, net) = counts, read
    return Cell(adds, added, subs, subbed, sets, based, net)


def cells_from(counter: Counter, rows: Mapping[str, Any]) -> dict[str, Cell]:
    """The same for many, by record: views, clicks and the like, which nearly all are, without a call for each."""
    if counter.kind is not INT or counter.reducer is not SUM:
        return {id: cell_from(counter, row) for id, row in rows.items()}
    cells = {}
    for id, row in rows.items():
        if type(row) is list and len(row) == 2:
            adds, net = row
            if type(adds) is int and type(net) is int and adds >= 0:
                cells[id] = Cell(adds, net, 0, 0, 0, None, net)
                continue
        cells[id] = cell_from(counter, row)
    return cells


def put_together(counter: Counter, cells: dict[str, Cell], later: Mapping[str, Cell]) -> None:
    """By record: have the first hold what the second does, after its own. They share cells from then on."""
    is_simple = counter.reducer is SUM and counter.kind is INT
    for id, cell in later.items():
        known = cells.get(id)
        if known is None:
            cells[id] = cell
        elif is_simple and not cell.subs and not cell.sets and cell.base is None:
            known.adds += cell.adds
            known.added += cell.added
            known.net += cell.net
        else:
            known.followed_by(counter, cell)


def _extreme(counter: Counter, a: Any, b: Any) -> Any:
    return min(a, b) if counter.reducer is Reducer.MIN else max(a, b)

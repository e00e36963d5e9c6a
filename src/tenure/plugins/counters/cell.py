"""What several calls do to one counter, put together. Pure.

Any number of `add`, `sub` and `set`, one after the other, is the same as at most one `set` followed by one amount. So a
batch, an entry of the log and a year of history each hold one cell for a counter, however many calls that were; and two
cells of which one comes after the other are one cell again. Besides it counts the calls, and adds up what they gave.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenure.plugins.counters.numbers import Counter, Number, Reducer, minus, plus, written

_LONG = 7


class Cell:
    __slots__ = ("added", "adds", "base", "net", "sets", "subbed", "subs")

    def __init__(self, counter: Counter) -> None:
        zero: Any = 0 if counter.reducer is not Reducer.SUM else counter.zero
        self.adds = 0
        self.added: Any = zero
        """What was given to `add`, added up ..."""
        self.subs = 0
        self.subbed: Any = zero
        """... and to `sub`."""
        self.sets = 0
        self.base: Any = None
        """What the last `set` gave; `None`: there was none."""
        self.net: Any = zero if counter.reducer is Reducer.SUM else None
        """Since then: the sum, or the extreme."""

    @property
    def calls(self) -> int:
        return self.adds + self.subs + self.sets

    def add(self, counter: Counter, amount: Number, times: int = 1) -> None:
        """`times`: how many calls that was, together `amount`."""
        self.adds += times
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
        self.subs += later.subs
        self.subbed = plus(self.subbed, later.subbed)
        self.sets += later.sets
        self._take(counter, later.base, later.net)

    def copy(self) -> Cell:
        twin = Cell.__new__(Cell)
        for name in Cell.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    def applied_to(self, counter: Counter, total: Number | None) -> Number | None:
        """What the total becomes."""
        start: Any = self.base if self.base is not None else total
        if counter.reducer is Reducer.SUM:
            start = plus(start if start is not None else counter.zero, self.net)
        elif counter.reducer is not Reducer.LAST and self.net is not None:
            start = self.net if start is None else _extreme(counter, start, self.net)
        became: Number | None = start
        return became

    def _take(self, counter: Counter, base: Any, net: Any) -> None:
        if counter.reducer is Reducer.LAST:
            # An amount is the total, as if it had been set.
            if net is not None:
                base, net = net, None
            if base is not None:
                self.base = base
            return
        if base is not None:
            self.base, self.net = base, net if net is not None else counter.zero
        elif counter.reducer is Reducer.SUM:
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
    cell = Cell(counter)
    if type(row) is not list:
        raise ValueError(f"{row!r:.80} is no row")
    if len(row) == 2:
        adds, net = row
        if type(adds) is not int or adds < 0 or (number := counter.read(net)) is None:
            raise ValueError(f"{row!r:.80} is no row of {counter.word}")
        if counter.reducer is Reducer.SUM:
            cell.adds, cell.added, cell.net = adds, number, number
        else:
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
        or (read[3] is None and counter.reducer is Reducer.SUM)
    ):
        raise ValueError(f"{row!r:.80} is no row of {counter.word}")
    cell.adds, cell.subs, cell.sets = counts
    cell.added, cell.subbed, cell.base, cell.net = read
    return cell


def all_applied(counter: Counter, cells: Iterable[Cell], total: Number | None) -> Number | None:
    """One after the other."""
    for cell in cells:
        total = cell.applied_to(counter, total)
    return total


def _extreme(counter: Counter, a: Any, b: Any) -> Any:
    return min(a, b) if counter.reducer is Reducer.MIN else max(a, b)

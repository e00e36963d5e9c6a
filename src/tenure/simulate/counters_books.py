"""What the judge of counters writes down: calls, and for each counter a book of what its total may be. Pure.

A book is kept by what callers were told alone. An amount whose call returned is in the total once; one whose call said
that it did not happen is not; any other is in it once or not at all. Amounts are drawn at random from so many that a
sum says which of them are in it: twice the same, or one that nobody gave, is no sum of a selection.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenure.plugins.counters import Counter, Reducer

MOST_OPEN = 20
"""Calls of one counter of which it is not known whether they are counted: with more nobody calls."""
MOST_STEPS_IN_DOUBT = 16
MOST_ADDED = 8
"""Amounts of a counter that everybody sets: any of them may have come before the last `set`, or after it."""


class Told(enum.Enum):
    """What a caller knows at the end of its call."""

    DONE = "done"
    NO = "refused"
    """It did not happen, and never will."""
    UNKNOWN = "unknown"


class Call(msgspec.Struct, eq=False):
    """One amount. With an `op_id` it may be given several times."""

    id: str
    field: str
    verb: str
    amount: Any
    writer: str
    """One process, from when its plugin starts until it stops."""
    began: float
    op_id: str | None = None
    acked_at: float | None = None
    ended_at: float | None = None
    """When its caller heard of it first."""
    attempts: int = 0
    refusals: int = 0
    counted: bool = False

    @property
    def is_acked(self) -> bool:
        return self.acked_at is not None

    @property
    def is_refused(self) -> bool:
        """No attempt can have been counted."""
        return 0 < self.attempts == self.refusals

    @property
    def effect(self) -> Any:
        return -self.amount if self.verb == "sub" else self.amount

    def made_of(self, total: Any) -> Any:
        return self.amount if self.verb == "set" else total + self.effect


def selection(target: Any, calls: Sequence[Call], zero: Any) -> list[Call] | None:
    """Those calls whose amounts add up to `target`; `None`: there are none such."""
    acked = [call for call in calls if call.is_acked]
    if sum((call.effect for call in acked), zero) == target:
        return acked
    half = len(calls) // 2
    first, second = calls[:half], calls[half:]
    known = {total: mask for mask, total in enumerate(_sums(first, zero))}
    for mask, total in enumerate(_sums(second, zero)):
        if (other := known.get(target - total)) is not None:
            return [*_chosen(first, other), *_chosen(second, mask)]
    return None


def _sums(calls: Sequence[Call], zero: Any) -> list[Any]:
    """Of every selection, by its bits."""
    sums = [zero]
    for call in calls:
        effect = call.effect
        sums += [total + effect for total in sums]
    return sums


def _chosen(calls: Sequence[Call], mask: int) -> Iterable[Call]:
    return (call for bit, call in enumerate(calls) if mask >> bit & 1)


class Book:
    """Of one counter: one field of one id."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self.calls: list[Call] = []
        self.total: Any = None
        """As it stands in the record; `None`: nothing is counted yet."""

    def given(self, call: Call) -> None:
        """A call begins."""
        self.calls.append(call)

    def heard(self, call: Call) -> None:
        """An attempt of it has ended."""

    def recorded(self, total: Any, start: Any) -> str | None:
        """The record has another total. Gives what is wrong with it; `start`: what the field held before the first."""
        raise NotImplementedError

    def mark(self) -> Any:
        """For `verdict`: what has to be in a total that is asked for from now on."""
        raise NotImplementedError

    def verdict(self, value: Any, mark: Any) -> str | None:
        """What is wrong with a total that was told, if it holds what was marked, and nothing that was not given yet."""
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        return True


class SumBook(Book):
    """Added to and subtracted from, by everybody. Amounts can be told apart in the total."""

    def __init__(self, counter: Counter, *, may_start: bool = False) -> None:
        """`may_start`: records may have a value of their own before the first amount."""
        super().__init__(counter)
        self.zero: Any = counter.zero
        self.may_start = may_start
        self.start: Any = None
        self.counted: list[Call] = []

    @property
    def open(self) -> list[Call]:
        return [call for call in self.calls if not call.counted and not call.is_refused]

    @property
    def has_room(self) -> bool:
        return len(self.open) < MOST_OPEN

    def recorded(self, total: Any, start: Any) -> str | None:
        if self.start is None:
            self.start = start
            self.total = start
        found = selection(total - self.total, self.open, self.zero)
        if found is None:
            return f"it went from {self.total} to {total}, by no selection of what was given and is not in it"
        self.total = total
        for call in found:
            call.counted = True
        self.counted += found
        self.calls = [call for call in self.calls if not call.counted]
        return None

    def mark(self) -> Any:
        return [*self.counted, *(call for call in self.calls if call.is_acked)], self.start

    def verdict(self, value: Any, mark: Any) -> str | None:
        must, start = mark
        if start is None:
            if self.may_start:
                return None  # what stood in the record in between is nobody's promise
            start = self.zero
        known = set(map(id, must))
        may = [call for call in (*self.counted, *self.open) if id(call) not in known]
        left = value - start - sum((call.effect for call in must), self.zero)
        if len(may) > 2 * MOST_OPEN or selection(left, may, self.zero) is not None:
            return None
        return f"{value} was told: {left} more than all that had returned, by no selection of the other {len(may)}"

    @property
    def expected(self) -> Any:
        """Once nothing is open: the total."""
        start = self.zero if self.start is None else self.start
        return start + sum((call.effect for call in (*self.counted, *(c for c in self.calls if c.is_acked))), self.zero)


class OwnBook(Book):
    """Of one writer alone, which adds, subtracts and sets, one call after the other: the order is known."""

    def __init__(self, counter: Counter) -> None:
        super().__init__(counter)
        self._steps: list[set[Any]] = [{counter.zero}]
        """After each call: what the total may be."""
        self._flight: Call | None = None
        self._reached = 0
        """The first step at which the record may stand."""

    @property
    def has_room(self) -> bool:
        return len(self._steps[-1]) <= MOST_STEPS_IN_DOUBT

    def given(self, call: Call) -> None:
        super().given(call)
        self._flight = call

    def heard(self, call: Call) -> None:
        before = self._steps[-1]
        after = {call.made_of(total) for total in before}
        if call.is_acked:
            self._steps.append(after)
        elif not call.is_refused:
            self._steps.append(before | after)
        self._flight = None

    def settle(self) -> None:
        """Its writer is gone: what it did last is counted, or not."""
        if self._flight is not None:
            self.heard(self._flight)

    def recorded(self, total: Any, start: Any) -> str | None:
        self.total = total
        for step in range(self._reached, len(self._steps)):
            if total in self._steps[step]:
                self._reached = step
                return None
        if total in self._in_flight():
            return None
        return f"it became {total}, which is the total after none of its writer's calls from {self._reached} on"

    def mark(self) -> Any:
        return len(self._steps) - 1

    def verdict(self, value: Any, mark: Any) -> str | None:
        if any(value in step for step in self._steps[mark:]) or value in self._in_flight():
            return None
        return f"{value} was told, and after its writer's last calls it was one of {sorted(self._steps[-1])[:8]}"

    def _in_flight(self) -> set[Any]:
        call = self._flight
        return set() if call is None else {call.made_of(total) for total in self._steps[-1]}


class ExtremeBook(Book):
    """The least, the greatest or the last of what everybody gives."""

    def recorded(self, total: Any, start: Any) -> str | None:
        before, self.total = self.total, total
        if total not in {call.amount for call in self.calls if not call.is_refused}:
            return f"it became {total}, which nobody gave"
        reducer = self.counter.reducer
        if before is not None and reducer is not Reducer.LAST and self._extreme((before, total)) != total:
            return f"it went back from {before} to {total}, and is counted as {self.counter.word}"
        return None

    def mark(self) -> Any:
        return [call for call in self.calls if call.is_acked]

    def verdict(self, value: Any, mark: Any) -> str | None:
        if value is None:
            return f"nothing was told, and {mark[0].amount} had been given" if mark else None
        given = {call.amount: call for call in self.calls if not call.is_refused}
        if value not in given:
            return f"{value} was told, which nobody gave"
        if self.counter.reducer is Reducer.LAST:
            told = given[value]
            later = [call for call in mark if call.writer == told.writer and _returned_before(told, call)]
            return f"{value} was told, and the same process had given {later[0].amount} since" if later else None
        known = self._extreme([value, *(call.amount for call in mark)])
        return None if known == value else f"{value} was told, and {known} had been given"

    def _extreme(self, values: Iterable[Any]) -> Any:
        choose: Callable[[Iterable[Any]], Any] = min if self.counter.reducer is Reducer.MIN else max
        return choose(values)


class LevelBook(Book):
    """Added to and set by everybody: in an order that only the ledger knows."""

    @property
    def has_room(self) -> bool:
        return len(self.calls) < 4 * MOST_ADDED

    @property
    def may_be_added_to(self) -> bool:
        return sum(call.verb != "set" for call in self.calls) < MOST_ADDED

    def recorded(self, total: Any, start: Any) -> str | None:
        self.total = total
        return None if self._can_be(total) else f"it became {total}, which no order of what was given makes of it"

    def mark(self) -> Any:
        return None

    def verdict(self, value: Any, mark: Any) -> str | None:
        return None if self._can_be(value) else f"{value} was told, which no order of what was given makes of it"

    def final(self) -> str | None:
        """Everything that returned is in it: each set, and what its own writer gave after it."""
        total = self.total if self.total is not None else self.counter.zero
        for base in [None, *(call for call in self.calls if call.verb == "set" and not call.is_refused)]:
            if self._ends_with(base, total):
                return None
        return f"it ended as {total}, which no order of what was given, and was told to be counted, makes of it"

    def _ends_with(self, base: Call | None, total: Any) -> bool:
        """May `base` be the set that came last; `None`: there was none."""
        must: list[Call] = []
        may: list[Call] = []
        for call in self.calls:
            if call is base or call.is_refused:
                continue
            is_later = base is None or (call.writer == base.writer and _returned_before(base, call))
            is_earlier = base is not None and call.writer == base.writer and _returned_before(call, base)
            if call.verb == "set":
                if call.is_acked and is_later:
                    return False
            elif call.is_acked and is_later:
                must.append(call)
            elif not is_earlier:
                may.append(call)
        zero: Any = self.counter.zero
        left = total - (base.amount if base is not None else zero) - sum((call.effect for call in must), zero)
        return selection(left, may, zero) is not None

    def _can_be(self, total: Any) -> bool:
        zero = self.counter.zero
        sets = [zero, *(call.amount for call in self.calls if call.verb == "set" and not call.is_refused)]
        may = [call for call in self.calls if call.verb != "set" and not call.is_refused]
        return any(selection(total - base, may, zero) is not None for base in sets)


def _returned_before(first: Call, second: Call) -> bool:
    return first.ended_at is not None and first.ended_at <= second.began

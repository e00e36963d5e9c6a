"""The shop on the panel: a line each for the queue, the schedule and the counter, below the time line of the leaders.

One sees what they have to do with each other: while nobody leads the queue grows, the job waits, and the record of the
counter stands still; then all of it is made up for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from tenure.clock import Reading
from tenure.demo.lines import Fire, Outcome, Step, Till
from tenure.demo.stage import Stage

_BARS = " ▁▂▃▄▅▆▇█"
_LOWEST_FULL = 8
"""A queue with fewer orders than this does not fill its line."""
_NAME_COLUMNS = 9

Instant = Callable[[int], int | None]
"""The boottime that a cell stands for; None: it has not come."""


class Shopfront:
    """What there is to be told of the shop, as far as it was heard."""

    def __init__(self, stage: Stage) -> None:
        orders, handlings = stage.orders(), stage.handlings()
        self._taken_ns = sorted(order.boottime_ns for order in orders if order.outcome is Outcome.DONE)
        handled: dict[str, int] = {}
        counted: dict[str, int] = {}
        begun: Counter[str] = Counter()
        for each in handlings:
            if each.step is Step.BEGUN:
                begun[each.key] += 1
            elif each.step is Step.COUNTED:
                handled[each.key] = min(each.boottime_ns, handled.get(each.key, each.boottime_ns))
                counted[each.key] = each.price
        self._handled_ns = sorted(handled.values())
        self.again = begun.total() - len(begun)
        self.given = sum(counted.values())
        self._fires: list[Fire] = sorted(stage.fires(), key=lambda fire: fire.boottime_ns)
        self._tills: list[Till] = sorted(stage.tills(), key=lambda till: till.boottime_ns)

    @property
    def handled(self) -> int:
        return len(self._handled_ns)

    def waiting_at(self, boottime_ns: int) -> int:
        """Orders that were acknowledged and not handled then."""
        taken = bisect_right(self._taken_ns, boottime_ns)
        return max(0, taken - bisect_right(self._handled_ns, boottime_ns))

    def takings_at(self, boottime_ns: int) -> int:
        """As the record had it. It never goes down, though one leader may say late what another has overtaken."""
        place = bisect_right(self._tills, boottime_ns, key=lambda till: till.boottime_ns)
        return max((till.takings for till in self._tills[:place]), default=0)

    def fired_between(self, from_ns: int, to_ns: int) -> int:
        first = bisect_right(self._fires, from_ns, key=lambda fire: fire.boottime_ns)
        return bisect_right(self._fires, to_ns, key=lambda fire: fire.boottime_ns) - first

    def last_fire_ns(self) -> int | None:
        return self._fires[-1].boottime_ns if self._fires else None


def shopfront(stage: Stage, now: Reading, beside: int, cells: int, instant: Instant) -> Table:
    """`beside`: columns that are left of the `cells`; what a cell stands for is the same as in the time line."""
    shop = Shopfront(stage)
    now_ns = now.boottime_ns
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False, width=beside + cells)
    table.add_column(width=_NAME_COLUMNS, style="dim")
    table.add_column(width=beside - _NAME_COLUMNS - 2, no_wrap=True)
    table.add_column(width=cells, no_wrap=True)
    table.add_row("queue", _queue(shop, now_ns), _depths(shop, cells, instant))
    table.add_row("schedule", _schedule(shop, now_ns), _ticks(shop, cells, instant))
    table.add_row("counter", _counter(shop, now_ns), _totals(shop, cells, instant))
    return table


def _queue(shop: Shopfront, now_ns: int) -> Text:
    waiting = shop.waiting_at(now_ns)
    text = Text(f"{shop.handled:,} handled, {waiting:,} waiting")
    if shop.again:
        text.append(f", {shop.again} again", style="magenta")
    return text


def _schedule(shop: Shopfront, now_ns: int) -> Text:
    last_ns = shop.last_fire_ns()
    if last_ns is None:
        return Text("a job, each second")
    fired = shop.fired_between(0, now_ns)
    return Text(f"{fired} fired, the last {max(0.0, (now_ns - last_ns) / 1e9):.1f} s ago")


def _counter(shop: Shopfront, now_ns: int) -> Text:
    return Text(f"{shop.takings_at(now_ns):,} in its record, {shop.given:,} given")


def _depths(shop: Shopfront, cells: int, instant: Instant) -> Text:
    """How many orders waited."""
    depths = [shop.waiting_at(at) for at in _instants(cells, instant)]
    return _bars(depths, max((_LOWEST_FULL, *depths)), "yellow")


def _totals(shop: Shopfront, cells: int, instant: Instant) -> Text:
    totals = [shop.takings_at(at) for at in _instants(cells, instant)]
    return _bars(totals, max((1, *totals)), "blue")


def _ticks(shop: Shopfront, cells: int, instant: Instant) -> Text:
    """A point for a call of the job, a number for several: those that were late."""
    text = Text(no_wrap=True)
    instants = _instants(cells, instant)
    for before, at in pairwise(instants):
        fired = shop.fired_between(before, at)
        text.append(" " if not fired else "•" if fired == 1 else str(min(fired, 9)), style="green")
    return text


def _bars(values: Sequence[int], most: int, style: str) -> Text:
    """Anything that is not nothing is to be seen."""
    highest = len(_BARS) - 1
    return Text("".join(_BARS[-(-value * highest // most)] for value in values), style=style, no_wrap=True)


def _instants(cells: int, instant: Instant) -> list[int]:
    return [at for cell in range(cells) if (at := instant(cell)) is not None]

"""The messages of one ordering key."""

from __future__ import annotations

from bisect import insort

from tenure.plugins.queue.records import Run

_CLEAR_AT = 32

Offer = tuple[int, int, str]
"""The place of a key's first message, a tie-breaker, and the key."""


class KeyQueue:
    """The messages of one ordering key, in order. There may be as many of these as messages: a deque is too large."""

    __slots__ = ("_head", "_runs", "in_flight", "offer", "offered", "reminder")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._head = 0
        """Those before it were taken, and are cleared away together."""
        self.in_flight = 0
        self.offer: Offer | None = None
        """What of `key_heaps` counts: all others of this key are out of date."""
        self.offered = 0
        """The priority under which it is."""
        self.reminder = 0
        """When this key is looked at again (ms), if that was asked for."""

    def __len__(self) -> int:
        return len(self._runs) - self._head

    @property
    def waiting(self) -> list[Run]:
        return self._runs[self._head :]

    @property
    def first(self) -> Run | None:
        return self._runs[self._head] if self._head < len(self._runs) else None

    def begin_with(self, most: int) -> list[Run]:
        return self._runs[self._head : self._head + most]

    def add(self, run: Run) -> None:
        runs, head = self._runs, self._head
        if len(runs) == head or runs[-1].order < run.order:
            runs.append(run)
        elif head and run.order < runs[head].order:
            self._head -= 1
            runs[self._head] = run
        else:
            insort(runs, run, lo=head, key=_order)

    def take(self, wanted: Run) -> bool:
        """Remove one message; those that are given out are the first ones."""
        runs = self._runs
        for place in range(self._head, len(runs)):
            run = runs[place]
            if run.low == wanted.low and run.high == wanted.high and run.segment == wanted.segment:
                break
        else:
            return False
        if place > self._head:
            del runs[place]
            return True
        self._head += 1
        if self._head == len(runs) or (self._head >= _CLEAR_AT and self._head * 2 >= len(runs)):
            del runs[: self._head]
            self._head = 0
        return True

    def clear(self) -> None:
        self._runs, self._head, self.offer, self.reminder = [], 0, None, 0


def _order(run: Run) -> int:
    return run.order

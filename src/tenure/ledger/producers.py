"""Which batches of which producers were folded: so that each counts once, however often it is sent (L-6). Pure.

A producer numbers its batches from 1. Remembered of it are the number up to which all were folded, and those above that
were folded ahead of others: at most as many as it has under way.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

import msgspec

from tenure.ledger.layout import InboxName

MAX_AHEAD = 1000
"""A producer has far fewer batches under way, and given up on, than this."""


class Verdict(enum.Enum):
    FOLD = "fold"
    DUPLICATE = "duplicate"
    """It was folded; this is a late or repeated copy."""
    EARLY = "early"
    """Something that its producer knew to be durable before has not been folded yet."""
    STRANGER = "stranger"
    """Its producer is not remembered, and it is so old that it may have been folded and forgotten."""


class Remembered(msgspec.Struct):
    through: int = 0
    """All numbers up to this were folded."""
    above: list[int] = []
    """And these, which are greater."""
    seq: int = 0
    """The entry that last folded something of it ..."""
    time_ms: int = 0
    """... and its time."""


class Producers:
    def __init__(self) -> None:
        self.known: dict[str, Remembered] = {}
        self.horizon = 0

    def judge(self, name: InboxName, after: int, skipped: Collection[int] = (), ahead: Collection[int] = ()) -> Verdict:
        """`after`: the number up to which its producer knew all its batches to be durable when it sent this one, except
        those that it `skipped`: it has given up on them, and told its callers that it does not know. `ahead`: others
        that it knew to be durable."""
        found = self.known.get(name.uid)
        if found is None:
            if name.known < self.horizon:
                return Verdict.STRANGER
            found = Remembered()
        if name.number <= found.through or name.number in found.above:
            return Verdict.DUPLICATE
        missing = range(found.through + 1, after + 1)
        if len(missing) > MAX_AHEAD or any(number not in found.above and number not in skipped for number in missing):
            return Verdict.EARLY
        if any(number > found.through and number not in found.above for number in ahead):
            return Verdict.EARLY
        return Verdict.FOLD

    def is_done(self, name: InboxName) -> bool:
        """Was it folded, or is it not to be? Needs its name alone."""
        found = self.known.get(name.uid)
        if found is None:
            return name.known < self.horizon
        return name.number <= found.through or name.number in found.above

    def fold(self, uid: str, numbers: Iterable[int], seq: int, time_ms: int) -> None:
        found = self.known.get(uid)
        if found is None:
            found = self.known[uid] = Remembered()
        above = set(found.above)
        above.update(number for number in numbers if number > found.through)
        while found.through + 1 in above:
            found.through += 1
            above.discard(found.through)
        found.above = sorted(above)
        found.seq, found.time_ms = max(found.seq, seq), max(found.time_ms, time_ms)

    def resume(self, uid: str, through: int) -> None:
        """A producer that had been forgotten is heard of again: everything up to this number was folded before."""
        found = self.known.setdefault(uid, Remembered())
        found.through = max(found.through, through)
        found.above = [number for number in found.above if number > found.through]

    def silent(self, before_ms: int, present: Iterable[str]) -> list[str]:
        """Who was last folded before that time, and has nothing in the inbox."""
        there = set(present)
        return [uid for uid, found in self.known.items() if found.time_ms < before_ms and uid not in there]

    def horizon_without(self, uids: Iterable[str]) -> int:
        """Every batch of a producer was sent when the log was shorter than the entry that folded it: below the highest
        such entry of those who are forgotten, a copy of theirs cannot be told from a stranger's first batch."""
        return max([self.horizon, *(self.known[uid].seq for uid in uids)])

    def forget(self, uids: Iterable[str], horizon: int) -> None:
        for uid in uids:
            self.known.pop(uid, None)
        self.horizon = max(self.horizon, horizon)

    def snapshot(self) -> dict[str, Remembered]:
        return {
            uid: Remembered(found.through, list(found.above), found.seq, found.time_ms)
            for uid, found in self.known.items()
        }

    def restore(self, known: dict[str, Remembered], horizon: int) -> None:
        self.known, self.horizon = known, horizon

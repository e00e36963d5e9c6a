"""Watches processes that contend for a lock, from outside: true time, the bucket's history, and what each is told.

`is_held()` remembers an answer of false, which may hide a mistake: the judge takes that back after it has asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.coordinator.lock import Held
from tenure.coordinator.lock.records import LockRecord, decode_lock, lock_key
from tenure.testing.bucket import OUTSIDE, Write
from tenure.testing.checkers import Judge
from tenure.testing.host import Host
from tenure.testing.world import World

if TYPE_CHECKING:
    from tenure.simulate.lock_fleet import Contender

LOCK = "job"
KEY = lock_key(LOCK)


class LockJudge(Judge):
    """One holder, rising tokens, bodies that end in time, honest answers; at the end, somebody gets it."""

    def __init__(self, world: World, until: str | None = None) -> None:
        super().__init__(world, until)
        self.contenders: Sequence[Contender] = ()
        self.grants: list[tuple[float, str, int]] = []
        """(true time, process, token)."""
        self.highest = 0
        """The highest token that was given out."""
        self._written_tokens = 0
        self._taken: dict[int, str] = {}
        self._was_put_back = False
        self._losses: set[int] = set()
        self._over: set[int] = set()

    # One holder at every instant

    def stepped(self, host: Host) -> None:
        """After each step of a process."""
        for each in self.contenders:
            if each.host.frozen:
                each.paused_at = self._world.now
            if each.host.alive:
                self._see_ends(each)
        believing = [(each.name, token) for each in self.contenders for token in each.believing()]
        if len(believing) > 1:
            self.report("one-holder", f"{believing} would all hear true from is_held()")
            return
        entitled = [(each.name, token) for each in self.contenders for token in each.entitled()]
        if len(entitled) > 1:
            self.report("one-holder", f"{entitled} may all still be at work")

    def _see_ends(self, each: Contender) -> None:
        for tenancy in each.tenancies:
            held = tenancy.held
            if held._ended == "taken" and held.token not in self._losses:
                self.lost(each.name, held.token)
            if held._ended is not None or is_past(held):
                self._over.add(held.token)
            elif held.token in self._over and would_be_held(held):
                self.revived(each.name, held.token)

    def lost(self, name: str, token: int) -> None:
        """A process gave its lock up as taken: there must have been another grant."""
        self._losses.add(token)
        if self._written_tokens <= token and not self._was_put_back:
            self.report("honest-loss", f"{name} gave up token {token} as taken, and nobody had taken it")

    # Tokens

    def granted(self, who: Contender, token: int) -> None:
        if token <= self.highest:
            self.report("tokens", f"token {token} was given to {who.name} after token {self.highest}")
        self.highest = max(self.highest, token)
        self.grants.append((self._world.now, who.name, token))
        for other in self.contenders:
            # A body that was stopped with its whole process cannot have been cancelled in time; any other must.
            began = other.body_since
            stood_still = other.host.frozen or (began is not None and other.paused_at >= began)
            if other is not who and began is not None and other.host.alive and not stood_still:
                self.report("body", f"{who.name} holds token {token}, and what {other.name} does under it goes on")

    def written(self, write: Write) -> None:
        if write.key != KEY:
            return
        record = decode_lock(write.new or b"", LOCK)
        if write.host == OUTSIDE:
            known = self._taken.get(self._written_tokens)
            self._was_put_back |= not isinstance(record, LockRecord) or record.uid != known
            return
        if not isinstance(record, LockRecord):
            self.report("record", f"{write.host} wrote a record that cannot be read: {record}")
            return
        if record.token < self._written_tokens:
            self.report("record", f"{write.host} wrote token {record.token} after token {self._written_tokens}")
        if self._taken.setdefault(record.token, record.uid) != record.uid:
            self.report("record", f"token {record.token} was taken by {self._taken[record.token]} and {record.uid}")
        self._written_tokens = max(self._written_tokens, record.token)

    # What holders are told

    def revived(self, name: str, token: int) -> None:
        """A lock that was over is held."""
        self.report("for-good", f"token {token} of {name} was over, and is held again")

    def left(self, name: str, token: int, was_ours: bool) -> None:
        """A process was told, at the end, whether the lock had been its own until then."""
        if was_ours and self.highest > token:
            self.report("release", f"{name} was told that token {token} was its own to the end, and {self.highest} was")

    # Liveness

    def check_taken_over(self, before: int, seconds: float) -> None:
        """There were so many grants `seconds` ago, a bound: since then somebody must have got it."""
        if len(self.grants) == before:
            self.report("liveness", f"nobody has got the lock for {seconds:.0f} s, and nothing goes wrong any more")

    def check_each_got_it(self, before: Counter[str], seconds: float) -> None:
        starved = [each.name for each in self.contenders if each.grants == before[each.name]]
        if starved:
            self.report("starved", f"{starved} did not get the lock within {seconds:.0f} s in which nothing went wrong")


def is_past(held: Held) -> bool:
    """Has its deadline passed, by clocks that never go back? (One that a wall clock ended may revive, until asked.)"""
    holding = held._holding
    return held._clock.read().leader_elapsed(holding.since) >= holding.leads_for


def would_be_held(held: Held) -> bool:
    """What `is_held()` would say, without its being remembered."""
    ended = held._ended
    answer = held.is_held()
    held._ended = ended
    return answer

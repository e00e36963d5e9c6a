"""The decisions of a lock, without a clock, a store or randomness of their own: the lease's rules E-1, E-2 and E-4.

A holder counts its time from before it sent the write that is in force, and shorter by the drift; a waiter counts from
after it saw that write, and longer by the drift. So the holder has stopped believing before anybody may take over.
"""

from __future__ import annotations

import msgspec

from tenure.clock import Reading
from tenure.coordinator.lock.records import MAX_TOKEN, LockRecord
from tenure.election.records import Damage, TooNew
from tenure.store.outcome import Version

DRIFT = 0.01
"""Each clock is assumed to run within this fraction of true time."""
MARGIN_SECONDS = 0.1
_HELD_FRACTION = 0.75
_LONGEST_REQUEST = 5.0
_SHORTEST_POLL = 0.05
_LONGEST_POLL = 1.0
_POLL_GROWTH = 1.5


class LockRules(msgspec.Struct, frozen=True):
    """Everything that follows from the time to live."""

    ttl: float
    drift: float = DRIFT
    margin: float = MARGIN_SECONDS

    @property
    def lasts(self) -> float:
        """Seconds of the holder's clock during which nobody else may take it."""
        return self.ttl * (1 - self.drift)

    @property
    def held_for(self) -> float:
        """Seconds after which a holder that could not renew gives up. The rest, to `lasts`, is for winding up."""
        return self.ttl * _HELD_FRACTION

    @property
    def renew_every(self) -> float:
        return self.ttl / 3

    @property
    def renew_retry(self) -> float:
        return min(max(_SHORTEST_POLL, self.ttl / 30), 1.0)

    @property
    def request_timeout(self) -> float:
        """A lost answer must leave time for another try before `held_for` is over."""
        return min(_LONGEST_REQUEST, self.ttl / 4)

    @property
    def nap(self) -> float:
        """Timers stand still while a machine sleeps: a holder that wakes up must notice soon that it was lost."""
        return min(max(_SHORTEST_POLL, self.ttl / 20), 0.5)

    def lapses_after(self, ttl: float) -> float:
        """Seconds of a waiter's clock after which a record with this ttl, not written meanwhile, may be taken."""
        return ttl * (1 + self.drift) + self.margin


class Absent(msgspec.Struct, frozen=True):
    """There is no record: a lock that nobody has ever held."""


Found = LockRecord | Damage | TooNew | Absent


class Known(msgspec.Struct, frozen=True):
    """The furthest that this watcher has seen the lock get. What is behind it was put back."""

    token: int = 0
    uid: str = ""


class Sight(msgspec.Struct, frozen=True):
    """The record as last read."""

    found: Found
    version: Version | None
    since: Reading
    """After the answer that first showed this write of its holder, without a gap since then."""
    last: Reading
    """After the answer that last showed it."""


class Take(msgspec.Struct, frozen=True):
    """Write the record, on the condition that it is still as seen."""

    token: int
    over_lapsed: bool = False


class Wait(msgspec.Struct, frozen=True):
    """It is held. `seconds`: until it may be taken, if its holder does not write again."""

    seconds: float


class Refuse(msgspec.Struct, frozen=True):
    """Nobody may have it until somebody has put the record right."""

    why: Damage | TooNew


Action = Take | Wait | Refuse


def judge(found: Found, known: Known) -> Found:
    """A readable record may still be an old one. `known`: as it was when the request was sent."""
    if isinstance(found, Absent) and known.token:
        return Damage(f"it is gone, and token {known.token} had been given out")
    if not isinstance(found, LockRecord):
        return found
    if found.token < known.token:
        return Damage(f"rolled back: token {found.token} after token {known.token} had been seen")
    if found.token == known.token and found.uid != known.uid:
        return Damage(f"token {found.token} was given out twice")
    if found.token >= MAX_TOKEN:
        return Damage(f"token {found.token} is the last there can be")
    return found


def observe(before: Sight | None, found: Found, version: Version | None, now: Reading) -> Sight:
    """Fold one look, whose answer came before `now`, into what was seen.

    A watcher that looked away for a whole ttl begins anew: it could not tell a record that was put back meanwhile.
    """
    same = (
        before is not None
        and _mark(before.found) == _mark(found)
        and isinstance(found, LockRecord)
        and now.follower_elapsed(before.last) <= found.ttl_seconds
        and not _was_put_back(before, found, version)
    )
    return Sight(found, version, before.since if before is not None and same else now, now)


def decide(rules: LockRules, sight: Sight, uid: str, now: Reading) -> Action:
    """What the contender `uid` does about what it sees."""
    found = sight.found
    if isinstance(found, Damage | TooNew):
        return Refuse(found)
    if isinstance(found, Absent):
        return Take(1)
    if found.released or found.uid == uid:  # its own: granted too late to be of use, so it is granted anew
        return Take(found.token + 1)
    left = rules.lapses_after(found.ttl_seconds) - now.follower_elapsed(sight.since)
    return Wait(left) if left > 0 else Take(found.token + 1, over_lapsed=True)


def longest_poll(ttl: float) -> float:
    """Seconds between two looks at a lock whose record has this ttl, at most (jitter comes on top: a quarter)."""
    return min(max(_SHORTEST_POLL, ttl / 10), _LONGEST_POLL)


def next_poll(before: float, ttl: float) -> float:
    """Looks come quickly at first, since most locks are held briefly, and then ever more slowly."""
    return min(max(_SHORTEST_POLL, before * _POLL_GROWTH), longest_poll(ttl))


def _mark(found: Found) -> str:
    """What is being timed."""
    return f"holder {found.holder_write_id}" if isinstance(found, LockRecord) else type(found).__name__


def _was_put_back(before: Sight, found: Found, version: Version | None) -> bool:
    """Each write of ours has a fresh id, so the same write under another version was put there by somebody, who may
    have hidden writes that came between."""
    return (
        isinstance(before.found, LockRecord)
        and isinstance(found, LockRecord)
        and before.found.write_id == found.write_id
        and before.version is not None
        and version is not None
        and not before.version.matches(version)
    )

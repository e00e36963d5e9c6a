"""What a process has seen of the lease, and since when: rules E-2 and E-9.

A follower times the *leader's* last write (`leaderWriteId`), from after the answer that first showed it. A record that
is damaged is timed by its version.
"""

from __future__ import annotations

import msgspec

from tenure.clock import Reading
from tenure.election.records import Damage, State, TooNew
from tenure.store.outcome import Version


class Absent(msgspec.Struct, frozen=True):
    """There is no lease. `history`: the highest epoch in `terms/`, 0 if it is empty, `None` if nobody looked yet."""

    history: int | None = None


Found = State | Damage | TooNew | Absent


class Known(msgspec.Struct, frozen=True):
    """The furthest that this process has seen the namespace get. What is behind it was rolled back."""

    epoch: int = 0
    grant_id: str | None = None
    renewals: int = -1

    def with_state(self, state: State) -> Known:
        return Known(state.epoch, state.grant_id, state.renewals)

    def with_history(self, epoch: int) -> Known:
        """A term record above everything seen: the lease must be at least there."""
        return self if epoch <= self.epoch else Known(epoch)


class Sight(msgspec.Struct, frozen=True):
    """The lease as last read."""

    found: Found
    version: Version | None
    since: Reading
    """After the answer that first showed this, without a gap since then."""
    last: Reading
    """After the answer that last showed it."""
    body: bytes = b""
    """What could not be read, to be set aside."""

    @property
    def mark(self) -> str:
        """What is being timed. Another mark means that something happened."""
        return mark_of(self.found, self.version)


def mark_of(found: Found, version: Version | None) -> str:
    if isinstance(found, State):
        return f"lease {found.leader_write_id}"
    # With the history: between two looks the lease may have been rebuilt, and damaged again in the same way.
    if isinstance(found, Absent):
        return f"absent {found.history or 0}"
    at = "none" if version is None else f"{version.e_tag} {version.generation}"
    return f"{type(found).__name__} {at} {found.history if isinstance(found, Damage) else ''}"


def judge(
    found: Found, version: Version | None, known: Known, before: Sight | None, *, longest_lease: float = float("inf")
) -> Found:
    """A readable lease may still be an old one that was put back, or one that nobody of ours can have written."""
    if not isinstance(found, State):
        return found
    complaint = _complaint(found, version, known, before, longest_lease)
    return found if complaint is None else Damage(complaint, lease=found.lease_seconds)


def _complaint(
    found: State, version: Version | None, known: Known, before: Sight | None, longest_lease: float
) -> str | None:
    if found.lease_seconds > longest_lease:
        return f"a lease of {found.lease_seconds:g} s, and the longest allowed is {longest_lease:g} s"
    if found.epoch < known.epoch:
        return f"rolled back: epoch {found.epoch} after epoch {known.epoch} had been seen"
    if found.epoch == known.epoch and known.grant_id is not None:
        if found.grant_id != known.grant_id:
            return f"epoch {found.epoch} was granted twice"
        if found.renewals < known.renewals:
            return f"rolled back: renewal {found.renewals} after renewal {known.renewals} had been seen"
    if (
        before is not None
        and isinstance(before.found, State)
        and before.version is not None
        and version is not None
        and before.found.write_id == found.write_id
        and not before.version.matches(version)
    ):
        # Every write of ours has a fresh id, so the same bytes under another version were put back by somebody, who
        # may have hidden writes that came between.
        return "rolled back: the same write under another version"
    return None


def observe(
    before: Sight | None, found: Found, version: Version | None, now: Reading, *, body: bytes = b"", max_gap: float
) -> Sight:
    """Fold one look, whose answer came before `now`, into what was seen.

    `max_gap`: after so long without a look the watch begins anew. Writes never repeat a `leaderWriteId`, but a backup
    that is put back does; a process that looked away for a whole lease could not tell that from a leader that died.
    """
    same = (
        before is not None and before.mark == mark_of(found, version) and now.follower_elapsed(before.last) <= max_gap
    )
    since = before.since if before is not None and same else now
    return Sight(found, version, since, now, b"" if isinstance(found, State) else body)

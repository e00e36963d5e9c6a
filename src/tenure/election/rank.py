"""Who may take over first: rule E-7. Rank only spreads candidates out in time; the compare-and-swap decides."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.election.records import Member

MAX_STEPS = 5
"""The wait for one's turn is bounded, however many are before us."""


def ranked(members: Iterable[Member], *, lapsed_uid: str | None = None) -> list[Member]:
    """Those who may lead, by priority, best first, then by id. Whoever let the lease lapse comes last, whatever its
    record says."""
    candidates = (member for member in members if member.eligible)
    return sorted(candidates, key=lambda member: (member.uid == lapsed_uid, -member.priority, member.worker_id))


def first(members: Iterable[Member]) -> Member | None:
    """The first of `ranked`, in one pass: leaders ask at each heartbeat, of fleets of any size."""
    candidates = (member for member in members if member.eligible)
    return min(candidates, key=lambda member: (-member.priority, member.worker_id), default=None)


def precedes(member: Member, other: Member) -> bool:
    """Does `member` come before `other`, if it may lead?"""
    return member.eligible and (-member.priority, member.worker_id) < (-other.priority, other.worker_id)


def successor(members: Iterable[Member], holder_uid: str) -> Member | None:
    """Who is next when the holder leaves."""
    return first(member for member in members if member.uid != holder_uid)

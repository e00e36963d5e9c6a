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


def position(members: Iterable[Member], uid: str, *, lapsed_uid: str | None = None) -> int:
    """How many come before `uid`; everyone, if it is not among them."""
    order = ranked(members, lapsed_uid=lapsed_uid)
    return next((index for index, member in enumerate(order) if member.uid == uid), len(order))


def steps(place: int) -> int:
    return min(place, MAX_STEPS)


def successor(members: Iterable[Member], holder_uid: str) -> Member | None:
    """Who is next when the holder leaves."""
    return next((member for member in ranked(members) if member.uid != holder_uid), None)

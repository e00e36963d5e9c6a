"""What a candidate reports: `tenure.coordinator.became_leader` and its like."""

from __future__ import annotations

from typing import ClassVar, TypeAlias, get_args

import msgspec


class BecameLeader(msgspec.Struct, frozen=True):
    name: ClassVar[str] = "tenure.coordinator.became_leader"
    time: float
    """Seconds since 1970 on this node's wall clock."""
    node: str
    epoch: int


class LostLeadership(msgspec.Struct, frozen=True):
    name: ClassVar[str] = "tenure.coordinator.lost_leadership"
    time: float
    node: str
    epoch: int
    reason: str


class LeaderDown(msgspec.Struct, frozen=True):
    """The node that led does so no more, as seen from this one."""

    name: ClassVar[str] = "tenure.coordinator.leader_down"
    time: float
    node: str
    former_leader: str


class ElectionCheck(msgspec.Struct, frozen=True):
    """At every `election_interval`: who leads."""

    name: ClassVar[str] = "tenure.coordinator.election_check"
    time: float
    node: str
    current_leader: str | None


class ChildGivenUp(msgspec.Struct, frozen=True):
    """A child failed more often than its restart policy allows."""

    name: ClassVar[str] = "tenure.coordinator.child_given_up"
    time: float
    node: str
    child: str


class TwoStaticCoordinators(msgspec.Struct, frozen=True):
    """Without election, more than one node was told to run the children."""

    name: ClassVar[str] = "tenure.coordinator.two_static_coordinators"
    time: float
    node: str
    others: tuple[str, ...]


Telemetry: TypeAlias = BecameLeader | LostLeadership | LeaderDown | ElectionCheck | ChildGivenUp | TwoStaticCoordinators
TELEMETRY_NAMES: frozenset[str] = frozenset(kind.name for kind in get_args(Telemetry))

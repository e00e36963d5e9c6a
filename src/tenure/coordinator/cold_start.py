"""The first election of a new namespace, taken slowly: look around, elect, let things settle, then work (CP-3).

Pure: what was seen and the time are handed in. It happens only where nobody ever led; a namespace with a history, or
with a leader, is joined at once.
"""

from __future__ import annotations

import enum

import msgspec

from tenure.clock import Reading
from tenure.election.records import State
from tenure.election.sight import Absent, Found


class Phase(enum.Enum):
    OBSERVING = "observing"
    """Nobody stands yet: others may be about to start."""
    ELECTION = "election"
    PREPARATION = "preparation"
    """This process leads, and its plugins are told a little later."""
    READY = "ready"


class ColdStartPlan(msgspec.Struct, frozen=True):
    """What a plugin asks for, in seconds."""

    observation_window: float = 15.0
    preparation_delay: float = 5.0

    def at_least(self, other: ColdStartPlan) -> ColdStartPlan:
        """Several plugins of one process share one cold start, as long as the longest that any asked for."""
        return ColdStartPlan(
            max(self.observation_window, other.observation_window),
            max(self.preparation_delay, other.preparation_delay),
        )


class ColdStart:
    """Where the cold start of one process in one namespace has got to."""

    def __init__(self, plan: ColdStartPlan) -> None:
        self.plan = plan
        self.phase: Phase | None = None
        """`None`: nothing was seen yet, so that it is not known whether there is one."""
        self._since: Reading | None = None

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.READY

    def held_back_for(self, now: Reading) -> float:
        """Seconds for which this process may not stand."""
        if self.phase is not Phase.OBSERVING or self._since is None:
            return 0.0
        return self.plan.observation_window - now.follower_elapsed(self._since)

    def advance(self, found: Found | None, leading: bool, now: Reading) -> tuple[Phase, float] | None:
        """The phase that begins now, and how many seconds the one before it took; `None`: nothing changes."""
        before, since = self.phase, self._since
        if self.phase is None:
            if found is None or (isinstance(found, Absent) and found.history is None):
                return None
            if not isinstance(found, Absent) or found.history:
                self.phase = Phase.READY  # skipped: somebody leads, or has led, and nothing is cold
                return None
            self._enter(Phase.OBSERVING, now)
        elif self.phase is Phase.PREPARATION:
            if not leading or now.leader_elapsed(since or now) >= self.plan.preparation_delay:
                self._enter(Phase.READY, now)
        elif self.phase is not Phase.READY:
            if leading:
                self._enter(Phase.PREPARATION, now)
            elif isinstance(found, State):
                self._enter(Phase.READY, now)
            elif self.phase is Phase.OBSERVING and self.held_back_for(now) <= 0:
                self._enter(Phase.ELECTION, now)
        if self.phase is None or self.phase is before:
            return None
        return self.phase, now.leader_elapsed(since) if since is not None else 0.0

    def _enter(self, phase: Phase, now: Reading) -> None:
        self.phase, self._since = phase, now

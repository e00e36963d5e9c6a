"""When a child that ended is started again, and when it is left alone. Pure: the time and the dice are handed in."""

from __future__ import annotations

import enum
from collections import deque

import msgspec

from tenure.clock import Reading
from tenure.coordinator.config import seconds
from tenure.errors import ConfigError
from tenure.plugins.supervisor.child import Restart

_MAX_RESTARTS = 1000


class GiveUp(enum.Enum):
    """What follows when a child failed too often."""

    REPORT = "report"
    """The child is left alone for this term, which is told; the others go on."""
    STEP_DOWN = "step down"
    """This node stops leading, so that another one may try. If the cause is everywhere, leadership goes round."""


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how soon."""

    max_restarts: int = 5
    """In `within` seconds; one more failure, and the child is left alone."""
    within: float = 60.0
    first_backoff: float = 0.5
    """Seconds before the first restart; doubled with each failure in a row, up to `longest_backoff`."""
    longest_backoff: float = 30.0
    give_up: GiveUp = GiveUp.REPORT

    def __post_init__(self) -> None:
        count = self.max_restarts
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MAX_RESTARTS:
            raise ConfigError(f"max_restarts is {count!r}: it must be a whole number from 0 to {_MAX_RESTARTS}")
        for name in ("within", "longest_backoff"):
            msgspec.structs.force_setattr(self, name, seconds(name, getattr(self, name)))
        first = seconds("first_backoff", self.first_backoff, zero=True)
        msgspec.structs.force_setattr(self, "first_backoff", first)
        if first > self.longest_backoff:
            raise ConfigError(f"first_backoff is {first:g} s: it must not be over longest_backoff")
        if not isinstance(self.give_up, GiveUp):
            raise ConfigError(f"give_up is {self.give_up!r}: it must be one of {list(GiveUp)}")


class Done(msgspec.Struct, frozen=True):
    """It is not started again, and that is as it should be."""


class Again(msgspec.Struct, frozen=True):
    """It is started again after so many seconds."""

    pause: float


class TooOften(msgspec.Struct, frozen=True):
    """It failed more often than the policy allows."""

    failures: int


class Intensity:
    """What one child's ends have amounted to, in one term."""

    def __init__(self, policy: RestartPolicy, restart: Restart) -> None:
        self._policy = policy
        self._restart = restart
        self._ends: deque[Reading] = deque(maxlen=policy.max_restarts + 1)
        self._in_a_row = 0

    def ended(self, failed: bool, ran: float, now: Reading, dice: float) -> Done | Again | TooOften:
        """It ran for `ran` seconds, and failed or returned. `dice`, from 0 to 1, spreads restarts."""
        if self._restart is Restart.TEMPORARY or (self._restart is Restart.TRANSIENT and not failed):
            return Done()
        policy = self._policy
        self._in_a_row = 1 if ran >= policy.within else self._in_a_row + 1
        self._ends.append(now)
        # The larger estimate would forget failures too early.
        recent = sum(now.follower_elapsed(end) <= policy.within for end in self._ends)
        if recent > policy.max_restarts:
            return TooOften(recent)
        pause = min(policy.longest_backoff, policy.first_backoff * 2.0 ** min(self._in_a_row - 1, 30))
        return Again(pause * (0.5 + dice / 2))

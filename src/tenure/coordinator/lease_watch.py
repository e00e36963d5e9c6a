"""Whom a process may name as leader, from the answers that it had (rule E-2).

It decides nothing: who stands goes by `tenure.election.decide`. So looks may be any time apart here: a write that is
still the last one was not renewed in between.
"""

from __future__ import annotations

import math

from tenure.clock import Reading
from tenure.election.decide import Rules
from tenure.election.records import State
from tenure.election.sight import Sight, mark_of, observe


class LeaseWatch:
    """What was last read of the lease, and since when it has been the same. May be asked from any thread."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._seen: tuple[State, Sight] | None = None

    def saw(self, state: State, heard: Reading, sent: Reading | None = None) -> None:
        """An answer. With `sent`, it does not count against another that was heard after this was asked for."""
        before = self._seen[1] if self._seen is not None else None
        is_older = before is not None and sent is not None and sent.follower_elapsed(before.last) < 0
        if is_older and before is not None and before.mark != mark_of(state, None):
            return
        self._seen = (state, observe(before, state, None, heard, max_gap=math.inf))

    def forget(self) -> None:
        self._seen = None

    def leader(self, now: Reading) -> str | None:
        """The holder, until its lease was watched for its length, or was not shown by any answer for as long."""
        if self._seen is None:
            return None
        state, sight = self._seen
        silent = now.follower_elapsed(sight.last) >= self._rules.lapses_after(state.lease_seconds)
        return None if silent or self._has_lapsed(state, sight) else state.leader_id

    def age(self, now: Reading) -> float | None:
        """Seconds since the last answer; `None`: there was none."""
        seen = self._seen
        return None if seen is None else max(0.0, now.follower_elapsed(seen[1].last))

    def gone(self, now: Reading, worker_timeout: float) -> str | None:
        """The uid of a holder that let its lease lapse, and has not been heard of for `worker_timeout`."""
        if self._seen is None:
            return None
        state, sight = self._seen
        silent = now.follower_elapsed(sight.since) >= worker_timeout
        return state.uid if silent and self._has_lapsed(state, sight) else None

    def _has_lapsed(self, state: State, sight: Sight) -> bool:
        """Answers have shown the same write for so long that nobody can rely on it any more."""
        return sight.last.follower_elapsed(sight.since) >= self._rules.lapses_after(state.lease_seconds)

"""Which tasks of which leader are still good. Pure: the time is handed in.

Guarantee: a task of an epoch below the last one known here is refused, except for the one epoch just before it, and for
that one only within the grace period from when this process learned of the change, on its own elapsed clock.

Not guaranteed: that nothing of a former leader is ever done. Grace is for tasks that were on their way when the leader
changed. Fenced writes, ledger entries and tickets know no grace.
"""

from __future__ import annotations

import logging
from typing import Literal

import msgspec

from tenure.clock import Reading
from tenure.coordinator.seldom import Seldom

_logger = logging.getLogger("tenure.coordinator")


class EpochValidation(msgspec.Struct, frozen=True):
    """What became of one task's epoch. True if the task may be done: `if not plugin.validate_epoch(epoch): return`."""

    valid: bool
    reason: Literal["current", "grace_period", "stale"]
    task_epoch: int
    current_epoch: int
    """The highest epoch known, that of this task included. 0: none yet."""

    def __bool__(self) -> bool:
        return self.valid


class EpochFence:
    """Remembers the highest epoch seen, and judges tasks by it."""

    def __init__(self, enabled: bool = True, grace_period: float = 5.0) -> None:
        self._enabled = enabled
        self._grace_period = grace_period
        self._current = 0
        self._seldom = Seldom(_logger)
        self._changed_at: Reading | None = None
        self.drift_events = 0
        """Tasks that were refused."""

    @property
    def current_epoch(self) -> int:
        """The highest epoch known. 0: none yet."""
        return self._current

    def observe(self, epoch: int, now: Reading) -> None:
        """A leader of this epoch is known to have been elected. A lower one than before changes nothing."""
        if epoch <= self._current:
            return
        # The first epoch that a process hears of may be hours old: it has seen no change, and grants no grace.
        self._changed_at = now if self._current else None
        self._current = epoch

    def validate_epoch(self, task_epoch: int, now: Reading, dispatched_ago: float | None = None) -> EpochValidation:
        """Judge a task that has arrived now. `dispatched_ago` (seconds, by its own stamp) can only narrow the grace."""
        if not self._enabled:
            return EpochValidation(True, "current", task_epoch, self._current)
        self.observe(task_epoch, now)
        if task_epoch == self._current:
            return EpochValidation(True, "current", task_epoch, self._current)
        if task_epoch == self._current - 1 and self._is_in_grace(now, dispatched_ago):
            text = "a task of epoch %d arrived late, and is accepted: it is %d now"
            self._seldom.warning(now, text, task_epoch, self._current)
            return EpochValidation(True, "grace_period", task_epoch, self._current)
        self.drift_events += 1
        self._seldom.warning(now, "a task of epoch %d is refused: it is %d now", task_epoch, self._current)
        return EpochValidation(False, "stale", task_epoch, self._current)

    def is_epoch_valid(self, task_epoch: int, now: Reading, dispatched_ago: float | None = None) -> bool:
        """`validate_epoch(...).valid`."""
        return self.validate_epoch(task_epoch, now, dispatched_ago).valid

    def _is_in_grace(self, now: Reading, dispatched_ago: float | None) -> bool:
        if self._changed_at is None or (dispatched_ago is not None and not dispatched_ago <= self._grace_period):
            return False
        # The larger estimate of what has passed: a doubtful clock may shorten the grace, and never lengthens it.
        return now.leader_elapsed(self._changed_at) <= self._grace_period

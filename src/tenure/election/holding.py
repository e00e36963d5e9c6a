"""How long a leader may believe in its lease: rules E-1 and E-4, without a clock of their own."""

from __future__ import annotations

import msgspec

from tenure.clock import Reading

WALL_TOLERANCE_SECONDS = 1.0


class Holding(msgspec.Struct, frozen=True):
    """A lease that this process holds, measured from the moment *before* a write of it was sent.

    `valid`: nobody else may hold it. `leads`: less than that, so that hooks can finish while it is still valid.
    """

    since: Reading
    lasts: float
    """Seconds of the leader's clock after `since` during which nobody else may take it."""
    leads_for: float
    """Seconds after `since` at which the term ends for good (`renew_deadline`)."""

    def remaining(self, now: Reading) -> float:
        """Seconds for which it is still valid; zero or less: it is over."""
        return self._left(now, self.lasts)

    def leading(self, now: Reading) -> float:
        """Seconds for which its holder may still say that it leads."""
        return self._left(now, self.leads_for)

    def sending(self, now: Reading, lasts: float) -> Holding:
        """Before a write that grants `lasts` seconds is sent: it may be the one that counts, so it can only shorten.

        A release grants 0.
        """
        if lasts <= 0:
            # For good, also if what made it seem over already is put right.
            return Holding(now, min(0.0, self.remaining(now)), 0.0)
        if lasts >= self.remaining(now):
            return self
        return Holding(now, lasts, min(lasts, max(0.0, self.leading(now))))

    def confirmed(self, sent: Reading, lasts: float, leads_for: float) -> Holding:
        """A write was confirmed. It counts from *its own* sending, also where another was sent later:
        followers time what they see, and that is this one."""
        return Holding(sent, lasts, leads_for)

    def _left(self, now: Reading, span: float) -> float:
        # A guest that was stopped without noticing shows it by a wall clock that was put right: end early, never late.
        if now.wall_ran_ahead(self.since) > WALL_TOLERANCE_SECONDS:
            return 0.0
        return span - now.leader_elapsed(self.since)

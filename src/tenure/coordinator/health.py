"""Is this worker fit to lead? With hysteresis: one bad answer deposes nobody, and one good one makes nobody fit."""

from __future__ import annotations


class HealthGate:
    """Turns single answers into a judgement."""

    def __init__(self, unhealthy_after: int, healthy_after: int, *, known: bool = True) -> None:
        """Unless it is `known` to be healthy, the first answer decides at once."""
        self._unhealthy_after = unhealthy_after
        self._healthy_after = healthy_after
        self._in_a_row = 0
        self._known = known
        self.healthy = known

    def observe(self, answer: bool) -> bool:
        """Take one answer in; True if that is news: the judgement changed, or begins with a no."""
        if not self._known:
            self._known, self.healthy = True, answer
            return not answer
        if answer == self.healthy:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        needed = self._unhealthy_after if self.healthy else self._healthy_after
        if self._in_a_row < needed:
            return False
        self.healthy, self._in_a_row = answer, 0
        return True

"""Reading a ledger as anybody may who can read the bucket."""

from __future__ import annotations


class Onlooker:
    """Nobody's leadership: reading needs none."""

    epoch = 2**62

    def remaining(self) -> float:
        return float("inf")

    def ensure(self, seconds: float = 0.0) -> None:
        pass

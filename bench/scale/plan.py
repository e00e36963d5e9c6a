"""How much is simulated, and what has to come of it."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_CHANGE = 0.10
"""Bar: by how much requests and bytes of one worker per heartbeat may grow with the fleet."""
SETTLED_FROM = 100
"""Workers from which on they also have to be the same, both ways: in a smaller fleet the leader and the next in rank,
who do more than others, are a larger part of it."""


@dataclass
class Plan:
    sizes: tuple[int, ...] = (10, 100, 1_000, 10_000)
    seconds: float = 600.0
    """Simulated, for which everything is counted once the fleet has settled."""
    warm_from: int = 10_000
    """From this size on one worker leads before the others start, and reads all their records at once: 10,000 that find
    an empty bucket at the same moment are a story of their own, and take an hour to simulate."""
    failovers: dict[int, int] = field(default_factory=lambda: {10: 20, 100: 20, 1_000: 5, 10_000: 1})
    """Crashes of the leader, one after the other, for each size."""
    cycles: int = 20
    """Of a leader alone with so many records, for its CPU."""
    beyond: tuple[int, ...] = (100_000,)
    """Further sizes for that."""
    latency: tuple[float, float] = (0.002, 0.020)
    """Least and most seconds that a message takes each way, evenly drawn."""
    seed: int = 1

    @classmethod
    def quick(cls) -> Plan:
        return cls(sizes=(10, 100, 1_000), seconds=60.0, failovers={10: 5, 100: 3, 1_000: 1}, cycles=8, beyond=())

    @classmethod
    def tiny(cls) -> Plan:
        """To see that everything works: its figures say nothing."""
        return cls(sizes=(3, 6), seconds=20.0, warm_from=6, failovers={3: 1, 6: 1}, cycles=3, beyond=())

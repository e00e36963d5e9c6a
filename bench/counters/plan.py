"""How much is measured, and what has to come of it."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_PER_SECOND = 50_000
"""Bar: `add`s a second of two processes on the directory store."""
MOST_REQUESTS = 0.02
"""Bar: requests an `add` under that load, of both processes, folding and consolidation included."""
HEAVY = 1_000
"""Callers in each process from which on that holds: fewer have fewer calls to share a request with."""
MOST_CHANGE = 0.05
"""Bar: by how much the requests per touched record may differ between the fewest and the most records stored."""
OURS = "tenure on directory"
"""The subject that the bars are for."""
PARTS = ("load", "calls", "growth", "memory")


@dataclass
class Plan:
    parts: tuple[str, ...] = PARTS
    seconds: float = 15.0
    """For which all processes add; then everything is consolidated, and that counts as well."""
    callers: tuple[int, ...] = (100, 1_000, 4_000)
    """In each process: each awaits its call before it makes the next one."""
    records: int = 1_000
    """They add to, in turn."""
    runs: int = 3
    calls: int = 200
    """Of each kind, one after the other."""
    stored: tuple[int, ...] = (1_000, 10_000)
    touched: tuple[int, ...] = (100, 1_000)
    waiting: int = 99_000
    """Records that wait in the leader's memory: with 100,000 it writes them at once."""
    redis_seconds: float = 5.0
    slow_adds: int = 20
    """Of a peer that makes about five a second, and takes seconds to consolidate one."""

    @classmethod
    def quick(cls) -> Plan:
        return cls(
            seconds=5.0,
            callers=(1_000,),
            runs=1,
            calls=50,
            stored=(200, 2_000),
            touched=(100,),
            waiting=20_000,
            redis_seconds=1.0,
            slow_adds=4,
        )

    @classmethod
    def tiny(cls) -> Plan:
        """To see that everything works: its figures say nothing."""
        return cls(seconds=0.3, callers=(20,), records=10, runs=1, calls=2, stored=(20, 40), touched=(10,), waiting=100)

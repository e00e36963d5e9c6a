"""How much is measured, and what has to come of it."""

from __future__ import annotations

from dataclasses import dataclass

MOST_REQUESTS = 2.5
"""Bar: requests per expired record, hard delete, as S3 bills them."""
MOST_CHANGE = 0.20
"""Bar: by how much the requests per expired record may differ between the fewest and the most records stored."""


@dataclass
class Plan:
    stored: tuple[int, ...] = (10_000, 1_000_000)
    """Records, those that are due included."""
    due: int = 10_000
    runs: int = 3
    """Cleanups for each of `stored`, each of so many that are due, loaded anew."""
    batch: int = 500
    """Records in one call of `insert_many`, which expire in the same second."""
    processes: int = 2
    """That load; 1: this one."""
    callers: int = 2
    """Calls of `insert_many` at a time in each of them."""
    strategies: int = 2_000
    """Records of each other way to expire."""
    inserts: int = 2_000
    """Records that are inserted to see what an index entry costs; a tenth of them one by one."""
    seed: int = 1
    """Of the simulated hour."""

    @classmethod
    def quick(cls) -> Plan:
        return cls(stored=(2_000, 20_000), due=2_000, runs=1, strategies=400, inserts=400)

    @classmethod
    def tiny(cls) -> Plan:
        """To see that everything works: its figures say nothing."""
        return cls(stored=(60, 150), due=60, runs=1, batch=20, processes=1, strategies=20, inserts=20)

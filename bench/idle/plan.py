"""How much is measured, and what has to come of it."""

from __future__ import annotations

from dataclasses import dataclass

MOST_MEGABYTES = 45.0
"""Bar: resident memory of an idle worker process, in millions of bytes."""
MOST_CPU_SECONDS = 10.0
"""Bar: CPU seconds of an idle worker process in an hour."""
MOST_IMPORT_MS = 150.0
"""Bar: milliseconds until a program has imported all that a worker needs."""


@dataclass
class Plan:
    settle_seconds: float = 30.0
    """After the start, before anything is counted."""
    seconds: float = 300.0
    every_seconds: float = 10.0
    imports: int = 40
    """Processes that import tenure, one after the other."""

    @classmethod
    def quick(cls) -> Plan:
        return cls(settle_seconds=8.0, seconds=30.0, every_seconds=5.0, imports=8)

    @classmethod
    def tiny(cls) -> Plan:
        """To see that everything works: its figures say nothing."""
        return cls(settle_seconds=0.5, seconds=1.0, every_seconds=0.5, imports=2)

"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Plan:
    jobs: int = 10_000
    """Of them seven in ten every minute, spread over it, and three in ten by cron in seven time zones."""
    seconds: float = 120.0
    """For which lateness, requests and stalls are measured ..."""
    cpu_seconds: float = 60.0
    """... and then CPU time, without the ticker that finds stalls."""
    busy_jobs: int = 50
    """Each every second."""
    busy_seconds: float = 30.0
    busy_cpu_seconds: float = 15.0
    settle_seconds: float = 3.0
    """After a start, before anything is counted."""

    @classmethod
    def quick(cls) -> Plan:
        return cls(
            jobs=2_000,
            seconds=4.0,
            cpu_seconds=2.0,
            busy_seconds=3.0,
            busy_cpu_seconds=1.0,
            settle_seconds=1.0,
        )

"""What is measured, how often, and what has to come of it."""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("cycle", "queue", "requests", "lapse", "where")
MOST_OF_BEFORE = {
    "CPU of an idle leader": 0.85,
    "CPU of a read from a directory": 0.85,
    "requests in the busiest second after the leader of 1,000 crashed": 0.10,
}
"""Bars: shares of what it was before the three largest costs were taken out."""


@dataclass(frozen=True)
class Plan:
    parts: tuple[str, ...] = PARTS
    rounds: int = 5
    """Each version in turn, so that whatever else the machine does meets both."""
    idle_seconds: float = 180.0
    messages: int = 4_000
    rate: float = 500.0
    """Messages a second, each by a call of its own."""
    requests: int = 3_000
    workers: int = 1_000
    crashes: int = 2

    @classmethod
    def quick(cls, parts: tuple[str, ...] = PARTS) -> Plan:
        return cls(parts, rounds=1, idle_seconds=30.0, messages=1_000, requests=500, workers=200, crashes=1)

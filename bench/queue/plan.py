"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

PARTS = ("throughput", "enqueue", "latency", "growth")


@dataclass
class Plan:
    messages: int = 200_000
    runs: int = 3
    batch: int = 10_000
    """Messages in one call of `enqueue_many`."""
    workers: tuple[int, ...] = (1, 4)
    parts: tuple[str, ...] = PARTS
    dedup: bool = True
    """Also a run in which every message has a deduplication key."""
    rates: tuple[float, ...] = (1, 100, 1000)
    rate_seconds: dict[float, float] = field(default_factory=lambda: {1: 20.0, 100: 10.0, 1000: 8.0})
    enqueue_seconds: float = 3.0
    enqueued: int = 100_000
    settle_seconds: float = 12.0
    idle_seconds: float = 30.0
    growth_on: tuple[str, ...] = ("directory",)
    backlogs: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    peer_messages: int = 20_000
    """At most: a peer is given about as many as it handles in ten seconds."""
    slow_messages: int = 40
    """Of a peer that handles a few a second."""

    def paced(self, rate: float) -> int:
        return round(rate * self.rate_seconds[rate])

    @classmethod
    def quick(cls) -> Plan:
        return cls(
            messages=20_000,
            runs=1,
            rate_seconds={1: 4.0, 100: 4.0, 1000: 3.0},
            enqueue_seconds=1.0,
            enqueued=20_000,
            settle_seconds=8.0,
            idle_seconds=6.0,
            backlogs=(10_000, 50_000),
            peer_messages=3_000,
            slow_messages=10,
        )

"""How large a run is, how fast it lives, and what it must keep."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure import CoordinatorConfig

STANDARD_LEASE = 15.0
MEMBERS_PER_NODE = 50
"""At most: with more, the threads of one process wait for each other, which those of two would not."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    coordinators: int = 200
    processes: int = 4
    handlers: int = 8
    """Coordinators that also handle messages. All have the queue, and whoever leads leads it; but each that handles
    reads every entry of its log, and 200 of these would be more requests than the server answers."""
    concurrency: int = 25
    """Messages that one handler has in hand at once, ..."""
    hold: float = 0.05
    """... and seconds for which it has each, on average."""
    producers: int = 2
    call: int = 50
    """Messages in one call of a producer."""
    keys: int = 64
    """Ordering keys of a producer, which a fourth of its messages have."""

    seconds: float = 300.0
    """Of load."""
    saturation: float = 25.0
    """Seconds for which the queue is given all that it takes, before ..."""
    warm_up: float = 5.0
    """... and so many of these are not counted."""
    window: int = 10_000
    """Messages that may wait meanwhile."""
    share: float = 0.8
    """Of the measured maximum."""
    kills: int = 3
    """Of the process that hosts the leader, spread over the load."""
    away: float = 5.0
    """Seconds after which a killed process is started again."""
    lease: float = STANDARD_LEASE
    broken: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.processes <= self.coordinators <= self.processes * MEMBERS_PER_NODE:
            raise ValueError(
                f"coordinators is {self.coordinators}: in {self.processes} processes, give from {self.processes} to "
                f"{self.processes * MEMBERS_PER_NODE}"
            )
        if self.processes < 2:
            raise ValueError("processes is 1: give at least 2, since one is killed and another one takes over")
        if not 1 <= self.handlers <= self.coordinators:
            raise ValueError(f"handlers is {self.handlers}: give from 1 to {self.coordinators}")
        if not 0 <= self.warm_up < self.saturation:
            raise ValueError(f"warm_up is {self.warm_up:g} s: give less than saturation, {self.saturation:g} s")
        if self.kills < 0 or self.seconds <= 0:
            raise ValueError(f"kills is {self.kills} and seconds {self.seconds:g}: give at least 0, and over 0")

    def config(self) -> CoordinatorConfig:
        """What comes by default; with another lease, all in proportion to it."""
        if self.lease == STANDARD_LEASE:
            return CoordinatorConfig()
        return CoordinatorConfig.for_lease(self.lease)

    def queue(self) -> dict[str, Any]:
        """Killed again and again, nothing is to become a dead letter: then it would not be handled."""
        return {"visibility_timeout": 2 * self.lease, "max_attempts": 100}

    @property
    def longest_p99(self) -> float:
        """Seconds that 99 of 100 heartbeats stay under."""
        return self.lease / 3

    @property
    def start_within(self) -> float:
        """Seconds from the start of a process until all of its coordinators have a heartbeat."""
        return 2 * self.config().worker_timeout + 20.0

    def names(self, node: int) -> list[str]:
        """The workers of one process: as even as can be."""
        return [f"n{node}-w{number:02d}" for number in range(len(range(node, self.coordinators, self.processes)))]

    def handling(self, node: int) -> list[str]:
        """Those among them that handle. They come last in rank: whoever leads should have its hands free."""
        count = len(range(node, self.handlers, self.processes))
        return self.names(node)[-count:] if count else []

    def kill_times(self) -> list[float]:
        """Seconds from the beginning of the load."""
        return [(number + 0.5) * self.seconds / self.kills for number in range(self.kills)]

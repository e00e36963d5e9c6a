"""What is done to the leaders, how often, and what has to come of it."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("crash", "stop", "freeze")
"""SIGKILL; SIGTERM, handled as the system's documentation says; SIGSTOP for three leases, and SIGCONT."""
COPIES = 3
FROZEN_LEASES = 3.0
QUIET_LEASES = (2.0, 3.0)
"""For so long one leads alone before the next trial."""
MOST_OF_S3DB = {"crash": 0.65, "stop": 0.25}
"""Of its mean, at the lease that both can have."""
MOST_OF_CONSENSUS = 1.15
"""Of the mean of etcd and of ZooKeeper after a crash."""
COMPARED_LEASE = 15.0


@dataclass
class Plan:
    trials: dict[float, dict[str, int]]
    """Of each kind, by lease; the same for all systems."""
    seed: int = 1

    @property
    def leases(self) -> tuple[float, ...]:
        return tuple(sorted(self.trials))

    @classmethod
    def full(cls) -> Plan:
        # With a long lease the instant of a crash within the heartbeat decides by seconds: its mean wants more trials.
        return cls({3.0: dict.fromkeys(KINDS, 20), 15.0: {"crash": 10, "stop": 5, "freeze": 5}})

    @classmethod
    def quick(cls) -> Plan:
        return cls({3.0: dict.fromkeys(KINDS, 1)})

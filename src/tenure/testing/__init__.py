"""Simulated time for your own tests, and for tenure's.

    clock = SimulatedClock()
    clock.advance(15.0)     # everything asleep until then wakes up
    clock.suspend(3600.0)   # the laptop lid: only clocks that count suspend move

`World`, `Host` and `SimulatedBucket` go further: many processes, each with an event loop and clocks of its own, on a
network that misbehaves, replayed exactly from a seed.
"""

from tenure.testing.bucket import Conditions, Network, SimulatedBucket, SimulatedStore, Write
from tenure.testing.clock import SimulatedClock
from tenure.testing.host import Host
from tenure.testing.loop import Crashed
from tenure.testing.world import World

__all__ = [
    "Conditions",
    "Crashed",
    "Host",
    "Network",
    "SimulatedBucket",
    "SimulatedClock",
    "SimulatedStore",
    "World",
    "Write",
]

"""Simulated time for your own tests, and for tenure's.

clock = SimulatedClock()
clock.advance(15.0)     # everything asleep until then wakes up
clock.suspend(3600.0)   # the laptop lid: only clocks that count suspend move
"""

from tenure.testing.clock import SimulatedClock

__all__ = ["SimulatedClock"]

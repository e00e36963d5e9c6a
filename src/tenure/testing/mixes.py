"""What goes wrong in a seed, and how fast: a mix of faults, intervals and clock rates.

One mix in which everything goes wrong hides bugs: most broken rules show only in a quiet moment that the other faults
do not leave. So each kind of fleet has several mixes, and its seeds take them in turn. `tenure simulate --rates` prints
how often each mix catches each broken variant.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.entropy import Random
from tenure.errors import ConfigError

MEAN_SECONDS_BETWEEN_FAULTS = 12.0


CALM = {
    "lost_request": 0.004,
    "lost_reply": 0.004,
    "late_landing": 0.003,
    "repeated": 0.003,
    "slow_request": 0.006,
    "slow_reply": 0.006,
    "server_error": 0.004,
}


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    faults: tuple[str, ...] = ()
    """Kinds of trouble; none given: all."""
    seconds_between_faults: float = MEAN_SECONDS_BETWEEN_FAULTS
    """On average."""
    network: dict[str, float] = msgspec.field(default_factory=CALM.copy)
    """What happens to requests all the time: the share of each fault."""
    seconds_between_overtakes: float = 35.0
    """On average, in a fleet with a ledger: a leader stands still, and its last writes land as its successor begins."""
    settings: dict[str, Any] = {}
    """What the coordinator's config has in place of the kind's own."""
    extreme_rates: bool = False
    """Each clock runs as fast or as slowly as the protocol allows, and none at a rate between."""
    strikes: dict[str, float] = {}
    """By what is written, in place of the kind's own: of such writes so many are their process's last for a while."""
    struck_when_leaving: float = 0.1
    """The share of leaders that are killed or frozen while they give their lease back."""

    def rate(self, random: Random) -> float:
        """Of one machine's clocks."""
        extremes = [0.99, 1.01]
        if self.extreme_rates:
            return random.choice(extremes)
        return random.choice([*extremes, *extremes, 1.0, random.uniform(*extremes)])


EVERYTHING = Mix(name="everything")
"""Where nothing is said of a mix."""

EDGE = Mix(
    name="edge",
    faults=("cut", "freeze", "suspend", "slew", "blur"),
    seconds_between_faults=8.0,
    settings={"standby_watch_interval": 0.1},
    extreme_rates=True,
)
"""Leaders lose the store or stand still, and a standby sees each renewal at once: nothing covers up for a margin."""

LEAVING = Mix(
    name="leaving",
    faults=("stop", "step-down", "ask", "network"),
    seconds_between_faults=6.0,
    network={"late_landing": 0.15},
)
"""Leases are given back all the time, and writes land when somebody else leads already."""


STANDSTILL = Mix(
    name="standstill",
    faults=("freeze", "suspend", "slew"),
    seconds_between_faults=8.0,
    seconds_between_overtakes=15.0,
    extreme_rates=True,
)
"""Processes stand still, clocks run at their extremes, and leaders are overtaken; every request does what it should."""

STALLED = Mix(
    name="stalled",
    faults=("step-down", "cut", "slow", "network"),
    seconds_between_faults=20.0,
    strikes={"entry": 0.06},
)
"""Processes stand still between two writes that belong together, for longer than anything is kept for them."""

DRIFTING = Mix(
    name="drifting",
    faults=("wall", "slew", "step-down", "network"),
    seconds_between_faults=6.0,
    settings={"membership": False},
    extreme_rates=True,
)
"""Clocks are set, and run as fast or as slowly as they may; no heartbeat tells the store's time meanwhile."""

SLOW = Mix(name="slow", faults=("slow", "step-down"), seconds_between_faults=4.0)
"""Every request takes long, so that others write between a look at a record and what is done by it."""


def mix_named(mixes: tuple[Mix, ...], name: str) -> Mix:
    for mix in mixes:
        if mix.name == name:
            return mix
    raise ConfigError(f"there is no mix {name!r}: there are {', '.join(mix.name for mix in mixes)}")

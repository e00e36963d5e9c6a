"""What goes wrong, and when: a pure function of a seed.

A run is a row of waves. In a wave several faults begin and end, each by itself, and may overlap; then it is calm for
long enough that everything must work again, which is judged. Kinds are dealt as cards are: none comes twice before
every other one came once, so that a run which is long enough has every kind.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from random import Random

import msgspec


class Kind(enum.Enum):
    KILL = "kill"
    """SIGKILL, and started again after a while."""
    RESTART = "restart"
    """SIGTERM, and started again after a while."""
    FREEZE = "freeze"
    """SIGSTOP, then SIGCONT."""
    CUT_OFF = "cut-off"
    """Every request of one process is reset before it reaches the store."""
    SILENCE = "silence"
    """Every request of one process disappears without an answer."""
    LOST_REPLIES = "lost-replies"
    """Requests of one process land, and their answers are lost."""
    LATENCY = "latency"
    """Requests of one process are held back for half a minute, and land then."""
    STORM = "storm"
    """The store answers 503 to most requests of everybody."""
    CLOCK = "clock"
    """The wall clock of one process leaps, and later leaps back."""
    STORE_RESTART = "store-restart"
    STORE_FREEZE = "store-freeze"
    """The store is stopped with everything that it has in hand, and continued."""
    STORE_SLOW = "store-slow"
    FULL_DISK = "full-disk"
    """ENOSPC, on the disk that the directory is on."""


OF_PROCESS = frozenset(
    {Kind.KILL, Kind.RESTART, Kind.FREEZE, Kind.CUT_OFF, Kind.SILENCE, Kind.LOST_REPLIES, Kind.LATENCY, Kind.CLOCK}
)
OF_STORE = frozenset({Kind.STORM, Kind.STORE_RESTART, Kind.STORE_FREEZE, Kind.STORE_SLOW, Kind.FULL_DISK})
LOCAL = (Kind.KILL, Kind.RESTART, Kind.FREEZE, Kind.CLOCK)
NETWORK = (
    *(Kind.CUT_OFF, Kind.SILENCE, Kind.LOST_REPLIES, Kind.LATENCY, Kind.STORM),
    *(Kind.STORE_RESTART, Kind.STORE_FREEZE, Kind.STORE_SLOW),
)
KINDS = {
    "ministack": (*LOCAL, *NETWORK),
    "ceph": (*LOCAL, *NETWORK),
    "directory": (*LOCAL, Kind.FULL_DISK),
}

SECONDS = {
    Kind.KILL: (0.2, 6.0),
    Kind.RESTART: (0.2, 3.0),
    Kind.FREEZE: (1.0, 12.0),
    Kind.CUT_OFF: (2.0, 12.0),
    Kind.SILENCE: (2.0, 12.0),
    Kind.LOST_REPLIES: (2.0, 10.0),
    Kind.LATENCY: (2.0, 8.0),
    Kind.STORM: (2.0, 10.0),
    Kind.CLOCK: (3.0, 12.0),
    Kind.STORE_RESTART: (0.1, 4.0),
    Kind.STORE_FREEZE: (1.0, 8.0),
    Kind.STORE_SLOW: (3.0, 12.0),
    Kind.FULL_DISK: (2.0, 10.0),
}
"""How long each lasts: from less than a lease to several."""
LEAPS = (-86_400, -600, -5, 5, 600, 86_400)
LATENCY_SECONDS = 30.0
LOADED = 5
"""Faults in a wave, if that is enough for every kind to come."""


class Target(enum.Enum):
    """Whom a fault of a process is meant for; who that is turns out when it begins."""

    LEADER = "leader"
    HOLDER = "holder"
    """Of the lock."""
    SUPERVISOR = "supervisor"
    """Who runs the supervised children."""
    ANY = "any"
    STORE = "store"


class Step(msgspec.Struct, frozen=True):
    number: int
    wave: int
    at: float
    """Seconds after the beginning of its wave."""
    seconds: float
    kind: Kind
    target: Target
    index: int
    """Of the process, if it is anyone, or if the one that is meant is in trouble already."""
    amount: float = 0.0
    """Of a leap of the clock, or of the delay of a slow store: seconds."""


class Timing(msgspec.Struct, frozen=True):
    wave: float = 30.0
    calm: float = 30.0
    """Longer than any part may take to work again."""


USUAL = Timing()


def waves_in(seconds: float, timing: Timing) -> int:
    return max(1, math.floor(seconds / (timing.wave + timing.calm)))


def plan(seed: int, seconds: float, nodes: int, kinds: Sequence[Kind], timing: Timing = USUAL) -> tuple[Step, ...]:
    """The same for the same arguments."""
    dice = Random(f"chaos:{seed}")
    waves = waves_in(seconds, timing)
    in_wave = max(LOADED, math.ceil(len(kinds) / waves))
    cards = _dealt(kinds, dice)
    steps: list[Step] = []
    for wave in range(waves):
        ats = sorted(dice.uniform(0.0, timing.wave * 0.8) for _ in range(in_wave))
        for at in ats:
            steps.append(_step(next(cards), len(steps), wave, at, nodes, dice, timing))
    return tuple(steps)


def _dealt(kinds: Sequence[Kind], dice: Random) -> Iterator[Kind]:
    while True:
        yield from dice.sample(kinds, len(kinds))


def _step(kind: Kind, number: int, wave: int, at: float, nodes: int, dice: Random, timing: Timing) -> Step:
    shortest, longest = SECONDS[kind]
    # Whatever began in a wave has ended with it.
    seconds = min(dice.uniform(shortest, longest), timing.wave - at)
    if kind in OF_STORE:
        target = Target.STORE
    else:
        target = dice.choices((Target.LEADER, Target.SUPERVISOR, Target.HOLDER, Target.ANY), weights=(5, 2, 1.5, 1.5))[
            0
        ]
    amount = 0.0
    if kind is Kind.CLOCK:
        amount = float(dice.choice(LEAPS))
    elif kind is Kind.STORE_SLOW:
        amount = round(dice.uniform(0.05, 0.4), 3)
    return Step(number, wave, round(at, 3), round(seconds, 3), kind, target, dice.randrange(nodes), amount)

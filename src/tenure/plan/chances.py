"""How long after a random moment somebody looks next, and who of several is first.

A survival function gives the chance that something takes longer than so many seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tenure.coordinator.config import CoordinatorConfig

Survival: TypeAlias = Callable[[float], float]

_STEPS = 400
_SAMPLES = 32


def until_heartbeat(config: CoordinatorConfig) -> Survival:
    """From a random moment to the next heartbeat of another worker."""
    shortest, jitter = config.heartbeat_interval, config.heartbeat_jitter
    mean = shortest + jitter / 2

    def survival(seconds: float) -> float:
        if seconds <= 0:
            return 1.0
        if seconds <= shortest:
            return 1 - seconds / mean
        left = shortest + jitter - seconds
        return left * left / (2 * jitter * mean) if left > 0 else 0.0

    return survival


def until_standby_looks(config: CoordinatorConfig, latency: float) -> Survival:
    """From a random moment to the next look of the next in rank, whose heartbeats cut its watch short."""
    every = config.standby_look_every(latency)
    beats = [config.heartbeat_interval + config.heartbeat_jitter * share for share in _shares(_SAMPLES)]
    gaps: list[tuple[int, float]] = []  # in each heartbeat: how many whole ones, and the rest
    for beat in beats:
        whole = max(0, math.ceil((beat - latency) / every) - 1)
        gaps.append((whole, beat - whole * every))
    total = sum(beats)

    def survival(seconds: float) -> float:
        if seconds <= 0:
            return 1.0
        return sum(whole * max(0.0, every - seconds) + max(0.0, rest - seconds) for whole, rest in gaps) / total

    return survival


def later(survival: Survival, by: float, spread: float = 0.0) -> Survival:
    """The same, after a wait of `by` seconds and up to `spread` more."""
    waits = [by + spread * share for share in _shares(_SAMPLES)] if spread else [by]
    return lambda seconds: sum(survival(seconds - wait) for wait in waits) / len(waits)


def mean_of_first(candidates: Sequence[tuple[Survival, int]], longest: float) -> float:
    """How long the first of them takes on average; each may stand for several. None takes over `longest`."""
    if longest <= 0:
        return 0.0
    step = longest / _STEPS
    total = 0.0
    for middle in _shares(_STEPS):
        chance = 1.0
        for survival, count in candidates:
            chance *= survival(middle * longest) ** count
        total += chance
    return total * step


def mean_age(config: CoordinatorConfig) -> float:
    """How old the last renewal is at a random moment."""
    shortest, jitter = config.heartbeat_interval, config.heartbeat_jitter
    mean = shortest + jitter / 2
    return (mean * mean + jitter * jitter / 12) / (2 * mean)


def _shares(count: int) -> list[float]:
    """The middles of so many equal parts of 0 to 1."""
    return [(number + 0.5) / count for number in range(count)]

"""How long a fleet is without a leader, from the rules of `tenure.election`.

A crash comes at a random moment between two renewals. From the *last renewal* on:

    it reaches the bucket, and a survivor sees it at its next look       latency + until that look
    the survivor watches it for a whole lease (E-2)                      lease x (1 + drift) + margin
    it lists the fleet, and reads the records that it does not know      (with membership)
    it waits for its turn (E-7)                                          0 for the first in rank
    it lists the terms, reads the last one, takes the lease,
    records its term, and reads that back (E-3)                          five requests

The last renewal is as old as the crash came after it: that is taken off. Whoever is through first leads. The first in
rank looks often and does not wait; another that happened to look sooner, and waits its turn, may still be first.
"""

from __future__ import annotations

import math

import msgspec

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.membership import MAX_BODIES_PER_SURVEY
from tenure.election.rank import MAX_STEPS
from tenure.plan.chances import Survival, later, mean_age, mean_of_first, until_heartbeat, until_standby_looks
from tenure.plan.cost import Circumstances
from tenure.store.providers import KEYS_PER_LISTING

_BODIES_AT_ONCE = 16
_TAKEOVER_REQUESTS = 5  # list terms, get term, put lease, put term, get term
_JITTER = 0.25  # of a step, for all but the first in rank


class Failover(msgspec.Struct, frozen=True):
    """Seconds from the crash of the leader to its successor.

    `worst` is `CoordinatorConfig.worst_case_failover()`: every request takes its whole time-out, those before in rank
    are dead too, and the survivor's circuit breaker had just opened. `worst_without_outage`: the same crash while the
    store answers as usual and the others live.
    """

    best: float
    expected: float
    worst_without_outage: float
    worst: float


def failover(config: CoordinatorConfig, around: Circumstances, provider: str = "s3") -> Failover:
    """Of a crash. With one worker, from its restart: nobody else is there to take over."""
    latency = around.latency
    lapse = config.lease_timeout * (1 + config.drift) + config.takeover_margin
    election = (_survey_rounds(config, around.workers, provider) + _TAKEOVER_REQUESTS) * latency
    least = lapse / (1 + config.drift)  # of a clock that is fast, but not more than it may be
    most = lapse / (1 - config.drift) + election
    if around.workers == 1:
        first, last = config.startup_jitter_min, config.startup_jitter_max
        turn = 0.0 if config.membership else config.takeover_delay
        return Failover(
            best=first + least,
            expected=(first + last) / 2 + 2 * latency + lapse + turn / 2 + election,
            worst_without_outage=last + 2 * latency + turn + most,
            worst=last + config.worst_case_failover(),
        )
    calm = latency + _longest_turn(config, latency) + most
    return Failover(
        best=max(0.0, least - config.heartbeat_interval - config.heartbeat_jitter),
        expected=latency + _first_turn(config, around) + lapse + election - mean_age(config),
        worst_without_outage=calm,
        worst=max(config.worst_case_failover(), calm),  # hundreds of records take longer to read than it allows for
    )


def graceful_failover(config: CoordinatorConfig, around: Circumstances, provider: str = "s3") -> float:
    """Seconds on average from `stop()` or `step_down()` of an idle leader to its successor; its work comes on top.

    With one worker, from its restart.
    """
    latency = around.latency
    survey = _survey_rounds(config, around.workers, provider) * latency
    takeover = _TAKEOVER_REQUESTS * latency
    if around.workers == 1:
        started = (config.startup_jitter_min + config.startup_jitter_max) / 2 + 2 * latency
        if not config.membership:
            return started + config.takeover_delay / 2 + takeover
        return started + latency + config.takeover_delay + survey + takeover  # it registers, and waits for others
    if not config.membership:
        return latency + _first_turn(config, around) + takeover
    # It asks its heir whether it is well, and releases; the heir takes the lease without a listing.
    return 2 * latency + _first_turn(config, around, heir=True) + takeover


def _survey_rounds(config: CoordinatorConfig, workers: int, provider: str) -> int:
    """Requests one after another until a survivor knows whose turn it is."""
    if not config.membership:
        return 0
    pages = math.ceil(workers / KEYS_PER_LISTING.get(provider, KEYS_PER_LISTING["s3"]))
    return pages + math.ceil(min(workers, MAX_BODIES_PER_SURVEY) / _BODIES_AT_ONCE)


def _first_turn(config: CoordinatorConfig, around: Circumstances, *, heir: bool = False) -> float:
    """Seconds on average until somebody has looked and its turn has come, but for the lease that it watches between.

    `heir`: the lease was given to the first in rank, and everyone else comes a step later (E-5).
    """
    followers, delay = around.workers - 1, config.takeover_delay
    beat = until_heartbeat(config)
    longest = _longest_turn(config, around.latency)
    if not config.membership:
        return mean_of_first([(later(beat, 0.0, delay), followers)], longest)
    candidates: list[tuple[Survival, int]] = [(until_standby_looks(config, around.latency), 1)]
    for place in range(1, min(followers - 1, MAX_STEPS) + 1):
        count = 1 if place < MAX_STEPS else followers - MAX_STEPS
        wait = (place + (1 if heir else 0)) * delay
        candidates.append((later(beat, wait, _JITTER * delay), count))
    return mean_of_first(candidates, longest)


def _longest_turn(config: CoordinatorConfig, latency: float) -> float:
    beat = config.heartbeat_interval + config.heartbeat_jitter
    if not config.membership:
        return beat + config.takeover_delay
    return min(beat, config.standby_look_every(latency) + latency)

"""Processes that are killed, or stand still, at the very moment at which a write of theirs has landed: between a write
and what follows from it, before they hear of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from tenure.entropy import Random
from tenure.simulate.stage import CALM, Stage
from tenure.testing.bucket import Write


class Strikes:
    def __init__(
        self,
        stage: Stage,
        random: Random,
        shares: Mapping[str, float],
        *,
        kind_of: Callable[[str], str | None],
        counts: Counter[str],
    ) -> None:
        """`shares`: of the writes of each kind so many are their process's last for a while, unless the seed's mix says
        otherwise. `kind_of`: by its key."""
        self._stage = stage
        self._random = random
        self._shares = shares
        self._kind_of = kind_of
        self._counts = counts
        stage.cluster.bucket.watchers.append(self._written)

    def _written(self, write: Write) -> None:
        stage, random = self._stage, self._random
        what = self._kind_of(write.key)
        if what is None or write.host not in stage.cluster.workers:
            return
        if random.random() > stage.mix.strikes.get(what, self._shares[what]):
            return
        world, worker = stage.cluster.world, stage.cluster.workers[write.host]
        host = worker.host
        if world.now >= stage.stops_at or not host.alive or host.frozen:
            return
        how = random.choice(["killed", "stopped", "stopped for long"])
        seconds = random.uniform(5.0, 110.0) if how == "stopped for long" else random.uniform(0.2, 5.0)
        self._counts[f"{how} when its {what} had landed"] += 1

        def strike() -> None:
            if not host.alive:
                return
            if how != "killed":
                host.freeze(min(seconds, stage.stops_at + CALM - world.now))
                return
            host.crash()
            world.call_at(min(world.now + seconds, stage.stops_at), start)

        def start() -> None:
            if not worker.host.alive:
                worker.start()

        world.call_at(world.now, strike)

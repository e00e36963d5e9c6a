"""All trials of one system at one lease: leaders that crash, are stopped or frozen, at instants drawn from a seed.

The next trial begins once all three copies run and one of them has led, alone, for two leases and a random part of a
third. By then whoever died before is forgotten in all of the systems (a record of a worker is kept for 20 s by tenure
and for 25 s by s3db.js, with a lease of 15 s), so that a trial is not about the one before it. A heartbeat is about a
third of a lease or less in all of them, so it may come at any instant of that.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.failover.copies import Copies
from bench.failover.figures import Trial, judged
from bench.failover.plan import FROZEN_LEASES, KINDS, QUIET_LEASES
from bench.failover.systems import System
from lab.cluster import Believer

_PATIENCE = 180.0
_ENDS_WITHIN = 30.0
_FAILURES = 3
"""After so many in a row no other trial is tried."""


@dataclass
class Contest:
    system: System
    asked_lease: float
    trials: Mapping[str, int]
    """By kind."""
    seed: int
    folder: Path
    tell: Callable[[str], None]

    async def run(self) -> dict[str, Any]:
        lease = self.system.lease(self.asked_lease)
        dice = random.Random(f"{self.seed} {self.system.name} {self.asked_lease:g}")
        kinds = [kind for kind in KINDS for _ in range(self.trials[kind])]
        dice.shuffle(kinds)
        self.folder.mkdir(parents=True)
        place = f"lease-{self.asked_lease:g}"
        copies = Copies("", self.folder, command=lambda name, log: self.system.command(place, lease, name, log))
        trials: list[Trial] = []
        failures: list[str] = []
        held_up: list[str] = []
        in_a_row = 0
        began = time.monotonic()
        try:
            waiting = deque((kind, dice.uniform(*QUIET_LEASES) * lease) for kind in kinds)
            while waiting and in_a_row < _FAILURES:
                kind, quiet = waiting[0]
                try:
                    leader = await copies.calm(quiet, _PATIENCE + 10 * lease)
                    waiting.popleft()
                    trials.append(Trial(kind, leader.identity, await self._strike(copies, leader, kind, lease), quiet))
                    in_a_row = 0
                except AssertionError as error:
                    in_a_row += 1
                    # Before anything was done to anybody it was no trial yet, and is made again.
                    begun = not waiting or waiting[0] != (kind, quiet)
                    (failures if begun else held_up).append(f"{kind}: {error}"[:2000])
                    what = "failed" if begun else "could not begin"
                    self.tell(f"{self.system.label}, lease {lease:g} s: {kind} {what}: {str(error)[:200]}")
                    copies.stop()
                if trials and len(trials) % 10 == 0:
                    self.tell(f"{self.system.label}, lease {lease:g} s: {len(trials)} of {len(kinds)} trials")
            failures += [f"{kind}: not tried any more" for kind, _ in waiting]
            # A belief that outlasts the last trial is seen as well.
            await asyncio.sleep(lease)
        finally:
            copies.stop()
        logs = [log for log in copies.logs if log.exists()]
        found = await asyncio.to_thread(judged, trials, logs)  # the other contests go on
        return {
            **found,
            "asked_lease": self.asked_lease,
            "lease": lease,
            "settings": self.system.settings(lease),
            "seed": self.seed,
            "seconds": round(time.monotonic() - began, 1),
            "processes_that_ended_by_themselves": copies.died,
            "failures": failures,
            "held_up": held_up,
        }

    async def _strike(self, copies: Copies, leader: Believer, kind: str, lease: float) -> int:
        """The instant of the signal, once another leads."""
        if kind == "crash":
            at_ns = copies.kill(leader)
        elif kind == "stop":
            at_ns = await copies.terminate(leader, _ENDS_WITHIN)
        else:
            at_ns = copies.pause(leader)
            await asyncio.sleep(FROZEN_LEASES * lease)
            copies.resume(leader)
        await copies.succeeded(leader, _PATIENCE + 4 * lease)
        return at_ns

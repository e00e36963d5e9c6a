"""Three processes of one system that stand for one election, whatever they are written in: `lab.cluster` for others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.failover.plan import COPIES
from lab.cluster import ROOT, Believer, Cluster
from lab.process import spawn

_LOOK = 0.05
_JOINED_WITHIN = 90.0

Command = Callable[[str, Path], tuple[Sequence[str], Mapping[str, str]]]
"""Of the process with this name and this log: its words and its environment."""


@dataclass
class Copies(Cluster):
    command: Command = field(kw_only=True)
    died: int = 0
    """How many ended without being asked to."""

    def start(self, name: str, *options: str, env: Mapping[str, str] | None = None) -> Believer:
        stem = f"{name}-{next(self._numbers)}"
        log, output = self.folder / f"{stem}.log", self.folder / f"{stem}.out"
        words, more = self.command(name, log)
        believer = Believer(name, spawn([*words, *options], output, {**more, **(env or {})}, cwd=ROOT), log, output)
        self.running.append(believer)
        self.logs.append(log)
        return believer

    async def complete(self) -> None:
        """As many as there should be, one started after the other: all of them have noted something."""
        for believer in [each for each in self.running if each.process.poll() is not None]:
            self.died += 1
            self.running.remove(believer)
        while len(self.running) < COPIES:
            believer = self.start(f"copy{len(self.logs):03d}")
            deadline = time.monotonic() + _JOINED_WITHIN
            while believer.last() is None:
                if believer.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"{believer.identity} did not join:\n{self.tail(believer)}")
                await asyncio.sleep(_LOOK)

    async def calm(self, quiet: float, patience: float) -> Believer:
        """The one leader, after it has been the only one for so long."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            await self.complete()
            leader = await self.settled(deadline - time.monotonic())
            until = time.monotonic() + quiet
            while time.monotonic() < until and self.leaders() == [leader]:
                await asyncio.sleep(min(_LOOK, max(0.0, until - time.monotonic())))
            if self.leaders() == [leader]:
                return leader
        raise AssertionError(f"there was not one leader for {quiet:.1f} s within {patience:g} s:\n{self.tail()}")

    async def succeeded(self, former: Believer, patience: float) -> None:
        """Another than this one leads."""
        deadline = time.monotonic() + patience
        while not any(leader is not former for leader in self.leaders()):
            if time.monotonic() > deadline:
                raise AssertionError(f"no successor within {patience:g} s:\n{self.tail()}")
            await asyncio.sleep(_LOOK)

"""What is measured, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

HEARTBEAT = 5.0
"""Seconds: what both come with, for a coordinator by itself."""
COMPARED = 10
"""Workers with which the bars compare."""
MOST_REQUESTS, MOST_USD, MOST_USD_ELECTION_ONLY, MOST_FIRST_LEADER = 0.58, 0.46, 0.10, 0.2
"""Bars: shares of what s3db.js needs."""
MOST_PLUGIN_DIFFERENCE = 0.03
"""Bar: by how much the requests of a fleet with ten plugins may differ from those with one. Which heartbeats fall just
inside the time that is counted, and which just outside, differs from one fleet of 10 to the next by about 1 %."""
PARTS = ("ours", "s3db", "first")


@dataclass(frozen=True)
class Cell:
    """A fleet that is counted by itself: it has a bucket of its own."""

    subject: str
    workers: int
    plugins: int
    mode: str = ""
    """What is unlike what comes by default: `election only`, `no retries`, `parallel`."""

    @property
    def bucket(self) -> str:
        return "-".join([self.subject, str(self.workers), str(self.plugins), *self.mode.split()])

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    parts: tuple[str, ...] = PARTS
    workers: tuple[int, ...] = (1, 3, 10, 100)
    peer_workers: tuple[int, ...] = (1, 3, 10)
    plugins: tuple[int, ...] = (1, 4, 10)
    warm_up: float = 45.0
    seconds: float = 120.0
    """For which requests are counted, after `warm_up` seconds with a leader; half as long for large fleets."""
    trials: int = 5
    """Of a first leader on an empty bucket, on each side."""
    workers_in_a_process: int = 25
    """Of fleets of more than `most_processes`."""
    most_processes: int = 10

    @classmethod
    def quick(cls, parts: tuple[str, ...] = PARTS) -> Plan:
        return cls(
            parts=parts,
            workers=(1, 10),
            peer_workers=(10,),
            plugins=(1, 10),
            warm_up=10.0,
            seconds=30.0,
            trials=1,
        )

    def rounds_of_ours(self) -> list[list[Cell]]:
        """Fleets that are counted side by side: all of the small ones together, and each large one by itself."""
        cells = [
            *(Cell("tenure", workers, plugins) for workers in self.workers for plugins in self.plugins),
            *(Cell("tenure", workers, self.plugins[0], "election only") for workers in self.workers),
        ]
        small = [cell for cell in cells if cell.workers <= self.most_processes]
        return [*([small] if small else []), *([cell] for cell in cells if cell not in small)]

    def seconds_of(self, cells: Sequence[Cell]) -> float:
        """The more workers, the less it matters which heartbeats fall just inside the time that is counted."""
        return self.seconds if min(cell.workers for cell in cells) <= self.most_processes else self.seconds / 2

    def rounds_of_s3db(self) -> list[list[Cell]]:
        """One for each number of plugins, since its processes are large."""
        rounds = [[Cell("s3db", workers, plugins) for workers in self.peer_workers] for plugins in self.plugins]
        most = max(self.peer_workers)
        rounds[0].append(Cell("s3db", most, self.plugins[0], "no retries"))
        if 4 in self.plugins and 3 in self.peer_workers:
            rounds[-1].append(Cell("s3db", 3, 4, "parallel"))
        return rounds

"""CPU time and memory of processes and everything that they started, as Linux counts them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        found.append(each)
        try:
            for thread in Path(f"/proc/{each}/task").iterdir():
                waiting += [int(child) for child in (thread / "children").read_text().split()]
        except OSError:
            continue
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these and their descendants, those that have ended included."""
    total = 0
    for root in pids:
        for pid in family(root):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += sum(int(field) for field in fields[11:15])
    return total / _TICK


def memory_bytes(pid: int) -> int:
    """What one process holds in memory that is its own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0

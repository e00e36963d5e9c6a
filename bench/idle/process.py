"""Another process, looked at from outside: memory, CPU time, threads, and how often it was woken."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

_CPUCLOCK_SCHED = 2


def look(pid: int) -> dict[str, Any]:
    """`cpu_seconds` is of all its threads, also of those that have ended, to the nanosecond."""
    status = _status(Path(f"/proc/{pid}/status"))
    tasks = [_status(path) for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return {
        "at": time.monotonic(),
        "cpu_seconds": time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED),
        "megabytes": int(status["VmRSS"].split()[0]) * 1024 / 1e6,
        "threads": int(status["Threads"]),
        "wakeups": sum(int(task["voluntary_ctxt_switches"]) for task in tasks),
    }


def _status(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def figures(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """What a process took between the first look and the last, for an hour."""
    first, last = samples[0], samples[-1]
    seconds = last["at"] - first["at"]
    return {
        "seconds": round(seconds, 1),
        "megabytes": round(max(sample["megabytes"] for sample in samples), 2),
        "megabytes_first": round(first["megabytes"], 2),
        "cpu_seconds_per_hour": round((last["cpu_seconds"] - first["cpu_seconds"]) / seconds * 3600, 3),
        "wakeups_per_second": round((last["wakeups"] - first["wakeups"]) / seconds, 2),
        "threads": last["threads"],
        "samples": [
            [round(each["at"] - first["at"], 2), round(each["cpu_seconds"], 4), round(each["megabytes"], 2)]
            for each in samples
        ],
    }

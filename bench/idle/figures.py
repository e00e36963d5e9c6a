"""What was measured, held against what has to come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.form import Limit
from bench.idle.plan import MOST_CPU_SECONDS, MOST_IMPORT_MS, MOST_MEGABYTES

NEEDED = "what a worker needs"


def limits(workers: Sequence[dict[str, Any]], imports: Sequence[dict[str, Any]]) -> list[Limit]:
    found = []
    if workers:
        most = max(row["megabytes"] for row in workers)
        cpu = max(row["cpu_seconds_per_hour"] for row in workers)
        found.append(Limit("resident memory of an idle worker, MB, the most of all", most, MOST_MEGABYTES))
        found.append(Limit("CPU seconds an hour of an idle worker, the most of all", cpu, MOST_CPU_SECONDS))
    # Other work on the machine can only add to it: the best run is nearest to what it takes.
    best = [row["best_ms"] for row in imports if row["what"] == NEEDED]
    found += [Limit(f"importing {NEEDED}, ms, best run", each, MOST_IMPORT_MS) for each in best]
    needless = {name for row in (*workers, *imports) for name in row["needless_modules"]}
    found.append(Limit("modules imported that a worker has no use for", len(needless), 0))
    return found

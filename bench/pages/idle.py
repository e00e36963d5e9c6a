"""What a worker costs its machine while nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.pages import Page, limits, table
from bench.plot import strips

_TEXT = """\
Real processes with the config as it comes (heartbeat 5 s, lease 15 s, the coordinator on a thread of its own), looked
at from outside for {seconds:g} s, which is extrapolated to an hour. MB are millions of bytes; Python with asyncio and
nothing else has {bare:.1f} of them.

{workers}

Imports, in {times} fresh processes each, with compiled modules in place:

{{{{idle-imports}}}}

{imports}

"What a worker needs" is `import tenure` with `Database`, `CoordinatorConfig` and `lead`, which are imported when they
are first asked for. asyncio is a part of it. {needless}

### Bars

{limits}

### Conditions

Load averages before {before}, after {after}.
"""


def page(result: Mapping[str, Any]) -> Page:
    workers, imports, plan = result["workers"], result["imports"], result["plan"]
    needless = sorted({name for row in (*workers, *imports) for name in row["needless_modules"]})
    head = ["store", "role", "MB", "CPU seconds an hour", "wake-ups a second", "threads"]
    rows = [
        [
            row["store"],
            row["role"],
            f"{row['megabytes']:.1f}",
            f"{row['cpu_seconds_per_hour']:.1f}",
            f"{row['wakeups_per_second']:.0f}",
            row["threads"],
        ]
        for row in workers
    ]
    timed = [
        [
            f"{row['what']}",
            f"{row['best_ms']:.0f}",
            f"{row['median_ms']:.0f}",
            f"{row['cpu_median_ms']:.0f}",
            row["modules"],
        ]
        for row in imports
    ]
    text = _TEXT.format(
        seconds=plan["seconds"],
        bare=workers[0]["bare_python_megabytes"],
        workers=table(head, rows),
        times=plan["imports"],
        imports=table(["", "best ms", "median ms", "CPU ms, median", "modules"], timed),
        needless=f"Imported for nothing: {', '.join(needless)}."
        if needless
        else "Neither click nor rich, starlette, prometheus_client or opentelemetry is imported.",
        limits=limits(result),
        before=", ".join(f"{load:g}" for load in result["load_average_before"]),
        after=", ".join(f"{load:g}" for load in result["load_average_after"]),
    )
    samples = {row["what"]: row["samples_ms"] for row in imports}
    picture = strips(
        "Imports: milliseconds", samples, unit="ms", note="Every process is a dot; the line is the median."
    )
    return Page("Idle: memory, CPU and imports", text, {"idle-imports": picture})

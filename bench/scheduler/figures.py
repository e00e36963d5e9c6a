"""What was measured, as it goes into the table and into the file of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.queue.figures import percentile, usd

KEPT_SAMPLES = 1000


def spread(ordered: Sequence[float]) -> dict[str, float]:
    if not ordered:
        return {}
    return {
        "p50": round(percentile(ordered, 0.5), 3),
        "p99": round(percentile(ordered, 0.99), 3),
        "longest": round(ordered[-1], 3),
    }


def kept(ordered: Sequence[float]) -> list[float]:
    """Of more samples than are kept, those at even ranks are, and the last."""
    step = max(1, -(-len(ordered) // KEPT_SAMPLES))
    return [*ordered[::step], *ordered[-1:]]


def row_of(raw: dict[str, Any]) -> dict[str, Any]:
    """The figures of one process's report."""
    window, cpu = raw["window"], raw["cpu"]
    row: dict[str, Any] = {
        "start_seconds": {name: round(seconds, 3) for name, seconds in raw["start"].items()},
        "window_seconds": window["seconds"],
        "runs": len(window["lateness_ms"]),
        "lateness_ms": spread(window["lateness_ms"]),
        "early": window["early"],
        "not_run": window["expected_periodic"] - window["ran_periodic"],
        "loop_gap_ms": spread(window["gaps_ms"]),
        "loop_busy_ms": spread(window["busy_ms"]),
        "collections_ms": {"count": len(window["collections_ms"]), **spread(window["collections_ms"])},
        "memory_mib": round(raw["memory_bytes"] / 2**20, 1),
        "cpu": {
            "seconds": cpu["seconds"],
            "share": round(cpu["cpu_seconds"] / cpu["seconds"], 4),
            "ticks": cpu["ticks"],
            "runs": cpu["runs"],
            "tick_ms": spread(cpu["tick_ms"]),
            "ms_per_tick": each(cpu["cpu_seconds"], cpu["ticks"]),
            "ms_per_run": each(cpu["cpu_seconds"], cpu["runs"]),
            "tick_ms_per_run": each(sum(cpu["tick_ms"]) / 1000, cpu["runs"]),
        },
        "samples": {
            "lateness_ms": kept(window["lateness_ms"]),
            "loop_gap_ms": kept(window["gaps_ms"]),
            "loop_busy_ms": kept(window["busy_ms"]),
            "collections_ms": kept(window["collections_ms"]),
            "tick_ms": kept(cpu["tick_ms"]),
        },
    }
    if window["spent"]:
        row.update(requests_of(window["spent"], window["seconds"]))
    if "outcomes" in raw:
        row["outcomes"] = raw["outcomes"]
    return row


def each(seconds: float, count: int) -> float | None:
    """Milliseconds."""
    return round(seconds / count * 1000, 4) if count else None


def requests_of(spent: dict[str, int], seconds: float) -> dict[str, Any]:
    """At the list prices of S3 Standard, whatever store they went to."""
    total = sum(spent.values())
    return {
        "requests": {verb: count for verb, count in spent.items() if count},
        "requests_per_second": round(total / seconds, 3),
        "requests_per_hour": round(total / seconds * 3600),
        "usd_per_hour": round(usd(spent) / seconds * 3600, 5),
    }

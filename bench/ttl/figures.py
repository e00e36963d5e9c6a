"""What was measured, held against what has to come of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.form import Limit
from bench.ttl.plan import MOST_CHANGE, MOST_REQUESTS

_PER_RECORD = {"billed_per_record": "requests", "cpu_us_per_record": "CPU", "seconds": "wall time"}


def of_runs(runs: Sequence[dict[str, Any]], figure: str) -> float:
    """The median of a figure."""
    return float(median(run[figure] for run in runs))


def change(fewest: Sequence[dict[str, Any]], most: Sequence[dict[str, Any]], figure: str) -> float:
    """By which share the median of a figure differs where most are stored from where fewest are."""
    return of_runs(most, figure) / of_runs(fewest, figure) - 1


def changes(growth: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By figure. Requests have to stay the same; CPU and wall time are a disk's and a machine's as well."""
    fewest, most = growth[0]["cleanups"], growth[-1]["cleanups"]
    return {name: round(change(fewest, most, figure), 4) for figure, name in _PER_RECORD.items()}


def limits(growth: Sequence[dict[str, Any]]) -> list[Limit]:
    """The same bars as figures."""
    runs = [run for row in growth for run in row["cleanups"]]
    wrong = sum(
        abs(run["expired"] - row["due"]) + abs(run["records_left"] - (row["stored"] - row["due"]))
        for row in growth
        for run in row["cleanups"]
    )
    return [
        Limit("requests per expired record", max(run["billed_per_record"] for run in runs), MOST_REQUESTS),
        Limit("records read in vain", max(run["read_in_vain"] for run in runs), 0),
        Limit("records that expired though they were not due, or did not though they were", wrong, 0),
        Limit(
            f"change of requests per expired record from {growth[0]['stored']:,} stored to {growth[-1]['stored']:,}",
            abs(changes(growth)["requests"]),
            MOST_CHANGE,
        ),
    ]


def missed(growth: Sequence[dict[str, Any]]) -> list[str]:
    """The bars that were missed, as sentences; `growth` from the fewest records stored to the most."""
    found = []
    for row in growth:
        for run in row["cleanups"]:
            where = f"with {row['stored']:,} records stored"
            if run["billed_per_record"] > MOST_REQUESTS:
                found.append(
                    f"{where}: {run['billed_per_record']:.3f} requests per expired record, and the bar is "
                    f"{MOST_REQUESTS:g}"
                )
            if run["read_in_vain"]:
                found.append(
                    f"{where}: {run['read_in_vain']:,} objects were read in vain, or again after one of "
                    f"{run['counts'].get('errors', 0):,} errors of the store"
                )
            if (expired := run["expired"]) != row["due"]:
                found.append(f"{where}: {expired:,} records expired, and {row['due']:,} were due")
            if (left := run["records_left"]) != row["stored"] - row["due"]:
                found.append(f"{where}: {left:,} records are left, of {row['stored'] - row['due']:,} that were not due")
    if abs(differs := changes(growth)["requests"]) > MOST_CHANGE:
        found.append(
            f"requests per expired record differ by {differs:+.1%} between {growth[0]['stored']:,} and "
            f"{growth[-1]['stored']:,} records stored, and the bar is {MOST_CHANGE:.0%}"
        )
    return found

"""What was measured, as it goes into the table and into the file of results, held against what has to come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.counters.plan import HEAVY, LEAST_PER_SECOND, MOST_CHANGE, MOST_REQUESTS, OURS
from bench.form import Limit
from bench.queue.figures import percentile, usd
from bench.ttl.meter import Requests, since, together


def spent(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Requests:
    """Requests of all processes between two looks, by what they were for."""
    total: dict[str, Counter[str]] = {}
    for former, latter in zip(before, after, strict=True):
        for kind, verbs in since(latter["requests"], former["requests"]).items():
            total.setdefault(kind, Counter()).update(verbs)
    return {kind: dict(verbs) for kind, verbs in total.items()}


def requests_json(requests: Requests, count: int) -> dict[str, Any]:
    """`count`: of whatever they were made for."""
    verbs = together(requests)
    return {
        "requests": requests,
        "requests_each": round(sum(verbs.values()) / count, 5),
        "usd_per_million": round(usd(verbs) / count * 1e6, 4),
    }


def load_json(
    shares: Sequence[dict[str, Any]],
    consolidated_at: float,
    before: Sequence[dict[str, Any]],
    after: Sequence[dict[str, Any]],
    total: int,
) -> dict[str, Any]:
    """One run. `shares`: what each process added, the leader first; `total`: what the records say in the end."""
    count = sum(share["count"] for share in shares)
    began, ended = min(share["began"] for share in shares), max(share["ended"] for share in shares)
    moved = [
        {name: latter[name] - former[name] for name in ("cpu", "bytes_sent", "bytes_received")}
        for former, latter in zip(before, after, strict=True)
    ]
    (leader, *writers), (leading, *writing) = moved, shares
    found: dict[str, Any] = {
        "adds": count,
        "adds_of_each": [share["count"] for share in shares],
        "counted": total,
        "acknowledged_per_second": round(count / (ended - began), 1),
        "consolidated_per_second": round(count / (consolidated_at - began), 1),
        "seconds_until_acknowledged": round(ended - began, 3),
        "seconds_until_consolidated": round(consolidated_at - began, 3),
        "bytes_per_add": round(sum(each["bytes_sent"] + each["bytes_received"] for each in moved) / count, 2),
        "cpu_us_per_add": round(sum(each["cpu"] for each in moved) / count * 1e6, 2),
        **requests_json(spent(before, after), count),
    }
    if writers:
        written = sum(share["count"] for share in writing)
        each = sum(writer["cpu"] for writer in writers) / written
        found["writer_cpu_us_per_add"] = round(each * 1e6, 2)
        found["writer_bytes_sent_per_add"] = round(sum(writer["bytes_sent"] for writer in writers) / written, 2)
        # Its own calls are taken to cost it what they cost the others.
        found["leader_cpu_us_per_add"] = round((leader["cpu"] - each * leading["count"]) / count * 1e6, 2)
    return found


def calls_json(samples: Sequence[float], requests: Requests) -> dict[str, Any]:
    ordered = sorted(samples)
    return {
        "calls": len(ordered),
        "p50_ms": round(percentile(ordered, 0.5), 2),
        "p99_ms": round(percentile(ordered, 0.99), 2),
        "requests": requests,
        "samples_ms": list(samples),
    }


def of_runs(runs: Sequence[dict[str, Any]], figure: str) -> float:
    """The median of a figure."""
    return float(median(run[figure] for run in runs))


def missed(subject: dict[str, Any]) -> list[str]:
    """The bars that were missed, as sentences. Each load counts for itself; the best has to reach the rate."""
    found = []
    loads = subject.get("load", [])
    for load in loads:
        where = f"with {load['callers']:,} callers in each process"
        found += [
            f"{where}: {run['adds']:,} were added, and {run['counted']:,} counted"
            for run in load["runs"]
            if run["counted"] != run["adds"]
        ]
        if load["callers"] >= HEAVY and (each := of_runs(load["runs"], "requests_each")) > MOST_REQUESTS:
            found.append(f"{where}: {each:.4f} requests an add, and the bar is {MOST_REQUESTS:g}")
    if loads:
        best = max(of_runs(load["runs"], "consolidated_per_second") for load in loads)
        if best < LEAST_PER_SECOND:
            found.append(
                f"{best:,.0f} adds/s until all are consolidated, in the median of runs: the bar is {LEAST_PER_SECOND:,}"
            )
    for touched, change in changes(subject.get("growth", [])).items():
        if abs(change) > MOST_CHANGE:
            found.append(
                f"with {touched} records touched, requests for each of them differ by {change:+.1%} between the fewest "
                f"and the most stored: the bar is {MOST_CHANGE:.0%}"
            )
    return found


def limits(subjects: Sequence[dict[str, Any]]) -> list[Limit]:
    """The same bars as figures, of the directory store, as far as they were measured."""
    ours = next((subject for subject in subjects if subject["subject"] == OURS), {})
    loads = ours.get("load", [])
    heavy = [of_runs(load["runs"], "requests_each") for load in loads if load["callers"] >= HEAVY]
    differ = [abs(change) for change in changes(ours.get("growth", [])).values()]
    found = []
    if loads:
        best = max(of_runs(load["runs"], "consolidated_per_second") for load in loads)
        lost = sum(abs(run["adds"] - run["counted"]) for load in loads for run in load["runs"])
        found.append(Limit("adds a second until all is consolidated", best, LEAST_PER_SECOND, is_least=True))
        found.append(Limit("adds lost or counted twice", lost, 0))
    if heavy:
        found.append(Limit(f"requests an add, from {HEAVY:,} callers on", max(heavy), MOST_REQUESTS))
    if differ:
        what = "change of requests per touched record from the fewest stored to the most"
        found.append(Limit(what, max(differ), MOST_CHANGE))
    return found


def changes(growth: Sequence[dict[str, Any]]) -> dict[str, float]:
    """For each number of touched records: by which share requests differ from the fewest stored to the most."""
    found = {}
    for touched in sorted({row["touched"] for row in growth}):
        rows = sorted((row for row in growth if row["touched"] == touched), key=lambda row: int(row["stored"]))
        for when in ("first", "again"):
            fewest, most = (row[when]["requests_each"] for row in (rows[0], rows[-1]))
            found[f"{touched:,} ({when})"] = round(most / fewest - 1, 4)
    return found

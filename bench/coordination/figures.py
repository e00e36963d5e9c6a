"""From counts to what they mean: requests a minute, USD a month, shares of a peer's, and the bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.coordination.plan import (
    COMPARED,
    MOST_FIRST_LEADER,
    MOST_PLUGIN_DIFFERENCE,
    MOST_REQUESTS,
    MOST_USD,
    MOST_USD_ELECTION_ONLY,
    Cell,
)
from bench.form import Limit
from tenure.store.providers import PRICES

HOURS_PER_MONTH = 730
MOST_UNEXPLAINED = 0.05
"""Share by which the workers' own count may differ from the proxy's, and one request for each worker: they are asked
just before and just after the time that is counted."""
_CHARGED_AS = {
    "put": "put",
    "conditional put": "put",
    "get": "get",
    "head": "get",
    "list": "list",
    "delete": "delete",
    "delete many": "delete",
}


def usd_per_month(counts: Mapping[str, int], seconds: float) -> float:
    """At the list prices of S3 Standard, if every second of a month were like these. What is unknown counts as PUT."""
    price = PRICES["s3"]
    spent = sum(price.of(_CHARGED_AS.get(verb, "put")) * count for verb, count in counts.items())
    return spent * HOURS_PER_MONTH * 3600 / seconds


def row_of(cell: Cell, counts: Mapping[str, int], seconds: float, **more: Any) -> dict[str, Any]:
    requests = sum(counts.values())
    return {
        **cell.as_json(),
        "seconds": round(seconds, 2),
        "counts": dict(counts),
        "per_minute": {verb: round(count * 60 / seconds, 1) for verb, count in counts.items()},
        "requests_per_minute": round(requests * 60 / seconds, 1),
        "usd_per_month": round(usd_per_month(counts, seconds), 3),
        **more,
    }


def unrest(row: Mapping[str, Any]) -> str | None:
    """Why this does not say what a fleet of ours costs while nothing happens: something did, or this machine was too
    slow for it. A peer may elect as often as it likes, as long as somebody leads."""
    if not row["leaders"]:
        return "it has no leader"
    sent = row.get("sent_by_their_own_count")
    if sent is None:
        return None
    if row["leaders"] != 1 or row["epochs"]:
        return f"it was not at rest: {row['leaders']} leaders, and the epoch rose by {row['epochs']}"
    seen = sum(row["counts"].values())
    if abs(sent - seen) > MOST_UNEXPLAINED * seen + row["workers"]:
        return f"the proxy saw {seen} requests and the workers sent {sent}: requests were lost or repeated"
    return None


def find(rows: Sequence[Mapping[str, Any]], subject: str, workers: int, mode: str = "") -> list[Mapping[str, Any]]:
    wanted = (subject, workers, mode)
    return [row for row in rows if (row["subject"], row["workers"], row["mode"]) == wanted]


def peers(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of s3db.js with as many workers as are compared: as it comes, and without retries if that was tried."""
    return [*find(rows, "s3db", COMPARED), *find(rows, "s3db", COMPARED, "no retries")]


def limits(result: Mapping[str, Any]) -> list[Limit]:
    """Those that can be judged by what was measured: our dearest fleet against the peer's cheapest one."""
    rows, firsts = result["rows"], result["first_leader"]
    found = [
        Limit(
            f"requests of {workers} workers: {most} plugins a process against {least}, difference as a share",
            round(change, 4),
            MOST_PLUGIN_DIFFERENCE,
        )
        for workers in sorted({row["workers"] for row in rows if row["workers"] >= COMPARED})
        for least, most, change in plugin_changes(find(rows, "tenure", workers))
    ]
    ours, theirs = find(rows, "tenure", COMPARED), peers(rows)
    if ours and theirs:
        for name, bar in (("requests_per_minute", MOST_REQUESTS), ("usd_per_month", MOST_USD)):
            share = max(row[name] for row in ours) / min(row[name] for row in theirs)
            what = name.replace("_", " ").replace("usd", "USD")
            found.append(Limit(f"{what}, {COMPARED} workers, as a share of s3db.js's", share, bar))
    if theirs and (only := find(rows, "tenure", COMPARED, "election only")):
        share = max(row["usd_per_month"] for row in only) / min(row["usd_per_month"] for row in theirs)
        what = f"USD per month, {COMPARED} workers, election only, as a share of s3db.js's"
        found.append(Limit(what, share, MOST_USD_ELECTION_ONLY))
    if firsts.get("tenure") and firsts.get("s3db"):
        share = whole(firsts["tenure"]) / whole(firsts["s3db"])
        what = "time to the first leader on an empty bucket, as a share of s3db.js's"
        found.append(Limit(what, share, MOST_FIRST_LEADER))
    return found


def plugin_changes(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, float]]:
    """From the fewest plugins to the most: by what share the requests differ, more or fewer."""
    by_plugins = {row["plugins"]: row["requests_per_minute"] for row in rows}
    if len(by_plugins) < 2:
        return []
    least, most = min(by_plugins), max(by_plugins)
    return [(least, most, abs(by_plugins[most] / by_plugins[least] - 1))]


def whole(trials: Sequence[Mapping[str, float]]) -> float:
    """The median of the time from opening the database to leading, in seconds."""
    return median(trial["connect"] + trial["lead"] for trial in trials)

"""Records that expire: what it takes to remove them, whatever else is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.pages import Page, limits, table
from bench.plot import Bar, Group, bars
from bench.ttl.figures import of_runs

_TEXT = """\
So many records are stored in a directory, of which {due:,} are due; a leader is started, and what it takes to remove
those is counted: as S3 bills requests (a DELETE costs nothing, a LIST counts once per thousand keys), everything that
the process sends included. Nobody else is measured: s3db.js leaves records behind that expire after their minute's
last tick, and other stores expire by themselves.

{{{{ttl-cleanup}}}}

{cleanups}

From {fewest:,} records stored to {most:,}, an expired record takes {requests:+.1%} requests, {cpu:+.0%} CPU and
{wall:+.0%} time: it does not matter how many are stored that are not due. A million files on a disk do cost
something.

### Ways to expire

{strategies}

### What a TTL adds to an insert

{inserts}

**One by one, a record with a TTL takes two requests instead of one**, and is inserted {slower:.1f} times more slowly;
many at a time, the entries of the index are shared.

An hour in which nothing expires, one process: {idle:,} requests and {usd:.4f} USD, of which {usd_ttl:.4f} are for the
TTL and the rest is the election (simulated; the counts are exact).

### Bars

{limits}

### Conditions

File system {file_system}; load averages before {before}, after {after}: the machine had other work, and rates would
be higher without it.
"""


def page(result: Mapping[str, Any]) -> Page:
    growth, differ, inserts = result["growth"], result["changes"], result["inserts"]
    single = {row["ttl"]: row["per_second"] for row in inserts if row["how"] == "one by one"}
    text = _TEXT.format(
        due=result["plan"]["due"],
        cleanups=_cleanups(growth),
        fewest=growth[0]["stored"],
        most=growth[-1]["stored"],
        requests=differ["requests"],
        cpu=differ["CPU"],
        wall=differ["wall time"],
        strategies=_strategies(result["strategies"]),
        inserts=_inserts(inserts),
        slower=single[False] / single[True],
        idle=result["idle_hour"]["billed"],
        usd=result["idle_hour"]["usd"],
        usd_ttl=result["idle_hour"]["usd_of_ttl"],
        limits=limits(result),
        file_system=result["file_system"],
        before=_loads(result["load_average_before"]),
        after=_loads(result["load_average_after"]),
    )
    return Page("TTL: expiring records", text, {"ttl-cleanup": _picture(growth, result["strategies"])})


def _loads(loads: Sequence[float]) -> str:
    return ", ".join(f"{load:g}" for load in loads)


def _cleanups(growth: Sequence[Mapping[str, Any]]) -> str:
    head = ["stored", "due", "seconds", "a second", "all runs", "CPU µs each", "requests each", "USD a million"]
    lines = [
        [
            f"{row['stored']:,}",
            f"{row['due']:,}",
            f"{of_runs(row['cleanups'], 'seconds'):.1f}",
            f"{of_runs(row['cleanups'], 'per_second'):,.0f}",
            ", ".join(f"{run['per_second']:,.0f}" for run in row["cleanups"]),
            f"{of_runs(row['cleanups'], 'cpu_us_per_record'):,.0f}",
            f"{of_runs(row['cleanups'], 'billed_per_record'):.4f}",
            f"{of_runs(row['cleanups'], 'usd_per_million'):.2f}",
        ]
        for row in growth
    ]
    return table(head, lines)


def _strategies(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ["how", "a second", "CPU µs each", "requests each", "USD a million"]
    lines = [
        [
            row["how"],
            f"{row['per_second']:,.0f}",
            f"{row['cpu_us_per_record']:,.0f}",
            f"{row['billed_per_record']:.3f}",
            f"{row['usd_per_million']:.2f}",
        ]
        for row in rows
    ]
    return table(head, lines)


def _inserts(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ["how", "TTL", "records a second", "requests each", "USD a million"]
    lines = [
        [
            row["how"],
            "yes" if row["ttl"] else "no",
            f"{row['per_second']:,.0f}",
            f"{row['billed_per_record']:.3f}",
            f"{row['usd_per_million']:.2f}",
        ]
        for row in rows
    ]
    return table(head, lines)


def _picture(growth: Sequence[Mapping[str, Any]], strategies: Sequence[Mapping[str, Any]]) -> str:
    stored = []
    for row in growth:
        each = [float(run["billed_per_record"]) for run in row["cleanups"]]
        value = of_runs(row["cleanups"], "billed_per_record")
        stored.append(Bar(f"{row['stored']:,} stored", value, f"{value:.3f}", 0, min(each), max(each)))
    ways = [Bar(row["how"], row["billed_per_record"], f"{row['billed_per_record']:.3f}", 2) for row in strategies]
    note = "As S3 bills them, everything included that the leader's process sends."
    groups = [Group(f"{growth[0]['due']:,} that are due, hard delete", stored), Group("ways to expire", ways)]
    return bars("TTL: requests per expired record", groups, note=note)

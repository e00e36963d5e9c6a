"""The figures, for people."""

from __future__ import annotations

from statistics import mean
from typing import Any

from rich.console import Console

from bench.ttl.table import table_of

VERBS = ("replace", "get", "list", "create", "delete")


def show(result: dict[str, Any], console: Console) -> None:
    table = table_of(
        "requests of one worker in one heartbeat, and bytes",
        *("workers", "start", "requests", *VERBS, "bytes", "requests/s", "busiest key, writes/s", "CPU s to simulate"),
    )
    for row in result["sizes"]:
        steady = row["steady"]
        verbs = steady["requests_each_by_verb"]
        table.add_row(
            *(f"{row['workers']:,}", row["start"], f"{steady['requests_each']:.4f}"),
            *(f"{verbs.get(verb, 0):.4f}" for verb in VERBS),
            *(f"{steady['bytes_each']:,.0f}", f"{steady['requests_per_second']:,.1f}"),
            *(f"{steady['busiest_key_writes_per_second']:.3f}", f"{row['cpu_seconds']:,.0f}"),
        )
    console.print(table)
    table = table_of(
        "a crashed leader is replaced",
        *("workers", "crashes", "seconds, mean", "least", "most", "busiest second, requests", "all are known after s"),
    )
    for row in result["sizes"]:
        took = [each["seconds"] for each in row["failovers"]]
        known = [each["known_after_seconds"] for each in row["failovers"] if "known_after_seconds" in each]
        if took:
            table.add_row(
                *(f"{row['workers']:,}", f"{len(took)}", f"{mean(took):.2f}", f"{min(took):.2f}", f"{max(took):.2f}"),
                f"{max(each['peak_requests_per_second'] for each in row['failovers']):,}",
                f"{max(known):.0f}" if known else "",
            )
    console.print(table)
    table = table_of(
        "one heartbeat of the leader, and what a change of the fleet costs a follower",
        *("workers", "cycle ms", "CPU ms", "CPU µs a worker", "members.json bytes", "follower CPU ms a change"),
    )
    for row in result["leaders"]:
        change = row["follower_ms_per_change"]
        table.add_row(
            *(f"{row['workers']:,}", f"{row['cycle_ms']:,.0f}", f"{row['cpu_ms_per_cycle']:,.2f}"),
            *(f"{row['cpu_us_per_worker']:,.1f}", f"{row['members_bytes']:,}"),
            "cannot be read" if change is None else f"{change:,.2f}",
        )
    console.print(table)
    for row in result["sizes"]:
        if start := row.get("cold_start"):
            console.print(
                f"{row['workers']:,} workers on an empty bucket: one leads after {start['seconds']:.1f} s and "
                f"{start['requests']:,} requests, {start['peak_requests_per_second']:,} in the busiest second; all are "
                f"known after {start['known_after_seconds']:.0f} s",
                highlight=False,
            )
    table = table_of("where it ends, on paper", "because of", "workers")
    for end in result["ends"]:
        table.add_row(end["what"], "never" if end["workers"] is None else f"{end['workers']:,}")
    console.print(table)

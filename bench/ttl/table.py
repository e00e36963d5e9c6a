"""The figures, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from bench.ttl.figures import changes, of_runs


def show(result: dict[str, Any], console: Console) -> None:
    _load(result["growth"], console)
    _cleanups(result["growth"], console)
    _strategies(result["strategies"], console)
    _inserts(result["inserts"], console)
    idle = result["idle_hour"]
    verbs = ", ".join(f"{count:,} {verb}" for verb, count in sorted(idle["by_verb"].items(), key=lambda each: -each[1]))
    console.print(
        f"an hour in which nothing expires, one process: {idle['billed']:,} requests ({verbs}), "
        f"{idle['usd']:.4f} USD, of which {idle['usd_of_ttl']:.4f} for the TTL and the rest for the election",
        highlight=False,
    )


def table_of(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    return table


def _load(growth: list[dict[str, Any]], console: Console) -> None:
    table = table_of(
        "loading, apart from the cleanup", "stored", "seconds", "per second", "CPU µs", "objects", "MB", "MB on disk"
    )
    for row in growth:
        load, disk = row["load"], row["on_disk"]
        table.add_row(
            f"{row['stored']:,}",
            f"{load['seconds']:,.1f}",
            f"{load['per_second']:,.0f}",
            f"{load['cpu_us_per_record']:,.0f}",
            f"{disk['objects']:,}",
            f"{disk['bytes'] / 1e6:,.0f}",
            f"{disk['bytes_on_disk'] / 1e6:,.0f}",
        )
    console.print(table)


def _cleanups(growth: list[dict[str, Any]], console: Console) -> None:
    table = table_of(
        "cleaning up what is due, hard delete (medians; all runs of the rate)",
        *("stored", "due", "seconds", "per second", "all runs", "CPU µs", "requests", "read in vain", "USD a million"),
    )
    for row in growth:
        runs = row["cleanups"]
        table.add_row(
            f"{row['stored']:,}",
            f"{row['due']:,}",
            f"{of_runs(runs, 'seconds'):,.2f}",
            f"{of_runs(runs, 'per_second'):,.0f}",
            " ".join(f"{run['per_second']:,.0f}" for run in runs),
            f"{of_runs(runs, 'cpu_us_per_record'):,.0f}",
            f"{of_runs(runs, 'billed_per_record'):.4f}",
            f"{max(run['read_in_vain'] for run in runs):,}",
            f"{of_runs(runs, 'usd_per_million'):,.2f}",
        )
    if len(growth) > 1:
        differs = changes(growth)
        table.caption = "from the fewest stored to the most, per expired record: " + ", ".join(
            f"{name} {share:+.1%}" for name, share in differs.items()
        )
    console.print(table)


def _strategies(rows: list[dict[str, Any]], console: Console) -> None:
    table = table_of(
        "ways to expire, requests per expired record",
        *("how", "due", "per second", "CPU µs", "requests", "get", "writes", "list", "delete (free)", "USD a million"),
    )
    for row in rows:
        verbs, expired = row["by_verb"], row["expired"]
        writes = sum(verbs.get(verb, 0) for verb in ("put", "create", "replace"))
        deletes = sum(verbs.get(verb, 0) for verb in ("delete", "discard"))
        table.add_row(
            row["how"],
            f"{expired:,}",
            f"{row['per_second']:,.0f}",
            f"{row['cpu_us_per_record']:,.0f}",
            f"{row['billed_per_record']:.3f}",
            *(f"{count / expired:.3f}" for count in (verbs.get("get", 0), writes, verbs.get("list", 0), deletes)),
            f"{row['usd_per_million']:,.2f}",
        )
    console.print(table)


def _inserts(rows: list[dict[str, Any]], console: Console) -> None:
    table = table_of(
        "inserting, without and with a TTL",
        *("how", "TTL", "records", "per second", "CPU µs", "a call, p50 ms", "requests", "USD a million"),
    )
    for row in rows:
        table.add_row(
            row["how"],
            "yes" if row["ttl"] else "no",
            f"{row['records']:,}",
            f"{row['per_second']:,.0f}",
            f"{row['cpu_us_per_record']:,.0f}",
            f"{row['p50_ms_of_a_call']:,.2f}",
            f"{row['billed_per_record']:.3f}",
            f"{row['usd_per_million']:,.2f}",
        )
    console.print(table)

"""The figures, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from bench.counters.figures import changes, of_runs
from bench.ttl.table import table_of


def show(subjects: list[dict[str, Any]], console: Console) -> None:
    ours = [subject for subject in subjects if "load" in subject or "calls" in subject or "growth" in subject]
    _load(ours, console)
    _calls(ours, console)
    _growth(ours, console)
    for subject in ours:
        if held := subject.get("memory"):
            console.print(
                f"{subject['subject']}: {held['records']:,} records waiting take {held['bytes'] / 1e6:,.0f} MB of the "
                f"leader's memory, {held['bytes_per_record']:,.0f} bytes each",
                highlight=False,
            )
    _peers([subject for subject in subjects if subject not in ours], console)


def _load(subjects: list[dict[str, Any]], console: Console) -> None:
    table = table_of(
        "two processes that add, of which one leads (medians; all runs of the rate until all is consolidated)",
        *("counters", "callers", "adds", "acknowledged/s", "consolidated/s", "all runs", "requests an add"),
        *("USD a million", "writer CPU µs", "leader CPU µs", "bytes an add"),
    )
    for subject in subjects:
        for row in subject.get("load", []):
            runs = row["runs"]
            table.add_row(
                subject["subject"],
                f"2 x {row['callers']:,}",
                f"{of_runs(runs, 'adds'):,.0f}",
                f"{of_runs(runs, 'acknowledged_per_second'):,.0f}",
                f"{of_runs(runs, 'consolidated_per_second'):,.0f}",
                " ".join(f"{run['consolidated_per_second']:,.0f}" for run in runs),
                f"{of_runs(runs, 'requests_each'):.4f}",
                f"{of_runs(runs, 'usd_per_million'):,.3f}",
                f"{of_runs(runs, 'writer_cpu_us_per_add'):,.1f}",
                f"{of_runs(runs, 'leader_cpu_us_per_add'):,.1f}",
                f"{of_runs(runs, 'bytes_per_add'):,.1f}",
            )
    if table.row_count:
        console.print(table)


def _calls(subjects: list[dict[str, Any]], console: Console) -> None:
    table = table_of("one caller, alone, in a process that does not lead", "counters", "call", "p50 ms", "p99 ms")
    table.add_column("requests of that process a call", justify="right")
    for subject in subjects:
        for what, row in subject.get("calls", {}).items():
            requests = sum(sum(verbs.values()) for kind, verbs in row["requests"].items() if kind != "coordination")
            each = f"{requests / row['calls']:.2f}"
            table.add_row(subject["subject"], what, f"{row['p50_ms']:,.2f}", f"{row['p99_ms']:,.2f}", each)
    if table.row_count:
        console.print(table)


def _growth(subjects: list[dict[str, Any]], console: Console) -> None:
    table = table_of(
        "consolidating, requests per touched record (the ledger's included)",
        *("counters", "stored", "touched", "first time", "again", "records only", "seconds"),
    )
    for subject in subjects:
        for row in subject.get("growth", []):
            first, again = row["first"], row["again"]
            records = sum(again["requests"]["records"].values()) / row["touched"]
            table.add_row(
                subject["subject"],
                f"{row['stored']:,}",
                f"{row['touched']:,}",
                f"{first['requests_each']:.3f}",
                f"{again['requests_each']:.3f}",
                f"{records:.3f}",
                f"{first['seconds']:.2f} {again['seconds']:.2f}",
            )
        if differs := changes(subject.get("growth", [])):
            shares = ", ".join(f"{touched}: {change:+.1%}" for touched, change in differs.items())
            table.caption = f"from the fewest stored to the most, by records touched: {shares}"
    if table.row_count:
        console.print(table)


def _peers(subjects: list[dict[str, Any]], console: Console) -> None:
    table = table_of("others", "what", "how", "adds/s", "all runs", "requests an add", "USD a million", "client CPU µs")
    for subject in subjects:
        for row in subject.get("adding", []):
            how = f"add, {row['callers']} callers"
            rate, each = f"{row['per_second']:.2f}", f"{row['requests_each']:.1f}"
            table.add_row(subject["subject"], how, rate, "", each, f"{row['usd_per_million']:,.0f}", "")
        if row := subject.get("consolidating"):
            rate, each = f"{row['per_second']:.2f}", f"{row['requests_each']:.1f}"
            table.add_row(subject["subject"], "consolidate", rate, "", each, f"{row['usd_per_million']:,.0f}", "")
        for row in subject.get("rows", []):
            runs = row["runs"]
            table.add_row(
                subject["subject"],
                f"appendfsync {row['appendfsync']}, 2 processes, {_together(row['in_a_pipeline'])}",
                f"{of_runs(runs, 'per_second'):,.0f}",
                " ".join(f"{run['per_second']:,.0f}" for run in runs),
                "",
                "",
                f"{of_runs(runs, 'client_cpu_us_per_add'):,.1f}",
            )
    if table.row_count:
        console.print(table)


def _together(commands: int) -> str:
    return "one by one" if commands == 1 else f"{commands:,} in a pipeline"

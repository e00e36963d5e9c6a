"""The figures, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from bench.queue.figures import middle


def show(subjects: list[dict[str, Any]], console: Console) -> None:
    _throughput(subjects, console)
    _enqueue(subjects, console)
    _latency(subjects, console)
    _growth(subjects, console)
    for subject in subjects:
        if subject.get("note"):
            console.print(f"{subject['subject']}: {subject['note']}", markup=False, highlight=False)


def _throughput(subjects: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="no-op messages per second, end to end (median run)")
    for column in ("queue", "workers", "messages", "per second", "all runs", "halves", "CPU µs", "server CPU µs"):
        table.add_column(column, justify="left" if column == "queue" else "right")
    table.add_column("requests a message", justify="right")
    table.add_column("USD a million", justify="right")
    for subject in subjects:
        for key, runs in subject.items():
            if not key.startswith("throughput_"):
                continue
            run = middle(runs)
            table.add_row(
                subject["subject"],
                key.removeprefix("throughput_").replace("_", " "),
                f"{run['messages']:,}",
                f"{run['per_second']:,.0f}" if run["per_second"] >= 10 else f"{run['per_second']:.2f}",
                " ".join(f"{each['per_second']:,.0f}" for each in runs),
                " ".join(f"{each:,.0f}" for each in run["per_second_of_halves"]),
                f"{run['cpu_us_per_message']:,.0f}",
                f"{run['server_cpu_us_per_message']:,.0f}",
                f"{run['requests_per_message']:,.4f}" if "requests_per_message" in run else "",
                f"{run['usd_per_million']:,.3f}" if "usd_per_million" in run else "",
            )
    if table.row_count:
        console.print(table)


def _enqueue(subjects: list[dict[str, Any]], console: Console) -> None:
    table = Table("queue", "one by one", "100 callers", "batched", title="enqueued per second, durable, nobody handles")
    for subject in subjects:
        found = subject.get("enqueue")
        if found:
            rates = [found.get(key) for key in ("single", "single_100_callers", "batched")]
            table.add_row(subject["subject"], *(f"{rate['per_second']:,.0f}" if rate else "" for rate in rates))
    if table.row_count:
        console.print(table)


def _latency(subjects: list[dict[str, Any]], console: Console) -> None:
    table = Table("queue", title="end to end, enqueued one by one: p50 / p99 ms; and what an idle fleet spends")
    rates = sorted({row["per_second"] for subject in subjects for row in subject.get("latency", ())})
    for rate in rates:
        table.add_column(f"{rate:,g}/s", justify="right")
    table.add_column("idle requests/h", justify="right")
    table.add_column("idle USD/h", justify="right")
    table.add_column("idle CPU", justify="right")
    for subject in subjects:
        found = {row["per_second"]: row for row in subject.get("latency", ())}
        if not found:
            continue
        cells = [
            f"{found[rate]['p50_ms']:,.0f} / {found[rate]['p99_ms']:,.0f}" if rate in found else "" for rate in rates
        ]
        idle = subject.get("idle", {})
        table.add_row(
            *(subject["subject"], *cells, f"{idle['requests_per_hour']:,}" if idle else ""),
            f"{idle['usd_per_hour']:.4f}" if "usd_per_hour" in idle else "",
            f"{idle['cpu_share']:.1%}" if idle else "",
        )
    if table.row_count:
        console.print(table)


def _growth(subjects: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="a backlog, enqueued before anybody handles")
    for column in ("queue", "backlog", "handled per second", "CPU µs a message", "requests a message"):
        table.add_column(column, justify="left" if column == "queue" else "right")
    table.add_column("leader's bytes a message", justify="right")
    for subject in subjects:
        for row in subject.get("growth", ()):
            table.add_row(
                *(subject["subject"], f"{row['backlog']:,}", f"{row['drain_per_second']:,}"),
                f"{row['fill_cpu_us_per_message']:.0f} + {row['drain_cpu_us_per_message']:.0f}",
                f"{row['fill']['requests_per_message']:.4f} + {row['drain']['requests_per_message']:.4f}",
                f"{row['leader_bytes_per_ready_message']:,.0f}",
            )
    if table.row_count:
        console.print(table)

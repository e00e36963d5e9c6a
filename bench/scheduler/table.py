"""The figures, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

TITLES = {
    "many": "{jobs:,} jobs, seven in ten every minute and three by cron in seven zones",
    "busy": "{busy_jobs} jobs, each every second",
}


def show(subjects: list[dict[str, Any]], plan: dict[str, Any], console: Console) -> None:
    for part, title in TITLES.items():
        rows = [(subject["subject"], subject[part]) for subject in subjects if part in subject]
        if rows:
            console.print(_table(title.format(**plan), rows))
    for subject in subjects:
        console.print(f"{subject['subject']}: {subject['settings']}", markup=False, highlight=False, soft_wrap=True)


def _table(title: str, rows: list[tuple[str, dict[str, Any]]]) -> Table:
    table = Table(title=title)
    table.add_column("")
    for subject, _ in rows:
        table.add_column(subject, justify="right")
    for name, told in FIGURES.items():
        cells = [told(row) for _, row in rows]
        if any(cells):
            table.add_row(name, *cells)
    return table


def _three(found: dict[str, float], form: str = ",.1f") -> str:
    return " / ".join(format(found[name], form) for name in ("p50", "p99", "longest")) if found else ""


def _optional(value: float | None, form: str) -> str:
    return format(value, form) if value is not None else ""


def _load(row: dict[str, Any]) -> str:
    return " ".join(f"{each:.1f}" for each in row["load"])


FIGURES = {
    "start until it leads, s": lambda row: _optional(row["start_seconds"].get("leads"), ".2f"),
    "start until all next fires are known, s": lambda row: f"{row['start_seconds']['all_next_fires_known']:.2f}",
    "runs": lambda row: f"{row['runs']:,}",
    "of those with a period: not run": lambda row: f"{row['not_run']:,}",
    "lateness p50 / p99 / longest, ms": lambda row: _three(row["lateness_ms"]),
    "one tick keeps the loop p50 / p99 / longest, ms": lambda row: _three(row["cpu"]["tick_ms"], ",.2f"),
    "ticks a second": lambda row: f"{row['cpu']['ticks'] / row['cpu']['seconds']:.1f}",
    "CPU of the process": lambda row: f"{row['cpu']['share']:.1%}",
    "CPU a tick, ms": lambda row: _optional(row["cpu"]["ms_per_tick"], ".2f"),
    "CPU a run, ms": lambda row: _optional(row["cpu"]["ms_per_run"], ".3f"),
    "gap of a 5 ms ticker p50 / p99 / longest, ms": lambda row: _three(row["loop_gap_ms"]),
    "of that the loop's thread was busy, CPU ms": lambda row: _three(row["loop_busy_ms"]),
    "longest full garbage collection, CPU ms": lambda row: _optional(row["collections_ms"].get("longest"), ".1f"),
    "memory, MiB": lambda row: f"{row['memory_mib']:.1f}",
    "requests a second": lambda row: _optional(row.get("requests_per_second"), ".2f"),
    "requests an hour": lambda row: _optional(row.get("requests_per_hour"), ","),
    "USD an hour": lambda row: _optional(row.get("usd_per_hour"), ".4f"),
    "load average, before and after": _load,
}

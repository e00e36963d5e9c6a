"""The figures, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from bench.ttl.table import table_of


def show(result: dict[str, Any], console: Console) -> None:
    if result["workers"]:
        table = table_of(
            "a worker process that has nothing to do",
            *("store", "role", "MB resident", "CPU s an hour", "wake-ups a second", "threads", "heartbeats"),
        )
        for row in result["workers"]:
            table.add_row(
                *(row["store"], row["role"], f"{row['megabytes']:.1f}", f"{row['cpu_seconds_per_hour']:.2f}"),
                *(f"{row['wakeups_per_second']:.1f}", f"{row['threads']}", f"{row['heartbeats']}"),
            )
        table.caption = f"Python with asyncio alone: {result['workers'][0]['bare_python_megabytes']:.1f} MB"
        console.print(table)
    if result["imports"]:
        table = table_of("imports, in fresh processes", "what", "best ms", "median ms", "CPU ms, median", "modules")
        for row in result["imports"]:
            table.add_row(
                *(row["what"], f"{row['best_ms']:.1f}", f"{row['median_ms']:.1f}", f"{row['cpu_median_ms']:.1f}"),
                f"{row['modules']}",
            )
        console.print(table)

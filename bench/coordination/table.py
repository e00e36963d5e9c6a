"""The figures, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from bench.coordination.figures import find, peers, whole
from bench.coordination.plan import COMPARED
from bench.coordination.proxy import VERBS
from bench.ttl.table import table_of

NAMES = {"tenure": "tenure", "s3db": "s3db.js", "s3db no retries": "s3db.js, no retries"}


def show(result: Mapping[str, Any], console: Console) -> None:
    rows = result["rows"]
    if rows:
        _requests(rows, console)
    if any(result["first_leader"].values()):
        _first(result["first_leader"], console)


def name_of(row: Mapping[str, Any]) -> str:
    name = NAMES[row["subject"]]
    return f"{name}, {row['mode']}" if row["mode"] else name


def of_theirs(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Requests and USD as a share of what s3db.js's cheapest fleet of that size needs."""
    theirs = peers(rows) if row["workers"] == COMPARED else find(rows, "s3db", row["workers"])
    if row["subject"] == "s3db" or not theirs:
        return "", ""
    names = ("requests_per_minute", "usd_per_month")
    requests, usd = (row[name] / min(peer[name] for peer in theirs) for name in names)
    return f"{requests:.2f}", f"{usd:.2f}"


def _requests(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    verbs = [verb for verb in VERBS if any(row["counts"].get(verb) for row in rows)]
    table = table_of(
        "requests a minute, counted by the proxy, heartbeat 5 s",
        *("fleet", "workers", "plugins", *verbs, "all", "USD a month", "of s3db.js's: requests", "USD"),
        *("epochs", "leaders"),
    )
    for row in rows:
        table.add_row(
            name_of(row),
            f"{row['workers']}",
            f"{row['plugins']}",
            *(f"{row['per_minute'].get(verb, 0):,.0f}" for verb in verbs),
            f"{row['requests_per_minute']:,.0f}",
            f"{row['usd_per_month']:,.2f}",
            *of_theirs(row, rows),
            f"+{row['epochs']}",
            f"{row['leaders']}",
        )
    console.print(table)


def _first(trials: Mapping[str, Sequence[Mapping[str, Any]]], console: Console) -> None:
    table = table_of(
        "first leader on an empty bucket, seconds",
        *("coordinator", "median", "of which to open", "all trials"),
    )
    for name, each in trials.items():
        if each:
            opening = sorted(trial["connect"] for trial in each)[len(each) // 2]
            shown = " ".join(f"{trial['connect'] + trial['lead']:.2f}" for trial in each)
            table.add_row(NAMES[name], f"{whole(each):.3f}", f"{opening:.3f}", shown)
    console.print(table)

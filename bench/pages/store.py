"""How fast each store is, beside boto3 on the same server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.pages import Page, table
from bench.plot import Bar, Group, bars

_TEXT = """\
One process, objects of {body:,} bytes, {count:,} requests of each kind (a twentieth as many listings): one request at a
time, and 32 at once (boto3: 32 threads with a pool of 64 connections, no retries). Everything that tenure does goes
through these calls.

{{{{store-rates}}}}

{rows}

`list(1,000)` is a listing of 1,000 objects. The last column is by how much tenure is faster than boto3 at the same
thing on the same server; boto3 does not speak Azure, and memory and directories have no server. A directory is as fast
as its disk, and **listings of it 32 at once are slower than one at a time**. ministack is Python itself, and is what
limits the figures on it. {load}
"""


def page(result: Mapping[str, Any]) -> Page:
    rows = result["rows"]
    text = _TEXT.format(body=result["body_bytes"], count=result["count"], rows=_table(rows), load=_load(result))
    return Page("Stores: requests a second", text, {"store-rates": _picture(rows)})


def _load(result: Mapping[str, Any]) -> str:
    loads = result.get("load_average_before")
    if loads is None:
        return "How busy the machine was otherwise was not noted."
    return f"Load averages before were {', '.join(f'{load:g}' for load in loads)}."


def _key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["store"], row["operation"], row["in_flight"]


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    theirs = {_key(row): row for row in rows if row["client"] == "boto3"}
    lines = []
    for row in rows:
        if row["client"] == "boto3":
            continue
        peer = theirs.get(_key(row))
        lines.append(
            [
                row["store"],
                f"`{row['operation']}`",
                row["in_flight"],
                f"{row['per_second']:,.0f}",
                f"{row['p50_ms']:.2f} / {row['p99_ms']:.2f}",
                f"{peer['per_second']:,.0f}" if peer else "",
                f"{peer['p50_ms']:.2f} / {peer['p99_ms']:.2f}" if peer else "",
                f"{row['per_second'] / peer['per_second']:.1f} ×" if peer else "",
            ]
        )
    head = ["store", "request", "at once", "a second", "p50 / p99 ms", "boto3, a second", "p50 / p99 ms", "tenure is"]
    return table(head, lines)


def _picture(rows: Sequence[Mapping[str, Any]]) -> str:
    groups = []
    servers = list(dict.fromkeys(row["store"] for row in rows if row["client"] == "boto3"))
    for store in servers:
        for operation in dict.fromkeys(row["operation"] for row in rows):
            shown = [
                Bar(
                    f"{row['client']}, {row['in_flight']} at once",
                    row["per_second"],
                    f"{row['per_second']:,.0f}",
                    0 if row["client"] == "tenure" else 1,
                )
                for row in rows
                if (row["store"], row["operation"]) == (store, operation)
            ]
            groups.append(Group(f"{store}, {operation}", shown))
    note = "Where boto3 can be measured beside it. The scale is logarithmic."
    return bars("Stores: requests a second", groups, note=note, log=True)

"""What a fleet asks of its bucket to have a leader, and how soon it has the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.coordination.figures import whole
from bench.coordination.plan import HEARTBEAT
from bench.coordination.proxy import VERBS
from bench.coordination.table import NAMES, name_of, of_theirs
from bench.pages import Page, limits, table
from bench.plot import Bar, Group, bars
from tenure import CoordinatorConfig

_COLOURS = {"tenure": 0, "tenure, election only": 2, "s3db.js": 1, "s3db.js, no retries": 5, "s3db.js, parallel": 6}
_TEXT = """\
Workers that have nothing to do but to agree on a leader, with a heartbeat of {heartbeat:g} s on both sides, on
ministack. A proxy in front of the server counts what reaches it, over {seconds:g} s (half of that for fleets of more
than {most} workers), {warm_up:g} s after there was a leader. USD are for a month of 730 hours at the list prices of S3
Standard (PUT and LIST 0.005 per 1,000, GET 0.0004, DELETE free).

{{{{coordination-usd}}}}

{requests}

{large}"conditional PUT" has `If-Match` or `If-None-Match`. Shares are of the cheapest fleet of s3db.js with as many
workers. "epochs" is by how much the epoch rose while nothing happened: s3db.js elects anew when a lease ends, since it
does not renew it. *election only* is `membership=False`, which has no worker records and no listings; s3db.js has no
such mode.

s3db.js runs with its defaults, which its documents recommend (three retries), with a heartbeat of {heartbeat:g} s for
its plugins as well, without jitter at the start, and with plugins started one after the other.{parallel} *no retries*
is `executorPool: {{retries: 0}}`, which its documents do not recommend.

### First leader on an empty bucket

From opening the database until a coordinator without plugins leads, with no jitter at the start. s3db.js waits for its
retries: as it comes, what an empty bucket answers with 404 is asked for three times more. tenure opens a store by
proving that it honours conditions, and then gives a worker with a better name `takeover_delay` ({delay:g} s) to appear.

{{{{coordination-first-leader}}}}

{first}

### Bars

{limits}
"""
_PARALLEL = " Plugins that are started together, as its `plugins: […]` does it, each make a coordinator (*parallel*)."
_LARGE = """\
Up to {most} workers are processes. A fleet of {workers} is {processes} processes with up to {share} workers each, every
one with a database, connections, a coordinator and its thread, and plugins of its own. At its busiest the proxy passed
{rate:.0f} requests a second on, and 99 of 100 had their answer within {p99:.0f} ms.

"""


def page(result: Mapping[str, Any]) -> Page:
    rows, firsts, plan = result["rows"], result["first_leader"], result["plan"]
    parallel = any(row["mode"] == "parallel" for row in rows)
    text = _TEXT.format(
        heartbeat=HEARTBEAT,
        seconds=plan["seconds"],
        warm_up=plan["warm_up"],
        most=plan["most_processes"],
        requests=_requests(rows),
        large=_large(rows, plan),
        parallel=_PARALLEL if parallel else "",
        delay=CoordinatorConfig().takeover_delay,
        first=_first(firsts),
        limits=limits(result),
    )
    pictures = {"coordination-usd": _usd_picture(rows), "coordination-first-leader": _first_picture(firsts)}
    return Page("Coordination: requests, USD and the first leader", text, pictures)


def _large(rows: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    large = [row for row in rows if row["workers"] > plan["most_processes"]]
    if not large:
        return ""
    busiest = max((row["proxy"] for row in rows), key=lambda borne: float(borne["per_second"]))
    return _LARGE.format(
        most=plan["most_processes"],
        workers=large[0]["workers"],
        processes=large[0]["processes"],
        share=plan["workers_in_a_process"],
        rate=busiest["per_second"],
        p99=busiest["p99_ms"],
    )


def _requests(rows: Sequence[Mapping[str, Any]]) -> str:
    verbs = [verb for verb in VERBS if any(row["counts"].get(verb) for row in rows)]
    shown = [verb.upper().replace("CONDITIONAL", "conditional").replace("MANY", "many") for verb in verbs]
    head = ["a minute", "workers", "plugins", *shown, "all", "USD a month", "requests, share", "USD, share", "epochs"]
    lines = [
        [
            name_of(row),
            row["workers"],
            row["plugins"],
            *(f"{row['per_minute'].get(verb, 0):,.0f}" for verb in verbs),
            f"{row['requests_per_minute']:,.0f}",
            f"{row['usd_per_month']:,.2f}",
            *of_theirs(row, rows),
            f"+{row['epochs']}",
        ]
        for row in sorted(rows, key=lambda row: (row["workers"], row["subject"] != "tenure", row["mode"]))
    ]
    return table(head, lines)


def _first(firsts: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    head = ["seconds", "median", "least", "most", "trials"]
    lines = []
    for name, trials in firsts.items():
        if trials:
            times = [trial["connect"] + trial["lead"] for trial in trials]
            spread = [f"{whole(trials):.2f}", f"{min(times):.2f}", f"{max(times):.2f}"]
            lines.append([NAMES[name], *spread, len(trials)])
    return table(head, lines)


def _usd_picture(rows: Sequence[Mapping[str, Any]]) -> str:
    groups = []
    for workers in sorted({row["workers"] for row in rows}):
        of_size = sorted(
            (row for row in rows if row["workers"] == workers),
            key=lambda row: (row["subject"] != "tenure", row["mode"]),
        )
        made = [
            Bar(
                f"{name_of(row)}, {row['plugins']}",
                row["usd_per_month"],
                f"{row['usd_per_month']:,.2f}",
                _COLOURS.get(name_of(row), 7),
            )
            for row in sorted(of_size, key=lambda row: (row["subject"] != "tenure", row["mode"]))
        ]
        groups.append(Group(f"{workers} worker{'s' if workers > 1 else ''}", made))
    note = "The number is that of plugins in each worker. Heartbeat 5 s, list prices of S3 Standard. Logarithmic."
    return bars("What a leader costs: USD a month", groups, note=note, log=True)


def _first_picture(firsts: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    made = []
    for name, trials in firsts.items():
        if trials:
            times = [trial["connect"] + trial["lead"] for trial in trials]
            bar = Bar(
                NAMES[name], whole(trials), f"{whole(trials):.2f} s", _COLOURS[NAMES[name]], min(times), max(times)
            )
            made.append(bar)
    note = "Median, least and most of all trials, from opening the database on. The scale is logarithmic."
    return bars("First leader on an empty bucket", [Group("", made)], note=note, log=True)

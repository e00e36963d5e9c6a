"""Counters: adds a second, at how many requests, beside s3db.js and Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.counters.figures import changes, of_runs
from bench.pages import Page, limits, table
from bench.plot import Bar, Group, bars

_TEXT = """\
Two real processes add to the same {records:,} records for {seconds:g} s, each with so many callers, of which every
one awaits its call before it makes the next; one of the two leads and writes totals meanwhile. Then everything is
consolidated, and the records must say what was added. *Acknowledged* is the rate until the last call has returned,
*consolidated* the rate until all of it stands in the records. Requests are all that both processes send, elections
included.

{{{{counters-adds}}}}

{load}

{calls_intro}

{calls}

### Others

{others}

A Redis `INCRBY` changes a number in the memory of a server and is another thing: it is here for the ratio. **One by
one with `appendfsync everysec` it takes a fraction of a millisecond, and a single awaited `add` of ours takes
{add_ms:.2g} ms at best**; s3db.js writes each addition to the bucket by itself, without a coordinator and without
consolidating by itself, which is the fastest it can be set to.

### It does not grow with what is stored

{growth}

### Bars

{limits}

### Conditions

{conditions}. Before the runs, load averages of the last minute were {loads}: rates are lower than those of a machine
that has nothing else to do.
"""


def page(result: Mapping[str, Any]) -> Page:
    subjects, plan = result["subjects"], result["plan"]
    ours = [each for each in subjects if each.get("load")]
    loads = [run["load_average_before"] for each in ours for row in each["load"] for run in row["runs"]]
    text = _TEXT.format(
        records=plan["records"],
        seconds=plan["seconds"],
        load=_load(ours),
        calls_intro="One caller alone, in a process that does not lead:",
        calls=_calls(ours),
        others=_others([each for each in subjects if each not in ours]),
        add_ms=min(each["calls"]["add"]["p50_ms"] for each in ours if each.get("calls")),
        growth=_growth(ours),
        limits=limits(result),
        conditions=result["conditions"][:1].upper() + result["conditions"][1:],
        loads=f"{min(loads):g} to {max(loads):g}",
    )
    return Page("Counters: adds a second and requests", text, {"counters-adds": _picture(subjects)})


def _load(subjects: Sequence[Mapping[str, Any]]) -> str:
    head = ["adds a second", "callers", "acknowledged", "consolidated", "all runs", "requests an add", "USD a million"]
    lines = [
        [
            subject["subject"],
            f"2 × {row['callers']:,}",
            f"{of_runs(row['runs'], 'acknowledged_per_second'):,.0f}",
            f"{of_runs(row['runs'], 'consolidated_per_second'):,.0f}",
            ", ".join(f"{run['consolidated_per_second']:,.0f}" for run in row["runs"]),
            f"{of_runs(row['runs'], 'requests_each'):.4f}",
            f"{of_runs(row['runs'], 'usd_per_million'):.3f}",
        ]
        for subject in subjects
        for row in subject["load"]
    ]
    return table(head, lines)


def _calls(subjects: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        [subject["subject"], f"`{what}`", f"{row['p50_ms']:,.2f}", f"{row['p99_ms']:,.2f}"]
        for subject in subjects
        for what, row in (subject.get("calls") or {}).items()
    ]
    return table(["one call", "what", "p50 ms", "p99 ms"], lines)


def _others(subjects: Sequence[Mapping[str, Any]]) -> str:
    lines: list[list[str]] = []
    for subject in subjects:
        adding = [(f"add, {row['callers']} at a time", row) for row in subject.get("adding", [])]
        if subject.get("consolidating"):
            adding.append(("consolidate", subject["consolidating"]))
        for how, row in adding:
            rate, each = f"{row['per_second']:.2f}", f"{row['requests_each']:.1f}"
            lines.append([subject["subject"], how, rate, "", each, f"{row['usd_per_million']:,.0f}"])
        for row in subject.get("rows", []):
            rates = [run["per_second"] for run in row["runs"]]
            lines.append([subject["subject"], _redis(row), f"{median(rates):,.0f}", _listed(rates), "", ""])
    return table(["adds a second", "how", "median run", "all runs", "requests an add", "USD a million"], lines)


def _redis(row: Mapping[str, Any]) -> str:
    together = "one by one" if row["in_a_pipeline"] == 1 else f"{row['in_a_pipeline']:,} in a pipeline"
    return f"2 processes, appendfsync {row['appendfsync']}, {together}"


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:,.0f}" for rate in rates)


def _growth(subjects: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for subject in subjects:
        for row in subject.get("growth", []):
            figures = [f"{row[when]['requests_each']:.3f}" for when in ("first", "again")]
            lines.append([f"{row['stored']:,}", f"{row['touched']:,}", *figures])
    differ = [abs(change) for subject in subjects for change in changes(subject.get("growth", [])).values()]
    most = f"\n\nFrom the fewest stored to the most they differ by at most {max(differ):.1%}." if differ else ""
    return table(["records stored", "touched", "requests per touched one, first time", "again"], lines) + most


def _picture(subjects: Sequence[Mapping[str, Any]]) -> str:
    groups = []
    for subject in subjects:
        rows: list[Bar] = []
        for row in subject.get("load", []):
            rates = [run["consolidated_per_second"] for run in row["runs"]]
            label = f"2 × {row['callers']:,} callers"
            rows.append(Bar(label, median(rates), f"{median(rates):,.0f}", 0, min(rates), max(rates)))
        rows += [
            Bar(f"add, {row['callers']} at a time", row["per_second"], f"{row['per_second']:.1f}", 1)
            for row in subject.get("adding", [])
        ]
        if consolidating := subject.get("consolidating"):
            rows.append(Bar("consolidate", consolidating["per_second"], f"{consolidating['per_second']:.2f}", 1))
        for row in subject.get("rows", []):
            rates = [run["per_second"] for run in row["runs"]]
            label = f"{row['appendfsync']}, {'one by one' if row['in_a_pipeline'] == 1 else 'pipeline'}"
            rows.append(Bar(label, median(rates), f"{median(rates):,.0f}", 6, min(rates), max(rates)))
        groups.append(Group(str(subject["subject"]), rows))
    note = "Ours until all of it stands in the records; median run, least and most of all. The scale is logarithmic."
    return bars("Counters: adds a second", groups, note=note, log=True)

"""Ten thousand jobs: lateness and CPU, beside APScheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.pages import Page, table
from bench.plot import Bar, Group, bars

_TEXT = """\
The same jobs in each of three processes, all measured at the same time: {jobs:,} jobs, seven in ten of them every
minute and three by cron in seven time zones, and then {busy_jobs} jobs that each run every second. Lateness is from
the instant at which a job was due to the first line of its function.

**We are later.** APScheduler decides in one process and starts what is due at once; ours is decided by an elected
leader, which writes every occurrence to the bucket before anything runs, at most about twice a second, so that no
occurrence is lost or run twice through a failover. APScheduler keeps no record of what ran and has no failover. What
follows is the price of that.

{{{{scheduler-lateness}}}}

{{{{scheduler-cpu}}}}

{tables}

"one tick" is how long a decision keeps the event loop; "gap" is of a ticker every 5 ms on the same loop.

### Conditions

{settings}

Load averages before and after were {loads}: the machine had other work, which all three had to share.
"""
_PARTS = {"many": "{jobs:,} jobs", "busy": "{busy_jobs} jobs, each every second"}


def page(result: Mapping[str, Any]) -> Page:
    subjects, plan = result["subjects"], result["plan"]
    loads = [load for each in subjects for part in _PARTS if part in each for load in each[part]["load"]]
    text = _TEXT.format(
        jobs=plan["jobs"],
        busy_jobs=plan["busy_jobs"],
        tables="\n\n".join(_table(subjects, part, title.format(**plan)) for part, title in _PARTS.items()),
        settings="\n".join(f"- {each['subject']}{_versions(each)}: {each['settings']}" for each in subjects),
        loads=f"{min(loads):g} to {max(loads):g}",
    )
    pictures = {"scheduler-lateness": _lateness_picture(subjects, plan), "scheduler-cpu": _cpu_picture(subjects, plan)}
    return Page("Scheduler: lateness and CPU", text, pictures)


def _versions(subject: Mapping[str, Any]) -> str:
    versions = subject.get("versions") or {}
    return f" ({', '.join(f'{name} {version}' for name, version in versions.items())})" if versions else ""


def _three(found: Mapping[str, float], form: str = ",.0f") -> str:
    return " / ".join(format(found[name], form) for name in ("p50", "p99", "longest")) if found else ""


def _table(subjects: Sequence[Mapping[str, Any]], part: str, title: str) -> str:
    rows = [each[part] for each in subjects if part in each]
    figures: dict[str, list[str]] = {
        "runs": [f"{row['runs']:,}" for row in rows],
        "due and not run": [f"{row['not_run']:,}" for row in rows],
        "late by p50 / p99 / longest, ms": [_three(row["lateness_ms"]) for row in rows],
        "start until all next fires are known, s": [
            f"{row['start_seconds']['all_next_fires_known']:.2f}" for row in rows
        ],
        "CPU of the process": [f"{row['cpu']['share']:.1%}" for row in rows],
        "CPU a run, ms": [f"{row['cpu']['ms_per_run']:.3f}" for row in rows],
        "one tick, p50 / p99 / longest, ms": [_three(row["cpu"]["tick_ms"], ",.1f") for row in rows],
        "gap, p50 / p99 / longest, ms": [_three(row["loop_gap_ms"], ",.0f") for row in rows],
        "memory, MiB": [f"{row['memory_mib']:.0f}" for row in rows],
        "requests an hour": [f"{row['requests_per_hour']:,}" if "requests_per_hour" in row else "" for row in rows],
        "USD an hour": [f"{row['usd_per_hour']:.3f}" if "usd_per_hour" in row else "" for row in rows],
    }
    head = [title, *(each["subject"] for each in subjects if part in each)]
    return table(head, [[name, *cells] for name, cells in figures.items()])


def _lateness_picture(subjects: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    groups = []
    for part, title in _PARTS.items():
        rows = []
        for subject in subjects:
            if part in subject:
                late = subject[part]["lateness_ms"]
                text = f"{late['p50']:,.0f} ms"
                rows.append(Bar(subject["subject"], late["p50"], text, _colour(subject), late["p50"], late["p99"]))
        groups.append(Group(title.format(**plan), rows))
    note = "Median, up to the 99th percentile. Shorter is better. The scale is logarithmic."
    return bars("Scheduler: lateness", groups, note=note, log=True)


def _cpu_picture(subjects: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    groups = []
    for part, title in _PARTS.items():
        shares = [(subject, subject[part]["cpu"]["share"]) for subject in subjects if part in subject]
        rows = [Bar(subject["subject"], share, f"{share:.1%}", _colour(subject)) for subject, share in shares]
        groups.append(Group(title.format(**plan), rows))
    return bars("Scheduler: CPU of the process", groups, note="As a share of one core. Shorter is better.")


def _colour(subject: Mapping[str, Any]) -> int:
    return 0 if subject["subject"].startswith("tenure") else 1

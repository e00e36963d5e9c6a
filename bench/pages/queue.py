"""Messages: how many, how soon, at what cost; beside queues on Redis and on S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.pages import Page, short, table
from bench.plot import Bar, Group, bars
from bench.queue.figures import middle

_TEXT = """\
Every process is a real one. *End to end* is from the first call to enqueue until the last handler has returned, with
one producer and so many worker processes at the same time; messages have {bytes} bytes, handlers do nothing, and what
is enqueued is enqueued in batches where a queue has them. Redis is {redis}.

{{{{queue-throughput}}}}

{throughput}

"halves" are the rates of the first and the second half of the messages. USD are at the list prices of S3 Standard.
Redis has no price by the request: its commands are given, and its server is to be paid for apart. s3db.js handles so
few that it got {slow} messages, in one run. Its settings are the
best that were found.

### Latency, and what an idle fleet spends

Messages enqueued one by one at a steady rate, from when each was due to be enqueued until its handler began: p50 and
p99 in milliseconds. **Here the others are faster where they keep up**: a broker in memory pushes a message at once, a
bucket has to be looked at. What cannot keep up with a rate shows as seconds.

{{{{queue-latency}}}}

{latency}

Idle: four workers, nothing to do. A fleet of ours asks the bucket whether there is work, and how often is [a
setting](queue.md#what-it-costs).

### A backlog

{growth}

Enqueued before anybody handles, on the directory store: what a message costs does not grow with those that wait.

### Conditions

{settings}

{dates}
"""


def page(result: Mapping[str, Any]) -> Page:
    subjects = sorted(result["subjects"], key=lambda each: (not _is_ours(each), str(each["subject"])))
    plan = result["plan"]
    text = _TEXT.format(
        bytes=200,
        redis=next((each["redis"] for each in subjects if each.get("redis")), "not measured"),
        slow=plan["slow_messages"],
        throughput=_throughput(subjects),
        latency=_latency(subjects),
        growth=_growth(subjects),
        settings="\n".join(_setting(each) for each in subjects),
        dates=_dates(subjects),
    )
    pictures = {"queue-throughput": _throughput_picture(subjects), "queue-latency": _latency_picture(subjects)}
    return Page("Queue: throughput, latency and cost", text, pictures)


def _is_ours(subject: Mapping[str, Any]) -> bool:
    return str(subject["subject"]).startswith("tenure")


def _runs(subject: Mapping[str, Any]) -> dict[str, Sequence[Mapping[str, Any]]]:
    """By number of workers."""
    return {
        key.removeprefix("throughput_").replace("dedup_keys", "most, dedup keys"): runs
        for key, runs in subject.items()
        if key.startswith("throughput_")
    }


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _throughput(subjects: Sequence[Mapping[str, Any]]) -> str:
    head = ["messages a second", "workers", "median run", "all runs", "halves", "CPU µs", "requests", "USD a million"]
    lines = []
    for subject in subjects:
        for workers, runs in _runs(subject).items():
            run = middle([dict(each) for each in runs])
            commands = "commands" in run.get("requests", {})
            lines.append(
                [
                    subject["subject"],
                    workers,
                    _rate(run["per_second"]),
                    ", ".join(_rate(each["per_second"]) for each in runs),
                    ", ".join(_rate(each) for each in run["per_second_of_halves"]),
                    f"{run['cpu_us_per_message']:,.0f}",
                    f"{short(run['requests_per_message'])}{' commands' if commands else ''}",
                    short(run["usd_per_million"]) if "usd_per_million" in run else "",
                ]
            )
    return table(head, lines)


def _throughput_picture(subjects: Sequence[Mapping[str, Any]]) -> str:
    groups = []
    for workers in ("1", "4"):
        rows = []
        for subject in subjects:
            runs = _runs(subject).get(workers)
            if runs:
                rates = [float(each["per_second"]) for each in runs]
                rate = float(middle([dict(each) for each in runs])["per_second"])
                colour = 0 if _is_ours(subject) else 1
                rows.append(Bar(subject["subject"], rate, _rate(rate), colour, min(rates), max(rates)))
        groups.append(Group(f"{workers} worker process{'es' if workers != '1' else ''}", rows))
    note = "Messages a second, end to end; median run, and the least and the most of all. The scale is logarithmic."
    return bars("Queue: messages a second", groups, note=note, log=True)


def _latency(subjects: Sequence[Mapping[str, Any]]) -> str:
    measured = [each for each in subjects if each.get("latency")]
    rates = sorted({row["per_second"] for subject in measured for row in subject["latency"]})
    head = ["p50 / p99 ms", *(f"{rate:,g} a second" for rate in rates), "idle requests an hour", "idle USD an hour"]
    lines = []
    for subject in measured:
        found = {row["per_second"]: row for row in subject["latency"]}
        idle = subject.get("idle") or {}
        lines.append(
            [
                subject["subject"],
                *(f"{found[rate]['p50_ms']:,.0f} / {found[rate]['p99_ms']:,.0f}" for rate in rates),
                f"{idle['requests_per_hour']:,}" if idle else "",
                f"{idle['usd_per_hour']:.3f}" if "usd_per_hour" in idle else "",
            ]
        )
    return table(head, lines)


def _latency_picture(subjects: Sequence[Mapping[str, Any]]) -> str:
    groups = []
    measured = [each for each in subjects if each.get("latency")]
    for rate in sorted({row["per_second"] for subject in measured for row in subject["latency"]}):
        rows = []
        for subject in measured:
            for row in subject["latency"]:
                if row["per_second"] == rate:
                    text = f"{row['p50_ms']:,.0f} ms"
                    colour = 0 if _is_ours(subject) else 1
                    rows.append(Bar(subject["subject"], row["p50_ms"], text, colour, row["p50_ms"], row["p99_ms"]))
        groups.append(Group(f"{rate:,g} message{'s' if rate != 1 else ''} a second", rows))
    note = "Median, and up to the 99th percentile; 4 workers. Shorter is better. The scale is logarithmic."
    return bars("Queue: from being due to being handled", groups, note=note, log=True)


def _growth(subjects: Sequence[Mapping[str, Any]]) -> str:
    head = ["backlog of", "handled a second", "requests a message, to fill and to drain", "CPU µs a message, likewise"]
    lines = [
        [
            f"{row['backlog']:,}",
            f"{row['drain_per_second']:,}",
            f"{row['fill']['requests_per_message']:.4f} + {row['drain']['requests_per_message']:.4f}",
            f"{row['fill_cpu_us_per_message']:.0f} + {row['drain_cpu_us_per_message']:.0f}",
        ]
        for subject in subjects
        for row in subject.get("growth", ())
    ]
    return table(head, lines)


def _setting(subject: Mapping[str, Any]) -> str:
    version = f" {subject['version']}" if subject.get("version") else ""
    server = f" ({subject['server'].split('(')[0].strip()})" if subject.get("server") else ""
    return f"- {subject['subject']}{version}: `{subject['settings']}`{server}"


def _dates(subjects: Sequence[Mapping[str, Any]]) -> str:
    found: dict[str, set[str]] = {}
    for subject in subjects:
        for part, when in (subject.get("parts_measured_at") or {"": subject["measured_at"]}).items():
            found.setdefault(when[:16].replace("T", " "), set()).add(part)
    if len(found) == 1:
        return f"All of it was measured until {next(iter(found))} (UTC)."
    late = max(found)
    return (
        f"Latency and idle figures of tenure were measured again, after a change, until {late} (UTC); the rest until "
        f"{min(found)}."
    )

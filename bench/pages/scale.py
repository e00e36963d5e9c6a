"""How the election and the register of workers behave as a fleet grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from bench.pages import Page, limits, table
from bench.plot import Bar, Group, bars, lines
from bench.scale.figures import (
    GCS_WRITES_PER_KEY,
    S3_READS_PER_SECOND,
    S3_WRITES_PER_SECOND,
    bursts,
    crossing,
    known_after,
)

_VERBS = ("replace", "get", "list")
_TEXT = """\
Simulated: the production classes on simulated time, all in one thread, on a simulated bucket. Counts are exact, and
the same for the same seed ({seed}). A message takes {low:.0f} to {high:.0f} ms each way, evenly drawn, and nothing
else takes time. Config as it comes. Each fleet is counted for {minutes:g} minutes after it has settled. {warm}

{{{{scale-requests}}}}

{steady}

A follower writes its record and reads the lease at each heartbeat, whatever the size of the fleet. The leader, which
writes the lease and lists the workers, and the next in rank, which looks more often, do more; the larger the fleet,
the less of it they are. Bytes are those of bodies, and of listings as S3 writes them.

### The leader

{leaders}

CPU is real, of one leader alone in its world with the records of so many others, without what a client library spends
on XML and TLS. A change of the fleet makes every follower read `members.json` once: {change_mb:.1f} MB each, with
{change_workers:,} workers. A leader reads the records of new workers 200 at a time, so that it knows {many:,} that
come at once after about {known:.0f} s.

### A crashed leader is replaced

{{{{scale-failover}}}}

{failovers}

When a lease lapses, followers find out whose turn it is by the last leader's list. Only those with fewer than 50 before
them ask who of them lives. Workers that start together on an empty bucket have no such list: **there it is not flat**,
each lists the others, and reads a few records. {burst}The election goes on all the same when the store answers that it
has had enough: chance then decides who goes first.{counted}

{{{{scale-burst}}}}

{cold}

### Where it ends, on paper

From the figures of the largest fleet, and from what stores allow: S3 {writes:,} writes and {reads:,} reads a second
in one prefix, Google Cloud Storage {gcs:g} write a second of one object.

{ends}

The busiest object of a fleet is the lease, which its leader alone writes: {key:.2f} times a second, whatever the
size. On Google Cloud Storage a heartbeat under 2 s is refused for that reason. A fleet that is too large for one
prefix is two namespaces.

### Bars

{limits}
"""
_BURST = "From about {count:,.0f} workers on, that is more in one second than S3 allows in one prefix. "


def page(result: Mapping[str, Any]) -> Page:
    sizes, leaders, plan = result["sizes"], result["leaders"], result["plan"]
    largest = sizes[-1]
    shown = next((row for row in reversed(leaders) if row["workers"] == largest["workers"]), leaders[-1])
    crossed = crossing(bursts(sizes), S3_READS_PER_SECOND)
    text = _TEXT.format(
        seed=plan["seed"],
        low=plan["latency"][0] * 1000,
        high=plan["latency"][1] * 1000,
        minutes=plan["seconds"] / 60,
        warm=_warm(sizes),
        steady=_steady(sizes),
        leaders=_leaders(leaders),
        change_mb=shown["members_bytes"] / 1e6,
        change_workers=shown["workers"],
        many=largest["workers"],
        known=known_after(largest["workers"], largest["steady"]["seconds_per_heartbeat"]),
        failovers=_failovers(sizes),
        burst=_BURST.format(count=crossed) if crossed is not None else "",
        counted=_counted(sizes),
        cold=_cold(sizes),
        writes=S3_WRITES_PER_SECOND,
        reads=S3_READS_PER_SECOND,
        gcs=GCS_WRITES_PER_KEY,
        ends=_ends(result["ends"]),
        key=largest["steady"]["busiest_key_writes_per_second"],
        limits=limits(result),
    )
    pictures = {
        "scale-requests": _requests_picture(sizes),
        "scale-failover": _failover_picture(sizes),
        "scale-burst": _burst_picture(sizes),
    }
    return Page("Scale: fleets of up to ten thousand", text, pictures)


def _warm(sizes: Sequence[Mapping[str, Any]]) -> str:
    warm = [f"{row['workers']:,}" for row in sizes if row["start"] == "warm"]
    if not warm:
        return ""
    return (
        f"The fleet of {' and '.join(warm)} started warm, with one that led before the others came and that read all "
        "their records at once; the others started together on an empty bucket."
    )


def _steady(sizes: Sequence[Mapping[str, Any]]) -> str:
    head = ["workers", "requests a worker and heartbeat", *_VERBS, "bytes", "requests a second, all", "busiest second"]
    rows = []
    for row in sizes:
        steady = row["steady"]
        verbs = steady["requests_each_by_verb"]
        rows.append(
            [
                f"{row['workers']:,}",
                f"{steady['requests_each']:.3f}",
                *(f"{verbs.get(verb, 0):.4f}" for verb in _VERBS),
                f"{steady['bytes_each']:,.0f}",
                f"{steady['requests_per_second']:,.0f}",
                f"{steady['peak_requests_per_second']:,}",
            ]
        )
    return table(head, rows)


def _leaders(leaders: Sequence[Mapping[str, Any]]) -> str:
    head = [
        "workers",
        "a cycle takes, ms",
        "CPU ms",
        "CPU µs a worker",
        "members.json, bytes",
        "follower's CPU ms a change",
    ]
    rows = []
    for row in leaders:
        change = row["follower_ms_per_change"]
        rows.append(
            [
                f"{row['workers']:,}",
                f"{row['cycle_ms']:,.0f}",
                f"{row['cpu_ms_per_cycle']:,.2f}",
                f"{row['cpu_us_per_worker']:,.1f}",
                f"{row['members_bytes']:,}",
                f"{change:,.2f}" if change is not None else "too long to be read",
            ]
        )
    return table(head, rows)


def _failovers(sizes: Sequence[Mapping[str, Any]]) -> str:
    head = [
        "workers",
        "crashes",
        "seconds, mean",
        "least",
        "most",
        "busiest second, requests",
        "list whole again after s",
    ]
    rows = []
    for row in sizes:
        took = [each["seconds"] for each in row["failovers"]]
        if not took:
            continue
        known = [each["known_after_seconds"] for each in row["failovers"] if "known_after_seconds" in each]
        rows.append(
            [
                f"{row['workers']:,}",
                len(took),
                f"{mean(took):.1f}",
                f"{min(took):.1f}",
                f"{max(took):.1f}",
                f"{max(each['peak_requests_per_second'] for each in row['failovers']):,}",
                f"{max(known):.0f}" if known else "",
            ]
        )
    return table(head, rows)


def _counted(sizes: Sequence[Mapping[str, Any]]) -> str:
    """To simulate all that comes after an election of the largest fleet takes too long."""
    short = [
        f"{row['workers']:,}"
        for row in sizes
        if any(each["requests_counted_until"] == "elected" for each in row["failovers"])
    ]
    return (
        f" Those of {' and '.join(short)} workers were counted until there was a new leader, and not longer."
        if short
        else ""
    )


def _cold(sizes: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{row['workers']:,}",
            f"{start['seconds']:.1f}",
            f"{start['requests']:,}",
            f"{start['peak_requests_per_second']:,}",
            f"{start['known_after_seconds']:.0f}",
        ]
        for row in sizes
        if (start := row.get("cold_start"))
    ]
    if not rows:
        return ""
    head = ["workers that start together on an empty bucket", "one leads after s", "requests until then"]
    return table([*head, "busiest second", "all are known after s"], rows)


def _ends(ends: Sequence[Mapping[str, Any]]) -> str:
    rows = [[end["what"], "no limit" if end["workers"] is None else f"{end['workers']:,}"] for end in ends]
    return table(["because of", "workers"], rows)


def _requests_picture(sizes: Sequence[Mapping[str, Any]]) -> str:
    series = {
        "all requests": [(float(row["workers"]), float(row["steady"]["requests_each"])) for row in sizes],
        **{
            verb: [(float(row["workers"]), float(row["steady"]["requests_each_by_verb"].get(verb, 0))) for row in sizes]
            for verb in _VERBS
        },
    }
    note = "Of one worker in one heartbeat. Flat is what it has to be."
    return lines(
        "Scale: requests of one worker",
        series,
        x_label="workers",
        y_label="requests a heartbeat",
        note=note,
        log_x=True,
    )


def _failover_picture(sizes: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for row in sizes:
        seconds = [float(each["seconds"]) for each in row["failovers"]]
        if seconds:
            text = f"{mean(seconds):.1f} s"
            rows.append(Bar(f"{row['workers']:,} workers", mean(seconds), text, 0, min(seconds), max(seconds)))
    note = "Seconds from the crash of a leader to the next one: mean, least and most. The lease is 15 s."
    return bars("Scale: a crashed leader is replaced", [Group("", rows)], note=note)


def _burst_picture(sizes: Sequence[Mapping[str, Any]]) -> str:
    usual = {row["workers"]: row["steady"]["peak_requests_per_second"] for row in sizes}
    groups = [
        Group(
            f"{workers:,} workers",
            [
                Bar("nothing happens", usual[workers], f"{usual[workers]:,}", 0),
                Bar("after a crash", peak, f"{peak:,.0f}", 5),
            ],
        )
        for workers, peak in bursts(sizes)
    ]
    note = f"S3 allows {S3_READS_PER_SECOND:,} reads a second in one prefix. The scale is logarithmic."
    return bars("Scale: requests of all in the busiest second", groups, note=note, log=True)

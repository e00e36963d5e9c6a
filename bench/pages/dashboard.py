"""What the dashboard takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.pages import Page, limits, table

_METHOD = """\
A directory holds {workers:,} live workers, whose records are written anew every ten seconds as real ones are, a real
leader, and {queues:,} queues, of which one holds {messages:,} messages and some are at work. Measured is the process of
`tenure dashboard`, while one client reads its events; what the browser takes is measured by the tests in Chromium."""


def page(result: Mapping[str, Any]) -> Page:
    cpu, rss = result["cpu_ms_per_second"], result["rss_mib"]
    rows = [
        ("everything is shown, after the start of the process", f"{result['complete_seconds']:.1f} s"),
        *(
            (f"`GET {each['path']}`, {each['bytes']:,} bytes", f"{_median(each['ms']):.1f} ms")
            for each in result["pages"]
        ),
        ("processor time, mean", f"{sum(cpu) / len(cpu):.0f} ms a second"),
        ("processor time, in the worst five seconds", f"{max(cpu):.0f} ms a second"),
        (f"memory after {result['seconds']:.0f} s", f"{rss[-1]:.0f} MiB"),
        ("events to one page", f"{result['sse_bytes_per_second']:,} bytes a second"),
        ("requests to the store", f"{result['requests_per_hour']:,} an hour"),
    ]
    about = _METHOD.format(workers=result["workers"], queues=result["queues"], messages=result["largest_queue"])
    return Page("Dashboard", "\n\n".join((about, table(("figure", "value"), rows), "Bars:\n\n" + limits(result))))


def _median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]

"""Where the time goes, and what was taken out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.pages import Page, limits, table
from bench.plot import Bar, Group, bars
from bench.profile.__main__ import rows_of

_TEXT = """\
The same work with these sources and with those of an earlier revision (`{before}`), in one run: in turn, or side by
side. An idle fleet is of real processes on a directory; a queue's leader, worker and producer are in one process, with
{rate:g} messages a second, each enqueued by itself; a lease that lapses is simulated, with {workers:,} workers.

{{{{profile-shares}}}}

{rows}

What was taken out: a coordinator asked the user's loop four times a second whether it stands still, and a leader looked
up as often whether its machine had slept, each of which woke threads (now once a second, and more often for short
leases); whoever followed a leader that crashed read up to 200 records to find its place in rank (now it goes by the
leader's list, and reads only whom that lacks, until enough come before it); and each request to a directory went
through two futures and three rounds of the event loop (now one, and two).

### Where the time goes in a queue's loops

By cProfile, shares of time of their own, without waiting. Nothing of tenure stands out any more: what is left is
asyncio, and handing requests to threads and back.

{functions}

### Bars

{limits}

### Conditions

Load averages before {load[0]}, after {load[1]}.
"""


def page(result: Mapping[str, Any]) -> Page:
    found = rows_of(dict(result))
    rows = [
        [what, f"{before:,.2f}", f"{after:,.2f}", f"{after / before:.2f}" if before else ""]
        for what, before, after in found
    ]
    functions = [
        [f"`{row['function']}`", f"{row['share']:.1%}", f"{row['calls']:,}"] for row in result["where"]["after"][:10]
    ]
    text = _TEXT.format(
        before=result["before"][:12],
        rate=result["plan"]["rate"],
        workers=result["plan"]["workers"],
        rows=table(["", "before", "after", "of it"], rows),
        functions=table(["function", "own time", "calls"], functions),
        limits=limits(result),
        load=[", ".join(f"{each:g}" for each in loads) for loads in result["load_averages"]],
    )
    left = [
        Bar(what.replace("`", ""), after / before, f"{after / before:.2f}") for what, before, after in found if before
    ]
    picture = bars("Profile: what is left of each cost", [Group("", left)], note="1 is what it was before.")
    return Page("Profile: where the time goes", text, {"profile-shares": picture})

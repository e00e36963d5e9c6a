"""What was measured, on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.failover.figures import overlap_of, rows_of, samples_of, summary
from bench.failover.plan import KINDS


def show(subjects: Sequence[Mapping[str, Any]], leases: Sequence[float], console: Console) -> None:
    for lease in leases:
        rows = rows_of(subjects, lease)
        if not rows:
            continue
        table = Table(title=f"Seconds from the signal to the next leader, lease {lease:g} s", title_justify="left")
        for name in ("system", *(f"{kind}: trials, p50, p99, mean" for kind in KINDS), "two led (s)", "failed"):
            table.add_column(name, justify="left" if name == "system" else "right")
        for subject, contest in rows:
            cells = []
            for kind in KINDS:
                figures = summary(samples_of(contest, kind))
                cells.append(
                    f"{figures['trials']}: {figures['p50']:.2f} {figures['p99']:.2f} {figures['mean']:.2f}"
                    if figures
                    else "none"
                )
            table.add_row(shown(subject, contest), *cells, overlaps(contest), str(failed(contest)))
        console.print(table)


def shown(subject: Mapping[str, Any], contest: Mapping[str, Any]) -> str:
    """The name, and the lease if it is not the one that was asked for."""
    other = contest["lease"] != contest["asked_lease"]
    return f"{subject['label']} (lease {contest['lease']:g} s)" if other else str(subject["label"])


def overlaps(contest: Mapping[str, Any]) -> str:
    if not contest["overlaps"]:
        return "0"
    by_kind = ", ".join(f"{kind} {overlap_of(contest, kind):.3g}" for kind in KINDS if overlap_of(contest, kind))
    return f"{contest['overlap_seconds']:.3g} ({contest['overlaps']} times; {by_kind or 'at the start'})"


def failed(contest: Mapping[str, Any]) -> int:
    """Trials without a figure."""
    return len(contest["failures"]) + sum(trial["seconds"] is None for trial in contest["trials"])

"""The form that every bench has: a table on the screen, bars that are met or missed, and raw samples in a file.

A run of everything at full counts is written to bench/results/NAME.json, from which `python -m bench.report` makes
docs/benchmarks.md and its pictures. Any other run is written to .bench/NAME.json, unless `--keep` says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.machine import RESULTS, describe, save

SCRATCH = Path(__file__).parents[1] / ".bench"
_ABOUT = frozenset({"subject", "settings", "measured_at", "parts_measured_at", "note", "version", "versions"})
"""What stands beside a subject's figures."""


@dataclass(frozen=True)
class Limit:
    """What a figure has to be."""

    what: str
    value: float
    limit: float
    is_least: bool = False
    """The figure must be at least the limit, and not at most."""

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.is_least else self.value <= self.limit

    def __str__(self) -> str:
        bound = "at least" if self.is_least else "at most"
        return f"{self.what}: {self.value:.4g}, and the bar is {bound} {self.limit:g}"


def merged(former: Sequence[dict[str, Any]], fresh: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Subjects, with those parts replaced that were measured again. What was not keeps its own date."""
    found = {subject["subject"]: dict(subject) for subject in former}
    for subject in fresh:
        before = found.get(subject["subject"], {})
        dated = dict.fromkeys(before.keys() - _ABOUT, before.get("measured_at"))
        dated |= before.get("parts_measured_at", {})
        dated |= dict.fromkeys(subject.keys() - _ABOUT, subject.get("measured_at"))
        found[subject["subject"]] = {**before, **subject, "parts_measured_at": dict(sorted(dated.items()))}
    return list(found.values())


def kept(name: str) -> dict[str, Any]:
    """The results that are there already."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def finish(name: str, result: dict[str, Any], limits: Sequence[Limit], console: Console, *, is_whole: bool) -> int:
    """Say which bars are met, write everything down, and give the exit code: 1 if one is missed."""
    for limit in limits:
        console.print(f"{'[green]met[/]   ' if limit.met else '[red]missed[/]'} {limit}", highlight=False)
    result = {**result, "limits": [{**asdict(limit), "met": limit.met} for limit in limits]}
    if is_whole:
        path = save(name, result)
    else:
        SCRATCH.mkdir(exist_ok=True)
        path = SCRATCH / f"{name}.json"
        path.write_text(json.dumps({"machine": describe(), **result}, indent=1) + "\n")
    console.print(f"raw samples: {path}", highlight=False)
    return 0 if all(limit.met for limit in limits) else 1

"""What a trial has measured, kept for docs/reliability.md and for whoever compares two runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def record(report: Path, what: str, figures: Mapping[str, Any], kind: str = "") -> None:
    """Print them, and put them into the file `report` under `what`, or under `what` and the kind of store."""
    print(f"\n{what}{kind and f', {kind}'}: {json.dumps(figures)}")
    report.parent.mkdir(exist_ok=True)
    known: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    if kind:
        known.setdefault(what, {})[kind] = figures
    else:
        known[what] = figures
    report.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")

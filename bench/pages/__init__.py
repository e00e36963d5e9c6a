"""One module for each bench: what of its results stands in docs/benchmarks.md, and the pictures beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Page:
    title: str
    text: str
    """Markdown, without the title and the pictures."""
    pictures: Mapping[str, str] = field(default_factory=dict)
    """SVG by name; each is shown where the text says `{{name}}`."""


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The first column is text, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def limits(result: Mapping[str, Any]) -> str:
    """The bars of a bench and how they were met, as a list."""
    lines = []
    for each in result.get("limits", []):
        bound = "at least" if each["is_least"] else "at most"
        verdict = "met" if each["met"] else "**missed**"
        lines.append(f"- {each['what']}: {short(each['value'])} ({bound} {short(each['limit'])}: {verdict})")
    return "\n".join(lines)


def short(value: float) -> str:
    """Three digits that count, and never an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"

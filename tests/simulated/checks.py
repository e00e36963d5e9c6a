"""Which checks the judges of the simulator have, read from their sources, and the histories that are planted for them.

A judge that never reports proves nothing. Each check is made to report by a broken variant (tests/simulated/pins.toml),
or, where no single mistake of the product leads to it, by a planted history: a function that has a judge see what must
never happen.

    @plants("queue", "segment")
    def a_segment_is_written_twice() -> Judge: ...
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import tenure
from tenure.testing.broken import variants_of
from tenure.testing.checkers import Judge

SOURCES = Path(tenure.__file__).parent
JUDGES = {
    "election": ("testing/checkers.py", "simulate/seed.py"),
    "stage": ("simulate/stage.py",),
    "queue": ("simulate/queue_*.py",),
    "schedule": ("simulate/schedule_*.py",),
    "ttl": ("simulate/ttl_*.py",),
    "counters": ("simulate/counters_*.py",),
}
"""By kind of fleet, and `stage` for what all fleets with a ledger have: the modules that report."""
REPORTS = ("report", "_report")

Plant = Callable[[], Judge]
PLANTED: dict[tuple[str, str], list[Plant]] = {}


def plants(what: str, check: str) -> Callable[[Plant], Plant]:
    """The judge that the function returns has reported this check."""

    def register(plant: Plant) -> Plant:
        PLANTED.setdefault((what, check), []).append(plant)
        return plant

    return register


def known_checks() -> Iterator[tuple[str, str]]:
    for what, patterns in JUDGES.items():
        files = [file for pattern in patterns for file in sorted(SOURCES.glob(pattern))]
        for name in sorted({name for file in files for name in reported_in(file.read_text(encoding="utf-8"))}):
            yield what, name


def reported_in(source: str) -> Iterator[str]:
    """The names of the checks that a module reports. A name must stand where the report is made."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in REPORTS:
            continue
        for option in _options(node.args[0]):
            assert isinstance(option, ast.Constant) and isinstance(option.value, str), ast.unparse(node)
            yield option.value


def _options(argument: ast.expr) -> tuple[ast.expr, ...]:
    return (argument.body, argument.orelse) if isinstance(argument, ast.IfExp) else (argument,)


def shown_by_variants() -> dict[tuple[str, str], list[str]]:
    """By check: the broken variants that must make it report."""
    found: dict[tuple[str, str], list[str]] = {}
    for what in JUDGES:
        if what != "stage":
            for variant in variants_of(what).values():
                found.setdefault((what, variant.check), []).append(variant.name)
    return found

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
from tenure.simulate.seed import SeedResult
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
    "lock": ("simulate/lock_*.py",),
    "children": ("simulate/children_*.py",),
    "records": ("simulate/records_*.py",),
    "polling": ("simulate/polling_*.py",),
}
"""By kind of fleet, and `stage` for what all fleets with a ledger have: the modules that report."""
Plant = Callable[[], Judge | SeedResult]
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
        for name in sorted(reported_in("".join(file.read_text(encoding="utf-8") for file in files))):
            yield what, name


def reported_in(source: str) -> set[str]:
    """The names of the checks that a module reports: a name stands where the report is made, or where a method is
    called that reports under the name it is given."""
    tree = ast.parse(source.replace("from __future__ import annotations", ""))
    reporters = {"report", "_report"}
    for method in ast.walk(tree):
        if isinstance(method, ast.FunctionDef):
            parameters = {argument.arg for argument in method.args.args}
            names = {node.id for node in _reported(method, reporters) if isinstance(node, ast.Name)}
            assert names <= parameters, f"{method.name} reports under a name that cannot be read off: {names}"
            if names:
                reporters.add(method.name)
    return {str(node.value) for node in _reported(tree, reporters) if isinstance(node, ast.Constant)}


def _reported(tree: ast.AST, reporters: set[str]) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func) in reporters:
            name = node.args[0]
            yield from (name.body, name.orelse) if isinstance(name, ast.IfExp) else (name,)


def _called(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def shown_by_variants() -> dict[tuple[str, str], list[str]]:
    """By check: the broken variants that must make it report."""
    found: dict[tuple[str, str], list[str]] = {}
    for what in JUDGES:
        if what != "stage":
            for variant in variants_of(what).values():
                found.setdefault((what, variant.check), []).append(variant.name)
    return found

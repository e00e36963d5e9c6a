"""Checks that imports inside the package only point down.

    python tools/layers.py [src/tenure]

Every module is parsed, none is imported, and every import statement counts: inside a function or under
`if TYPE_CHECKING` it is the same dependence, only harder to see. One line is printed per violation.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# From bottom to top. A layer is a module or a folder directly below the package; it may import itself and those before.
LAYERS = (
    "errors",
    "clock",
    "entropy",
    "store",
    "election",
    "coordinator",
    "ledger",
    "database",
    "plugins",
    "observe",
    "testing",
)

# What people touch, above all layers: `cli` ties the others together, and the others do not know each other ...
TOP = ("cli", "doctor", "dashboard", "telemetry", "blocking", "asgi", "demo", "simulate", "run", "plan")
TOP_OF_TOP = "cli"
# ... except for these pairs of (importer, imported).
ALLOWED: frozenset[tuple[str, str]] = frozenset({("demo", "doctor")})

# The package's own front doors gather names from everywhere.
FRONT_DOORS = ("__init__", "__main__")
# A constant that anyone may read.
VERSION = "_version"

# The name under which the package root (`import tenure`, `from tenure import Database`) appears as a target.
ROOT = ""


def may_import(importer: str, imported: str) -> bool:
    if importer in FRONT_DOORS or imported in (importer, VERSION):
        return True
    if importer in TOP:
        # `from tenure import X` is how users write it, and this group stands where users stand.
        return imported not in TOP or importer == TOP_OF_TOP or (importer, imported) in ALLOWED
    if importer == VERSION or imported not in LAYERS:
        return False
    return LAYERS.index(imported) < LAYERS.index(importer)


def imported_layers(tree: ast.AST, package: str, inside: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    """(line, layer, dotted name) of each import from the package, in a module that stands in the package `inside`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = inside[: max(len(inside) - node.level + 1, 0)] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            targets = [(*base, alias.name) for alias in node.names]
        else:
            continue
        for target in targets:
            if target and target[0] == package:
                yield node.lineno, layer_named_by(target), ".".join(target)


def layer_named_by(target: tuple[str, ...]) -> str:
    """`from tenure import Database` names no layer: it comes from the root.

    In `tenure.x.y` x is a layer, known or not; in `tenure.x` it may be a name that the root exports.
    """
    if len(target) == 1 or target[1] in FRONT_DOORS:
        return ROOT
    if len(target) == 2 and target[1] not in (*LAYERS, *TOP, VERSION):
        return ROOT
    return target[1]


def violations(root: Path) -> Iterator[str]:
    for entry in sorted(root.iterdir()):
        layer = entry.stem if entry.is_file() else entry.name
        if not is_source(entry):
            continue
        if layer not in (*LAYERS, *TOP, *FRONT_DOORS, VERSION):
            yield f"{entry}:1: {layer} is not assigned to a layer (see the table in tools/layers.py)"
            continue
        for file in [entry] if entry.is_file() else sorted(entry.rglob("*.py")):
            yield from violations_in(file, layer, root)


def is_source(entry: Path) -> bool:
    if entry.is_file():
        return entry.suffix == ".py"
    # A folder that was moved away leaves its __pycache__ behind.
    return entry.name != "__pycache__" and any(
        file.is_file() and "__pycache__" not in file.parts for file in entry.rglob("*")
    )


def violations_in(file: Path, layer: str, root: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        yield f"{file}:{error.lineno or 1}: {error.msg}"
        return
    inside = (root.name, *file.relative_to(root).parts[:-1])
    for line, imported, name in sorted(imported_layers(tree, root.name, inside)):
        if may_import(layer, imported):
            continue
        if imported == ROOT:
            yield f"{file}:{line}: layer {layer} may not import the package root ({name})"
        elif imported not in (*LAYERS, *TOP):
            yield f"{file}:{line}: layer {layer} imports {name}, which is not assigned to a layer"
        else:
            yield f"{file}:{line}: layer {layer} may not import layer {imported} ({name})"


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    root = Path(given[0]) if given else Path(__file__).resolve().parent.parent / "src" / "tenure"
    # The folder's name is the package's name, so `.` has to become one.
    root = root if root.name else root.resolve()
    if not root.is_dir():
        print(f"{root}: no such folder", file=sys.stderr)
        return 2
    found = list(violations(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""`make docs` builds every page without a warning, and the reference has every public name."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.pages import ROOT

PARTS = ("tenure", "tenure.blocking", "tenure.store", "tenure.testing", "tenure.errors")
ELSEWHERE = {"__version__"}
"""Public, and no entry of their own."""


def public_names() -> set[str]:
    """By where they are documented: errors have a page of their own, whoever else offers them."""
    names: set[str] = set()
    for part in PARTS:
        module = importlib.import_module(part)
        for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
            thing = getattr(module, name)
            if name in ELSEWHERE or not hasattr(thing, "__module__"):
                continue
            if inspect.isclass(thing) and issubclass(thing, BaseException) and thing.__module__ == "tenure.errors":
                names.add(f"tenure.errors.{name}")
            elif part != "tenure.errors":
                names.add(f"{part}.{name}")
    return names


def test_the_reference_has_every_public_name() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.rst"))
    named = re.findall(r"^\.\. auto(?:class|exception|function|data):: (\S+)$", pages, re.MULTILINE)
    assert len(set(named)) == len(named)
    assert set(named) == public_names() | {"tenure.asgi.lifespan"}


def test_tests_that_pages_name_are_there() -> None:
    """Those that docs/guarantees.md points to, above all."""
    there = {path.name for path in (ROOT / "tests").rglob("*.py")}
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text()
        for path in re.findall(r"`((?:tests|spec|bench)/[\w/]+\.\w+)`", text):
            assert (ROOT / path).is_file(), f"{page.name}: {path}"
        for name in re.findall(r"`(test_\w+\.py)`", text):
            assert name in there, f"{page.name}: {name}"


@pytest.mark.slow
def test_docs_are_built_without_a_warning(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text()
    (line,) = re.findall(r"^\t\$\(BIN\)/python -m (sphinx .*) docs \.build/docs$", recipe, re.MULTILINE)
    assert {"-W", "--keep-going", "-n"} <= set(line.split())
    command = [sys.executable, "-m", *line.split(), "docs", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (built.returncode, built.stderr) == (0, "")
    reference = "".join(path.read_text() for path in (tmp_path / "api").glob("*.html"))
    for name in public_names():
        assert f'id="{name}"' in reference, name
    for page in (ROOT / "docs").glob("*.md"):
        html = (tmp_path / f"{page.stem}.html").read_text()
        assert not re.search(r'(?:src|href)="https?://', html.partition("<article")[0]), "fetched from elsewhere"

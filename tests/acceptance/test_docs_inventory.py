"""Every block on every page has a test that runs it: this is the list, and a block that is not on it fails.

Python blocks are run by the test that is named here for their page. Commands are run by `test_docs_commands.py`, page
by page and without being listed, unless another test is named here. Data are parsed. Output is marked as `text`.
"""

from __future__ import annotations

import configparser
import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.acceptance.pages import DATA, DIRECTIVE, PYTHON, ROOT, SHELL, Block, all_blocks, blocks_of, commands, pages

README = "tests.acceptance.test_readme"
DOCS = "tests.acceptance.test_docs"
OTHERS = "tests.acceptance.test_docs_python"
BLOCKING = "tests.integration.test_blocking"
TUTORIAL = "tests.acceptance.test_docs_tutorial"
DASHBOARD = "tests.acceptance.test_dashboard_command"
TELEMETRY = "tests.unit.test_telemetry_docs"
RUN_BY: dict[tuple[str, str], str] = {
    ("README.md", PYTHON): f"{README}:test_every_block_is_run",
    ("docs/blocking.md", PYTHON): f"{BLOCKING}:TestPages",
    ("docs/counters.md", PYTHON): f"{DOCS}:test_counters",
    ("docs/counters.md", SHELL): f"{DOCS}:test_the_commands_of_the_counters",
    ("docs/dashboard.md", PYTHON): f"{DASHBOARD}:TestPage",
    ("docs/dashboard.md", SHELL): f"{DASHBOARD}:TestPage",
    ("docs/health.md", PYTHON): f"{OTHERS}:test_health",
    ("docs/locks.md", PYTHON): f"{OTHERS}:test_locks",
    ("docs/plugins.md", PYTHON): f"{DOCS}:test_plugins",
    ("docs/polling.md", PYTHON): f"{OTHERS}:test_polling",
    ("docs/queue.md", PYTHON): f"{DOCS}:test_queue",
    ("docs/queue.md", SHELL): f"{DOCS}:test_the_commands_of_the_queue",
    ("docs/recipes.md", PYTHON): f"{BLOCKING}:TestPages",
    ("docs/resources.md", PYTHON): f"{OTHERS}:test_resources",
    ("docs/schedule.md", PYTHON): f"{DOCS}:test_schedule",
    ("docs/schedule.md", SHELL): f"{DOCS}:test_the_commands_of_the_schedule",
    ("docs/storage.md", PYTHON): f"{OTHERS}:test_storage",
    ("docs/supervisor.md", PYTHON): f"{DOCS}:test_supervisor",
    ("docs/telemetry.md", PYTHON): f"{TELEMETRY}:test_every_block_is_run",
    ("docs/ttl.md", PYTHON): f"{DOCS}:test_ttl",
    ("docs/tutorial.md", PYTHON): f"{TUTORIAL}:test_the_tutorial",
    ("docs/tutorial.md", SHELL): f"{TUTORIAL}:test_the_tutorial",
}
"""By page and kind. What is not here and is a command is run by `test_docs_commands.py`."""


def test_every_block_has_a_language_that_is_known() -> None:
    for block in all_blocks():
        assert block.kind is not None, f"{block.place}: what is {block.language!r}? Mark output as text"


def test_every_block_is_run_by_a_test() -> None:
    nobody = sorted({(block.page, block.kind) for block in all_blocks() if block.kind == PYTHON} - set(RUN_BY))
    assert not nobody, f"no test runs them: {nobody}"
    there = {(block.page, block.kind) for block in all_blocks()}
    assert set(RUN_BY) <= there, f"nothing is left to run: {set(RUN_BY) - there}"
    for (page, _), test in RUN_BY.items():
        module, _, name = test.partition(":")
        code = Path(importlib.import_module(module).__file__ or "").read_text()
        assert callable(getattr(importlib.import_module(module), name)), test
        assert page.rpartition("/")[2] in code, f"{test} does not know of {page}"


def test_a_block_that_nobody_runs_would_be_noticed() -> None:
    text = "Text.\n\n```ruby\nputs 1\n```\n\n- a list\n  goes on\n\n    tenure status URL  # who?\n\n"
    text += "```python\nx = 1\n```\n"
    found = blocks_of("docs/new.md", text)
    assert [(block.language, block.line, block.kind) for block in found] == [
        ("ruby", 3, None),
        ("indented", 10, SHELL),
        ("python", 12, PYTHON),
    ]
    assert commands(found[1]) == ["tenure status URL"]


@pytest.mark.parametrize("block", [each for each in all_blocks() if each.kind == DATA], ids=lambda block: block.place)
def test_data_can_be_parsed(block: Block) -> None:
    match block.language:
        case "json":
            for line in block.text.splitlines() if block.text.count("\n{") else [block.text]:
                assert json.loads(line) is not None
        case "toml":
            assert tomllib.loads(block.text)
        case "yaml":
            assert list(yaml.safe_load_all(block.text))
        case "ini":
            parser = configparser.RawConfigParser(strict=False)
            parser.optionxform = str  # type: ignore[assignment,method-assign]
            parser.read_string(block.text)
            assert parser.sections()


def test_directives_are_of_the_kinds_that_read_well_elsewhere() -> None:
    assert {block.language for block in all_blocks() if block.kind == DIRECTIVE} <= {
        "{toctree}",
        "{include} ../CHANGELOG.md",
    }


# Links


def _slug(heading: str) -> str:
    """As code hosts make an anchor of a heading, and MyST after them."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _prose(page: Path) -> str:
    """Without its blocks."""
    text = re.sub(r"^ {0,3}```.*?^ {0,3}```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    seen: dict[str, int] = {}
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", _prose(page), re.MULTILINE):
        slug = _slug(heading)
        found.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
        seen[slug] = seen.get(slug, 0) + 1
    return found


@pytest.mark.parametrize("page", [*pages(), ROOT / "CHANGELOG.md"], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {target} is not there"
        assert there.is_relative_to(ROOT), f"{page.name}: {target} is outside"
        if anchor and there.suffix == ".md":
            assert anchor in _anchors(there), f"{page.name}: {target}: no such heading"


def test_every_page_is_in_the_navigation() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    named = {
        line.strip() for tree in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL) for line in tree.splitlines()
    }
    there = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert there <= named, f"not in docs/index.md: {there - named}"

"""Every block of code on every page: README, docs, and what lies beside the examples and manifests.

A block is fenced (```` ```python ````) or indented by four spaces after an empty line, which is how commands are shown.
Each is one of the `KINDS`, by its language. `test_docs_inventory.py` says which test runs which, and
fails for a block that none does.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ {0,3}(```+)\s*(.*?)\s*$")
INDENTED = "indented"
PYTHON = "python"
SHELL = "shell"
DATA = "data"
TEXT = "text"
DIRECTIVE = "directive"
KINDS = {
    "python": PYTHON,
    "sh": SHELL,
    "console": SHELL,
    INDENTED: SHELL,
    "json": DATA,
    "toml": DATA,
    "yaml": DATA,
    "ini": DATA,
    "text": TEXT,
}


@dataclass(frozen=True)
class Block:
    page: str
    """From the root of the repository."""
    line: int
    language: str
    text: str

    @property
    def kind(self) -> str | None:
        return DIRECTIVE if self.language.startswith("{") else KINDS.get(self.language)

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder in ("docs", "deploy", "examples"):
        found += sorted((ROOT / folder).rglob("*.md"))
    return found


def blocks(page: Path) -> list[Block]:
    return blocks_of(page.relative_to(ROOT).as_posix(), page.read_text())


def blocks_of(name: str, text: str) -> list[Block]:
    found: list[Block] = []
    fence, begun, language = "", 0, ""
    held: list[str] = []
    blank = True
    for number, line in enumerate([*text.splitlines(), ""], 1):
        mark = FENCE.match(line)
        if fence:
            if mark is not None and mark[1].startswith(fence) and not mark[2]:
                found.append(Block(name, begun, language, "".join(f"{each}\n" for each in held)))
                fence, held = "", []
                blank = True
            else:
                held.append(line)
            continue
        if held and line.strip() and not line.startswith("    "):  # the end of an indented one
            found.append(Block(name, begun, INDENTED, _dedented(held)))
            held = []
        if mark is not None:
            fence, language, begun = mark[1], mark[2], number
        elif line.startswith("    ") and (held or blank):
            begun = begun if held else number
            held.append(line)
        elif held and not line.strip():
            held.append(line)
        blank = not line.strip()
    assert not fence, f"{name}:{begun}: a fence that is not closed"
    if held:
        found.append(Block(name, begun, INDENTED, _dedented(held)))
    return found


def _dedented(lines: list[str]) -> str:
    return "".join(f"{line[4:]}\n" for line in lines).rstrip("\n") + "\n"


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def commands(block: Block) -> list[str]:
    """The commands of a shell block, one each, without prompts, comments and output."""
    text = block.text.replace("\\\n", " ")
    lines = text.splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [command for line in lines if (command := _without_comment(line).strip())]


def _without_comment(line: str) -> str:
    """`#` begins one where a shell says so: outside of quotes, and at the beginning of a word."""
    for found in re.finditer(r"(?:^|\s)#", line):
        before = line[: found.start()]
        try:
            shlex.split(before)
        except ValueError:
            continue  # inside of quotes
        return before
    return line


def shown(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((_without_comment(line[2:]).strip(), []))
        elif line.strip():
            assert found, f"{block.place}: output before any command"
            found[-1][1].append(line)
    return found


def as_printed(line: str) -> re.Pattern[str]:
    """What a line of output that is shown stands for: numbers, ids and times are others each time, `…` is anything."""
    parts = re.split(r"(…|\S*[0-9]\S*|\s+|[─━═┏┓┗┛┡┩╇┳┻┃│└┘┴┬├┤┼┌┐]+)", line.strip())
    pattern = ""
    for part in parts:
        if part == "…":
            pattern += ".*"
        elif part.isspace():
            pattern += r"\s+"
        elif re.search(r"[0-9]", part):
            pattern += r"\S+"
        elif re.fullmatch(r"[─━═┏┓┗┛┡┩╇┳┻┃│└┘┴┬├┤┼┌┐]+", part or "x"):
            pattern += ".+?"
        else:
            pattern += re.escape(part)
    return re.compile(pattern)

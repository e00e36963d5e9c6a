"""docs/tutorial.md, step by step, in as many terminals: what it says that one sees is seen.

Blocks are taken in the order of the page, so that a new one, or one that moved, is noticed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.process import die_with_parent, free_port
from tests.acceptance.pages import DIRECTIVE, PYTHON, ROOT, SHELL, TEXT, Block, as_printed, blocks, commands, shown

PATIENCE = 60.0


class Terminal:
    """A process, and what it has printed until now."""

    def __init__(self, line: str, folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_as_in_a_terminal,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def sees(self, *expected: str, after: int = 0) -> None:
        """In this order, with other lines between them."""
        deadline = time.monotonic() + PATIENCE
        for each in expected:
            pattern = as_printed(each)
            while True:
                seen = self.lines[after:]
                found = next((number for number, line in enumerate(seen) if pattern.search(line)), None)
                if found is not None:
                    after += found + 1
                    break
                assert time.monotonic() < deadline, (each, self.lines)
                time.sleep(0.05)

    def end(self, by: signal.Signals = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(by)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def _as_in_a_terminal() -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Tutorial:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.left = [block for block in blocks(ROOT / "docs" / "tutorial.md") if block.kind != DIRECTIVE]
        self.terminals: list[Terminal] = []
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "error",
            "COLUMNS": "160",
        }

    def here(self, text: str) -> str:
        return text.replace("file:///tmp/tutorial", self.folder.as_uri())

    def next(self, kind: str) -> Block:
        block = self.left.pop(0)
        assert block.kind == kind, block
        return block

    def save(self, name: str) -> None:
        (self.folder / name).write_text(self.here(self.next(PYTHON).text))

    def open(self) -> Terminal:
        """The command of the next block, in a terminal of its own, until it has printed what is shown."""
        ((line, printed),) = shown(self.next(SHELL))
        terminal = Terminal(self.here(line), self.folder, self.environment)
        self.terminals.append(terminal)
        terminal.sees(*map(self.here, printed))
        return terminal

    def run(self, *options: str, until_shown: bool = False) -> None:
        """Those of the next block, one after the other."""
        for line, printed in shown(self.next(SHELL)):
            deadline = time.monotonic() + PATIENCE
            while True:
                terminal = Terminal(" ".join([self.here(line), *options]), self.folder, self.environment)
                code = terminal.process.wait(PATIENCE)
                terminal.end()
                patterns = [as_printed(each) for each in printed]
                seen = all(any(pattern.search(each) for each in terminal.lines) for pattern in patterns)
                if code == 0 and seen:
                    break
                assert until_shown and time.monotonic() < deadline, (line, printed, terminal.lines)
                time.sleep(0.2)


@pytest.fixture
def tutorial(tmp_path: Path) -> Iterator[Tutorial]:
    begun = Tutorial(tmp_path)
    yield begun
    for terminal in begun.terminals:
        terminal.end(signal.SIGKILL)


@pytest.mark.slow  # five processes at a time, and a failover: three quarters of a minute
def test_the_tutorial(tutorial: Tutorial) -> None:
    (install,) = commands(tutorial.next(SHELL))
    assert install == "pip install '.[dashboard]'"  # what make venv has done here
    tutorial.run()  # --version

    # Two terminals, one program; kill one
    tutorial.open()
    second = tutorial.open()
    (kill,) = commands(tutorial.next(SHELL))
    subprocess.run(["bash", "-c", tutorial.here(kill)], check=True, timeout=PATIENCE)
    second.sees(*tutorial.next(TEXT).text.splitlines())
    assert tutorial.terminals[0].end() == -signal.SIGKILL
    tutorial.run()  # audit
    second.end()

    # Lead in Python
    tutorial.save("leader.py")
    tutorial.run()

    # A program with work in it
    tutorial.save("app.py")
    first = tutorial.open()
    second = tutorial.open()
    tutorial.run(until_shown=True)  # queue put, stats
    tutorial.run(until_shown=True)  # schedule
    tutorial.run(until_shown=True)  # counter

    # Look at it
    tutorial.run(until_shown=True)  # status
    block = tutorial.next(SHELL)
    (dashboard,) = commands(block)
    looking = Terminal(f"{tutorial.here(dashboard)} --port {free_port()}", tutorial.folder, tutorial.environment)
    tutorial.terminals.append(looking)
    looking.sees("http://127.0.0.1:8321")
    assert looking.end() == 0
    said = len(second.lines)
    tutorial.run()  # transfer
    second.sees(*tutorial.next(TEXT).text.splitlines(), after=said)
    assert any(re.search(r" sends to ada@example\.org, token \d+$", line) for line in first.lines + second.lines)
    assert (first.end(), second.end()) == (0, 0)

    # A bucket of your own
    tutorial.run()
    tutorial.run()
    assert tutorial.left == []

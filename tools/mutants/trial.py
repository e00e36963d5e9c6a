"""Tests run against a copy of the sources, in which one file may be changed."""

from __future__ import annotations

import compileall
import enum
import os
import py_compile
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

_REPOSITORY = Path(__file__).resolve().parent.parent.parent
# A pytest that inherits these would run other tests than it is given, or take itself for a worker of another.
_NOT_INHERITED = "PYTEST_"
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (?P<test>\S+?\.py(?:::.*?)?)(?: - (?P<why>.*))?$", re.MULTILINE)
# With these the mutant is no program any more; it says nothing about what the tests look at.
_NO_PROGRAM = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError", "IndentationError")


class Verdict(enum.Enum):
    CAUGHT = "caught"
    TIMEOUT = "timeout"
    """Caught as well: the tests did not end."""
    SURVIVED = "survived"
    INVALID = "invalid"
    """The tests could not be collected, or failed only because the changed file cannot be imported or names nothing."""


@dataclass(frozen=True)
class Result:
    verdict: Verdict
    detail: str
    """The test that failed, and why; or the end of the output where no test is known."""
    seconds: float

    @property
    def caught(self) -> bool:
        return self.verdict in (Verdict.CAUGHT, Verdict.TIMEOUT)


class Overlay:
    """A copy of `root`/src in `home`, which stands before the installed package on the path.

    Bytecode is kept with the hash of its source, not with time and size: a mutant often has the size of the original,
    and is written within the same second.
    """

    def __init__(self, root: Path, home: Path) -> None:
        self._root = root
        self._sources = home / "src"
        shutil.copytree(root / "src", self._sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self._sources, quiet=1, invalidation_mode=mode)

    def run(self, tests: Sequence[str], timeout: float, changed: tuple[str, str] | None = None) -> Result:
        """Run `tests` (arguments of pytest, in this order) until the first failure.

        `changed`: a file, relative to the root, and its text.
        """
        if changed is None:
            return self._run(tests, timeout)
        file = self._sources.parent / changed[0]
        original = file.read_text(encoding="utf-8")
        file.write_text(changed[1], encoding="utf-8")
        try:
            return self._run(tests, timeout)
        finally:
            file.write_text(original, encoding="utf-8")

    def _run(self, tests: Sequence[str], timeout: float) -> Result:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        path = (str(self._sources), str(_REPOSITORY), environment.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        environment["COLUMNS"] = "1000"  # pytest leaves out why a test failed where the line has no room for it
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=line", "--no-header", "--color=no"]
        # What fails here is no news about requirements.
        command += ["-p", "no:cacheprovider", "-p", "no:tenure-requirements-recorder"]
        command += ["-p", "tools.mutants.no_shrinking"]
        began = monotonic()
        # A session of its own, so that the end of a hanging run is the end of what it started as well.
        with subprocess.Popen(
            [*command, *tests],
            cwd=self._root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return Result(Verdict.TIMEOUT, f"no end after {timeout:.0f} s", monotonic() - began)
        return judge(process.returncode, output, monotonic() - began)


def judge(exit_status: int, output: str, seconds: float) -> Result:
    """What pytest's exit status and its short summary say of a mutant."""
    if exit_status == 0:
        return Result(Verdict.SURVIVED, "", seconds)
    found = _FAILURE.search(output)
    if found is None:
        # 1 without a line of the summary, or a signal: the interpreter died under the tests.
        verdict = Verdict.CAUGHT if exit_status < 0 or exit_status == 1 else Verdict.INVALID
        return Result(verdict, f"exit status {exit_status}: {' '.join(output.split())[-300:]}", seconds)
    why = found["why"] or ""
    broken = exit_status != 1 or why.partition(":")[0] in _NO_PROGRAM
    return Result(Verdict.INVALID if broken else Verdict.CAUGHT, f"{found['test']}: {why[:200]}".rstrip(": "), seconds)

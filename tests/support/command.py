"""The `tenure` command: in this process unless its process is the subject, and what it said."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest

from lab.process import Child
from tenure.cli.main import run

STREAMS = ("stdin", "stdout", "stderr")
"""By their file descriptor."""


class Run(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str
    seconds: float = 0.0

    def json(self) -> Any:
        return json.loads(self.out)


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """This process's, without what is set for tenure by whoever runs the tests, and good in any working directory."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    if path := clean.get("PYTHONPATH"):
        clean["PYTHONPATH"] = os.pathsep.join(str(Path(each).absolute()) for each in path.split(os.pathsep))
    return {**clean, "COLUMNS": "80", **changes}


def tenure(*arguments: str, home: Path | None = None, given: str | bytes = b"", **changes: str) -> Run:
    """All of the command but the start of a process, which takes longer than the rest.

    `home` is its working directory, `given` what it reads from standard input, `changes` are set in its environment.
    A test that is async uses `tenure_process` in a thread: a command has an event loop and signal handlers of its own.
    """
    assert threading.current_thread() is threading.main_thread(), "commands handle signals: use tenure_process"
    wanted = environment(changes)
    with pytest.MonkeyPatch.context() as patch, _file(_bytes(given)) as file, _file() as out, _file() as err:
        for name in os.environ.keys() - wanted.keys():
            patch.delenv(name)
        for name in wanted:
            patch.setenv(name, wanted[name])
        if home is not None:
            patch.chdir(home)
        patch.setattr(sys, "path", list(sys.path))
        started = time.monotonic()
        with _instead_of("stdin", file), _instead_of("stdout", out), _instead_of("stderr", err):
            code = run(list(arguments))
        seconds = time.monotonic() - started
        ran = Run(code, _text(out), _text(err), seconds)
    return _without_a_trace(ran, arguments, changes)


def tenure_process(
    *arguments: str, home: Path | None = None, given: str | bytes = b"", timeout: float = 120, **changes: str
) -> Run:
    """The same in a process of its own: for what is about processes, and to see that nothing else is needed."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tenure", *arguments],
        capture_output=True,
        input=_bytes(given),
        timeout=timeout,
        cwd=home,
        env=environment(changes),
        check=False,
    )
    seconds = time.monotonic() - started
    ran = Run(done.returncode, done.stdout.decode(), done.stderr.decode(), seconds)
    return _without_a_trace(ran, arguments, changes)


def tenure_child(
    *arguments: str, folder: Path, home: Path | None = None, stdin: int = subprocess.DEVNULL, **changes: str
) -> Child:
    """The same in a process that goes on; what it writes lies in `folder`."""
    return Child([sys.executable, "-m", "tenure", *arguments], folder, env=environment(changes), cwd=home, stdin=stdin)


def ok(ran: Run) -> Run:
    """It went as hoped."""
    assert ran.code == 0, ran.out + ran.err
    return ran


def _without_a_trace(ran: Run, arguments: tuple[str, ...], changes: Mapping[str, str]) -> Run:
    """No user is shown a stack trace that was not asked for."""
    if "--debug" not in arguments and "TENURE_DEBUG" not in changes:
        assert "Traceback" not in ran.out + ran.err, ran.err
    return ran


def _bytes(given: str | bytes) -> bytes:
    return given if isinstance(given, bytes) else given.encode()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@contextlib.contextmanager
def _file(content: bytes = b"") -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file


@contextlib.contextmanager
def _instead_of(name: str, file: IO[bytes]) -> Iterator[None]:
    """The stream and its file descriptor, since `tenure run` writes to the latter."""
    stream, number = getattr(sys, name), STREAMS.index(name)
    kept = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        with open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False) as new:
            setattr(sys, name, new)
            yield
    finally:
        setattr(sys, name, stream)
        os.dup2(kept, number)
        os.close(kept)

"""Start a server as a child process, wait until it answers, and leave nothing behind."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

_PR_SET_PDEATHSIG = 1
_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True)


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def die_with_parent() -> None:
    """A test run that is killed must not leave servers behind.

    Linux sends the signal when the *thread* that spawned the child ends: start servers from one that lasts. Other
    systems have no such signal, and there it is left to `stop`.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            preexec_fn=die_with_parent,
        )


def wait_for_http(url: str, process: subprocess.Popen[bytes] | None, log: Path, seconds: float = 60.0) -> None:
    """Return once `url` gives any HTTP answer at all; explain with the log's tail if it never does."""
    deadline = time.monotonic() + seconds
    why = f"no answer from {url} within {seconds:.0f} s"
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            why = f"the server meant for {url} ended with code {process.returncode}"
            break
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    tail = log.read_text(errors="replace")[-2000:] if log.exists() else "(no log)"
    raise RuntimeError(f"{why}; its log ends with:\n{tail}")


def state_of(pid: int) -> str:
    """As /proc says: `T` is stopped, `Z` is dead and not yet waited for; empty: there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text[text.rindex(")") + 2]  # a name may have spaces and brackets in it


def refuses(port: int) -> bool:
    """Nobody listens on this loopback port. One that is stopped, or very busy, does not refuse."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2.0).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def stop(process: subprocess.Popen[bytes], seconds: float = 5.0) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Child:
    """A process, and all that it has written so far. It is killed at the end of a `with` block, if it still runs.

    What it writes lies in two files in `folder`, so it is never held up by a reader. It gets no input.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
    ) -> None:
        """`env` is the whole of its environment; without it, it has this process's."""
        name = f"child-{os.getpid()}-{next(_numbers)}"
        self.out_path, self.err_path = folder / f"{name}.out", folder / f"{name}.err"
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            self.process = subprocess.Popen(
                command, stdin=stdin, stdout=out, stderr=err, env=env, cwd=cwd, preexec_fn=die_with_parent
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    @property
    def out(self) -> str:
        return self.out_path.read_text()

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    @property
    def lines(self) -> list[str]:
        """What it has written to standard output, without a line that is not complete yet."""
        return _whole_lines(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines on standard error that are JSON objects."""
        return [json.loads(line) for line in _whole_lines(self.err) if line.startswith("{")]

    def named(self, event: str) -> list[dict[str, Any]]:
        """Those that say so in their field `event`."""
        return [each for each in self.events if each["event"] == event]

    def report(self) -> str:
        """All there is to say of it, for a test that fails."""
        state = "runs" if self.runs else f"has ended with {self.process.returncode}"
        return f"{self.process.args!r} {state}\n{self.out}\n{self.err}"

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(seconds)

    def end(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Ask it to end; its exit code."""
        self.send(number)
        return self.wait(seconds)

    def kill(self) -> None:
        if self.runs:
            self.process.kill()
        self.process.wait()


def _whole_lines(text: str) -> list[str]:
    return text[: text.rfind("\n") + 1].splitlines()

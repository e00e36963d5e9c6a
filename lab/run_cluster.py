"""Several `tenure run` on one store, each with a program that notes a hundred times a second that it runs.

Whether two programs ever overlapped is judged from their own notes alone: CLOCK_BOOTTIME, one file a process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from lab.process import die_with_parent
from tenure.plugins.supervisor.watchdog import children_of

TICKER = Path(__file__).with_name("ticker.py")
_LOOK = 0.02
_FRESH_NS = 150_000_000


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Life:
    """One process of a program: it certainly ran from its first note to its last."""

    worker: str
    pid: int
    epoch: int
    first_ns: int
    last_ns: int


def lives(notes: Path) -> list[Life]:
    """In the order of their beginnings."""
    found = []
    for file in notes.iterdir():
        with file.open("rb") as log:
            first = log.readline()
            log.seek(max(0, file.stat().st_size - 400))
            rest = [line for line in log.read().split(b"\n") if line.count(b" ") == 5 and line.endswith(b" 1")]
        if not first.endswith(b"\n") or not rest:
            continue
        began, _, process, epoch, *_ = first.split()
        worker, _, pid = process.decode().rpartition(":")
        found.append(Life(worker, int(pid), int(epoch), int(began), int(rest[-1].split()[1])))
    return sorted(found, key=lambda life: life.first_ns)


@dataclass(frozen=True)
class Overlap:
    one: Life
    other: Life

    @property
    def seconds(self) -> float:
        return (min(self.one.last_ns, self.other.last_ns) - max(self.one.first_ns, self.other.first_ns)) / 1e9


def overlaps(found: list[Life]) -> list[Overlap]:
    """Pairs of programs that certainly ran at the same instant."""
    return [
        Overlap(one, other)
        for at, one in enumerate(found)
        for other in found[at + 1 :]
        if other.first_ns <= one.last_ns and (one.worker, one.pid) != (other.worker, other.pid)
    ]


@dataclass
class RunCluster:
    url: str
    folder: Path
    lease: str = "3s"
    options: tuple[str, ...] = ()
    program: tuple[str, ...] = ()
    """Options of lab.ticker."""
    command: tuple[str, ...] = (sys.executable, "-m", "tenure")
    runs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _started: int = 0

    def __post_init__(self) -> None:
        self.notes.mkdir(parents=True)

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def start(self) -> str:
        self._started += 1
        worker = f"run{self._started}"
        ticker = [sys.executable, "-S", str(TICKER), str(self.notes), *self.program]
        with (self.folder / f"{worker}.log").open("wb") as log:
            self.runs[worker] = subprocess.Popen(
                [
                    *(*self.command, "run", self.url, "--lease", self.lease, "--worker-id", worker, "--json"),
                    *(*self.options, "--", *ticker),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        return worker

    async def running(self, *, above: int = 0, patience: float = 30.0) -> Life:
        """The program that runs now, of an epoch above this one."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            now = boottime_ns()
            for life in lives(self.notes):
                if life.epoch > above and now - life.last_ns < _FRESH_NS:
                    return life
            await asyncio.sleep(_LOOK)
        raise AssertionError(f"no program ran under an epoch above {above} within {patience:g} s\n{self.logs()}")

    def guards(self, worker: str) -> tuple[int, int]:
        """The process that stands behind the watchdog, and the watchdog."""
        for behind in children_of(self.runs[worker].pid):
            if b"watchdog.py" in Path(f"/proc/{behind}/cmdline").read_bytes():
                for guard in children_of(behind):
                    if b"watchdog.py" in Path(f"/proc/{guard}/cmdline").read_bytes():
                        return behind, guard
        raise AssertionError(f"{worker} has no watchdog\n{self.logs()}")

    def send(self, worker: str, number: int) -> None:
        self.runs[worker].send_signal(number)

    def logs(self) -> str:
        return "\n".join(f"--- {file.name}\n{file.read_text()[-1500:]}" for file in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        """The programs as well: those that should have been ended might be left."""
        for run in self.runs.values():
            if run.poll() is None:
                run.send_signal(signal.SIGCONT)
                run.terminate()
        for run in self.runs.values():
            try:
                run.wait(15)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
        for life in lives(self.notes):
            try:
                if str(self.notes).encode() in Path(f"/proc/{life.pid}/cmdline").read_bytes():
                    os.kill(life.pid, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass

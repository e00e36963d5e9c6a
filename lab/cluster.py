"""Believers of one election as processes: started, killed, stopped and continued, and judged from their logs."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.judge import Sample, Unjudgeable, Verdict, judge_logs, parse
from lab.process import spawn

ROOT = Path(__file__).resolve().parent.parent
_LAST_LINES = 400
"""Bytes at the end of a log that surely hold a whole line."""
_FRESH_NS = 2_000_000_000


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass
class Believer:
    name: str
    process: subprocess.Popen[bytes]
    log: Path
    output: Path
    stopped: bool = False

    @property
    def identity(self) -> str:
        """As in the log."""
        return f"{self.name}:{self.process.pid}"

    def last(self) -> Sample | None:
        """The newest line of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_LINES))
                text = log.read().decode()
        except FileNotFoundError:
            return None
        lines = text.split("\n")[:-1]
        if len(text) == _LAST_LINES:
            lines = lines[1:]  # begun before what was read
        return parse(lines[-1] + "\n")[0][0] if lines else None

    def said(self, what: str) -> list[dict[str, Any]]:
        lines = self.output.read_bytes().split(b"\n") if self.output.exists() else []
        said = [json.loads(line) for line in lines if line.startswith(b"{")]
        return [entry for entry in said if entry["said"] == what]


@dataclass
class Cluster:
    """Start the processes from a thread that lasts: they are killed when it ends."""

    url: str
    folder: Path
    namespace: str = "default"
    options: Sequence[str] = ()
    """Further arguments of every process."""
    module: str = "lab.believer"
    """What each of them runs; `lab.supervised` takes the same arguments."""
    running: list[Believer] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    def start(self, name: str, *options: str, env: Mapping[str, str] | None = None) -> Believer:
        stem = f"{self.namespace}-{name}-{next(self._numbers)}"
        log, output = self.folder / f"{stem}.log", self.folder / f"{stem}.out"
        command = [
            *(sys.executable, "-m", self.module, self.url, "--worker-id", name, "--log", str(log)),
            *("--namespace", self.namespace, *self.options, *options),
        ]
        believer = Believer(name, spawn(command, output, env, cwd=ROOT), log, output)
        self.running.append(believer)
        self.logs.append(log)
        return believer

    def kill(self, believer: Believer) -> int:
        """SIGKILL; the instant of it."""
        at_ns = boottime_ns()
        believer.process.kill()
        believer.process.wait()
        self.running.remove(believer)
        return at_ns

    def pause(self, believer: Believer) -> int:
        """SIGSTOP; the instant of it."""
        at_ns = boottime_ns()
        believer.process.send_signal(signal.SIGSTOP)
        believer.stopped = True
        return at_ns

    def resume(self, believer: Believer) -> int:
        """SIGCONT; the instant of it."""
        at_ns = boottime_ns()
        believer.process.send_signal(signal.SIGCONT)
        believer.stopped = False
        return at_ns

    async def terminate(self, believer: Believer, seconds: float = 15.0) -> int:
        """SIGTERM, and wait for its end; the instant of the signal."""
        at_ns = boottime_ns()
        believer.process.terminate()
        self.running.remove(believer)
        deadline = time.monotonic() + seconds
        while believer.process.poll() is None:
            if time.monotonic() > deadline:
                believer.process.kill()
                believer.process.wait()
                raise AssertionError(f"{believer.identity} did not end within {seconds} s of SIGTERM:\n{self.tail()}")
            await asyncio.sleep(0.02)
        assert believer.process.returncode == 0, f"{believer.identity} ended badly:\n{self.tail(believer)}"
        return at_ns

    def stop(self) -> None:
        """End whatever still runs."""
        for believer in self.running:
            believer.process.kill()  # a process that is stopped dies of it too
        for believer in self.running:
            believer.process.wait()
        self.running.clear()

    def leaders(self) -> list[Believer]:
        """Those whose newest line says that they lead, the line being fresh and they not being stopped."""
        now = boottime_ns()
        return [
            believer
            for believer in self.running
            if not believer.stopped
            and (last := believer.last()) is not None
            and last.leading
            and now - last.after_ns < _FRESH_NS
        ]

    async def settled(self, seconds: float = 30.0, *, other_than: Believer | None = None) -> Believer:
        """The leader, once every process that is not stopped has joined and one of them leads."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for believer in self.running:
                assert believer.process.poll() is None, f"{believer.identity} ended:\n{self.tail(believer)}"
            joined = all(believer.last() is not None for believer in self.running if not believer.stopped)
            leaders = [believer for believer in self.leaders() if believer is not other_than]
            if joined and len(leaders) == 1:
                return leaders[0]
            await asyncio.sleep(0.02)
        raise AssertionError(f"no leader, or not all joined, within {seconds} s:\n{self.tail()}")

    def programs_verdict(self) -> Verdict:
        """The same of the programs that `lab.supervised` runs."""
        logs = [log.with_name(f"{log.name}.program") for log in self.logs]
        return judge_logs([log for log in logs if log.exists()])

    def verdict(self, events_ns: Sequence[int] = ()) -> Verdict:
        try:
            return judge_logs([log for log in self.logs if log.exists()], events_ns)
        except Unjudgeable as failure:
            raise AssertionError(f"{failure}\n{self.tail()}") from failure

    def tail(self, *believers: Believer, characters: int = 1500) -> str:
        """What they said last, for the message of a failure."""
        said = []
        for believer in believers or self.running:
            text = believer.output.read_text(errors="replace") if believer.output.exists() else "(nothing)"
            said.append(f"--- {believer.identity}, last line {believer.last()}\n{text[-characters:]}")
        return "\n".join(said)

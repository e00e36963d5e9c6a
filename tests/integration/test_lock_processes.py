"""Holders of a lock as real processes, killed and stopped at random; a separate program judges their logs alone.

The figures are printed (`pytest -s`) and kept in .reports/locks.json.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lab.believer import boottime_ns
from lab.lock_judge import read_waits
from lab.process import spawn
from tests.trials import sized

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / ".reports" / "locks.json"
TTL = 2.0
POLL = 0.25
"""A tenth of the ttl, and its jitter."""
BOUND = TTL * 1.01 + 0.1 + POLL
REQUESTS = 1.5
"""What two cores with more than twenty processes on them may take for the last look and the last write."""

pytestmark = [pytest.mark.slow, pytest.mark.clock]


class Holders:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.running: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.logs: list[Path] = []
        self.waits: list[Path] = []
        self._numbers = itertools.count(1)

    def start(self, *options: str) -> None:
        number = next(self._numbers)
        log, waits, output = (self.folder / f"h{number}.{kind}" for kind in ("log", "waits", "out"))
        command = [
            *(sys.executable, "-m", "lab.lock_holder", self.url, "--owner", f"h{number}", "--log", str(log)),
            *("--waits", str(waits), "--ttl", str(TTL), "--seed", str(number), *options),
        ]
        self.running.append((spawn(command, output, cwd=ROOT), waits))
        self.logs.append(log)
        self.waits.append(waits)

    def acquired(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self.waits if path.exists())

    def holder(self) -> subprocess.Popen[bytes] | None:
        """Who got it last, and may hold it still."""
        newest = [
            (acquisitions[-1].token, process)
            for process, waits in self.running
            if waits.exists() and (acquisitions := read_waits(waits.read_text()))
        ]
        return max(newest, key=lambda each: each[0])[1] if newest else None

    def kill(self, process: subprocess.Popen[bytes]) -> int:
        at_ns = boottime_ns()
        process.kill()
        process.wait()
        self.running = [each for each in self.running if each[0] is not process]
        return at_ns

    async def stop(self) -> None:
        for process, _ in self.running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + 30
        while any(process.poll() is None for process, _ in self.running) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        self.end()

    def end(self) -> None:
        for process, _ in self.running:
            process.kill()
            process.wait()
        self.running = []

    def tail(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-300:] for path in sorted(self.folder.glob("*.out")))

    def judged(self, killed_ns: Sequence[int] = ()) -> tuple[int, dict[str, Any]]:
        """The judge is a program of its own."""
        logs = [str(log) for log in self.logs if log.exists()]
        waits = [part for path in self.waits if path.exists() for part in ("--waits", str(path))]
        killed = [part for at_ns in killed_ns for part in ("--killed", str(at_ns))]
        done = subprocess.run(
            [sys.executable, "-m", "lab.lock_judge", *logs, *waits, *killed],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        verdict: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, verdict


def record(what: str, kind: str, **figures: Any) -> None:
    print(f"\n{what}, {kind}: {json.dumps(figures)}")
    REPORT.parent.mkdir(exist_ok=True)
    kept: dict[str, Any] = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    kept.setdefault(what, {})[kind] = figures
    REPORT.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


@pytest.mark.req("DB-4", "EF-9")
@sized("acquisitions, least", (100, 1), (500, 5))
async def test_twenty_processes_killed_and_stopped(
    kind: str, acquisitions: int, least: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    holders, dice = Holders(url_of(kind), tmp_path), Random(7)
    kills = stops = 0
    try:
        for _ in range(20):
            holders.start()
        await waited(lambda: holders.acquired() >= 5, 60, holders)
        deadline = time.monotonic() + 400
        while holders.acquired() < acquisitions or min(kills, stops) < least:
            assert time.monotonic() < deadline, f"only {holders.acquired()} acquisitions\n{holders.tail()}"
            await asyncio.sleep(dice.uniform(1.0, 5.0))
            victim = holders.holder() if dice.random() < 0.7 else dice.choice(holders.running)[0]
            if victim is None:
                continue
            if dice.random() < 0.4:
                holders.kill(victim)
                holders.start()
                kills += 1
            else:
                victim.send_signal(signal.SIGSTOP)
                stops += 1
                asyncio.get_running_loop().call_later(dice.uniform(0.05, 2.5) * TTL, resume, victim)
        await holders.stop()
    finally:
        holders.end()
    code, verdict = holders.judged()
    waits = verdict["waits"]
    record("contention", kind, kills=kills, stops=stops, acquisitions=verdict["acquisitions"], waits=waits)
    assert code == 0, {name: verdict[name] for name in verdict["violations"]}
    assert verdict["acquisitions"] >= acquisitions
    assert verdict["grants"] >= acquisitions // 2, "the logs are too thin to be judged by"
    # Of a few that were stopped, none may have held it.
    assert stops < 20 or verdict["longest_silence"] > TTL / 2, "nobody was stopped while it held the lock"


def resume(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)


async def waited(condition: Callable[[], bool], seconds: float, holders: Holders) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, holders.tail()
        await asyncio.sleep(0.02)


@pytest.mark.req("DB-4")
@sized("trials", (4,), (10,))
async def test_takeover_from_a_killed_holder(
    kind: str, trials: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    holders, dice = Holders(url_of(kind), tmp_path), Random(11)
    killed = []
    try:
        for _ in range(4):
            holders.start("--hold", "600")
        for trial in range(trials):
            await waited(lambda trial=trial: holders.acquired() > trial, 60, holders)  # type: ignore[misc]
            await asyncio.sleep(TTL / 3 + dice.uniform(0, TTL))
            victim = holders.holder()
            assert victim is not None
            killed.append(holders.kill(victim))
            holders.start("--hold", "600")
        await waited(lambda: holders.acquired() > trials, 60, holders)
        await asyncio.sleep(0.3)
    finally:
        holders.end()
    code, verdict = holders.judged(killed)
    seconds = [reaction["seconds"] for reaction in verdict["takeovers"]]
    record("takeover", kind, trials=len(seconds), seconds=[round(each, 2) for each in seconds], bound=round(BOUND, 2))
    assert code == 0, {name: verdict[name] for name in verdict["violations"]}
    assert len(seconds) == trials
    assert None not in seconds
    assert max(seconds) <= BOUND + REQUESTS


async def test_a_holder_that_believes_on_is_found_out(url_of: Callable[[str], str], tmp_path: Path) -> None:
    """That the judge finds no overlap above means something only because it would have found this one."""
    holders = Holders(url_of("directory"), tmp_path)
    try:
        for _ in range(3):
            holders.start("--break", "--hold", "8")
        await waited(lambda: holders.acquired() >= 1, 60, holders)
        victim = holders.holder()
        assert victim is not None
        await asyncio.sleep(0.5)
        victim.send_signal(signal.SIGSTOP)
        await asyncio.sleep(BOUND + REQUESTS)
        victim.send_signal(signal.SIGCONT)
        await asyncio.sleep(1.5)
    finally:
        holders.end()
    code, verdict = holders.judged()
    assert code == 1
    assert "overlaps" in verdict["violations"]

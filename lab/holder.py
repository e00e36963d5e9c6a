"""A process that holds a lease, renews it, and runs a command under it. It is made to be frozen and killed.

    python -m lab.holder GRANTS LEASE_SECONDS|never [parent-only] [fork] -- PROGRAM [ARGUMENT ...]

Each end of the lease that it ever believed in is appended to GRANTS, in nanoseconds of CLOCK_BOOTTIME, before anybody
else hears of it. `fork` forks a copy of this process that sleeps. `parent-only` is the broken variant: the command is
run without a watchdog, and this process kills it, punctually, for as long as it lives and runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

from tenure.plugins.supervisor.child import Command
from tenure.plugins.supervisor.command import CommandProcess


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Lease:
    """Renewed from a thread of its own, six times per lease."""

    def __init__(self, seconds: float, grants: Path) -> None:
        self._seconds = seconds
        self._file = os.open(grants, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._until_ns = 0
        self.renew()
        threading.Thread(target=self._run, daemon=True).start()

    def left(self) -> float:
        return (self._until_ns - boottime_ns()) / 1e9

    def renew(self) -> None:
        until_ns = boottime_ns() + int(self._seconds * 1e9)
        os.write(self._file, f"{until_ns}\n".encode())
        self._until_ns = until_ns

    def _run(self) -> None:
        while True:
            time.sleep(self._seconds / 6)
            self.renew()


async def run(lease: Lease | None, argv: list[str]) -> None:
    process = CommandProcess()
    # Standard output is for this program, whose reader waits for its end.
    await process.start(Command(*argv), env={}, deadline=lease.left if lease else lambda: float("inf"), stdout=2)
    print("started", flush=True)
    print(await process.wait(), process.end, flush=True)


async def run_parent_only(lease: Lease, argv: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(*argv, stdout=2, start_new_session=True)
    print("started", flush=True)
    while lease.left() > 0.3:
        await asyncio.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    print(await process.wait(), flush=True)


def main(grants: str, seconds: str, *words: str) -> None:
    options, argv = words[: words.index("--")], list(words[words.index("--") + 1 :])
    lease = Lease(float(seconds), Path(grants)) if seconds != "never" else None
    if "fork" in options:
        threading.Timer(1.0, fork_a_sleeper).start()
    if "parent-only" in options:
        assert lease is not None
        asyncio.run(run_parent_only(lease, argv))
    else:
        asyncio.run(run(lease, argv))


def fork_a_sleeper() -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    print(f"forked {pid}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

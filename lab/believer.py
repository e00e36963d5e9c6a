"""A process that joins an election and notes a hundred times a second whether it believes that it leads.

    python -m lab.believer URL --worker-id ID --log FILE

`lab.judge` says what a line of the log means, and judges it. The asking is done by a thread of its own, so that belief
is noted also while event loops are busy. SIGTERM ends the process gracefully: the handler is this program's, tenure has
none. On standard output it says what happens, a JSON object to a line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tenure import CoordinatorConfig, Database, GlobalCoordinatorService, Lead

PERIOD = 0.010
_ASKED_AGAIN = 10


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Belief:
    """Asks one coordinator whether it leads, and under which epoch."""

    def __init__(self, coordinator: GlobalCoordinatorService, worker_id: str) -> None:
        self._coordinator = coordinator
        self.process = f"{worker_id}:{os.getpid()}"
        self.lead: Lead | None = None
        """The newest. `coordinator.lead` is None once it does not lead, and the lease is held for longer."""

    def ask(self) -> tuple[int, int, bool, bool]:
        """Before, after, leading, holding: all of one Lead.

        A Lead that came or went while it was asked would give an epoch that is not the answer's; then it is asked
        again.
        """
        for _ in range(_ASKED_AGAIN):
            before_ns = boottime_ns()
            lead = self._coordinator.lead
            self.lead = lead if lead is not None else self.lead
            holding = self.lead is not None and self.lead.holds()
            leading = self._coordinator.is_leader()
            after_ns = boottime_ns()
            if self._coordinator.lead is lead:
                break
        return before_ns, after_ns, leading is True, holding is True

    def line(self, before_ns: int, after_ns: int, leading: bool, holding: bool) -> str:
        epoch = self.lead.epoch if self.lead is not None and (leading or holding) else 0
        return f"{before_ns} {after_ns} {self.process} {epoch} {leading:d} {holding:d}\n"


class BeliefLog:
    """Asks `coordinator` every 10 ms, from a thread of its own, and appends the answers to `path`."""

    def __init__(self, coordinator: GlobalCoordinatorService, worker_id: str, path: Path) -> None:
        self._belief = Belief(coordinator, worker_id)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="belief-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        os.close(self._file)

    def _run(self) -> None:
        while True:
            line = self._belief.line(*self._belief.ask())
            os.write(self._file, line.encode())  # one call, so that a line is there whole or not at all
            if self._ended.wait(PERIOD):
                return


def sleep(seconds: Any, /) -> None:
    """libfaketime does not know the clock_nanosleep by which Python sleeps, and makes every time.sleep fail."""
    select.select([], [], [], seconds)


def say(what: str, **fields: object) -> None:
    os.write(1, json.dumps({"said": what, "boottime_ns": boottime_ns(), **fields}, default=repr).encode() + b"\n")


async def flag_not_deadline(coordinator: Any) -> None:
    """Broken on purpose: `is_leader()` gives a flag, and compares no clock itself.

    The flag follows the truth by way of a task that looks every quarter of a second and takes a tenth to tell. It is
    right nearly always; but a process that was stopped goes on believing, for that tenth, what it believed before.
    """
    service = type(coordinator)
    honest: Callable[[Any], bool] = service.is_leader
    flag = False
    service.is_leader = lambda self, worker_id=None: flag
    while True:
        seen = honest(coordinator)
        await asyncio.sleep(0.1)
        flag = seen
        await asyncio.sleep(0.25)


BREAKS = {"flag-not-deadline": flag_not_deadline}


async def believe(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    settings = {name: json.loads(value) for name, _, value in (text.partition("=") for text in arguments.set)}
    preset = CoordinatorConfig.fast if arguments.preset == "fast" else CoordinatorConfig.standard
    config = preset(**{"startup_jitter_max": 0, **settings})
    database = Database(arguments.url, worker_id=arguments.worker_id)
    async with database:
        coordinator = await database.get_global_coordinator(arguments.namespace, config=config)
        coordinator.on("*", lambda event: say(event.name, **msgspec.structs.asdict(event)))
        broken = asyncio.create_task(BREAKS[arguments.broken](coordinator)) if arguments.broken else None
        await coordinator.start()
        log = BeliefLog(coordinator, arguments.worker_id, arguments.log)
        log.start()
        say("joined", worker=arguments.worker_id, pid=os.getpid())
        await ended.wait()
        say("stopping")
        if broken:
            broken.cancel()
        await coordinator.stop()
        say("stopped")
        await asyncio.sleep(10 * PERIOD)
        log.stop()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.believer", description="Join an election and note belief.")
    parser.add_argument("url")
    parser.add_argument("--worker-id", required=True)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--preset", choices=("fast", "standard"), default="fast")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a setting of the config")
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS), help="be wrong in this way")
    return parser.parse_args()


if __name__ == "__main__":
    if "libfaketime" in os.environ.get("LD_PRELOAD", ""):
        time.sleep = sleep
    try:
        asyncio.run(believe(parse_arguments()))
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

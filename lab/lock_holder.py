"""A process that takes one lock again and again, and notes while it holds it whether it believes that it does.

    python -m lab.lock_holder URL --owner ID --log FILE --waits FILE

The log is that of `lab.believer`, with the token in the place of the epoch: a line a hundred times a second while it
has a `Held`, from a thread of its own, and one at the first and at the last instant of each body. `lab.lock_judge`
judges it. Each line of the waits is `asked_ns got_ns token`. SIGTERM ends it after the lock in hand.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from random import Random

from lab.believer import PERIOD, boottime_ns, say
from tenure.coordinator.lock import DistributedLock, Held
from tenure.errors import LockLost, LockNotAnswered, LockTimeout
from tenure.store import Metered, open_store


class HoldingLog:
    """One line for each question, in the order of asking, whoever asks."""

    def __init__(self, owner: str, path: Path, broken: bool) -> None:
        self._process = f"{owner}:{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._turn = threading.Lock()
        self._broken = broken
        self.held: Held | None = None
        threading.Thread(target=self._run, name="holding-log", daemon=True).start()

    def note(self) -> None:
        with self._turn:
            held = self.held
            if held is None:
                return
            before_ns = boottime_ns()
            entitled = held.time_to_wind_up() > 0
            believing = held.ended != "released" if self._broken else held.is_held()
            after_ns = boottime_ns()
            token = held.token if believing or entitled else 0
            line = f"{before_ns} {after_ns} {self._process} {token} {believing:d} {entitled or believing:d}\n"
            os.write(self._file, line.encode())

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self.note()
            pause.wait(PERIOD)


async def hold_again_and_again(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    dice = Random(arguments.seed)
    store = Metered(await open_store(arguments.url))
    lock = DistributedLock(store, arguments.name, ttl=arguments.ttl, owner=arguments.owner)
    log = HoldingLog(arguments.owner, arguments.log, arguments.broken)
    waits = os.open(arguments.waits, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    say("joined", owner=arguments.owner, pid=os.getpid())
    asked_ns = boottime_ns()
    while not ended.is_set():
        try:
            held = await lock.acquire(timeout=5.0)
        except (LockTimeout, LockNotAnswered):
            continue  # so that SIGTERM is seen; the watch goes on, and so does the wait
        got_ns = boottime_ns()
        log.held = held
        log.note()
        os.write(waits, f"{asked_ns} {got_ns} {held.token}\n".encode())
        hold = arguments.hold or dice.choice((0.0, 0.02, 0.05, 0.3, 0.4 * arguments.ttl))
        until_ns = boottime_ns() + int(hold * 1e9)
        try:
            while boottime_ns() < until_ns and not ended.is_set():
                if not arguments.broken:
                    held.ensure()
                await asyncio.sleep(0.01)
        except LockLost:
            say("lost", token=held.token)
        log.note()
        log.held = None
        await held.release()
        await asyncio.sleep(dice.uniform(0.0, 0.1))
        asked_ns = boottime_ns()
    await lock.aclose()
    say("stopped", requests=store.usage().requests)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.lock_holder", description="Take a lock and note belief.")
    parser.add_argument("url")
    parser.add_argument("--owner", required=True)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--waits", required=True, type=Path)
    parser.add_argument("--name", default="job")
    parser.add_argument("--ttl", type=float, default=2.0)
    parser.add_argument("--hold", type=float, default=0.0, help="seconds; 0: now long, now short")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="broken", action="store_true", help="believe until it is released")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(hold_again_and_again(parse_arguments()))
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

"""A node with a supervised service: an async child and a program, each noting a hundred times a second that it runs.

    python -m lab.supervised URL --worker-id ID --log FILE

The child's own code writes its lines to FILE, those of the program are in FILE.program; `lab.judge` judges either.
While the child does not run, a line now and then says so. SIGTERM ends the node gracefully.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from lab.believer import PERIOD, boottime_ns, say
from tenure import Database
from tenure.plugins.supervisor.candidate import CoordinatorCandidate
from tenure.plugins.supervisor.child import Child, Command, Context

_IDLE_PERIOD = 0.05
_STALL_NS = 500_000_000


class Service:
    def __init__(self, worker_id: str, path: Path) -> None:
        self._process = f"{worker_id}:{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._running = False

    async def run(self, context: Context) -> None:
        self._running = True
        last = boottime_ns()
        try:
            while True:
                # A process may be frozen between the check of the lease before a step of this coroutine and the line
                # below, which is then written when it thaws. The next step is checked again, and is noted.
                last, stalled = boottime_ns(), boottime_ns() - last > _STALL_NS
                if not stalled:
                    self._note(context.epoch, last)
                await asyncio.sleep(PERIOD)
        finally:
            self._running = False
            say("child-ended", token=context.token)

    async def note_idleness(self) -> None:
        while True:
            if not self._running:
                self._note(0, boottime_ns())
            await asyncio.sleep(_IDLE_PERIOD)

    def _note(self, epoch: int, now: int) -> None:
        runs = int(epoch > 0)
        os.write(self._file, f"{now} {now} {self._process} {epoch} {runs} {runs}\n".encode())


async def serve(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    service = Service(arguments.worker_id, arguments.log)
    ticker = str(Path(__file__).with_name("ticker.py"))
    stubborn = ("--stubborn",) if arguments.stubborn else ()
    children = [
        Child("service", service.run),
        Child("program", Command(sys.executable, "-S", ticker, f"{arguments.log}.program", *stubborn)),
    ]
    async with Database(arguments.url, worker_id=arguments.worker_id) as database:
        candidate = CoordinatorCandidate(children, namespace=arguments.namespace)
        candidate.on("*", lambda event: say(event.name, **msgspec.structs.asdict(event)))
        await database.use_plugin(candidate)
        idle = asyncio.create_task(service.note_idleness())
        say("joined", worker=arguments.worker_id, pid=os.getpid())
        await ended.wait()
        say("stopping")
        await candidate.stop()
        say("stopped")
        idle.cancel()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.supervised", description="Stand, and run two children.")
    parser.add_argument("url")
    parser.add_argument("--worker-id", required=True)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--namespace", default="coordinator")
    parser.add_argument("--stubborn", action="store_true", help="the program ignores SIGTERM")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(serve(parse_arguments()))
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

"""A process with a schedule of many jobs, of which each run is noted.

    python -m lab.schedule_node URL --worker-id ID --log FILE --end SECONDS

Each line of the log is one `write` to a file of its own, opened to append:

    began BOOTTIME_NS PROCESS JOB SCHEDULED_MS TOKEN ATTEMPT     its function was called
    ended BOOTTIME_NS PROCESS JOB SCHEDULED_MS TOKEN HOW         `ok`, `raised` or `cancelled`

PROCESS is `worker:pid`. `lab.schedule_judge` judges it, together with the log in the bucket. SIGTERM ends the process
gracefully. With `--command LOG` it has one job instead: `lab/ticker.py`, a program that notes that it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import zlib
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from lab.believer import boottime_ns, say
from lab.pace import config
from tenure import Database
from tenure.ledger import LedgerConfig
from tenure.plugins.scheduler import Interrupted, Misfire, Overlap, Run, SchedulerPlugin, every
from tenure.plugins.scheduler.job import JobOptions

SCHEDULE = "scheduler"
GRACE = 1.0
"""Seconds: most of what becomes due while nobody leads is late, and what a leader decides is hardly ever."""
KEPT = LedgerConfig(trim_delay=3600.0)
"""The log stays whole, so that it can be judged from its beginning."""
HOLD = 0.15
LONG_HOLD = 1.5
COMMAND_SECONDS = 30
TICKER = Path(__file__).parent / "ticker.py"


def options_of(number: int, end: datetime) -> JobOptions:
    """Half of the jobs fire all that is late, the others one of it, or none; every policy has some jobs."""
    misfire = Misfire.FIRE_ALL if number % 2 == 0 else (Misfire.FIRE_ONCE if number % 4 == 1 else Misfire.SKIP)
    overlap = (Overlap.SKIP, Overlap.SKIP, Overlap.QUEUE_ONE, Overlap.ALLOW)[number // 2 % 4]
    return {
        "end": end,
        "misfire": misfire,
        "misfire_grace": GRACE,
        "overlap": overlap,
        "interrupted": Interrupted.ABANDON if number % 5 == 3 else Interrupted.RERUN,
        "retries": 1 if number % 3 == 0 else 0,
        "backoff": 0.2,
        "history": 10_000,
    }


def takes_long(job: str) -> bool:
    """Two in ten take longer than a second: whenever a leader is killed, some of them run."""
    return job[-1] in "78"


def fails(job: str, scheduled_ms: int, attempt: int) -> bool:
    """One in thirty raises, the same in whichever process; in a further attempt it does not."""
    return attempt == 1 and zlib.crc32(f"{job}@{scheduled_ms}".encode()) % 30 == 0


class RunLog:
    def __init__(self, worker_id: str, path: Path) -> None:
        self._process = f"{worker_id}:{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, what: str, run: Run, last: object) -> None:
        scheduled_ms = round(run.scheduled.timestamp() * 1000)
        line = f"{what} {boottime_ns()} {self._process} {run.job} {scheduled_ms} {run.token} {last}\n"
        os.write(self._file, line.encode())  # one call, so that a line is there whole or not at all


def declare_many(scheduler: SchedulerPlugin, log: RunLog, dice: Random, jobs: int, end: datetime) -> None:
    async def work(run: Run) -> None:
        log.write("began", run, run.attempt)
        how = "cancelled"
        try:
            await asyncio.sleep(LONG_HOLD if takes_long(run.job) else dice.uniform(0.0, 2 * HOLD))
            if fails(run.job, round(run.scheduled.timestamp() * 1000), run.attempt):
                how = "raised"
                raise RuntimeError("as it was told to")
            how = "ok"
        finally:
            log.write("ended", run, how)

    for number in range(jobs):
        scheduler.job(every(1), id=f"j{number:02}", **options_of(number, end))(work)


def declare_command(scheduler: SchedulerPlugin, ticks: Path) -> None:
    command = (sys.executable, "-S", str(TICKER), str(ticks))
    scheduler.declare("ticker", every(1), command=command, timeout=COMMAND_SECONDS, history=10_000)


async def serve(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    scheduler = SchedulerPlugin(config=config(), ledger=KEPT)
    if arguments.command is not None:
        os.environ["TENURE_WORKER_ID"] = arguments.worker_id  # for the program's own lines
        declare_command(scheduler, arguments.command)
    else:
        log = RunLog(arguments.worker_id, arguments.log)
        end = datetime.fromtimestamp(arguments.end, UTC)
        declare_many(scheduler, log, Random(arguments.worker_id), arguments.jobs, end)
    async with Database(arguments.url, worker_id=arguments.worker_id) as database:
        await database.use_plugin(scheduler)
        for event in ("leading", "halted", "not-led", "job-unknown", "run-left-behind"):
            scheduler.on(f"plg:scheduler:{event}", lambda told: say(told.name.rpartition(":")[2], told=repr(told)))
        say("joined", worker=arguments.worker_id, pid=os.getpid())
        await ended.wait()
        say("stopping")
    say("stopped")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.schedule_node", description="Run jobs and note it.")
    parser.add_argument("url")
    parser.add_argument("--worker-id", required=True)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--end", type=float, default=4e9, metavar="SECONDS", help="of the jobs, since 1970")
    parser.add_argument("--command", type=Path, metavar="LOG", help="one job, that is a program, instead")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(serve(parse_arguments()))
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

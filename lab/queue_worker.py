"""A process that handles the messages of a queue, and notes each handling.

    python -m lab.queue_worker URL --worker-id ID --log FILE

Each line of the log is one `write` to a file of its own, opened to append:

    began BOOTTIME_NS PROCESS BODY ID PLACE TOKEN ATTEMPT     its handler was called
    ended BOOTTIME_NS PROCESS BODY ID TOKEN REMAINING_MS      its handler has returned
    acked BOOTTIME_NS PROCESS TOKEN PLACES                    a report on these was durable, in time
    late BOOTTIME_NS PROCESS LATE LOST                        so many reports came too late, or not at all, so far

PROCESS is `worker:pid`, PLACE `segment:index`, and PLACES are `segment:low:high` with commas between. `lab.queue_judge`
judges it. A body is text: `producer:number:key`, or `producer:number:key:seconds` for one whose first handling takes so
long. SIGTERM ends the process gracefully.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

from lab.believer import boottime_ns, say
from lab.pace import config
from tenure import Database
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.queue.hand import Hand
from tenure.plugins.queue.wire import Outcome, Piece

QUEUE = "jobs"
SETTINGS: dict[str, Any] = {"visibility_timeout": 5.0, "margin": 3.0, "max_attempts": 100}
"""Killed again and again, nothing is to become a dead letter: then it would not be handled."""
_LOOK = 0.1


class HandlingLog:
    def __init__(self, worker_id: str, path: Path) -> None:
        self._process = f"{worker_id}:{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, what: str, *fields: object) -> None:
        line = " ".join([what, str(boottime_ns()), self._process, *map(str, fields)])
        os.write(self._file, line.encode() + b"\n")  # one call, so that a line is there whole or not at all

    def began(self, message: Message) -> None:
        place = f"{message.ref_segment}:{message.index}"
        self.write("began", message.body, message.id, place, message.token, message.attempt)

    def ended(self, message: Message) -> None:
        self.write("ended", message.body, message.id, message.token, round(message.remaining() * 1000))

    def acked(self, hand: Hand, outcome: Outcome) -> None:
        pieces = outcome.done
        if outcome.all_done:
            pieces = [Piece(run.segment, run.low, run.high) for run in hand.runs]
        if pieces:
            self.write("acked", hand.token, ",".join(f"{each.segment}:{each.low}:{each.high}" for each in pieces))


def seconds_of(body: str) -> float:
    fields = body.split(":")
    return float(fields[3]) if len(fields) > 3 else 0.0


async def note_lateness(queue: S3QueuePlugin, log: HandlingLog) -> None:
    before = (0, 0)
    while True:
        worker = queue.worker
        now = (worker.counts["late"], worker.counts["reports_lost"]) if worker is not None else before
        if now != before:
            log.write("late", *now)
            before = now
        await asyncio.sleep(_LOOK)


async def work(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    settings = {**SETTINGS, **{name: json.loads(text) for name, _, text in (s.partition("=") for s in arguments.set)}}
    log = HandlingLog(arguments.worker_id, arguments.log)
    dice = Random(arguments.worker_id)
    queue = S3QueuePlugin(resource=QUEUE, config=config(), shutdown_timeout=arguments.shutdown, **settings)
    queue.acked = log.acked

    async def handle(message: Message) -> None:
        log.began(message)
        seconds = seconds_of(message.body) if message.attempt == 1 else 0.0
        await asyncio.sleep(seconds or dice.uniform(0.0, 2 * arguments.hold))
        log.ended(message)

    queue.on_message(handle, concurrency=arguments.concurrency)
    async with Database(arguments.url, worker_id=arguments.worker_id) as database:
        await database.use_plugin(queue)
        for event in ("leading", "halted", "tickets-lapsed", "messages-dead"):
            queue.on(f"plg:s3-queue:{event}", lambda told: say(told.name.rpartition(":")[2], told=repr(told)))
        watching = asyncio.create_task(note_lateness(queue, log))
        say("joined", worker=arguments.worker_id, pid=os.getpid())
        await ended.wait()
        say("stopping")
        await asyncio.sleep(0)
    watching.cancel()
    say("stopped")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.queue_worker", description="Handle messages and note it.")
    parser.add_argument("url")
    parser.add_argument("--worker-id", required=True)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--hold", type=float, default=0.01, help="seconds that a handling takes, on average")
    parser.add_argument("--shutdown", type=float, default=10.0, help="seconds to finish in on SIGTERM")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a setting of the queue")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(work(parse_arguments()))
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

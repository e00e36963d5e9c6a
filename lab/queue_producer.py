"""A process that enqueues, and notes what it was told.

    python -m lab.queue_producer URL --name p1 --log FILE --count 20000 --call 50 --rate 300

Each line of the log is one `write` to a file opened to append:

    sending BOOTTIME_NS PROCESS BODY...     `enqueue_many` is called with these
    accepted BOOTTIME_NS PROCESS BODY...    it has returned
    unknown BOOTTIME_NS PROCESS ERROR       it has raised

A fourth of the messages have one of a few ordering keys (`--keys`). A producer that is started again goes on after the
last number that is in its log: whatever it was not told about is not sent again. With `--up-to FILE` it sends no number
above the one that the file holds: whoever writes there keeps it from running away from those who handle.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from lab.believer import boottime_ns, say
from lab.pace import config
from lab.queue_worker import QUEUE
from tenure import Database
from tenure.errors import TenureError
from tenure.ledger import LedgerConfig
from tenure.plugins.queue import Outgoing, S3QueuePlugin

SMALL = 1024
_LOOK = 0.02


def body_of(name: str, number: int, keys: int, seconds: float = 0.0) -> str:
    """The key is a part of the body, so that whoever reads about the message knows it."""
    key = f"{name}k{number // 4 % keys}" if keys and number % 4 == 0 else "-"
    return f"{name}:{number}:{key}:{seconds:g}" if seconds else f"{name}:{number}:{key}"


def outgoing(body: str) -> Outgoing:
    key = body.split(":")[2]
    return Outgoing(body=body, ordering_key=None if key == "-" else key)


def allowed(path: Path) -> int:
    """The number in the file; 0 if there is none yet."""
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


async def produce(arguments: argparse.Namespace) -> None:
    log, process = arguments.log, f"{arguments.name}:{os.getpid()}"
    number = 1
    if log.exists():
        sent = [line.split(" ") for line in log.read_text().split("\n")[:-1] if line.startswith("sending ")]
        number = 1 + max((int(body.split(":")[1]) for line in sent for body in line[3:]), default=0)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(what: str, *fields: str) -> None:
        os.write(file, " ".join([what, str(boottime_ns()), process, *fields]).encode() + b"\n")

    async with Database(arguments.url, worker_id=arguments.name) as database:
        ledger = LedgerConfig(batch_bytes=SMALL, in_flight=1) if arguments.small_writes else LedgerConfig()
        queue = S3QueuePlugin(resource=QUEUE, config=config(), ledger=ledger, producer_only=True)
        await database.use_plugin(queue)
        say("joined", producer=arguments.name)
        loop = asyncio.get_running_loop()
        began, first = loop.time(), number
        while number <= arguments.count:
            while arguments.up_to is not None and number + arguments.call > allowed(arguments.up_to):
                await asyncio.sleep(_LOOK)
            numbers = range(number, min(number + arguments.call, arguments.count + 1))
            bodies = [body_of(arguments.name, each, arguments.keys, arguments.seconds) for each in numbers]
            number = numbers.stop
            note("sending", *bodies)
            try:
                ids = await queue.enqueue_many(map(outgoing, bodies))
            except TenureError as error:
                note("unknown", f"{type(error).__name__}:{error}".replace(" ", "_"))
            else:
                assert len(ids) == len(bodies)
                note("accepted", *bodies)
            if arguments.rate:
                await asyncio.sleep(max(0.0, began + (number - first) / arguments.rate - loop.time()))
    say("stopped")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.queue_producer", description="Enqueue and note it.")
    parser.add_argument("url")
    parser.add_argument("--name", required=True)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--count", type=int, required=True, help="the last number")
    parser.add_argument("--call", type=int, default=50, help="messages in one call")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0: as many as it can")
    parser.add_argument("--up-to", type=Path, metavar="FILE", help="no number above the one in it; without it, any")
    parser.add_argument("--keys", type=int, default=8, help="ordering keys; 0: none")
    parser.add_argument("--small-writes", action="store_true", help="one after the other: a call takes many")
    parser.add_argument("--seconds", type=float, default=0.0, help="for which each is first handled")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(produce(parse_arguments()))
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

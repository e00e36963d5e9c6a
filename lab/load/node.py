"""A process with many coordinators: each with a worker id, a database and a queue of its own.

    python -m lab.load.node URL --node 0 --stem FILE --plan PLAN.json

They share nothing but the process: what one knows the others learn from the bucket. Its files are `STEM.belief` and
`STEM.beats` (`lab.load.watch`), and for each that handles messages `STEM.WORKER.handled` (`lab.queue_worker`). SIGTERM
ends it gracefully. `--broken` in the plan makes it misbehave in one way, so that whoever judges can be seen to notice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from lab.believer import say
from lab.load.plan import Plan
from lab.load.watch import Member, Watch
from lab.queue_worker import QUEUE, HandlingLog, note_lateness
from tenure import Database
from tenure.coordinator.fleet import Fleet
from tenure.election.decide import Rules
from tenure.errors import StoreError
from tenure.plugins.queue import Message, S3QueuePlugin

BROKEN = {
    "slow-heartbeats": "every heartbeat takes a third of the lease, and a second more",
    "impatient": "whoever follows waits for a sixth of the lease, and takes over then",
    "falls-silent": "every tenth coordinator that handles nothing leaves some seconds after it has joined",
    "acks-unhandled": "every fiftieth message is acknowledged and not handled",
}
OPENED_AT_ONCE = 5
"""Opening tries the store out: fifty at once would wait for each other."""
OPENED_AGAIN = 10
"""Times, before it is given up."""
SILENT_AFTER = 10.0


def break_classes(plan: Plan) -> None:
    if "impatient" in plan.broken:
        Rules.lapses_after = lambda self, lease: lease / 6  # type: ignore[method-assign]
    if "slow-heartbeats" in plan.broken:
        beat: Any = Fleet.beat

        async def slowly(self: Fleet, **facts: Any) -> None:
            await asyncio.sleep(plan.longest_p99 + 1)
            await beat(self, **facts)

        Fleet.beat = slowly  # type: ignore[method-assign]


class Node:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.url: str = arguments.url
        self.index: int = arguments.node
        self.stem: Path = arguments.stem
        self.plan = msgspec.json.decode(arguments.plan.read_bytes(), type=Plan)
        self.watch = Watch(self.stem)
        self.tasks: set[asyncio.Task[None]] = set()

    def keep(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def queue(self, name: str) -> S3QueuePlugin:
        queue = S3QueuePlugin(resource=QUEUE, config=self.plan.config(), shutdown_timeout=5.0, **self.plan.queue())
        if name in self.plan.handling(self.index):
            self.handle(queue, name)
        return queue

    def handle(self, queue: S3QueuePlugin, name: str) -> None:
        log, dice, handled = HandlingLog(name, self.stem.with_suffix(f".{name}.handled")), Random(name), 0
        queue.acked = log.acked

        async def handle(message: Message) -> None:
            nonlocal handled
            handled += 1
            if "acks-unhandled" in self.plan.broken and handled % 50 == 0:
                return
            log.began(message)
            await asyncio.sleep(dice.uniform(0.0, 2 * self.plan.hold))
            log.ended(message)

        queue.on_message(handle, concurrency=self.plan.concurrency)
        self.keep(note_lateness(queue, log))

    async def open(self, name: str) -> Database:
        """A store that is too busy is asked again, as by a program that is started again when it could not start."""
        for left in reversed(range(OPENED_AGAIN)):
            database = Database(self.url, worker_id=name)
            try:
                await database.connect()
                queue = await database.use_plugin(self.queue(name))
            except StoreError as error:
                await database.disconnect()
                say("not-opened", worker=name, error=str(error))
                if not left:
                    raise
            else:
                break
        for event in ("leading", "halted", "messages-dead"):
            queue.on(f"plg:s3-queue:{event}", lambda told: say(told.name.rpartition(":")[2], told=repr(told)))
        return database

    async def join(self, name: str, number: int, opening: asyncio.Semaphore) -> Database:
        async with opening:
            database = await self.open(name)
        coordinator = await database.get_global_coordinator()
        self.watch.members.append(Member(database, coordinator, name))
        if "falls-silent" in self.plan.broken and number % 10 == 1 and name not in self.plan.handling(self.index):
            self.keep(self._fall_silent(coordinator))
        return database

    async def _fall_silent(self, coordinator: Any) -> None:
        await asyncio.sleep(SILENT_AFTER)
        await coordinator.stop()

    async def serve(self) -> None:
        break_classes(self.plan)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        opening = asyncio.Semaphore(OPENED_AT_ONCE)
        self.watch.start()
        names = self.plan.names(self.index)
        databases = await asyncio.gather(*(self.join(name, number, opening) for number, name in enumerate(names)))
        say("joined", coordinators=len(databases))
        await ended.wait()
        say("stopping")
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*(database.disconnect() for database in databases))
        self.watch.stop()
        say("stopped")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.load.node", description="Many coordinators in one process.")
    parser.add_argument("url")
    parser.add_argument("--node", type=int, required=True, help="the number of this process, from 0")
    parser.add_argument("--stem", type=Path, required=True, help="of its files")
    parser.add_argument("--plan", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(Node(parse_arguments()).serve())
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

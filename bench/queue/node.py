"""One process of ours: `python -m bench.queue.node producer|worker '{"url": …}'`. It obeys (`bench.queue.obey`)."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from bench.queue.marks import Marks, body_of
from bench.queue.obey import say
from tenure import CoordinatorConfig, Database
from tenure.plugins.queue import Message, Outgoing, S3QueuePlugin

QUEUE = "bench"


async def orders() -> Any:
    """Lines of the standard input, until it ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


class Process:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.marks = Marks(Path(options["marks"]))
        self.batch: int = options.get("batch", 10_000)
        self.dedup: bool = options.get("dedup", False)

    async def run(self, role: str) -> None:
        # Only how soon a process first looks for a leader differs from what comes by default.
        config = CoordinatorConfig(startup_jitter_max=0.0, worker_id=self.options.get("worker"))
        async with Database(self.options["url"], timeout=30.0) as db:
            queue = S3QueuePlugin(QUEUE, config=config, producer_only=role == "producer")
            await db.use_plugin(queue)
            if role == "worker" and self.options.get("handle", True):
                self.handle(queue)
            while role == "worker" and self.options.get("handle", True) and queue.worker is None:
                await asyncio.sleep(0.01)
            say(ready=True)
            async for order in orders():
                what = order.pop("do")
                if what == "look":
                    usage = db.usage()
                    requests = {verb: sum(outcomes.values()) for verb, outcomes in usage.requests.items()}
                    worker = queue.worker
                    say(
                        requests=requests,
                        bytes_sent=usage.bytes_sent,
                        bytes_received=usage.bytes_received,
                        leads=queue.is_leading,
                        counts=dict(worker.counts) if worker is not None else {},
                    )
                elif what == "stats":
                    stats = await queue.stats()
                    say(ready=stats.ready, inbox=stats.inbox, workers=stats.workers, done=stats.done, seq=stats.seq)
                elif what == "handle":
                    self.handle(queue)
                    say(ok=True)
                else:
                    began, count = await getattr(self, what)(queue, **order)
                    say(began=began, ended=time.monotonic(), count=count)

    def handle(self, queue: S3QueuePlugin) -> None:
        handled = self.marks.handled

        @queue.handler
        async def note(message: Message) -> None:
            handled(message.body["n"])

    async def many(self, queue: S3QueuePlugin, first: int, count: int) -> tuple[float, int]:
        began = time.monotonic()
        for start in range(first, first + count, self.batch):
            numbers = range(start, min(start + self.batch, first + count))
            if self.dedup:
                await queue.enqueue_many([Outgoing(body=body_of(n), dedup_key=f"message-{n}") for n in numbers])
            else:
                await queue.enqueue_many([body_of(number) for number in numbers])
        return began, count

    async def singles(
        self, queue: S3QueuePlugin, first: int, count: int, seconds: float, callers: int = 1
    ) -> tuple[float, int]:
        """One `enqueue` after the other, by so many callers at once."""
        began = time.monotonic()
        sent = 0

        async def call() -> None:
            nonlocal sent
            while sent < count and time.monotonic() - began < seconds:
                number, sent = first + sent, sent + 1
                await queue.enqueue(body_of(number))

        await asyncio.gather(*(call() for _ in range(callers)))
        return began, sent

    async def paced(self, queue: S3QueuePlugin, first: int, count: int, rate: float) -> tuple[float, int]:
        """So many a second, each by a call of its own; its time counts from when it was due."""
        began = time.monotonic() + 0.05
        calls: set[asyncio.Task[str]] = set()
        for number in range(count):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.marks.sent[first + number] = due
            task = asyncio.create_task(queue.enqueue(body_of(first + number)))
            calls.add(task)
            task.add_done_callback(calls.discard)
        while calls:
            await asyncio.gather(*calls)
        return began, count


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(Process(json.loads(sys.argv[2])).run(sys.argv[1]))

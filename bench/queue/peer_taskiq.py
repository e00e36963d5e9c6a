"""taskiq on Redis streams: `taskiq worker bench.queue.peer_taskiq:broker`.

Its stream broker is the one that acknowledges; `when_executed` makes that at least once. uvloop is installed, which it
then uses.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from taskiq import SimpleRetryMiddleware  # type: ignore[import-not-found]
from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]

from bench.queue.marks import Marks, body_of

broker = RedisStreamBroker(os.environ["BENCH_REDIS"], xread_count=1000).with_middlewares(
    SimpleRetryMiddleware(default_retry_count=5)
)
marks = Marks(Path(os.environ["BENCH_MARKS"]))


@broker.task(retry_on_error=True)  # type: ignore[untyped-decorator]
async def handle(body: dict[str, int]) -> None:
    marks.handled(body["n"])


_loop = asyncio.new_event_loop()


def begin() -> None:
    _loop.run_until_complete(broker.startup())


def send(number: int) -> None:
    _loop.run_until_complete(handle.kiq(body_of(number)))


def many(numbers: Sequence[int]) -> None:
    """It has no call for many at once, but calls can be under way together."""

    async def together(some: Sequence[int]) -> None:
        await asyncio.gather(*(handle.kiq(body_of(number)) for number in some))

    for start in range(0, len(numbers), 100):
        _loop.run_until_complete(together(numbers[start : start + 100]))

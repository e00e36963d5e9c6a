"""dramatiq on Redis: `dramatiq bench.queue.peer_dramatiq`.

At least once, with retries, is how it comes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import dramatiq  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]

from bench.queue.marks import Marks, body_of

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS"]))
marks = Marks(Path(os.environ["BENCH_MARKS"]))


@dramatiq.actor(max_retries=5)  # type: ignore[untyped-decorator]
def handle(body: dict[str, int]) -> None:
    marks.handled(body["n"])


def begin() -> None:
    pass


def send(number: int) -> None:
    handle.send(body_of(number))


def many(numbers: Sequence[int]) -> None:
    """A group is what it has for many; it sends them one by one."""
    dramatiq.group([handle.message(body_of(number)) for number in numbers]).run()

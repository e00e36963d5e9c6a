"""rq on Redis: `rq worker-pool bench`.

`SimpleWorker` handles in its own process: without a fork for each message it is many times as fast. Jobs of a worker
that died are tried again, if they have retries. Results are not kept.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from redis import Redis  # type: ignore[import-not-found]
from rq import Queue, Retry  # type: ignore[import-not-found]

from bench.queue.marks import Marks, body_of

marks = Marks(Path(os.environ["BENCH_MARKS"]))
queue = Queue("bench", connection=Redis.from_url(os.environ["BENCH_REDIS"]))
options = {"result_ttl": 0, "retry": Retry(max=5)}


def handle(body: dict[str, int]) -> None:
    marks.handled(body["n"])


def begin() -> None:
    pass


def send(number: int) -> None:
    queue.enqueue(handle, body_of(number), **options)


def many(numbers: Sequence[int]) -> None:
    jobs = [Queue.prepare_data(handle, (body_of(number),), **options) for number in numbers]
    with queue.connection.pipeline() as pipeline:
        queue.enqueue_many(jobs, pipeline=pipeline)
        pipeline.execute()

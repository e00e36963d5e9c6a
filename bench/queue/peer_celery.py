"""Celery on Redis: `celery -A bench.queue.peer_celery worker`.

At least once needs `acks_late` and `reject_on_worker_lost`. For short tasks its guide advises to prefetch many, and not
to keep results that nobody reads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from celery import Celery  # type: ignore[import-not-found]

from bench.queue.marks import Marks, body_of

app = Celery("bench", broker=os.environ["BENCH_REDIS"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=128,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
marks = Marks(Path(os.environ["BENCH_MARKS"]))


@app.task(max_retries=5)  # type: ignore[untyped-decorator]
def handle(body: dict[str, int]) -> None:
    marks.handled(body["n"])


def begin() -> None:
    pass


def send(number: int) -> None:
    handle.delay(body_of(number))


def many(numbers: Sequence[int]) -> None:
    """It has no call for many at once."""
    for number in numbers:
        send(number)

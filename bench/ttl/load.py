"""Many records, from several processes and several calls at a time in each of them."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from bench.ttl.scene import FUTURE, PAST, Scene, body_of
from lab.process import die_with_parent
from tenure.errors import RecordExists

_LOOK_EVERY = 1.0
_TRIES = 5


class Lot(NamedTuple):
    """What is to be loaded: so many records that expire in the future, and then so many that are due."""

    name: str
    ahead: int
    due: int
    batch: int
    apart: bool = False
    """Each record expires in a second of its own, so that each has an index entry of its own."""

    def batches(self) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
        for kind, count, base in (("ahead", self.ahead, FUTURE), ("due", self.due, PAST)):
            for number, first in enumerate(range(0, count, self.batch)):
                numbers = range(first, min(first + self.batch, count))
                ids = [f"{self.name}-{kind}-{each:07d}" for each in numbers]
                yield ids, [body_of(each, base + (each if self.apart else number)) for each in numbers]


class Loaded(NamedTuple):
    records: int
    seconds: float
    cpu: float
    again: int
    """Records that had to be sent again, because the disk took too long to answer."""
    requests: dict[str, int]
    progress: list[tuple[float, int]]
    """Seconds since the beginning, and how many were there."""

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "per_second": round(self.records / self.seconds, 1),
            "cpu_us_per_record": round(self.cpu / self.records * 1e6, 1),
            "sent_again": self.again,
            "requests": self.requests,
            "progress": [[round(seconds, 1), count] for seconds, count in self.progress],
        }


class _Share(NamedTuple):
    """What one process did."""

    cpu: float
    again: int
    requests: dict[str, int]


def load(
    scene: Scene, lot: Lot, *, processes: int, callers: int, progressed: Callable[[int, float], None] = lambda *_: None
) -> Loaded:
    """`progressed(records, seconds)` is called now and then."""
    began = time.monotonic()
    counts = multiprocessing.get_context("spawn").Array("q", processes, lock=False)
    samples: list[tuple[float, int]] = []

    def look() -> None:
        samples.append((time.monotonic() - began, sum(counts)))
        progressed(samples[-1][1], samples[-1][0])

    if processes == 1:
        shares = [asyncio.run(_load(scene, lot, 0, 1, callers, counts))]
    else:
        shares = _spread(scene, lot, processes, callers, counts, look)
    look()
    total: dict[str, int] = {}
    for share in shares:
        for verb, count in share.requests.items():
            total[verb] = total.get(verb, 0) + count
    return Loaded(
        lot.ahead + lot.due,
        time.monotonic() - began,
        sum(share.cpu for share in shares),
        sum(share.again for share in shares),
        total,
        _thinned(samples),
    )


def _spread(
    scene: Scene, lot: Lot, processes: int, callers: int, counts: Any, look: Callable[[], None]
) -> list[_Share]:
    context = multiprocessing.get_context("spawn")
    loaders, ends = [], []
    try:
        for number in range(processes):
            ours, theirs = context.Pipe(duplex=False)
            loader = context.Process(target=_main, args=(scene, lot, number, processes, callers, counts, theirs))
            loader.start()
            theirs.close()
            loaders.append(loader)
            ends.append(ours)
        while alive := [loader.sentinel for loader in loaders if loader.is_alive()]:
            wait(alive, timeout=_LOOK_EVERY)
            look()
            if any(loader.exitcode for loader in loaders):
                raise RuntimeError("a process that loads has failed: what it wrote to stderr says why")
        shares: list[_Share] = [end.recv() for end in ends]
    finally:
        for loader in loaders:
            loader.kill()
            loader.join()
    return shares


def _main(
    scene: Scene, lot: Lot, number: int, of: int, callers: int, counts: Any, answer: Connection
) -> None:  # pragma: no cover - in a process of its own
    die_with_parent()
    answer.send(asyncio.run(_load(scene, lot, number, of, callers, counts)))


async def _load(scene: Scene, lot: Lot, number: int, of: int, callers: int, counts: Any) -> _Share:
    again = 0
    cpu = time.process_time()
    waiting = (batch for index, batch in enumerate(lot.batches()) if index % of == number)
    async with scene.writing() as (meter, records):

        async def insert() -> None:
            nonlocal again
            for ids, bodies in waiting:
                left = dict(zip(ids, bodies, strict=True))
                for _ in range(_TRIES):
                    done = await records.insert_many(list(left.values()), ids=list(left))
                    errors = {each.id: each.error for each in done if each.error is not None}
                    left = {id: left[id] for id, error in errors.items() if not isinstance(error, RecordExists)}
                    if not left:
                        break
                    again += len(left)
                else:
                    raise RuntimeError(f"{len(left)} records could not be inserted: {errors[next(iter(left))]}")
                counts[number] += len(ids)

        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(insert())
        requests: dict[str, int] = {}
        for kind, verbs in meter.requests().items():
            for verb, count in verbs.items():
                requests[f"{kind}.{verb}"] = count
    return _Share(time.process_time() - cpu, again, requests)


def _thinned(samples: list[tuple[float, int]], most: int = 100) -> list[tuple[float, int]]:
    step = -(-len(samples) // most)
    return samples[::step] if samples[-1] in samples[::step] else [*samples[::step], samples[-1]]

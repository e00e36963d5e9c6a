"""A process of the real soak: every part of `lab.chaos.node`, at an even pace, for as long as it is let.

    python -m lab.soak.node URL --name n1 --life 1 --folder FOLDER --end SECONDS [--broken leaks-files]

Nothing is judged here but what it holds, so it keeps no logs. What is remembered for a while (`op_id`s, results,
producers, the history of jobs) is remembered for minutes: a soak must be able to see the end of it. Every few seconds
it notes in `NAME-LIFE.inner` what only it can know, a JSON object to a line.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from lab.believer import boottime_ns, say
from lab.chaos.node import Node, arguments_parser
from lab.counter_log import error_word
from lab.counter_node import FIELDS, PAGES, VIEWS, page_id
from lab.pace import LEASE, config
from tenure import GlobalCoordinatorService, TTLPlugin
from tenure.errors import TenureError
from tenure.ledger import LedgerConfig
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.scheduler import Run, SchedulerPlugin, every
from tenure.plugins.supervisor.candidate import CoordinatorCandidate
from tenure.plugins.supervisor.child import Child, Command, Context
from tenure.store import open_store

RECORDS = 40
JOBS = 4
REMEMBERED = 90.0
"""Seconds for which whatever is kept for a while is kept."""
LEDGER = LedgerConfig(
    snapshot_every=100, snapshot_age=60.0, trim_delay=8 / 3 * LEASE, retention=200.0, give_up_after=30.0
)
SLOWER = 2.0
"""Than chaos: this is no load test."""
SAMPLE = 5.0
BROKEN = {
    "leaks-memory": "keeps some objects more every second",
    "leaks-native": "keeps 16 kB more every second that Python knows nothing of",
    "leaks-files": "opens a file every two seconds, and closes none",
    "leaks-tasks": "begins a task every second that never ends",
    "leaks-threads": "begins a thread every two seconds that never ends",
    "leaks-objects": "leaves an object in the bucket every second",
}


class SoakNode(Node):
    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments)
        self.inner = self.folder / f"{self.label}.inner"
        self.trims: bool = arguments.trims
        self._kept: list[Any] = []
        self._beside: set[asyncio.Task[None]] = set()

    def file(self, part: str) -> Path:
        return Path(os.devnull)

    async def pause(self, seconds: float) -> bool:
        return await super().pause(SLOWER * seconds)

    def believe(self, coordinator: GlobalCoordinatorService) -> None:
        """Whether two lead is judged elsewhere. Here something else is begun that lasts."""
        for part in (self._sample(), *(self._leak(name) for name in sorted(self.broken))):
            task = asyncio.create_task(part)
            self._beside.add(task)

    # Parts that forget within minutes

    def queue(self) -> S3QueuePlugin:
        queue = S3QueuePlugin(
            resource="jobs",
            config=config(),
            ledger=LEDGER,
            shutdown_timeout=5.0,
            visibility_timeout=10.0,
            dedup_window=REMEMBERED,
            result_retention=REMEMBERED,
        )

        async def handle(message: Message) -> str:
            await asyncio.sleep(self.dice.uniform(0.0, 0.1))
            return message.id

        queue.on_message(handle, concurrency=10)
        self.queue_log = _NoLog()  # type: ignore[assignment]
        return queue

    def scheduler(self) -> SchedulerPlugin:
        scheduler = SchedulerPlugin(config=config(), ledger=LEDGER)

        async def work(run: Run) -> None:
            await asyncio.sleep(0.05)

        for number in range(JOBS):
            scheduler.job(every(2 + number), id=f"j{number}", history=20)(work)
        return scheduler

    def counters(self) -> EventualConsistencyPlugin:
        return EventualConsistencyPlugin(
            PAGES, FIELDS, config=config(), ledger=LEDGER, interval=1.0, dedup_window=REMEMBERED
        )

    async def count(self, counters: Any) -> None:
        number = 0
        while await self.pause(self.dice.uniform(0.2, 0.6)):
            number += 1
            id = page_id(self.dice.randrange(RECORDS) // 10 * 10)
            op_id = f"{self.label}:{number}" if number % 2 else None
            try:
                await counters.add(id, VIEWS, self.dice.randint(1, 9), op_id=op_id)
                if number % 10 == 0:
                    await counters.get(id, VIEWS, consistent=True)
            except TenureError as error:
                say("not-counted", error=error_word(error))

    def sessions(self) -> TTLPlugin:
        return TTLPlugin("sessions", ttl=12.0, tick=2.0, config=config(), ledger=LEDGER)

    def candidate(self) -> CoordinatorCandidate:
        children = [Child("service", self._serve), Child("program", Command("sleep", "1000000"))]
        return CoordinatorCandidate(children, config=config())

    async def _serve(self, context: Context) -> None:
        assert context.lead is not None
        while True:
            context.lead.ensure()
            await asyncio.sleep(0.5)

    # What only the process itself can know

    async def _sample(self) -> None:
        trim = ctypes.CDLL(None).malloc_trim if self.trims else None
        while True:
            await asyncio.sleep(SAMPLE)
            gc.collect()
            if trim is not None:
                trim(0)
            with self.inner.open("a") as file:
                file.write(json.dumps({"at_ns": boottime_ns(), **measured()}) + "\n")

    async def _leak(self, name: str) -> None:
        store = await open_store(self.url) if name == "leaks-objects" else None
        number = 0
        while True:
            number += 1
            if name == "leaks-memory":
                self._kept += [[number, each] for each in range(2000)]
            elif name == "leaks-native":
                ctypes.CDLL(None).malloc(16384)
            elif name == "leaks-files" and number % 2:
                self._kept.append(os.open(os.devnull, os.O_RDONLY))
            elif name == "leaks-tasks":
                self._kept.append(asyncio.create_task(asyncio.Event().wait()))
            elif name == "leaks-threads" and number % 2:
                threading.Thread(target=threading.Event().wait, daemon=True).start()
            elif store is not None:
                await store.put(f"leak/{self.label}-{number}", b"x")
            await asyncio.sleep(1.0)


class _NoLog:
    """Of what was handled."""

    def write(self, what: str, *fields: object) -> None:
        pass


def measured() -> dict[str, int]:
    """`blocks` are what Python has allocated and not given back, `malloc` the bytes that everything else has (Python's
    larger objects, obstore): a leak shows in one of them however memory is cut up. `kept` is free, and malloc's own."""
    alive = gc.get_objects()
    tasks = sum(1 for each in alive if isinstance(each, asyncio.Task) and not each.done())
    return {"tasks": tasks, "objects": len(alive), "blocks": sys.getallocatedblocks(), **malloc_state()}


_MALLINFO2 = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO2.split())


def malloc_state() -> dict[str, int]:
    """Bytes in use and kept free, in all arenas of glibc 2.33 or newer; nothing elsewhere."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return {}
    mallinfo2.restype = _Mallinfo2
    state = mallinfo2()
    return {"malloc": state.uordblks + state.hblkhd, "kept": state.fordblks}


def parse_arguments() -> argparse.Namespace:
    parser = arguments_parser("python -m lab.soak.node", "Take part in everything, for long.", BROKEN)
    parser.add_argument("--trims", action="store_true", help="give free memory back to the system before each sample")
    return parser.parse_args()


if __name__ == "__main__":
    code = 1
    try:
        code = asyncio.run(SoakNode(parse_arguments()).serve())
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else code)

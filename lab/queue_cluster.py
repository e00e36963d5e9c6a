"""Workers and producers of one queue as processes: started, killed, stopped, continued; the bucket tells who leads.

What was done to whom is noted in `events`, with the instant, for `lab.queue_judge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from lab.ledger_cluster import ROOT, LedgerCluster, Member
from lab.process import spawn
from lab.queue_worker import QUEUE
from tenure import CoordinatorConfig
from tenure.plugins.queue import QueueSettings
from tenure.plugins.queue.looking import read_queue
from tenure.plugins.queue.state import QueueMachine

_CLOCK_ERROR = 1.0
"""Seconds by which the store's clock, as one process sees it, may be off: listings may show whole seconds."""
_REQUESTS = 5
"""In a row, from the sweep to the handler: list, get a report, create the entry, poll it, get the segment."""


def redelivery_bound(settings: QueueSettings, config: CoordinatorConfig, *, leader_died: bool = False) -> float:
    """Seconds from the kill of a worker until what it had in hand is being handled by another that has room.

    Its ticket was published no later than the kill. The sweep that may lapse it is the first one that begins a margin
    after the deadline, as the leader sees the store's clock; the entry that lapses it gives it to somebody else, who
    sees that with its next poll. A leader that comes to office meanwhile gives the newest tickets their whole time
    again, from its own first entry on: so a failover is added, and the clock of a second process.
    """
    longest = settings.visibility_timeout
    bound = (
        longest * (1 + config.drift)
        + settings.margin
        + _CLOCK_ERROR
        + max(settings.tick_interval, settings.load_interval, min(7200 / settings.idle_budget, longest / 8))
        + max(settings.poll_interval, min(7200 / settings.idle_budget, longest / 4))
        + _REQUESTS * config.request_timeout_seconds
    )
    return bound + config.worst_case_failover() + _CLOCK_ERROR if leader_died else bound


class Reader:
    """New lines of growing files, each once."""

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}

    def lines(self, paths: list[Path]) -> list[list[str]]:
        found: list[list[str]] = []
        for path in paths:
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            found += [line.split(" ") for line in whole.decode().split("\n")[:-1]]
        return found


@dataclass
class QueueCluster(LedgerCluster):
    """Start the processes from a thread that lasts: they are killed when it ends."""

    slug: ClassVar[str] = "s3-queue"
    name: ClassVar[str] = QUEUE

    producers: list[Member] = field(default_factory=list)
    handled_logs: list[Path] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    began: dict[str, str] = field(default_factory=dict)
    """By body: the process that began it last."""
    _sent_reader: Reader = field(default_factory=Reader)
    _handled_reader: Reader = field(default_factory=Reader)

    @property
    def members(self) -> list[Member]:
        return [*self.workers, *self.producers]

    @property
    def sent_logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.sent"))

    def start(self, name: str, *options: str) -> Member:
        member = self._start(name, "handled", "lab.queue_worker", *options)
        self.handled_logs.append(member.log)
        return member

    def produce(self, name: str, count: int, *options: str) -> Member:
        """One that is started under a name again goes on in its log."""
        log, output = self.folder / f"{name}.sent", self.folder / f"{name}-{next(self._numbers)}.out"
        command = [
            *(sys.executable, "-m", "lab.queue_producer", self.url, "--name", name, "--log", str(log)),
            *("--count", str(count), *options),
        ]
        member = Member(name, spawn(command, output, cwd=ROOT), log, output)
        self.producers.append(member)
        return member

    def _gone(self, member: Member) -> None:
        (self.workers if member in self.workers else self.producers).remove(member)

    # What the files say

    def look(self) -> None:
        for fields in self._sent_reader.lines(self.sent_logs):
            if fields[0] == "accepted":
                self.accepted.update(fields[3:])
        for fields in self._handled_reader.lines(self.handled_logs):
            if fields[0] == "began":
                self.began[fields[3]] = fields[2]
            elif fields[0] == "ended":
                self.ended.add(fields[3])

    async def until_handled(self, count: int, within: float) -> None:
        """Until so many were accepted, and every one of them was handled."""

        def done() -> bool:
            self.look()
            return len(self.accepted) >= count and self.accepted <= self.ended

        await self.until(done, within, f"{count} messages are accepted and handled")

    async def until_settled(self, within: float) -> None:
        """Until the queue holds nothing: so nothing can be handled again later."""
        deadline = time.monotonic() + within
        while True:
            machine = await self.machine()
            left = machine.ready_count + machine.delayed_count + machine.in_flight_count
            inbox = [row.key async for row in self.ledger.list("inbox/")]
            if left == 0 and not inbox:
                assert not machine.dead, f"dead letters: {list(machine.dead)[:10]}"
                return
            if time.monotonic() >= deadline:
                raise AssertionError(f"in vain for {within:g} s until the queue is empty\n{await self.report()}")
            await asyncio.sleep(0.2)

    async def machine(self) -> QueueMachine:
        machine = (await read_queue(self.ledger)).machine
        assert isinstance(machine, QueueMachine)
        return machine

    async def report(self) -> str:
        """For people, when something did not happen."""
        self.look()
        lines = [
            f"accepted {len(self.accepted)}, ended {len(self.ended)}, of these {len(self.accepted & self.ended)}; "
            f"not ended: {sorted(self.accepted - self.ended)[:10]}; log at {self.seq}, terms {self.terms}"
        ]
        with contextlib.suppress(Exception):
            machine = await self.machine()
            inbox = len([row.key async for row in self.ledger.list("inbox/")])
            lines.append(
                f"ready {machine.ready_count}, delayed {machine.delayed_count}, in flight {machine.in_flight_count}, "
                f"inbox {inbox}, dead {len(machine.dead)}, workers {machine.workers}, tickets "
                f"{[(t.id, t.uid, t.deadline_ms, t.count) for t in machine.tickets.values()][:10]}"
            )
        return "\n".join([*lines, *self.outputs()])

    def judged(self, *options: str) -> tuple[int, dict[str, Any]]:
        """The judge is a program of its own."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "lab.queue_judge", "--events", str(self.events)),
                *("--sent", *map(str, self.sent_logs)),
                *("--handled", *(str(log) for log in self.handled_logs if log.exists()), *options),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        verdict: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, verdict


@contextlib.asynccontextmanager
async def queue_cluster(url: str, folder: Path, *options: str) -> AsyncIterator[QueueCluster]:
    async with QueueCluster(url, folder, options) as cluster:
        yield cluster

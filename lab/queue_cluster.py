"""Workers and producers of one queue as processes: started, killed, stopped, continued; the bucket tells who leads.

What was done to whom is noted in `events`, with the instant, for `lab.queue_judge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lab.believer import boottime_ns
from lab.process import spawn
from lab.queue_worker import QUEUE
from tenure import CoordinatorConfig
from tenure.coordinator.layout import namespace_store, term_key
from tenure.errors import NotFound, StoreError
from tenure.ledger import LogEntry, ledger_store
from tenure.ledger.log import log_end, read_entry
from tenure.ledger.records import Kind
from tenure.plugins.queue import QueueSettings
from tenure.plugins.queue.looking import read_queue
from tenure.plugins.queue.state import QueueMachine
from tenure.store import Store, Stored, open_store

ROOT = Path(__file__).resolve().parent.parent
_LOOK = 0.03
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


@dataclass
class Member:
    name: str
    process: subprocess.Popen[bytes]
    log: Path
    output: Path

    @property
    def identity(self) -> str:
        """As in the logs."""
        return f"{self.name}:{self.process.pid}"

    def said(self, what: str) -> list[dict[str, Any]]:
        lines = self.output.read_bytes().split(b"\n")[:-1] if self.output.exists() else []
        said = [json.loads(line) for line in lines if line.startswith(b'{"said"')]
        return [entry for entry in said if entry["said"] == what]


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
class QueueCluster:
    """Start the processes from a thread that lasts: they are killed when it ends."""

    url: str
    folder: Path
    options: tuple[str, ...] = ()
    """Further arguments of every worker."""
    workers: list[Member] = field(default_factory=list)
    producers: list[Member] = field(default_factory=list)
    handled_logs: list[Path] = field(default_factory=list)
    terms: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By epoch: who leads, and when its first entry was seen (ns)."""
    seq: int = 0
    """Of the newest entry seen."""
    accepted: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    began: dict[str, str] = field(default_factory=dict)
    """By body: the process that began it last."""
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _sent_reader: Reader = field(default_factory=Reader)
    _handled_reader: Reader = field(default_factory=Reader)
    _store: Store | None = None
    _watching: asyncio.Task[None] | None = None

    # Life

    async def __aenter__(self) -> QueueCluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.events.touch()
        self._store = await open_store(self.url)
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        for member in [*self.workers, *self.producers]:
            member.process.kill()
            member.process.wait()

    @property
    def events(self) -> Path:
        return self.folder / "events"

    @property
    def sent_logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.sent"))

    @property
    def ledger(self) -> Store:
        assert self._store is not None
        return ledger_store(self._store, "s3-queue", QUEUE)

    def start(self, name: str, *options: str) -> Member:
        stem = f"{name}-{next(self._numbers)}"
        log, output = self.folder / f"{stem}.handled", self.folder / f"{stem}.out"
        command = [
            *(sys.executable, "-m", "lab.queue_worker", self.url, "--worker-id", name, "--log", str(log)),
            *(*self.options, *options),
        ]
        member = Member(name, spawn(command, output, cwd=ROOT), log, output)
        self.workers.append(member)
        self.handled_logs.append(log)
        self._note("started", member)
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

    def _note(self, what: str, member: Member, *fields: object) -> None:
        line = " ".join([what, str(boottime_ns()), member.identity, *map(str, fields)])
        with self.events.open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")

    def kill(self, member: Member) -> None:
        member.process.kill()
        member.process.wait()
        self._note("killed", member)  # it did nothing after this
        (self.workers if member in self.workers else self.producers).remove(member)

    def pause(self, member: Member) -> None:
        self._note("stopped", member)
        member.process.send_signal(signal.SIGSTOP)

    def resume(self, member: Member) -> None:
        member.process.send_signal(signal.SIGCONT)
        self._note("continued", member)

    async def terminate(self, member: Member, within: float = 40.0) -> int:
        """Ask it to end; its exit code."""
        self._note("terminated", member)
        member.process.terminate()
        await self.until(lambda: member.process.poll() is not None, within, f"{member.name} ends")
        self.workers.remove(member)
        return int(member.process.returncode)

    # What the bucket says

    async def _watch(self) -> None:
        """Read the log along, and note whose first entry is where."""
        missed = 0
        while True:
            try:
                entry = await read_entry(self.ledger, self.seq + 1)
                if entry is None and missed >= 30:
                    # Nothing for a second: what comes next may have been trimmed before it was read.
                    end, missed = await log_end(self.ledger), 0
                    if end > self.seq:
                        entry = await read_entry(self.ledger, self.seq + 1)
                        self.seq = self.seq if entry is not None else end - 1
                if entry is None:
                    missed += 1
                    await asyncio.sleep(_LOOK)
                    continue
                missed = 0
                if entry.kind is Kind.TERM and entry.epoch not in self.terms:
                    await self._began(entry)
                self.seq = entry.seq
            except StoreError:
                await asyncio.sleep(_LOOK)

    async def _began(self, entry: LogEntry) -> None:
        assert self._store is not None
        try:
            stored = await namespace_store(self._store, "default").get(term_key(entry.epoch))
        except NotFound:
            return
        assert isinstance(stored, Stored)
        name = msgspec.json.decode(stored.body)["leaderId"]
        self.terms[entry.epoch] = (name, boottime_ns())
        for member in self.workers:
            if member.name == name:
                self._note("led", member, entry.epoch, entry.seq)

    @property
    def epoch(self) -> int:
        return max(self.terms, default=0)

    def leader(self) -> Member | None:
        """Whose first entry is the newest, if it lives."""
        name = self.terms[self.epoch][0] if self.terms else None
        return next((member for member in self.workers if member.name == name), None)

    async def next_leader(self, above: int, within: float) -> Member:
        """Wait for the first entry of a leader of a higher epoch."""
        await self.until(
            lambda: self.epoch > above, within, f"a leader of an epoch above {above} writes its first entry"
        )
        leader = self.leader()
        assert leader is not None, f"{self.terms[self.epoch]} is not running"
        return leader

    async def next_entry(self, within: float) -> None:
        seen = self.seq
        await self.until(lambda: self.seq > seen, within, f"an entry after {seen} is written")

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

    async def until(self, condition: Callable[[], object], within: float, what: str) -> None:
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() >= deadline:
                raise AssertionError(f"in vain for {within:g} s until {what}\n{await self.report()}")
            await asyncio.sleep(_LOOK)

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
        outputs = sorted(self.folder.glob("*.out"))
        lines += [f"--- {output.name}\n{output.read_text(errors='replace')[-1500:]}" for output in outputs]
        return "\n".join(lines)

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

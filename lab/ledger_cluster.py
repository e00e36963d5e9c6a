"""Processes that share a ledger: started, killed, stopped, continued; the bucket tells who leads.

What was done to whom is noted in `events`, with the instant, for those who judge.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from lab.believer import boottime_ns
from lab.process import spawn
from tenure.coordinator.layout import namespace_store, term_key
from tenure.errors import NotFound, StoreError
from tenure.ledger import LogEntry, ledger_store
from tenure.ledger.log import log_end, read_entry
from tenure.ledger.records import Kind
from tenure.store import Store, Stored, open_store

ROOT = Path(__file__).resolve().parent.parent
_LOOK = 0.03


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


@dataclass
class LedgerCluster:
    """Start the processes from a thread that lasts: they are killed when it ends.

    Subclasses say which ledger it is, and tell what they know of it in `report`.
    """

    slug: ClassVar[str]
    name: ClassVar[str]

    url: str
    folder: Path
    options: tuple[str, ...] = ()
    """Further arguments of every worker."""
    workers: list[Member] = field(default_factory=list)
    """Those that may lead."""
    terms: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By epoch: who leads, and when its first entry was seen (ns)."""
    seq: int = 0
    """Of the newest entry seen."""
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _store: Store | None = None
    _watching: asyncio.Task[None] | None = None

    # Life

    async def open(self) -> None:
        """To look at the ledger, without following it."""
        self._store = await open_store(self.url)

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.events.touch()
        await self.open()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        for member in self.members:
            member.process.kill()
            member.process.wait()

    @property
    def members(self) -> list[Member]:
        """Every process that runs."""
        return list(self.workers)

    @property
    def events(self) -> Path:
        return self.folder / "events"

    @property
    def ledger(self) -> Store:
        assert self._store is not None
        return ledger_store(self._store, self.slug, self.name)

    def _start(self, name: str, suffix: str, module: str, *options: str) -> Member:
        """Start one that may lead."""
        stem = f"{name}-{next(self._numbers)}"
        log, output = self.folder / f"{stem}.{suffix}", self.folder / f"{stem}.out"
        command = [
            *(sys.executable, "-m", module, self.url, "--worker-id", name, "--log", str(log)),
            *(*self.options, *options),
        ]
        member = Member(name, spawn(command, output, cwd=ROOT), log, output)
        self.workers.append(member)
        self._note("started", member)
        return member

    def _note(self, what: str, member: Member, *fields: object) -> None:
        line = " ".join([what, str(boottime_ns()), member.identity, *map(str, fields)])
        with self.events.open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")

    def kill(self, member: Member) -> None:
        member.process.kill()
        member.process.wait()
        self._note("killed", member)  # it did nothing after this
        self._gone(member)

    def _gone(self, member: Member) -> None:
        self.workers.remove(member)

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

    # Waiting

    async def until(self, condition: Callable[[], object], within: float, what: str) -> None:
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() >= deadline:
                raise AssertionError(f"in vain for {within:g} s until {what}\n{await self.report()}")
            await asyncio.sleep(_LOOK)

    async def report(self) -> str:
        """For people, when something did not happen."""
        raise NotImplementedError

    def outputs(self) -> list[str]:
        """The end of what each process said."""
        found = sorted(self.folder.glob("*.out"))
        return [f"--- {output.name}\n{output.read_text(errors='replace')[-1500:]}" for output in found]

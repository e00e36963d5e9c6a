"""Real processes that work for an hour, and what they hold meanwhile: from /proc, from themselves, from the bucket.

Half of them live as long as the run does: theirs are the series that are judged. The others are restarted now and then,
and between restarts whoever leads is asked from outside to step down: leaving and taking over must cost nothing for
good either.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from lab.believer import boottime_ns
from lab.buckets import make_bucket
from lab.counter_cluster import CounterCluster
from lab.ledger_cluster import ROOT
from lab.ministack import Ministack
from lab.pace import LEASE
from lab.process import spawn
from lab.soak.judge import Limit, Row, Series, judge_all
from lab.soak.node import RECORDS
from tenure.clock import SystemClock
from tenure.coordinator.layout import namespace_store
from tenure.coordinator.outside import ask_for_handover
from tenure.entropy import new_id
from tenure.errors import TenureError
from tenure.store import Store, open_store

MEGABYTE = 2**20
LIMITS: dict[str, Limit] = {
    "rss": Limit(4 * MEGABYTE, an_hour=8 * MEGABYTE),
    "malloc": Limit(1 * MEGABYTE, an_hour=2 * MEGABYTE),
    "kept": Limit(4 * MEGABYTE, an_hour=8 * MEGABYTE),
    "blocks": Limit(4000, an_hour=8000),
    "objects": Limit(2000, an_hour=4000),
    "files": Limit(3),
    "threads": Limit(3),
    "tasks": Limit(4),
    "bucket": Limit(100, share=0.1),
    "bucket/terms": Limit(0),
}
"""`bucket`: a log is as many entries longer or shorter as lie between two snapshots. `bucket/terms`: one for each
leadership, for ever (EL-18). It is judged by the number of leaderships."""
_JOINING = 30 * LEASE
_ENDING = 40.0 / 3 * LEASE
_LOOK = 0.2


class Turn(msgspec.Struct, frozen=True):
    """Something gentle that was done."""

    second: float
    what: str


class Report(msgspec.Struct, kw_only=True):
    """What `soak.json` says."""

    kind: str = "real"
    store: str
    minutes: float
    warm_up: float
    """Seconds."""
    nodes: int
    broken: list[str]
    rows: tuple[Row, ...] = ()
    terms: int = 0
    turns: list[Turn] = []
    failures: list[str] = []
    """What is no series: a process that ended by itself, or would not."""
    series: dict[str, list[tuple[float, float]]] = {}

    @property
    def is_flat(self) -> bool:
        return bool(self.rows) and not self.failures and all(row.is_flat for row in self.rows)


@dataclass
class Member:
    name: str
    lasts: bool
    """It lives as long as the run does."""
    process: subprocess.Popen[bytes] | None = None
    life: int = 0
    stem: Path = Path()

    @property
    def output(self) -> Path:
        return self.stem.with_suffix(".out")

    def has_joined(self) -> bool:
        return self.output.exists() and b'{"said": "joined"' in self.output.read_bytes()


@dataclass
class Fleet:
    url: str
    folder: Path
    report: Report
    turn: float
    """Seconds between two gentle disturbances."""
    sample: float
    trims: bool = False
    tell: Callable[[str], None] = print
    members: list[Member] = field(default_factory=list)
    series: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    _began_ns: int = 0
    _store: Store | None = None
    _turns: int = 0

    async def run(self) -> Report:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._store = await open_store(self.url)
        await CounterCluster(self.url, self.folder, records=RECORDS).insert_first()
        count = self.report.nodes
        self.members = [Member(f"n{number + 1}", lasts=number < (count + 1) // 2) for number in range(count)]
        try:
            for member in self.members:
                self._start(member)
            await self._until(lambda: all(member.has_joined() for member in self.members), _JOINING, "all have joined")
            self._began_ns = boottime_ns()
            await self._watch(self.report.minutes * 60)
        finally:
            await self._end_all()
        self._read_inner()
        self.report.terms = await self._count_terms()
        self.report.rows = judge_all(self._judged(), LIMITS, after=self.report.warm_up)
        self.report.series = {" ".join(key): value for key, value in sorted(self.series.items())}
        return self.report

    def _judged(self) -> Mapping[tuple[str, str], Series]:
        lasting = {member.name for member in self.members if member.lasts} | {"all"}
        judged: dict[tuple[str, str], Series] = {key: each for key, each in self.series.items() if key[0] in lasting}
        terms = judged.pop(("all", "bucket/terms"), None)
        if terms is not None:
            # What is left after the leaderships that were granted are taken away must be nothing: as many as were
            # recorded at each sample, less as many as the highest of their numbers.
            judged["all", "bucket/terms"] = [(at, value - self._epochs[at]) for at, value in terms]
        return judged

    # Samples

    _epochs: dict[float, int] = field(default_factory=dict)

    async def _watch(self, seconds: float) -> None:
        next_turn, next_told = self.turn, 60.0
        turning: asyncio.Task[None] | None = None
        while (now := self._now()) < seconds:
            for member in self.members:
                if member.process is not None and member.process.poll() is None:
                    for what, value in proc(member.process.pid).items():
                        self._note(member.name, what, now, value)
                elif member.process is not None and (turning is None or turning.done()):
                    tail = member.output.read_text(errors="replace")[-600:]
                    self._fail(f"{member.name} ended by itself with {member.process.returncode}: {tail}")
                    self._start(member)
            with contextlib.suppress(TenureError):
                await self._count_objects(now)
            if turning is not None and turning.done():
                turning.result()
                turning = None
            if turning is None and now >= next_turn and now < seconds - _ENDING:
                turning = asyncio.create_task(self._disturb())
                next_turn = now + self.turn
            if now >= next_told:
                self.tell(self._line())
                next_told = now + 300.0
            await asyncio.sleep(self.sample)
        if turning is not None:
            await turning

    def _now(self) -> float:
        return round((boottime_ns() - self._began_ns) / 1e9, 1)

    def _note(self, who: str, what: str, at: float, value: float) -> None:
        self.series.setdefault((who, what), []).append((at, value))

    async def _count_objects(self, now: float) -> None:
        assert self._store is not None
        counts: Counter[str] = Counter()
        epochs: Counter[str] = Counter()
        async for row in self._store.list(""):
            folder = folder_of(row.key)
            counts[folder] += 1
            if folder == "terms":
                place, _, name = row.key.rpartition("/")
                epochs[place] = max(epochs[place], int(name.removesuffix(".json")))
        self._epochs[now] = sum(epochs.values())
        for folder in counts.keys() | {what.partition("/")[2] for who, what in self.series if who == "all"}:
            self._note("all", f"bucket/{folder}", now, counts[folder])

    def _read_inner(self) -> None:
        for member in self.members:
            if not member.lasts:
                continue
            with contextlib.suppress(FileNotFoundError):
                for line in member.stem.with_suffix(".inner").read_text().splitlines():
                    noted = json.loads(line)
                    at = round((noted.pop("at_ns") - self._began_ns) / 1e9, 1)
                    for what, value in noted.items():
                        self._note(member.name, what, at, value)

    def _line(self) -> str:
        def last(who: str, what: str) -> float:
            return self.series[who, what][-1][1]

        held = ", ".join(
            f"{member.name} {last(member.name, 'rss') / MEGABYTE:.1f} MB {last(member.name, 'files'):.0f} files "
            f"{last(member.name, 'threads'):.0f} threads"
            for member in self.members
            if member.lasts
        )
        there = sum(each[-1][1] for (who, _), each in self.series.items() if who == "all")
        return f"{held}; {there:.0f} objects in the bucket, {self._turns} turns"

    # Processes

    def _start(self, member: Member) -> None:
        member.life += 1
        member.stem = self.folder / f"{member.name}-{member.life}"
        command = [
            *(sys.executable, "-m", "lab.soak.node", self.url, "--name", member.name, "--life", str(member.life)),
            *("--folder", str(self.folder), "--end", "4e9"),
            *(part for name in self.report.broken for part in ("--broken", name)),
            *(["--trims"] if self.trims else []),
        ]
        member.process = spawn(command, member.output, {"PYTHONDONTWRITEBYTECODE": ""}, cwd=ROOT)

    async def _disturb(self) -> None:
        self._turns += 1
        passing = [member for member in self.members if not member.lasts]
        if passing and self._turns % 2:
            await self._restart(passing[self._turns // 2 % len(passing)])
            return
        assert self._store is not None
        namespaces = ("default", "coordinator")
        for namespace in namespaces:
            try:
                done = await ask_for_handover(
                    namespace_store(self._store, namespace),
                    namespace,
                    by="soak",
                    force=True,
                    timeout=10 * LEASE,
                    clock=SystemClock(),
                    draw_id=new_id,
                )
            except TenureError as error:
                self._done(f"{namespace}: no handover: {error}")
            else:
                self._done(f"{namespace}: {done.previous_leader} to {done.leader}, epoch {done.epoch}")

    async def _restart(self, member: Member) -> None:
        process = member.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        await self._until(lambda: process.poll() is not None, _ENDING, f"{member.name} has ended")
        if process.poll() is None:
            process.kill()
            process.wait()
        self._start(member)
        self._done(f"{member.name} restarted")

    def _done(self, what: str) -> None:
        self.report.turns.append(Turn(self._now(), what))

    async def _end_all(self) -> None:
        for member in self.members:
            if member.process is not None and member.process.poll() is None:
                member.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(asyncio.CancelledError):
            await self._until(
                lambda: all(member.process is None or member.process.poll() is not None for member in self.members),
                _ENDING,
                "all have ended",
            )
        for member in self.members:
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait()

    async def _until(self, condition: Callable[[], bool], within: float, what: str) -> None:
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() >= deadline:
                self._fail(f"in vain for {within:g} s until {what}")
                return
            await asyncio.sleep(_LOOK)

    def _fail(self, what: str) -> None:
        self.report.failures.append(what)
        self.tell(f"FAILED: {what}")

    async def _count_terms(self) -> int:
        assert self._store is not None
        return len([1 async for row in self._store.list("") if folder_of(row.key) == "terms"])


def folder_of(key: str) -> str:
    """`plugin=s3-queue/name=jobs/log/0001` → `s3-queue/log`; what a coordinator keeps has no plugin before it."""
    parts = key.split("/")
    plugin = next((part.partition("=")[2] for part in parts if part.startswith("plugin=")), "")
    plain = [part for part in parts[:-1] if "=" not in part]
    if plugin == "coordinator":
        return plain[0] if plain else "namespace"
    return "/".join([*([plugin] if plugin else []), *plain[:1]]) or "other"


def proc(pid: int) -> dict[str, int]:
    """What the kernel knows of a process; nothing if it is gone."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return {}
    if "RssAnon" not in status:
        return {}  # it is just ending
    # Its own memory alone: pages of programs and libraries are shared, and are there once they have been run.
    return {"rss": int(status["RssAnon"].split()[0]) * 1024, "threads": int(status["Threads"]), "files": files}


@contextlib.asynccontextmanager
async def place(store: str, home: Path) -> AsyncIterator[str]:
    """Where the bucket is, and a server for as long as it is needed."""
    if store == "directory":
        yield (home / "store").as_uri()
        return
    server = Ministack(home, persist=False)
    endpoint = server.start()
    try:
        make_bucket(endpoint, "soak")
        yield endpoint.store_url("soak", "run")
    finally:
        server.stop()

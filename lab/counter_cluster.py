"""Processes that share counters: started, killed; the bucket tells who leads.

What was done to whom is noted in `events`, with the instant, for `lab.counter_judge`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from lab.believer import boottime_ns
from lab.counter_node import FIELDS, PAGES, counting, is_there_at_first, page_id, start_of
from lab.ledger_cluster import ROOT, LedgerCluster, Member
from lab.process import spawn
from tenure import Database
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.counters.looking import machine_of, read_counters
from tenure.plugins.counters.state import CountersMachine

_SAMPLE = 10
"""Of every so many records it is asked in every way when all is over."""
_AT_ONCE = 16
_MID_CALL = 0.5
"""Seconds for which a leader is let live on until it is in the middle of a call."""


@dataclass
class CounterCluster(LedgerCluster):
    slug: ClassVar[str] = "eventual-consistency"
    name: ClassVar[str] = PAGES

    records: int = 1000
    others: list[Member] = field(default_factory=list)
    """Those that do not lead."""

    @property
    def members(self) -> list[Member]:
        return [*self.workers, *self.others]

    @property
    def final(self) -> Path:
        return self.folder / "final.json"

    def start(self, name: str, *options: str) -> Member:
        return self._start(name, "notes", "lab.counter_node", "--records", str(self.records), *options)

    def beside(self, role: str, *options: str) -> Member:
        """A reader, or one that changes records: never killed."""
        log, output = self.folder / f"{role}.notes", self.folder / f"{role}.out"
        command = [
            *(sys.executable, "-m", "lab.counter_node", self.url, "--worker-id", role, "--log", str(log)),
            *("--role", role, "--records", str(self.records), *options),
        ]
        member = Member(role, spawn(command, output, cwd=ROOT), log, output)
        self.others.append(member)
        return member

    async def end_others(self, within: float = 40.0) -> None:
        """Have those that do not lead end what they are doing."""
        for member in self.others:
            member.process.terminate()
        await self.until(lambda: all(each.process.poll() is not None for each in self.others), within, "they end")
        codes = {each.name: each.process.returncode for each in self.others}
        assert not any(codes.values()), f"{codes}\n{await self.report()}"
        self.others.clear()

    async def insert_first(self) -> None:
        """The records that are there before anybody counts."""
        numbers = [number for number in range(self.records) if is_there_at_first(number)]
        async with Database(self.url, worker_id="first") as database:
            inserted = await database.resource(PAGES).insert_many(
                [start_of(number) for number in numbers], [page_id(number) for number in numbers]
            )
        failed = [each for each in inserted if each.record is None]
        assert not failed, failed[:3]

    def writes(self) -> bool:
        """Does anybody still write?"""
        for member in self.members:
            assert member.process.poll() is None, f"{member.name} ended\n{member.output.read_text()[-3000:]}"
        return not all(member.said("done") for member in self.workers)

    async def machine(self) -> CountersMachine:
        return machine_of(await read_counters(self.ledger))

    async def report(self) -> str:
        return "\n".join([f"log at {self.seq}, terms {self.terms}", *self.outputs()])

    # For the judge

    async def ask(self, within: float) -> None:
        """What a process that takes no part is told when all is over: into `final.json`."""
        counters = counting(takes_part=False)
        async with Database(self.url, worker_id="onlooker") as database:
            await database.use_plugin(counters)
            await counters.consolidate(timeout=within)
            told = await self._told(database, counters)
        self.final.write_text(json.dumps(told))

    async def _told(self, database: Database, counters: EventualConsistencyPlugin) -> dict[str, Any]:
        pages, limit = database.resource(PAGES), asyncio.Semaphore(_AT_ONCE)
        numbers = range(self.records)

        async def one(number: int) -> tuple[str, dict[str, Any]]:
            id = page_id(number)
            async with limit:
                record = await pages.get_or_none(id)
                consistent = await counters.get(id, consistent=True) if number % _SAMPLE == number // 100 % 10 else None
                return id, {
                    "totals": await counters.get(id),
                    "consistent": consistent,
                    "data": record.data if record is not None else None,
                }

        sums = {}
        for each in FIELDS:
            hours = await counters.history(None, each, period="hour")
            names = ("adds", "added", "subs", "subbed")
            sums[each] = {name: sum(getattr(hour, name) for hour in hours) for name in names}
        recalculated = {}
        for number in range(0, self.records, self.records // 20):
            done = await counters.recalculate(page_id(number))
            recalculated[page_id(number)] = {"totals": done.totals, "former": done.former}
        stats = await counters.stats()
        assert stats.pending == 0, stats
        return {
            "records": dict(await asyncio.gather(*(one(number) for number in numbers))),
            "sums": sums,
            "top": {each: [[top.id, top.value] for top in await counters.top(each, 10)] for each in FIELDS},
            "recalculated": recalculated,
            "duplicates": stats.duplicates,
            "starts": {
                page_id(number): {name: value for name, value in start_of(number).items() if name in FIELDS}
                for number in numbers
                if is_there_at_first(number)
            },
            "titles": {page_id(number): start_of(number)["title"] for number in numbers if is_there_at_first(number)},
        }

    def judged(self) -> tuple[int, dict[str, Any]]:
        """The judge is a program of its own."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "lab.counter_judge", "--events", str(self.events), "--final", str(self.final)),
                *("--notes", *map(str, sorted(self.folder.glob("*.notes")))),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        verdict: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, verdict


async def kill_leaders(cluster: CounterCluster, calm: float, options: tuple[str, ...], within: float) -> list[float]:
    """Each leader, so long after its first entry, for as long as anybody writes; how long each failover took.

    A new process of the same name takes the place of each.
    """
    took: list[float] = []
    leader, epoch = await cluster.next_leader(0, within), cluster.epoch
    while True:
        await asyncio.sleep(max(0.0, calm - _since(cluster)))
        if not cluster.writes():
            return took
        killed = 0.0
        if cluster.leader() is leader:
            await _in_mid_call(leader)
            cluster.kill(leader)
            killed = time.monotonic()
            cluster.start(leader.name, *options)
        leader = await cluster.next_leader(epoch, within)
        if killed:
            took.append(round(time.monotonic() - killed, 2))
        epoch = cluster.epoch


async def freeze_leaders(cluster: CounterCluster, calm: float, frozen: float, within: float) -> list[float]:
    """Each leader, likewise, until another leads, and for so long at least; then it goes on. When another led."""
    took: list[float] = []
    leader, epoch = await cluster.next_leader(0, within), cluster.epoch
    while True:
        await asyncio.sleep(max(0.0, calm - _since(cluster)))
        if not cluster.writes():
            return took
        if cluster.leader() is leader:
            cluster.pause(leader)
            began = time.monotonic()
            try:
                await cluster.next_leader(epoch, within)
                took.append(round(time.monotonic() - began, 2))
                await asyncio.sleep(max(0.0, began + frozen - time.monotonic()))
            finally:
                cluster.resume(leader)
        else:
            await cluster.next_leader(epoch, within)
        latest = cluster.leader()
        assert latest is not None
        leader, epoch = latest, cluster.epoch


async def _in_mid_call(member: Member) -> None:
    """Most often it is: so that there are calls of which nobody is told what became of them."""
    deadline = time.monotonic() + _MID_CALL
    while time.monotonic() < deadline:
        lines = member.log.read_bytes()[-4096:].split(b"\n")
        if len(lines) > 1 and lines[-2].startswith(b"adding "):
            return
        await asyncio.sleep(0.002)


def _since(cluster: CounterCluster) -> float:
    """Seconds since the newest leader's first entry was seen."""
    return (boottime_ns() - cluster.terms[cluster.epoch][1]) / 1e9

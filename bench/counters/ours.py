"""The measurements of our own counters, on one store."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.counters.figures import calls_json, load_json, requests_json, spent
from bench.counters.plan import Plan
from bench.queue.obey import ROOT, Node
from bench.queue.tree import memory_bytes
from bench.ttl.meter import COORDINATION

LEADER_WITHIN = 60.0
PATIENCE = 120.0
"""Seconds for what should take a few."""
SELDOM = 86_400.0
"""An `interval` after which nothing is consolidated by itself."""
BATCH = 20_000


class Fleet:
    """Some processes that count on a place of their own; the first of them leads."""

    def __init__(self, url: str, home: Path, processes: int, **settings: Any) -> None:
        self.home = home
        shutil.rmtree(home, ignore_errors=True)
        self.url, self.settings = url, settings
        self.nodes: list[Node] = []
        self._processes = processes

    def _start(self) -> None:
        options = {"url": self.url, "worker": f"counter-{len(self.nodes)}", "settings": self.settings}
        env = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        command = [sys.executable, "-m", "bench.counters.node", json.dumps(options)]
        self.nodes.append(Node(command, self.home / f"counter-{len(self.nodes)}.log", env))
        self.nodes[-1].answer(60)

    def __enter__(self) -> Self:
        try:
            self._start()
            deadline = time.monotonic() + LEADER_WITHIN
            while not self.leader.ask(do="look")["leads"]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"there is no leader after {LEADER_WITHIN:g} s; see the logs in {self.home}")
                time.sleep(0.1)
            while len(self.nodes) < self._processes:
                self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for node in self.nodes:
            node.end()

    @property
    def leader(self) -> Node:
        return self.nodes[0]

    def look(self) -> list[dict[str, Any]]:
        return [node.ask(do="look") for node in self.nodes]

    def all_add(self, within: float, **order: Any) -> list[dict[str, Any]]:
        """All at once, and what each has to say."""
        for node in self.nodes:
            node.tell(do="add", **order)
        return [node.answer(within) for node in self.nodes]


class Bench:
    """All of it on one store. `url_of`: the URL of a place in it that nobody has used."""

    def __init__(
        self, name: str, url_of: Callable[[str], str], home: Path, plan: Plan, tell: Callable[[str], None]
    ) -> None:
        self.name, self.home, self.plan, self.tell = name, home, plan, tell
        self._url_of = url_of
        self._fleets = 0

    def fleet(self, processes: int, **settings: Any) -> Fleet:
        self._fleets += 1
        place = f"{self.name}-{self._fleets}"
        return Fleet(self._url_of(place), self.home / place, processes, **settings)

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {"subject": f"tenure on {self.name}", "settings": "as it comes"}
        for part in self.plan.parts:
            try:
                found[part] = getattr(self, part)()
            except (RuntimeError, TimeoutError, OSError) as error:
                # One part that fails does not cost the others their figures.
                found.setdefault("failed", {})[part] = str(error)[-1000:]
                self.tell(f"{self.name}, {part} failed: {error}")
        return found

    def load(self) -> list[dict[str, Any]]:
        """Two processes add for so long; then everything is consolidated, and what the records say is compared."""
        found = []
        for callers in self.plan.callers:
            runs = [self._once(callers) for _ in range(self.plan.runs)]
            found.append({"callers": callers, "processes": 2, "records": self.plan.records, "runs": runs})
            rates = ", ".join(f"{run['consolidated_per_second']:,.0f}" for run in runs)
            self.tell(
                f"{self.name}, 2 x {callers:,} callers: {rates} adds/s, {runs[-1]['requests_each']} requests each"
            )
        return found

    def _once(self, callers: int) -> dict[str, Any]:
        seconds, records = self.plan.seconds, self.plan.records
        busy = os.getloadavg()[0]
        with self.fleet(2) as fleet:
            fleet.leader.ask(PATIENCE, do="seed", count=records)
            before = fleet.look()
            shares = fleet.all_add(seconds + PATIENCE, seconds=seconds, callers=callers, records=records)
            done = fleet.nodes[1].ask(2 * PATIENCE, do="consolidate", timeout=PATIENCE)
            after = fleet.look()
            total = fleet.leader.ask(PATIENCE, do="total", records=records)["total"]
        return {"load_average_before": round(busy, 1), **load_json(shares, done["ended"], before, after, total)}

    def calls(self) -> dict[str, Any]:
        """One caller, in a process that does not lead, and nobody else."""
        found = {}
        with self.fleet(2) as fleet:
            fleet.leader.ask(PATIENCE, do="seed", count=100)
            for what in ("add", "add, sync", "get", "get, consistent"):
                before = fleet.look()
                answer = fleet.nodes[1].ask(PATIENCE, do="one_by_one", what=what, times=self.plan.calls)
                found[what] = calls_json(answer["samples_ms"], spent(before[1:], fleet.look()[1:]))
                fleet.leader.ask(PATIENCE, do="consolidate", timeout=PATIENCE)
                self.tell(f"{self.name}, {what}: p50 {found[what]['p50_ms']} ms, p99 {found[what]['p99_ms']} ms")
        return found

    def growth(self) -> list[dict[str, Any]]:
        """What it costs to consolidate some of the records, by how many there are.

        `first`: the leader has not written them in its term, and reads them; `again`: it has.
        """
        return [self._grown(stored, touched) for stored in self.plan.stored for touched in self.plan.touched]

    def _grown(self, stored: int, touched: int) -> dict[str, Any]:
        row: dict[str, Any] = {"stored": stored, "touched": touched}
        with self.fleet(1, interval=SELDOM) as fleet:
            fleet.leader.ask(PATIENCE, do="seed", count=stored)
            for when in ("first", "again"):
                row[when] = self._touch(fleet, touched, stored // touched)
        first, again = (row[when]["requests_each"] for when in ("first", "again"))
        self.tell(f"{self.name}, {touched:,} of {stored:,} touched: {first} requests each, then {again}")
        return row

    def _touch(self, fleet: Fleet, touched: int, step: int) -> dict[str, Any]:
        before = fleet.look()
        fleet.leader.ask(PATIENCE, do="touch", count=touched, step=step)
        done = fleet.leader.ask(PATIENCE, do="consolidate", timeout=PATIENCE)
        requests = {kind: verbs for kind, verbs in spent(before, fleet.look()).items() if kind != COORDINATION}
        return {"seconds": round(done["ended"] - done["began"], 3), **requests_json(requests, touched)}

    def memory(self) -> dict[str, Any]:
        """So many records wait, each with one amount: what the leader holds for them."""
        count = self.plan.waiting
        with self.fleet(2, interval=SELDOM) as fleet:
            fleet.nodes[1].ask(do="touch", count=1)  # what comes with the first amount
            before = memory_bytes(fleet.leader.pid)
            for start in range(0, count, BATCH):
                fleet.nodes[1].ask(PATIENCE, do="touch", count=min(BATCH, count - start), first=start)
            deadline = time.monotonic() + PATIENCE
            while (stats := fleet.nodes[1].ask(PATIENCE, do="stats"))["records"] < count or stats["inbox"]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{stats} of {count:,} records after {PATIENCE:g} s")
                time.sleep(0.5)
            held = memory_bytes(fleet.leader.pid) - before
        self.tell(f"{self.name}, {count:,} records waiting: {held / 1e6:,.0f} MB in the leader")
        return {"records": count, "bytes": held, "bytes_per_record": round(held / count, 1)}

"""Fleets side by side, each in a bucket of its own: started, left alone, and counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench.coordination.figures import row_of, unrest
from bench.coordination.plan import Cell, Plan
from bench.coordination.proxy import CountingProxy
from bench.queue.figures import difference
from bench.queue.obey import Node
from lab.buckets import make_bucket
from lab.endpoint import S3Endpoint

LEADER_WITHIN = 150.0
_READY_WITHIN = 90.0


class Subject(Protocol):
    """Whose fleets are counted."""

    def start(self, cell: Cell, home: Path) -> Iterator[Node]:
        """Its processes, one by one. Each says when it is ready, and answers `look` with `leads` and `epoch`.

        The next one is asked for when the one before is ready: many that start together on a small machine time out.
        """
        ...


class Fleets:
    """The server is ours alone, and everybody reaches it through the proxy."""

    def __init__(
        self, endpoint: S3Endpoint, proxy: CountingProxy, home: Path, plan: Plan, tell: Callable[[str], None]
    ) -> None:
        self._endpoint, self._proxy, self._home, self._plan, self._tell = endpoint, proxy, home, plan, tell
        self.failed: list[str] = []

    def count(self, subject: Subject, cells: Sequence[Cell]) -> list[dict[str, Any]]:
        """A row for each cell. One whose fleet cannot be started costs no other its figures: see `failed`."""
        fleets: dict[Cell, list[Node]] = {}
        everybody: list[Node] = []
        load = [round(each, 1) for each in os.getloadavg()]
        try:
            for cell in cells:
                fleets[cell] = []
                self._try(cell, fleets, partial(self._start, subject, cell, fleets[cell], everybody))
            for cell, nodes in list(fleets.items()):
                self._try(cell, fleets, partial(_wait_for_leader, nodes))
            if not fleets:
                return []
            processes = sum(len(nodes) for nodes in fleets.values())
            self._tell(f"{len(fleets)} fleets of {cells[0].subject} in {processes} processes have leaders")
            time.sleep(self._plan.warm_up)
            return self._counted(fleets, load)
        finally:
            for node in everybody:
                node.process.kill()
            for node in everybody:
                node.end()

    def _start(self, subject: Subject, cell: Cell, nodes: list[Node], everybody: list[Node]) -> None:
        make_bucket(self._endpoint, cell.bucket)
        for node in subject.start(cell, self._home / cell.bucket):
            everybody.append(node)
            nodes.append(node)
            node.answer(_READY_WITHIN)

    def _try(self, cell: Cell, fleets: dict[Cell, list[Node]], step: Callable[[], None]) -> None:
        """A step for one fleet. If it fails, that fleet is ended."""
        try:
            step()
        except (RuntimeError, TimeoutError, OSError) as error:
            for node in fleets.pop(cell):
                node.process.kill()
            self._fail(cell, error)

    def _fail(self, cell: Cell, error: Exception) -> None:
        lines = str(error).strip().splitlines()
        self.failed.append(
            f"{cell.bucket}: {lines[0]} … {lines[-1].strip()}" if len(lines) > 1 else f"{cell.bucket}: {error}"
        )
        self._tell(self.failed[-1])

    def _counted(self, fleets: dict[Cell, list[Node]], load: list[float]) -> list[dict[str, Any]]:
        looks = {cell: look(nodes) for cell, nodes in fleets.items()}
        self._proxy.load()
        began = time.monotonic()
        before = {cell: self._proxy.counts(cell.bucket) for cell in fleets}
        time.sleep(self._plan.seconds_of(list(fleets)))
        after = {cell: self._proxy.counts(cell.bucket) for cell in fleets}
        seconds = time.monotonic() - began
        borne = self._proxy.load()
        rows = []
        then_of = {cell: look(nodes) for cell, nodes in fleets.items()}
        for cell, then in then_of.items():
            more = {
                "processes": len(fleets[cell]),
                "leaders": then["leads"],
                "epochs": then["epoch"] - looks[cell]["epoch"],
                "load_average_before": load,
                "proxy": borne,
            }
            if then["requests"]:
                # For comparison with the proxy's count. They are asked just before and just after.
                more["sent_by_their_own_count"] = then["requests"] - looks[cell]["requests"]
            row = row_of(cell, difference(after[cell], before[cell]), seconds, **more)
            if reason := unrest(row):
                self._fail(cell, RuntimeError(reason))
            else:
                rows.append(row)
        return rows


def _wait_for_leader(nodes: Sequence[Node]) -> None:
    deadline = time.monotonic() + LEADER_WITHIN
    while not look(nodes)["leads"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no leader within {LEADER_WITHIN:g} s")
        time.sleep(0.5)


def look(nodes: Sequence[Node]) -> dict[str, int]:
    """How many believe that they lead, the highest epoch that any knows, and what they say they have sent."""
    for node in nodes:
        node.tell(do="look")
    answers = [node.answer(60) for node in nodes]
    return {
        "leads": sum(answer["leads"] for answer in answers),
        "epoch": max(answer["epoch"] for answer in answers),
        "requests": sum(sum(answer.get("requests", {}).values()) for answer in answers),
    }

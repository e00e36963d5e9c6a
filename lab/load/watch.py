"""Notes what the coordinators of a process believe, and how their hearts beat: one thread for all of them.

Two files, every instant in them of CLOCK_BOOTTIME:

- `belief`, as `lab.judge` reads it. Each coordinator is asked fifty times a second. A line that says what the one
  before it said, neither leading nor holding, is left out for up to a second: such lines prove nothing about who led.
- `beats`, as `lab.load.beat_judge` reads it:

      beat AT_NS PROCESS COUNT SUM_US REQUESTS     heartbeats so far, what they took together, requests so far
      renewed AT_NS PROCESS EPOCH UNTIL_NS         a leader learned that its lease holds until then
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from lab.believer import Belief, boottime_ns
from tenure import Database, GlobalCoordinatorService

PERIOD = 0.020
_PASSES = 50
"""Once in so many passes each coordinator's metrics are read, and a line of its belief is written whatever it says."""
_RENEWED_NS = 100_000_000
"""A lease that holds for longer than was known, by more than clocks may be read apart, was renewed."""


class Member:
    def __init__(self, database: Database, coordinator: GlobalCoordinatorService, worker_id: str) -> None:
        self.database, self.coordinator = database, coordinator
        self.belief = Belief(coordinator, worker_id)
        self.process = self.belief.process
        self._said: tuple[bool, bool] | None = None
        self._beats = 0
        self._until_ns = 0

    def believes(self, due: bool) -> str:
        """A line of belief, or nothing."""
        before_ns, after_ns, leading, holding = self.belief.ask()
        said = (leading, holding)
        if not (leading or holding or due) and said == self._said:
            return ""
        self._said = said
        return self.belief.line(before_ns, after_ns, leading, holding)

    def beats(self) -> str:
        metrics = self.coordinator.get_metrics()
        if metrics.heartbeat_count == self._beats:
            return ""
        self._beats = metrics.heartbeat_count
        took_us, asked = round(metrics.heartbeat_duration_sum * 1e6), self.database.usage().total
        return f"beat {boottime_ns()} {self.process} {self._beats} {took_us} {asked}\n"

    def renewed(self) -> str:
        lead = self.belief.lead
        if lead is None or not lead.is_current():
            return ""
        at_ns = boottime_ns()
        until_ns = at_ns + round(lead.time_to_wind_up() * 1e9)
        if until_ns < self._until_ns + _RENEWED_NS:
            return ""
        self._until_ns = until_ns
        return f"renewed {at_ns} {self.process} {lead.epoch} {until_ns}\n"


class Watch:
    """Members may be added while it runs."""

    def __init__(self, stem: Path) -> None:
        self.members: list[Member] = []
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._belief = os.open(stem.with_suffix(".belief"), flags, 0o644)
        self._beats = os.open(stem.with_suffix(".beats"), flags, 0o644)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(PERIOD):
            self._look(list(self.members), number % _PASSES)
            number += 1

    def _look(self, members: Sequence[Member], turn: int) -> None:
        for index, member in enumerate(members):
            due = index % _PASSES == turn
            if line := member.believes(due):
                os.write(self._belief, line.encode())
            if line := member.renewed():
                os.write(self._beats, line.encode())
            if due and (line := member.beats()):
                os.write(self._beats, line.encode())

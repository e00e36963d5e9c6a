"""Queues, schedules, counters and supervised children: which there are, and a look at each in its turn.

They are searched for once a minute, and in the first one more often. Each is looked at every ten seconds, or more
rarely if there are so many that the budget of looks a second does not suffice.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from tenure.clock import Clock, Reading
from tenure.dashboard.bounds import (
    LOOKS_AT_ONCE,
    LOOKS_PER_SECOND,
    LOOKS_UNDER_WAY,
    MAX_CHILDREN,
    MAX_COUNTERS,
    MAX_JOBS,
    MAX_QUEUES,
    MAX_SCHEDULES,
    MAX_SNAPSHOTS_BYTES,
    MAX_SUPERVISORS,
)
from tenure.dashboard.children import ChildrenLook
from tenure.dashboard.looks import CounterLook, QueueLook, ScheduleLook
from tenure.dashboard.sections import Children, Counters, JobRow, Queues, Schedules
from tenure.errors import StoreError
from tenure.observe.ledgers import READS_FROM_THE_START, ledgers_at
from tenure.store import Store

_log = logging.getLogger("tenure.dashboard")

SECONDS_BETWEEN_LOOKS = 10.0
SECONDS_BETWEEN_SEARCHES = 60.0
SECONDS_BETWEEN_FIRST_SEARCHES = 5.0
"""In its first minute: a dashboard is often started together with the fleet that it shows."""
_LOOKED_TO_THE = 30_000
"""Milliseconds: when a queue was last looked at is no news, and told that exactly."""

Look: TypeAlias = QueueLook | ScheduleLook | CounterLook | ChildrenLook
KINDS: dict[str, tuple[str, int, Callable[[Store, str, Clock], Look]]] = {
    "queues": (QueueLook.slug, MAX_QUEUES, QueueLook),
    "schedules": (ScheduleLook.slug, MAX_SCHEDULES, ScheduleLook),
    "counters": (CounterLook.slug, MAX_COUNTERS, CounterLook),
    "children": ("supervisor", MAX_SUPERVISORS, ChildrenLook),
}
"""By section: where they lie, how many are looked at, and how."""


class Budget:
    """So many looks a second, and some more after a pause."""

    def __init__(self, clock: Clock, per_second: float = LOOKS_PER_SECOND, at_once: float = LOOKS_AT_ONCE) -> None:
        self._clock = clock
        self._per_second = per_second
        self._at_once = at_once
        self._left = at_once
        self._filled: Reading = clock.read()

    async def spend(self) -> None:
        while True:
            now = self._clock.read()
            self._left = min(self._at_once, self._left + self._per_second * max(0.0, now.leader_elapsed(self._filled)))
            self._filled = now
            if self._left >= 1:
                self._left -= 1
                return
            await self._clock.sleep((1 - self._left) / self._per_second + 0.001)


class Work:
    def __init__(self, store: Store, clock: Clock, provider: str) -> None:
        self._store = store
        self._clock = clock
        self._begins_anew = provider not in READS_FROM_THE_START
        self._budget = Budget(clock)
        self._looks: dict[str, dict[str, Look]] = {section: {} for section in KINDS}
        self._last: dict[tuple[str, str], Reading] = {}
        self._began = clock.read()
        self._searched: Reading | None = None
        self.totals: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.changed: set[str] = set(KINDS)
        """Sections that something was looked at for since they were last made."""

    async def search(self) -> None:
        """Which there are, if it is time. Raises `StoreError`."""
        now = self._clock.read()
        is_young = now.leader_elapsed(self._began) < SECONDS_BETWEEN_SEARCHES
        pause = min(SECONDS_BETWEEN_FIRST_SEARCHES, SECONDS_BETWEEN_SEARCHES) if is_young else SECONDS_BETWEEN_SEARCHES
        if self._searched is not None and now.leader_elapsed(self._searched) < pause:
            return
        for section, (slug, most, make) in KINDS.items():
            found = await ledgers_at(self._store, slug, most + 1, begins_anew=self._begins_anew)
            names, known = found.names[:most], self._looks[section]
            self._looks[section] = {name: known.get(name) or make(self._store, name, self._clock) for name in names}
            self.totals[section] = len(found.names)
            self.changed.add(section)
        self._last = {key: when for key, when in self._last.items() if key[1] in self._looks[key[0]]}
        self._searched = now

    def hurry(self, section: str, name: str) -> None:
        """Something was asked of it: what came of that should soon be seen."""
        self._last.pop((section, name), None)

    async def look(self) -> bool:
        """At some of those that it is time for, within the budget. False: there were none. Raises `StoreError`."""
        due = self._due()
        waiting = iter(due)

        async def looker() -> None:
            for section, look in waiting:
                await self._budget.spend()
                self._last[section, look.name] = self._clock.read()
                await look.look(self._room(look))
                self.changed.add(section)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(LOOKS_UNDER_WAY):
                    group.create_task(looker())
        except ExceptionGroup as errors:
            store = next((each for each in errors.exceptions if isinstance(each, StoreError)), None)
            raise (store or errors.exceptions[0]) from None
        return bool(due)

    def _due(self) -> list[tuple[str, Look]]:
        """Those that were not looked at for longest come first."""
        now = self._clock.read()
        due: list[tuple[float, str, Look]] = []
        for section, looks in self._looks.items():
            for name, look in looks.items():
                last = self._last.get((section, name))
                waited = now.leader_elapsed(last) if last is not None else float("inf")
                if waited >= SECONDS_BETWEEN_LOOKS:
                    due.append((waited, section, look))
        due.sort(key=lambda each: -each[0])
        return [(section, look) for _, section, look in due[:LOOKS_PER_SECOND]]

    def _room(self, look: Look) -> int:
        taken = sum(each.bytes for looks in self._looks.values() for each in looks.values() if each is not look)
        return MAX_SNAPSHOTS_BYTES - taken

    # Sections

    def _of(self, section: str) -> Iterable[Look]:
        return self._looks[section].values()

    def queues(self) -> tuple[Queues, Queues]:
        """As it is, and what of it counts as news."""
        rows = [look.row() for look in self._of("queues") if isinstance(look, QueueLook)]
        news = [
            msgspec.structs.replace(row, looked_ms=None if row.looked_ms is None else row.looked_ms // _LOOKED_TO_THE)
            for row in rows
        ]
        total = self.totals["queues"]
        return Queues(total=total, rows=rows), Queues(total=total, rows=news)

    def schedules(self) -> Schedules:
        looks = [look for look in self._of("schedules") if isinstance(look, ScheduleLook)]
        jobs = heapq.nsmallest(MAX_JOBS, (job for look in looks for job in look.jobs), key=_soonest)
        return Schedules(
            total=sum(len(look.jobs) for look in looks), schedules=[look.row() for look in looks], rows=jobs
        )

    def counters(self) -> Counters:
        return Counters(rows=[look.row() for look in self._of("counters") if isinstance(look, CounterLook)])

    def children(self) -> Children:
        rows = [row for look in self._of("children") if isinstance(look, ChildrenLook) for row in look.rows]
        return Children(rows=rows[:MAX_CHILDREN])


def _soonest(job: JobRow) -> tuple[bool, int, str, str]:
    return job.next_ms is None, job.next_ms or 0, job.schedule, job.id

"""Watches supervised children from outside: which process runs which of them, at every instant of true time."""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.plugins.supervisor.child import Context
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster
from tenure.testing.host import Host

AWAKE_SECONDS = 0.8
"""Who slept through the end of its lease notices that in this time, and ends what is slow to end."""
AMPLE_SECONDS = 2.5
"""With so much left of a lease each child gets the time that it needs to end, before the next is told to."""
_LOOK_SECONDS = 0.25


class Run(msgspec.Struct, eq=False):
    """One start of a child, until it has ended."""

    child: str
    context: Context
    host: Host
    life: str
    """The candidate that it belongs to."""
    is_up: bool = False
    is_told: bool = False
    """It was told to end."""

    @property
    def node(self) -> str:
        return self.host.name

    @property
    def epoch(self) -> int:
        return self.context.lead.epoch if self.context.lead is not None else 0

    def time_to_wind_up(self) -> float:
        return self.context.lead.time_to_wind_up() if self.context.lead is not None else 0.0


class ChildrenJudge:
    """One process for each child, starts and ends in order, restarts within limits; in the end each runs."""

    def __init__(self, cluster: SimulatedCluster, checkers: Checkers, children: tuple[str, ...], most: int) -> None:
        """`children`: in the order in which they start. `most`: starts of a child that always fails."""
        self._cluster = cluster
        self._world = cluster.world
        self._checkers = checkers
        self._children = children
        self._most = most
        self._runs: dict[str, list[Run]] = {name: [] for name in children}
        self._paused: dict[str, float] = {}
        self._tokens: Counter[str] = Counter()
        self._starts: Counter[tuple[str, int, str]] = Counter()
        self._was_up: set[tuple[str, int, str]] = set()
        self.seen: Counter[str] = Counter()
        self._stepped = self._world.on_step
        self._world.on_step = self._step

    def _step(self, host: Host) -> None:
        if self._stepped is not None:
            self._stepped(host)
        self._see_pauses()

    def _see_pauses(self) -> None:
        now = self._world.now
        for worker in self._cluster.workers.values():
            if worker.host.frozen or worker.host.machine.resumes_at > now:
                self._paused[worker.name] = now

    # What children do

    def began(self, run: Run) -> None:
        child, context, name = run.child, run.context, run.node
        self.seen["started"] += 1
        if not self._cluster.workers[name].is_leader():
            self._checkers.report("leads", f"{name} starts {child}, and does not lead")
        if context.token <= self._tokens[child]:
            self._checkers.report("tokens", f"{child} has token {context.token}, after {self._tokens[child]}")
        self._tokens[child] = max(self._tokens[child], context.token)
        term = (run.life, run.epoch, child)
        self._starts[term] += 1
        if child == HOPELESS and self._starts[term] > self._most:
            self._checkers.report("too-often", f"{child} was started {self._starts[term]} times in one term of {name}")
        if self._starts[term] == 1:
            self._check_order_of_starts(run)
        else:
            self.seen["started again"] += 1
        self._runs[child].append(run)
        for other in self._active(child):
            if other is not run:
                self._look(other, run)

    def restarted(self, life: str) -> None:
        """A candidate that was stopped is started: what happened before does not count any more."""
        for term in [term for term in self._starts if term[0] == life]:
            del self._starts[term]
        self._was_up = {term for term in self._was_up if term[0] != life}

    def _check_order_of_starts(self, run: Run) -> None:
        position = self._children.index(run.child)
        for before in self._children[:position]:
            if (run.life, run.epoch, before) not in self._was_up:
                self._checkers.report("order", f"{run.node} starts {run.child} before {before} is up")

    def up(self, run: Run) -> None:
        run.is_up = True
        self._was_up.add((run.life, run.epoch, run.child))

    def went_on(self, run: Run) -> None:
        """Its code was resumed after a wait, as if nothing had happened.

        A lease that only a wall clock ended is still ours in truth, and its end may be noticed somewhat later.
        """
        lead = run.context.lead
        if lead is None or not run.host.alive:
            return
        holding = lead.holding
        if run.context.clock.read().leader_elapsed(holding.since) >= holding.lasts:
            self._checkers.report("without-lease", f"{run.child} of {run.node} went on when its lease was over")

    def told(self, run: Run) -> None:
        """It is cancelled, or its `stop` is called."""
        if run.is_told or not run.host.alive:
            return
        run.is_told = True
        self.seen["told to end"] += 1
        is_ample = run.time_to_wind_up() > AMPLE_SECONDS and not self._has_paused(run.node)
        later = self._children[self._children.index(run.child) + 1 :]
        for other in (other for child in later for other in self._active(child)):
            if other.life == run.life and (is_ample or not other.is_told):
                self._checkers.report("order", f"{run.node} ends {run.child} before {other.child} has ended")

    def ended(self, run: Run) -> None:
        if run.host.alive:
            self.seen["ended"] += 1
        if run in self._runs[run.child]:
            self._runs[run.child].remove(run)

    # One process at every instant

    def _active(self, child: str) -> list[Run]:
        self._runs[child] = [run for run in self._runs[child] if run.host.alive]
        return self._runs[child]

    def _has_paused(self, name: str) -> bool:
        self._see_pauses()
        return self._world.now - self._paused.get(name, -1000.0) <= AWAKE_SECONDS

    def _look(self, older: Run, newer: Run) -> None:
        """Both have begun and, as far as is known, neither has ended."""
        active = self._active(older.child)
        if older not in active or newer not in active:
            return
        if older.host is newer.host:
            self._checkers.report("beside-itself", f"{older.node} runs {older.child} twice")
        elif self._has_paused(older.node) or self._has_paused(newer.node):
            self.seen["winding up after a pause"] += 1
            self._world.call_at(self._world.now + _LOOK_SECONDS, self._look, older, newer)
        else:
            self._checkers.report("one-node", f"{older.node} and {newer.node} run {older.child} at once")

    # In the end

    def missing(self) -> list[str]:
        """Children that do not run, or run elsewhere than on the leader, or more than once."""
        leaders = self._cluster.leaders()
        return [
            child
            for child in self._children
            if child != HOPELESS and [run.node for run in self._active(child)] != leaders
        ]

    def check_runs(self, seconds: float) -> None:
        if missing := self.missing():
            self._checkers.report("runs", f"{missing} did not run on the leader alone within {seconds:.0f} s of calm")


HOPELESS = "hopeless"
"""The child that always fails."""

"""A list of children that runs on the leader and nowhere else.

Guarantee: children start in order, and only under a leadership that holds; each is started again as its policy says;
when leadership ends they are stopped in reverse order, within the time that the lease leaves. At any instant a child
that yields to cancellation, or is an OS command, runs on one node at most.

Not guaranteed: that an async child which ignores cancellation, or blocks its loop, has ended when the lease passes on.
It is reported by name as `lease:overran`, it is never started beside itself, and its token lets others refuse it.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterable, Sequence

from tenure.clock import Clock
from tenure.coordinator.events import OverranLease
from tenure.coordinator.fenced import Fence
from tenure.coordinator.given import check_instance
from tenure.coordinator.lead import Lead
from tenure.coordinator.overrun import EXITS_BEFORE
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.errors import ConfigError, LeadershipLost
from tenure.plugins.supervisor.child import Child, ChildStatus, Context, token_of
from tenure.plugins.supervisor.keeper import Keeper
from tenure.plugins.supervisor.restarts import GiveUp, RestartPolicy
from tenure.plugins.supervisor.status import MAX_CHILDREN, StatusBoard, folder_of

_log = logging.getLogger("tenure.supervisor")

_LAST_CHANCE = 0.05
"""Where no time is left, a child that yields still gets this long to do so before it is reported."""
_LAST_WORD = 1.0
"""Seconds for writing down that all have stopped, if the lease lasts."""
_RESERVE = EXITS_BEFORE + 0.1
"""Seconds of the remaining lease that are not given to children: a process that must not overlap its successor ends
just before it, and only if something still runs."""


_Starts = dict[tuple[str, str], tuple[int, int]]
"""By supervisor and child: the number of an assignment, and how often it was started under that."""
_starts_of_terms: weakref.WeakKeyDictionary[Lead, _Starts] = weakref.WeakKeyDictionary()


class Assignment:
    """By what right children run here: an elected leadership, or a static one (`lead` is `None`)."""

    def __init__(
        self,
        *,
        database: Database,
        node: str,
        number: int,
        fence: Fence,
        lead: Lead | None = None,
        coordinator: GlobalCoordinatorService | None = None,
    ) -> None:
        self.database = database
        self.node = node
        self.number = number
        """Rises from one assignment to the next, on whichever node: the epoch, if there is one."""
        self.fence = fence
        self.lead = lead
        self.coordinator = coordinator

    def holds(self) -> bool:
        return self.lead is None or self.lead.is_current()

    def ensure(self) -> None:
        """Also while it is being wound up: the lease is still ours then."""
        if self.lead is not None and not self.lead.holds():
            raise LeadershipLost(f"epoch {self.lead.epoch} of {self.lead.namespace!r} is over")

    def time_to_stop(self) -> float:
        return float("inf") if self.lead is None else self.lead.time_to_wind_up()


class CoordinatorSupervisor:
    """Runs `children` for as long as it is told to. `CoordinatorCandidate` tells it, term by term."""

    def __init__(
        self, children: Sequence[Child], *, name: str = "default", restarts: RestartPolicy | None = None
    ) -> None:
        folder_of(name)
        self.name = name
        check_instance("children", children, Iterable)
        if restarts is not None:
            check_instance("restarts", restarts, RestartPolicy)
        self.children = tuple(children)
        self.policy = restarts if restarts is not None else RestartPolicy()
        if len(self.children) > MAX_CHILDREN:
            raise ConfigError(f"children are {len(self.children)}: a supervisor has at most {MAX_CHILDREN}")
        names: set[str] = set()
        for child in self.children:
            if not isinstance(child, Child):
                raise ConfigError(f"children has {child!r}: wrap it as Child('a-name', {child!r})")
            if child.name in names:
                raise ConfigError(f"two children are called {child.name!r}: give each a name of its own")
            names.add(child.name)
        self._keepers: list[Keeper] = []
        self._starts: _Starts = {}
        self._left_behind: dict[str, Keeper] = {}
        self.gave_up: Callable[[Child], None] = lambda child: None
        """Called when a child failed too often."""

    def __repr__(self) -> str:
        return f"<CoordinatorSupervisor {self.name!r} of {len(self.children)} children>"

    def status(self) -> tuple[ChildStatus, ...]:
        """Every child, as it is on this node. `read_status` shows them as they are on the leader."""
        if self._keepers:
            return tuple(keeper.status for keeper in self._keepers)
        return ()

    async def run(self, assignment: Assignment, *, stop_within: float) -> None:
        """Run the children until cancelled; returns, or lets the cancellation through, when all have ended.

        `stop_within`: seconds for stopping all of them, if the lease leaves as much.
        """
        if self._keepers:
            raise ConfigError(f"{self!r} runs already: make one for each candidate")
        clock = assignment.database.clock
        board = StatusBoard(
            assignment.database.store,
            self.name,
            assignment.fence,
            assignment.node,
            self.status,
            clock=clock,
            draw_id=assignment.database.draw_id,
            still_leading=assignment.ensure,
        )
        writing = asyncio.get_running_loop().create_task(board.run())
        self._keepers = [self._keeper(child, assignment, board.changed) for child in self.children]
        board.changed()
        try:
            for keeper in self._keepers:
                if not assignment.holds():
                    break
                keeper.begin()
                await keeper.up()
            await asyncio.get_running_loop().create_future()
        finally:
            # In a task of its own: whoever is cancelled twice must not leave children behind.
            stopping = asyncio.get_running_loop().create_task(self._stop(assignment, stop_within, clock))
            await _outlive(stopping)
            writing.cancel()
            if assignment.time_to_stop() > 2 * _LAST_WORD:
                await _outlive(asyncio.get_running_loop().create_task(board.write_last(_LAST_WORD)))
            self._keepers = []

    def _keeper(self, child: Child, assignment: Assignment, changed: Callable[[], None]) -> Keeper:
        def context() -> Context:
            return Context(
                name=child.name,
                token=self._next_token(child, assignment),
                node=assignment.node,
                database=assignment.database,
                coordinator=assignment.coordinator,
                lead=assignment.lead,
                clock=assignment.database.clock,
                statuses=self.status,
            )

        return Keeper(
            child,
            self.policy,
            context=context,
            may_begin=assignment.holds,
            clock=assignment.database.clock,
            random=assignment.database.random,
            changed=changed,
            gave_up=lambda child: self._child_given_up(child, assignment),
            after=self._left_behind.pop(child.name, None),
        )

    def _next_token(self, child: Child, assignment: Assignment) -> int:
        """Counted over all that ever ran here under this right: children may be stopped and started within a term, also
        by a supervisor that takes the place of another."""
        starts = self._starts if assignment.lead is None else _starts_of_terms.setdefault(assignment.lead, {})
        name = (self.name, child.name)
        before, count = starts.get(name, (0, 0))
        count = count + 1 if before == assignment.number else 1
        starts[name] = (assignment.number, count)
        return token_of(assignment.number, count)

    def _child_given_up(self, child: Child, assignment: Assignment) -> None:
        self.gave_up(child)
        if self.policy.give_up is GiveUp.STEP_DOWN and assignment.coordinator is not None:
            stepping = asyncio.get_running_loop().create_task(_step_down(assignment.coordinator, child))
            _stepping_down.add(stepping)
            stepping.add_done_callback(_stepping_down.discard)

    async def _stop(self, assignment: Assignment, stop_within: float, clock: Clock) -> None:
        """In reverse order, each with a fair share of what is left; then wait for those that would not."""
        began = clock.read()
        stuck: list[Keeper] = []
        waiting = list(reversed(self._keepers))
        for number, keeper in enumerate(waiting):
            left = min(stop_within - clock.read().leader_elapsed(began), assignment.time_to_stop())
            share = max(0.0, left - _RESERVE) / (len(waiting) - number)
            # One that ends at once leaves its share to the others.
            if not await keeper.stop(min(keeper.child.stop_within, share)):
                stuck.append(keeper)
        if stuck and assignment.lead is not None:
            await self._outlast(stuck, assignment)
        elif stuck:
            names = ", ".join(repr(keeper.child.name) for keeper in stuck)
            _log.error("children %s did not stop within %g s, and are left behind", names, stop_within)
            self._left_behind |= {keeper.child.name: keeper for keeper in stuck}

    async def _outlast(self, stuck: list[Keeper], assignment: Assignment) -> None:
        """The lease must not be given away over the head of a child that still runs."""
        waiting: set[asyncio.Task[None]] = {asyncio.get_running_loop().create_task(keeper.gone()) for keeper in stuck}
        try:
            _, waiting = await asyncio.wait(waiting, timeout=_LAST_CHANCE)
            while waiting and (left := assignment.time_to_stop()) > 0:
                _, waiting = await asyncio.wait(waiting, timeout=min(left, 1.0))
            if waiting:
                names = ", ".join(repr(keeper.child.name) for keeper in stuck if not keeper.has_gone)
                _log.warning("children %s still run, and the lease has run out", names)
                if assignment.coordinator is not None and assignment.lead is not None:
                    lead = assignment.lead
                    assignment.coordinator.emit(OverranLease(lead.namespace, lead.epoch, f"children {names}"))
                await asyncio.wait(waiting)
        finally:
            for task in waiting:
                task.cancel()


async def _outlive(task: asyncio.Task[None]) -> None:
    """Wait for its end, also if we are cancelled: that was heard already."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if asyncio.get_running_loop().is_closed():
                raise
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a defect of tenure while children were stopped", exc_info=error)


_stepping_down: set[asyncio.Task[None]] = set()
"""So that they are not collected before they are done."""


async def _step_down(coordinator: GlobalCoordinatorService, child: Child) -> None:
    try:
        await coordinator.leave(f"child {child.name!r} keeps failing")
    except LeadershipLost:
        pass

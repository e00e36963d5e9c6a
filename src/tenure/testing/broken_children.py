"""Supervisors that are broken on purpose."""

from __future__ import annotations

from typing import Any

from tenure.plugins.supervisor import running as running_module
from tenure.plugins.supervisor.candidate import CoordinatorCandidate
from tenure.plugins.supervisor.child import token_of
from tenure.plugins.supervisor.keeper import Keeper
from tenure.plugins.supervisor.restarts import Again, Done, Intensity, TooOften
from tenure.plugins.supervisor.running import LeasedCoroutine
from tenure.plugins.supervisor.supervisor import CoordinatorSupervisor
from tenure.testing.broken import Patch, Variant


def _outlive_the_lease() -> list[Patch]:
    async def leave(self: CoordinatorSupervisor, *arguments: Any) -> None:
        return

    return [(CoordinatorSupervisor, "_stop", leave)]


def _end_not_awaited() -> list[Patch]:
    async def stop(self: Keeper, within: float) -> bool:
        if self._task is not None:
            self._task.cancel()
        if self._running is not None:
            await self._running.stop(0.0)
        return True

    return [(Keeper, "stop", stop)]


def _started_beside_itself() -> list[Patch]:
    begin = Keeper.begin

    def begin_twice(self: Keeper) -> None:
        begin(self)
        begin(self)

    return [(Keeper, "begin", begin_twice)]


def _started_everywhere() -> list[Patch]:
    start = CoordinatorCandidate.start

    async def start_at_once(self: CoordinatorCandidate) -> None:
        self.election_enabled, self.cluster_coordinator = False, True
        await start(self)

    return [(CoordinatorCandidate, "start", start_at_once)]


def _stopped_in_order_of_start() -> list[Patch]:
    stop = CoordinatorSupervisor._stop

    async def forwards(self: CoordinatorSupervisor, *arguments: Any) -> None:
        self._keepers.reverse()
        await stop(self, *arguments)

    return [(CoordinatorSupervisor, "_stop", forwards)]


def _started_all_at_once() -> list[Patch]:
    async def up(self: Keeper) -> None:
        return

    return [(Keeper, "up", up)]


def _not_restarted() -> list[Patch]:
    return [(Intensity, "ended", lambda self, *arguments: Done())]


def _restarted_without_limit() -> list[Patch]:
    ended = Intensity.ended

    def again(self: Intensity, *arguments: Any) -> Any:
        verdict = ended(self, *arguments)
        return Again(0.2) if isinstance(verdict, TooOften) else verdict

    return [(Intensity, "ended", again)]


def _resumed_without_lease() -> list[Patch]:
    class Unleased(LeasedCoroutine):
        def __init__(self, coroutine: Any, may_go_on: Any) -> None:
            super().__init__(coroutine, lambda: True)

    return [(running_module, "LeasedCoroutine", Unleased)]


def _token_of_the_term() -> list[Patch]:
    return [(CoordinatorSupervisor, "_next_token", lambda self, child, assignment: token_of(assignment.number, 1))]


CHILDREN_VARIANTS = tuple(
    Variant(f"children-{name}", leaves_out, check, patches)
    for name, leaves_out, check, patches in (
        ("outlive-lease", "children go on when leadership is over", "one-node", _outlive_the_lease),
        ("started-everywhere", "a candidate runs its children, elected or not", "leads", _started_everywhere),
        ("end-not-awaited", "the next child is told to end before the last has", "order", _end_not_awaited),
        ("started-beside-itself", "a child is started while it runs", "beside-itself", _started_beside_itself),
        ("stopped-forwards", "children end in the order in which they started", "order", _stopped_in_order_of_start),
        ("started-at-once", "a child is started before the one before it is up", "order", _started_all_at_once),
        ("not-restarted", "a child that fails is left alone", "runs", _not_restarted),
        ("restarted-for-ever", "a child that always fails is never given up", "too-often", _restarted_without_limit),
        ("resumed-without-lease", "code that slept through its lease goes on", "without-lease", _resumed_without_lease),
        ("token-of-the-term", "each start in a term has the same token", "tokens", _token_of_the_term),
    )
)

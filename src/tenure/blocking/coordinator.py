"""One coordinator of a namespace, for threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from tenure.blocking.leading import Leader, Leadership, OnLost, Overrun
from tenure.blocking.portal import Flag, Portal
from tenure.coordinator.breaker import CircuitBreakerStatus
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.events import Handler, Subscription
from tenure.coordinator.hooks import HookOverrun
from tenure.coordinator.metrics import CoordinatorMetrics
from tenure.coordinator.outside import Handover
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.errors import CoordinationError, TenureError, WorkerReplaced

T = TypeVar("T")

__all__ = ["Coordinator", "Subscription"]


class Coordinator:
    """The coordinator of one namespace in this process. Made by `Database.get_global_coordinator()`.

    Every method may be called from any thread. Those that make no request (`is_leader`, `get_epoch`, …) do not wait.
    """

    def __init__(self, portal: Portal, service: GlobalCoordinatorService) -> None:
        self._portal = portal
        self._service = service
        self._last: Leader | None = None
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<blocking Coordinator {self.namespace!r} as {self.worker_id!r}>"

    @property
    def namespace(self) -> str:
        return self._service.namespace

    @property
    def worker_id(self) -> str:
        return self._service.worker_id

    @property
    def config(self) -> CoordinatorConfig:
        return self._service.config

    # Who leads

    def is_leader(self, worker_id: str | None = None) -> bool:
        """Does this process lead, at this instant? A local comparison, with no request; false in a forked child.

        With another worker's id: was it the leader when the lease was last looked at?
        """
        return self._service.is_leader(worker_id)

    @property
    def lead(self) -> Leader | None:
        """The leadership of this process, with epoch, time left and fenced writes; `None` if it does not lead.

        Nothing waits for what you do with it: for work under a lease use `leadership()`.
        """
        lead = self._service.lead
        if lead is None:
            return None
        last = self._last
        if last is None or last.epoch != lead.epoch:
            last = self._last = Leader(lead, self._portal, Flag())
        return last

    def get_epoch(self) -> int:
        """The highest epoch that this process has seen; 0 before the first."""
        return self._service.get_epoch()

    def get_leader(self, *, fresh: bool = False) -> str | None:
        """Who leads, as last observed; `fresh=True` reads the store. `None` also once the lease has lapsed."""
        return self._portal.call(lambda: self._service.get_leader(fresh=fresh))

    @property
    def observed_age(self) -> float | None:
        """How old what `get_leader()` goes by is, in seconds; `None`: the lease was not seen yet."""
        return self._service.observed_age

    def get_active_workers(self, *, fresh: bool = False) -> list[str]:
        """Who is alive, as last observed; `fresh=True` lists the store. Empty in election-only mode."""
        return self._portal.call(lambda: self._service.get_active_workers(fresh=fresh))

    def get_metrics(self) -> CoordinatorMetrics:
        """What was counted since this coordinator was made."""
        return self._service.get_metrics()

    def get_circuit_breaker_status(self) -> CircuitBreakerStatus:
        return self._service.get_circuit_breaker_status()

    @property
    def running(self) -> bool:
        """Does this process take part in the namespace? If not, `replaced` says whether it could again."""
        return self._service.running

    @property
    def replaced(self) -> bool:
        """Has a newer process taken this worker id? Then this coordinator has stopped, and `start()` raises."""
        return self._service.replaced

    # Life

    def start(self) -> None:
        """Join the fleet. Returns as soon as the heartbeat runs; use `leadership()` to wait until this process leads.

        Raises `ConfigConflict` if the namespace was founded with other rules, and `StoreError` if it cannot be reached.
        """
        self._portal.call(self._service.start)
        self._is_stopped = False

    def stop(self) -> None:
        """Leave the fleet: wait for bodies on other threads (`drain_timeout`), release the lease, deregister.

        A body that has not ended by then keeps its lease until that lapses.
        """
        self._check_not_inside("stop()")
        self._is_stopped = True
        self._portal.call(self._service.stop, goes_on=True)

    def step_down(self) -> None:
        """Stop leading, once the bodies on other threads have ended, and let another take over.

        Raises `RequestRefused` if this process does not lead.
        """
        self._check_not_inside("step_down()")
        self._portal.call(self._service.step_down, goes_on=True)

    def transfer(self, to: str, *, force: bool = False, timeout: float = 30.0) -> Handover:
        """Hand leadership to the worker `to`, and wait until it leads.

        Works from any worker: the leader sees the request at its next renewal. Raises `RequestRefused` saying why not.
        """
        self._check_not_inside("transfer()")
        return self._portal.call(lambda: self._service.transfer(to, force=force, timeout=timeout))

    def elect_again(self, *, timeout: float = 30.0) -> Handover:
        """Have the leader step down, whatever its mandate, and wait until an election was held. It may win again."""
        self._check_not_inside("elect_again()")
        return self._portal.call(lambda: self._service.elect_again(timeout=timeout))

    # Leading

    def leadership(
        self,
        *,
        timeout: float | None = None,
        on_lost: OnLost | None = None,
        overrun: Overrun = HookOverrun.REPORT,
    ) -> Leadership:
        """Wait until this process leads, run the body, and give leadership back at its end.

            with coordinator.leadership() as leader:
                work(leader)

        `timeout`: `LeadershipTimeout` after so many seconds. `on_lost(leader)` is called on a thread of tenure's when
        leadership is lost while the body runs. `overrun="exit"`: if the body still runs when the lease is about to pass
        on, the process ends at once, with exit code 75; one that was frozen meanwhile, a moment after it wakes.
        """
        return Leadership(self._portal, self._service, timeout=timeout, on_lost=on_lost, overrun=overrun)

    def terms(self, *, on_lost: OnLost | None = None, overrun: Overrun = HookOverrun.REPORT) -> Iterator[Leader]:
        """One `Leader` after another, for as long as the loop goes on.

            for leader in coordinator.terms():
                with leader:                    # a LeadershipLost of this term ends the block quietly
                    work(leader)

        What stands in the loop's body counts as work of that term until the loop asks for the next. A body that ends by
        itself gives leadership back, and stands again. The loop ends when the coordinator is stopped, the database
        closed, or the process about to end.
        """
        scope = self.leadership(on_lost=on_lost, overrun=overrun)  # refuses what cannot be
        if not self.running:
            scope.begin()  # says what is wrong
        while True:
            term = Leadership(self._portal, self._service, on_lost=on_lost, overrun=overrun, is_term=True)
            try:
                leader = term.begin()
            except WorkerReplaced:
                raise
            except TenureError:
                if self._is_stopped or self._portal.is_closing:
                    return
                raise
            try:
                yield leader
            finally:
                term.end()

    # Being told

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)` for every event called `name` ("*": all), on a thread of tenure's.

        Such handlers share one thread: a slow one delays the others. They may use the blocking API.
        """
        self._portal.check()
        return without_loop(lambda: self._service.on(name, handler))

    def off(self, name: str, handler: Handler) -> bool:
        """End every subscription of `handler` to `name`. False: there was none."""
        return self._service.off(name, handler)

    def _check_not_inside(self, what: str) -> None:
        self._portal.check()
        if self._portal.is_inside():
            raise CoordinationError(
                f"{what} inside the body of a lease would wait for the end of that body, and so for itself: leave the "
                "`with` block, which gives leadership back, or call it from another thread"
            )


def without_loop(work: Callable[[], T]) -> T:
    """Handlers belong on a thread, also if they are registered in a notebook, where a loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="tenure-on", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]

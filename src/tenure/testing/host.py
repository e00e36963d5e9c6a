"""One simulated process on one machine: an event loop of its own, clocks of its own, and the ways in which it fails.

The process runs whatever coroutine it is given; asyncio's tasks, futures, timeouts, locks and queues work unchanged.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.testing.loop import Callback, Crashed, HostLoop, Timer
from tenure.testing.machine import Machine
from tenure.testing.where import OUTSIDE, innermost, point_of

if TYPE_CHECKING:
    from tenure.testing.world import World

T = TypeVar("T")

_FORGET_FROM = 64  # finished tasks that are not worth a sweep
_BURIAL_ROUNDS = 20  # times that a task is cancelled which goes on waiting in its finally blocks
_BURIAL_CALLBACKS = 20_000


class HostClock:
    """A `tenure.clock.Clock`: the machine's clocks, and sleep on the process's own loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.read = host.machine.read

    async def sleep(self, seconds: float) -> None:
        host = self._host
        if not host.alive:
            raise Crashed(host.name)
        if seconds <= 0:
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop takes no time
            return
        sleeper = host.loop.create_future()
        timer = host.loop.call_later(seconds, _wake, sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()


class Host:
    """One simulated process. Made by `World.host`."""

    def __init__(self, world: World, name: str, machine: Machine) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self.alive = True
        self.frozen = False
        self.buried = False
        """Dead, and every task of it has ended."""
        self.loop = HostLoop(self, world._ready.append)  # type: ignore[abstract]  # sockets and the like: none
        self.clock = HostClock(self)
        self._gated = False  # dead, frozen or armed: its next callback does not just run
        self._thaws_at = 0.0
        self._backlog: list[Callback | Timer] = []
        self._armed: list[tuple[int, Callable[[], None]]] = []  # callbacks left, and what then happens
        self._next: Callback | Timer | None = None
        self._born = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._forget_at = _FORGET_FROM
        self._failed: list[weakref.ref[asyncio.Task[Any]]] = []
        if world.now < machine.resumes_at:
            self._freeze_until(machine.resumes_at)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `coroutine` in this process. What it raises is kept in `World.errors`."""
        if not self.alive:
            coroutine.close()
            raise RuntimeError(f"host {self.name!r} crashed: start it on its respawn()")
        task = self.loop.create_task(coroutine)
        task.add_done_callback(self._started_ended)
        return task

    def respawn(self) -> Host:
        """A new process on the same machine, with the same name and the same clocks."""
        if self.alive:
            raise RuntimeError(f"host {self.name!r} is alive: crash() it first")
        return self.world._adopt(Host(self.world, self.name, self.machine))

    def freeze(self, seconds: float) -> None:
        """SIGSTOP: nothing of it runs for that long, while its clocks go on. Then everything due runs late."""
        self._must_live()
        _check_duration(seconds)
        self._strike("freeze")
        self._freeze_until(self.world.now + seconds)

    def suspend(self, seconds: float) -> None:
        """The laptop lid: nothing runs, and MONOTONIC and MONOTONIC_RAW stand still, BOOTTIME and wall do not.

        Timers are on MONOTONIC, so they become due that much later.
        """
        self._must_live()
        _check_duration(seconds)
        self._strike("suspend")
        end = self.world.now + seconds
        if end > self.machine.resumes_at:
            self.machine.resumes_at = end
            self.machine.set_suspended(True)
            self._move_timers()
            self.world.call_at(end, self._resume)
        self._freeze_until(end)

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock, forward or back."""
        self.machine.step_wall(seconds)

    def set_slew(self, fraction: float) -> None:
        """From now on all clocks but MONOTONIC_RAW run at rate + fraction. Pending timers move with MONOTONIC."""
        self.machine.set_slew(fraction)
        self._move_timers()

    def crash(self) -> None:
        """SIGKILL: nothing of it has an effect any more, but for requests that are on their way.

        Its tasks are cancelled and run to their end where every sleep and every request raises `Crashed`, so that
        nothing is left pending. Called from inside a callback, this happens right after it.
        """
        if not self.alive:
            return
        self._strike("crash")
        self._sweep()
        self.alive = False
        self._gated = True
        if self.world._draining:
            self.world._graves.append(self)
        else:
            self._bury()

    def freeze_after(self, callbacks: int, seconds: float) -> None:
        """Freeze just before the `callbacks`-th next callback: 1 is the very next one."""
        self._arm(callbacks, lambda: self.freeze(seconds))

    def suspend_after(self, callbacks: int, seconds: float) -> None:
        """Suspend just before the `callbacks`-th next callback."""
        self._arm(callbacks, lambda: self.suspend(seconds))

    def crash_after(self, callbacks: int) -> None:
        """Crash just before the `callbacks`-th next callback."""
        self._arm(callbacks, self.crash)

    def disarm(self) -> None:
        """Forget what `freeze_after`, `suspend_after` and `crash_after` armed."""
        self._armed.clear()
        self._gated = self.frozen or not self.alive

    def where(self) -> str:
        """The innermost function of tenure (without `tenure.testing`) in which this process waits, `module:function`.

        When an armed fault strikes, that is the function that was about to go on. Otherwise each task has one, and
        they are given in order, joined by ` | `.
        """
        if self._next is not None:
            return point_of(self._next._callback, self._next._args)
        places = {innermost(task) for task in self._tasks if not task.done()}
        return " | ".join(sorted(places - {OUTSIDE})) or OUTSIDE

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "frozen" if self.frozen else "alive"
        return f"<Host {self.name} {state}>"

    def _enter(self) -> None:
        asyncio._set_running_loop(self.loop)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self.loop._finalize)

    def _admits(self, callback: Callback | Timer) -> bool:
        """May this callback run now? Asked only of a host that is dead, frozen or armed."""
        if not self.alive:
            return False
        if self.frozen:
            self._backlog.append(callback)
            return False
        due = [strike for left, strike in self._armed if left == 1]
        self._armed = [(left - 1, strike) for left, strike in self._armed if left > 1]
        if not due:
            return True
        self._backlog.append(callback)
        self._next = callback
        try:
            for strike in due:
                if self.alive:
                    strike()
        finally:
            self._next = None
        return False

    def _arm(self, callbacks: int, strike: Callable[[], None]) -> None:
        self._must_live()
        if callbacks < 1:
            raise ValueError(f"callbacks is {callbacks}: 1 is the next one")
        self._armed.append((callbacks, strike))
        self._gated = True

    def _must_live(self) -> None:
        if not self.alive:
            raise RuntimeError(f"host {self.name!r} crashed already")

    def _strike(self, kind: str) -> None:
        self.world.strikes[kind, self.where()] += 1

    def _freeze_until(self, end: float) -> None:
        self.frozen = self._gated = True
        if end >= self._thaws_at:
            self._thaws_at = end
            self.world.call_at(end, self._thaw)

    def _thaw(self) -> None:
        if self.alive and self.frozen and self.world.now >= self._thaws_at:
            self.frozen = False
            self._gated = bool(self._armed)
            self.world._ready.extend(self._backlog)
            self._backlog.clear()

    def _resume(self) -> None:
        if self.world.now >= self.machine.resumes_at:
            self.machine.set_suspended(False)

    def _move_timers(self) -> None:
        loop, true_time_of = self.loop, self.machine.true_time_of
        self.world._requeue(
            lambda due, timer: due if timer is None or timer.host.loop is not loop else true_time_of(timer._when)
        )

    def _started_ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.call_exception_handler({"exception": error})

    def _forget_finished(self) -> None:
        """Finished tasks are dropped, so that those which nobody else holds report what nobody retrieved."""
        self._failed = [ref for ref in self._failed if _unretrieved(ref())]
        self._failed += [weakref.ref(task) for task in self._tasks if _unretrieved(task)]
        self._tasks = [task for task in self._tasks if not task.done()]
        self._forget_at = _FORGET_FROM + 2 * len(self._tasks)

    def _sweep(self) -> None:
        """Report what nobody retrieved, and nobody will."""
        self._forget_finished()
        for task in [ref() for ref in self._failed]:
            if task is not None and task.done() and not task.cancelled():
                self.loop.call_exception_handler({"exception": task.exception()})
        self._failed.clear()

    def _bury_for_good(self) -> None:
        if self.alive:
            self._sweep()
            self.alive = False
            self._gated = True
            self._bury()

    def _bury(self) -> None:
        """Run every task to its end, in a process that can touch nothing. Bounded: what will not end is left."""
        outer, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        queue = deque(self._withdraw())
        self.loop._push = queue.append
        self._enter()
        try:
            left = _BURIAL_CALLBACKS
            for _ in range(_BURIAL_ROUNDS):
                pending = [task for task in self._tasks if not task.done()]
                for task in pending:
                    task.cancel()
                while queue and left:
                    left -= 1
                    _run_quietly(queue.popleft())
                if not pending or not left:
                    break
            for task in self._tasks:
                if task.done():
                    task.cancelled() or task.exception()  # retrieved
                else:
                    _end(task)
        finally:
            self.buried = True
            self.loop._push = _drop
            asyncio._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)
        self._tasks = [task for task in self._tasks if not task.done()]  # kept: dropping them would make noise

    def _withdraw(self) -> list[Callback | Timer]:
        """Take this host out of the world's queues; gives what was ready to run, which tasks need to end."""
        world = self.world
        ours = self._backlog + [callback for callback in world._ready if callback.host is self]
        others = [callback for callback in world._ready if callback.host is not self]
        world._ready.clear()
        world._ready.extend(others)
        world._requeue(lambda due, timer: None if timer is not None and timer.host is self else due)
        self._backlog = []
        self._armed.clear()
        return ours


def _check_duration(seconds: float) -> None:
    if seconds < 0:
        raise ValueError(f"seconds is {seconds}: a pause takes time")


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _drop(callback: Callback) -> None:
    """Where the callbacks of a buried host go."""


def _run_quietly(callback: Callback | Timer) -> None:
    if callback._cancelled:
        return
    try:
        callback._context.run(callback._callback, *callback._args)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: S110 - the process is gone, and nobody is left to hear of it
        pass


def _end(task: asyncio.Task[Any]) -> None:
    """The last resort for a task that swallows its cancellation."""
    coroutine: Any = task.get_coro()
    try:
        coroutine.throw(Crashed())
    except BaseException:  # noqa: S110 - it ended, one way or another
        pass


def _unretrieved(task: asyncio.Task[Any] | None) -> bool:
    # asyncio's own mark: an exception was set, and nobody has asked for it.
    return task is not None and bool(task._log_traceback)

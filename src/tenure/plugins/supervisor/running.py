"""One start of a child, whatever kind it is: it ends by itself, or is stopped."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol

from tenure.errors import CommandStillRunning, TenureError
from tenure.plugins.supervisor.child import Command, Context, Runnable, Service, takes_context
from tenure.plugins.supervisor.command import CommandProcess, End

_log = logging.getLogger("tenure.supervisor")

_KILLED_AGAIN_AFTER = 1.0
_SUPERVISOR_WITHIN = 0.5
_TURNS = 5
_STOPS = 3
_STOPPED_AGAIN_AFTER = 0.2


class ChildFailed(TenureError):
    """A child ended as it should not have."""


class Running(Protocol):
    """`begin` returns when it is up. `wait` returns when it has ended well, and raises if it failed. `stop` gives
    whether it has ended; it may be called again."""

    @property
    def pid(self) -> int | None: ...

    async def begin(self) -> None: ...

    async def wait(self) -> None: ...

    async def stop(self, within: float) -> bool: ...

    async def gone(self) -> None:
        """Returns when nothing of it runs any more, however long that takes."""
        ...


def running(runs: Runnable, context: Context) -> Running:
    if isinstance(runs, Command):
        return RunningCommand(runs, context)
    made: object = runs() if isinstance(runs, type) else runs
    if isinstance(made, Service):
        return RunningService(made, context)
    assert callable(made)
    return RunningTask(made, context)


class LeasedCoroutine:
    """Drives a coroutine, and does not let it go on once its lease is over: it then waits to be cancelled.

    A process that slept through the end of its lease wakes up with timers that are due. Whoever is to cancel its work
    wakes up at the same time, and may come second.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, object], may_go_on: Callable[[], bool]) -> None:
        self._coroutine = coroutine
        self._may_go_on = may_go_on
        self.stopping = False
        """Its task is being cancelled by the supervisor: from here on it may do what it needs in order to end."""

    def __await__(self) -> Generator[Any, Any, object]:
        inner = self._coroutine.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as end:
                return end.value
            value = error = None
            try:
                value = yield waits_for
            except BaseException as thrown:
                error = thrown
            cancelled = 0
            while not self.stopping and not isinstance(error, GeneratorExit) and not self._may_go_on():
                loop = asyncio.get_running_loop()
                waiting = loop.create_future()
                # A cancellation may be its own, of an `asyncio.timeout` inside it: the supervisor's is waited for a
                # moment longer. It may also be that the whole loop ends, and no other comes.
                if isinstance(error, asyncio.CancelledError):
                    _wake_later(loop, waiting, _TURNS)
                try:
                    yield from waiting.__await__()
                except BaseException as thrown:
                    error = thrown
                    cancelled += 1
                    if cancelled > 1:
                        break
                else:
                    break


def _wake_later(loop: asyncio.AbstractEventLoop, waiting: asyncio.Future[None], turns: int) -> None:
    """In several turns: the time that a process stands still meanwhile counts as one of them. Otherwise one that is
    paused again here would find its time over when it wakes, before its supervisor has had any."""
    if waiting.done():
        return
    if turns == 0:
        waiting.set_result(None)
    else:
        loop.call_later(_SUPERVISOR_WITHIN / _TURNS, _wake_later, loop, waiting, turns - 1)


class RunningTask:
    """An async callable. It is stopped by cancellation, once."""

    pid = None

    def __init__(self, call: Callable[..., object], context: Context) -> None:
        self._call = call
        self._context = context
        self._task: asyncio.Task[object] | None = None
        self._leased: LeasedCoroutine | None = None
        self._cancelled = False

    async def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        lead = self._context.lead
        if lead is not None and not lead.is_current():
            raise ChildFailed("its lease was over before it began")
        result = self._call(self._context) if takes_context(self._call) else self._call()
        if inspect.iscoroutine(result) and lead is not None:
            self._leased = LeasedCoroutine(result, lead.holds)
            await self._leased
        elif inspect.isawaitable(result):
            await result

    async def wait(self) -> None:
        assert self._task is not None
        await asyncio.wait([self._task])
        if self._task.cancelled():
            raise ChildFailed("it was cancelled, and not by its supervisor")
        self._task.result()

    async def stop(self, within: float) -> bool:
        if self._task is None:
            return True
        if not self._cancelled:
            self._cancelled = True
            if self._leased is not None:
                self._leased.stopping = True
            self._task.cancel()
        await asyncio.wait([self._task], timeout=within)
        return self._ended()

    async def gone(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
            self._ended()

    def _ended(self) -> bool:
        assert self._task is not None
        if not self._task.done():
            return False
        if not self._task.cancelled():
            self._task.exception()  # it was told to end: how it did so is its own affair
        return True


class RunningService:
    """An object with `start` and `stop`. A `stop` that takes long goes on; one that raises is tried again."""

    pid = None

    def __init__(self, service: Service, context: Context) -> None:
        self._service = service
        self._context = context
        self._stopping: asyncio.Task[None] | None = None
        self._begun = False

    async def begin(self) -> None:
        self._begun = True
        await self._service.start(self._context)

    async def wait(self) -> None:
        wait = getattr(self._service, "wait", None)
        if wait is None:
            await asyncio.get_running_loop().create_future()
        else:
            await wait()

    async def stop(self, within: float) -> bool:
        if not self._begun:
            return True
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.wait([self._stopping], timeout=within)
        return self._stopping.done()

    async def _stop(self) -> None:
        for left in reversed(range(_STOPS)):
            try:
                await self._service.stop()
            except Exception:
                # Whether it runs on, nobody can know. Waiting for it for ever would keep this node from any work.
                again = "it is tried again" if left else "it is taken to have ended"
                _log.exception("stop() of child %r failed; %s", self._context.name, again)
            else:
                return
            if left:
                await self._context.clock.sleep(_STOPPED_AGAIN_AFTER)

    async def gone(self) -> None:
        if self._stopping is not None:
            await asyncio.wait([self._stopping])


class RunningCommand:
    """An OS command, under a watchdog."""

    def __init__(self, command: Command, context: Context) -> None:
        self._command = command
        self._context = context
        self._process = CommandProcess()
        self._begun = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._begun else None

    async def begin(self) -> None:
        context = self._context
        environment = {
            "TENURE_EPOCH": str(context.epoch),
            "TENURE_TOKEN": str(context.token),
            "TENURE_NAMESPACE": context.lead.namespace if context.lead is not None else "",
            "TENURE_WORKER_ID": context.node,
        }
        lead = context.lead
        deadline = (lambda: float("inf")) if lead is None else lead.time_to_wind_up
        self._begun = True  # before it: a start that is cancelled may have started something
        await self._process.start(self._command, env=environment, deadline=deadline)

    async def wait(self) -> None:
        code = await self._process.wait()
        if code:
            raise ChildFailed(f"it exited with {code}")
        if self._process.end is not End.EXITED:
            raise ChildFailed("it was ended, and not by its supervisor")

    async def stop(self, within: float) -> bool:
        if not self._begun:
            return True
        try:
            await self._process.stop(min(within, self._command.terminate_within))
        except CommandStillRunning:
            return False
        return True

    async def gone(self) -> None:
        while not await self.stop(0.0):  # it is killed again and again until it is gone
            await self._context.clock.sleep(_KILLED_AGAIN_AFTER)

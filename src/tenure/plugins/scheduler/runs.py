"""Runs on the leader: each is a task of its own, and harms nothing but itself.

A run that takes longer than its timeout is cancelled, and so are all when the term ends. What ignores that is left
behind: it is reported, nobody waits for it any more, and what comes of it does not count. A plain function runs in a
thread of its own, which nothing can end: it is left behind at once.

Not guaranteed: that a run which was left behind has ended when the job runs again, here or elsewhere. `Run.token` tells
them apart.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tenure.clock import Clock
from tenure.coordinator.lead import Lead
from tenure.database.tracing import UNTRACED, Tracer, Tracing
from tenure.errors import CommandStillRunning, ConfigError, TenureError
from tenure.plugins.failure import text_of
from tenure.plugins.queue.calling import is_async
from tenure.plugins.scheduler.clerk import End, Start
from tenure.plugins.scheduler.commands import Commands
from tenure.plugins.scheduler.events import RunLeftBehind
from tenure.plugins.scheduler.job import CommandTarget, FunctionTarget, QueueTarget, check_job
from tenure.plugins.scheduler.queues import Queues
from tenure.plugins.scheduler.registry import Function
from tenure.plugins.scheduler.run import Run
from tenure.plugins.supervisor.child import Command, takes_context
from tenure.plugins.supervisor.command import CommandProcess
from tenure.plugins.supervisor.command import End as CommandEnd
from tenure.plugins.supervisor.running import LeasedCoroutine
from tenure.plugins.threads import Returned, in_thread

_log = logging.getLogger("tenure.scheduler")

MAX_RUNS = 1000
MAX_THREADS = 100
MAX_LEFT_BEHIND = 1000
"""Threads that nobody waits for; beyond that plain functions fail instead of being begun."""
ENDS_WITHIN = 5.0
"""Seconds that a run gets to end after it was cancelled; at most, and less if the lease leaves less."""
_AT_ONCE = 0.05
_SEND_PAUSE = 0.2
_LONGEST_SEND_PAUSE = 10.0
_ERROR_CHARACTERS = 1000


class RunFailed(TenureError):
    """A run ended as it should not have."""


class Runs:
    """The runs of one term."""

    def __init__(
        self,
        lead: Lead,
        functions: Mapping[str, Function],
        queues: Queues,
        *,
        commands: Commands,
        name: str,
        clock: Clock,
        on_end: Callable[[End], None],
        on_left_behind: Callable[[RunLeftBehind], None] = lambda event: None,
        max_runs: int = MAX_RUNS,
        max_threads: int = MAX_THREADS,
        tracing: Tracing = UNTRACED,
    ) -> None:
        self._lead = lead
        self._functions = functions
        self._queues = queues
        self._commands = commands
        self._name = name
        self._clock = clock
        self._on_end = on_end
        self._on_left_behind = on_left_behind
        self._max_runs = max_runs
        self._tracing = tracing
        self._tasks: dict[asyncio.Task[None], Start] = {}
        self._threads = asyncio.Semaphore(max_threads)
        self._left_threads = 0
        self._over = False
        self.left_behind = 0

    @property
    def count(self) -> int:
        return len(self._tasks)

    def room(self) -> int:
        """How many more may be begun."""
        return max(0, self._max_runs - len(self._tasks))

    def begin(self, start: Start) -> None:
        task = asyncio.get_running_loop().create_task(self._run(start))
        self._tasks[task] = start
        task.add_done_callback(self._forget)

    async def wind_up(self) -> None:
        """The term is over: cancel what runs, and wait for its end for as long as the lease allows."""
        self._over = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(
                tasks, timeout=max(2 * _AT_ONCE, min(ENDS_WITHIN + 1.0, 0.95 * self._lead.time_to_wind_up()))
            )

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a run could not be seen to", exc_info=error)

    def _patience(self) -> float:
        """A little is left for what has to be done afterwards; and whoever ends at once is not left behind."""
        return max(_AT_ONCE, min(ENDS_WITHIN, 0.8 * self._lead.time_to_wind_up()))

    # One run

    async def _run(self, start: Start) -> None:
        """See to one run, whatever becomes of it."""
        tracer = self._tracing.tracer
        try:
            error = await (self._outcome(start) if tracer is None else self._traced(tracer, start))
        except asyncio.CancelledError:
            if self._over:
                return  # the next leader decides on it
            error = "it was cancelled, and not by the schedule"
        except Exception as failure:
            error = told(failure)
        if not self._over:
            self._on_end(End(start.number, start.token, error))

    async def _traced(self, tracer: Tracer, start: Start) -> str | None:
        followed = tracer.running(
            self._name,
            start.job.id,
            start.run,
            scheduled_ms=start.scheduled_ms,
            attempt=start.attempt,
            epoch=start.epoch,
        )
        with followed as span:
            error = await self._outcome(start)
            if error is not None:
                span.failed(error)
            return error

    async def _outcome(self, start: Start) -> str | None:
        """`None` if it succeeded."""
        self._check_lease()
        match start.job.target:
            case FunctionTarget(name, payload):
                function = self._functions.get(name)
                if function is None:
                    raise RunFailed(f"this process has no function {name!r}")
                run = self._given(start, payload)
                if is_async(function):
                    return await self._call(start, function, run)
                async with self._threads:
                    return await self._call_in_thread(start, function, run)
            case QueueTarget() as target:
                await self._send(start, target)
            case CommandTarget() as target:
                await self._command(start, target)
        return None

    def _check_lease(self) -> None:
        """From any thread."""
        if not self._lead.is_current():
            raise RunFailed("the lease was over before it began")

    def _given(self, start: Start, payload: Any) -> Run:
        timeout, began, clock, lead = start.job.timeout_ms / 1000, self._clock.read(), self._clock, self._lead

        def remaining() -> float:
            left = lead.remaining()
            return min(left, max(0.0, timeout - clock.read().leader_elapsed(began))) if timeout else left

        return Run(
            id=start.run,
            job=start.job.id,
            scheduled_ms=start.scheduled_ms,
            token=start.token,
            epoch=start.epoch,
            attempt=start.attempt,
            payload=copy.deepcopy(payload),  # it is the definition's: what a run does to its own changes nothing there
            manual=bool(start.manual),
            remaining=remaining,
        )

    async def _call(self, start: Start, function: Function, run: Run) -> str | None:
        leased: LeasedCoroutine | None = None

        async def body() -> None:
            nonlocal leased
            self._check_lease()  # here and now: there was time to sleep through the end of it
            result = function(run) if takes_context(function) else function()
            if inspect.iscoroutine(result):
                leased = LeasedCoroutine(result, self._lead.holds)
            await _guarded(leased if leased is not None else result)

        def stop() -> None:
            if leased is not None:
                leased.stopping = True
            work.cancel()

        work = asyncio.get_running_loop().create_task(body())
        return await self._see_to(start, work, stop)

    async def _call_in_thread(self, start: Start, function: Function, run: Run) -> str | None:
        if self._left_threads >= MAX_LEFT_BEHIND:
            raise RunFailed(f"{self._left_threads:,} threads of earlier runs have not ended: no more are begun")
        call: Callable[[], Any] = (lambda: function(run)) if takes_context(function) else function
        ended = left = False

        def body() -> Any:
            self._check_lease()
            return call()

        def end() -> None:
            nonlocal ended
            ended = True
            if left:
                self._left_threads -= 1

        result = in_thread(body, name=f"job-{start.job.id}", on_end=end)
        work = asyncio.get_running_loop().create_task(_finished(result))
        try:
            return await self._see_to(start, work, result.cancel, leaves=True)
        finally:
            if not ended:
                left = True
                self._left_threads += 1
                self._leave_behind(start)

    async def _see_to(
        self, start: Start, work: asyncio.Task[Any], stop: Callable[[], object], *, leaves: bool = False
    ) -> str | None:
        """Wait for a run, for no longer than its timeout. `leaves`: whoever calls tells of what does not end."""
        timeout = start.job.timeout_ms / 1000 or None
        try:
            await asyncio.wait([work], timeout=timeout)
        except asyncio.CancelledError:
            stop()
            await self._end(start, work, leaves)
            raise
        if not work.done():
            stop()
            has_ended = await self._end(start, work, leaves)
            behind = "" if has_ended else ", and did not end when it was cancelled"
            behind = ", and its thread goes on" if leaves else behind
            return f"it took longer than its timeout of {timeout:g} s{behind}"
        if work.cancelled():
            return "it was cancelled, and not by the schedule"
        error = work.exception()
        return told(error) if error is not None else None

    async def _end(self, start: Start, work: asyncio.Task[Any], leaves: bool) -> bool:
        """Wait until what was cancelled has ended. False: it has not, and is left behind."""
        try:
            await asyncio.wait([work], timeout=self._patience())
        except asyncio.CancelledError:
            pass  # the term ends meanwhile: there is no more time
        if work.done():
            if not work.cancelled():
                work.exception()
            return True
        work.add_done_callback(_retrieved)
        if not leaves:
            self._leave_behind(start)
        return False

    def _leave_behind(self, start: Start) -> None:
        self.left_behind += 1
        _log.warning("run %s of job %r was told to end and has not: it is left behind", start.run, start.job.id)
        self._on_left_behind(RunLeftBehind(start.job.id, start.run, start.scheduled_ms, start.token))

    # Queues and commands

    async def _send(self, start: Start, target: QueueTarget) -> None:
        """Until it is in the queue. Sent twice, by whomever, it is one message: the key is that of the occurrence."""
        pause = _SEND_PAUSE
        while True:
            try:
                queue = await self._queues.open(target.queue)
                await queue.enqueue(
                    target.body,
                    delay=target.delay_ms / 1000,
                    priority=target.priority,
                    dedup_key=f"{self._name}/{start.run}",
                    ordering_key=target.ordering_key or None,
                    max_attempts=target.max_attempts or None,
                    visibility_timeout=target.visibility_ms / 1000 if target.visibility_ms else None,
                    headers={
                        **target.headers,
                        "tenure-job": start.job.id,
                        "tenure-scheduled": _iso(start.scheduled_ms),
                        "tenure-token": str(start.token),
                    },
                )
            except ConfigError:
                raise
            except TenureError as error:
                _log.warning("the message of run %s is sent again: %s", start.run, error)
            else:
                return
            await self._clock.sleep(pause)
            pause = min(_LONGEST_SEND_PAUSE, pause * 2)

    async def _command(self, start: Start, target: CommandTarget) -> None:
        # Here, where it is started: whatever way it came, nothing else stands between the bucket and a program.
        check_job(start.job)
        if (refused := self._commands.refusal(target)) is not None:
            raise RunFailed(refused)
        command = Command(*target.argv, cwd=target.cwd or None, terminate_within=target.terminate_ms / 1000)
        environment = {
            "TENURE_JOB": start.job.id,
            "TENURE_SCHEDULED": _iso(start.scheduled_ms),
            "TENURE_TOKEN": str(start.token),
            "TENURE_EPOCH": str(start.epoch),
            "TENURE_ATTEMPT": str(start.attempt),
        }
        process = CommandProcess()
        timeout = start.job.timeout_ms / 1000 or None
        try:
            await process.start(command, env=environment, deadline=self._lead.time_to_wind_up)
            waiting = asyncio.ensure_future(process.wait())
            waiting.add_done_callback(_retrieved)
            try:
                await asyncio.wait([waiting], timeout=timeout)
                if not waiting.done():
                    await self._stop(start, process, command)
                    raise RunFailed(f"it took longer than its timeout of {timeout:g} s")
                code = waiting.result()
            finally:
                waiting.cancel()
        except asyncio.CancelledError:
            await self._stop(start, process, command)  # a start that is cancelled may have started something
            raise
        if code:
            raise RunFailed(f"it exited with {code}")
        if process.end is not CommandEnd.EXITED:
            raise RunFailed(f"it was ended ({process.end.value if process.end is not None else 'unknown'})")

    async def _stop(self, start: Start, process: CommandProcess, command: Command) -> None:
        try:
            await process.stop(min(command.terminate_within, self._patience()))
        except CommandStillRunning as error:
            _log.error("%s", error)
            self._leave_behind(start)


async def _guarded(work: Awaitable[Any]) -> Any:
    """A job that wants to end the program has failed, and ends nothing else."""
    try:
        return await work
    except (SystemExit, GeneratorExit) as error:
        raise RunFailed(f"it raised {type(error).__name__}") from error


async def _finished(result: asyncio.Future[Returned]) -> None:
    """What a plain function gives may be something to wait for: then it was not so plain."""
    value, error = await result
    if error is not None:
        raise error if isinstance(error, Exception) else RunFailed(told(error))
    if inspect.isawaitable(value):
        await _guarded(value)


def told(error: BaseException) -> str:
    return text_of(error, _ERROR_CHARACTERS, name=not isinstance(error, RunFailed | ConfigError))


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def _retrieved(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()

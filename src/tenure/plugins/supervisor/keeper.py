"""Keeps one child running through one term: starts it, starts it again, stops it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from tenure.clock import Clock
from tenure.entropy import Random
from tenure.plugins.failure import text_of
from tenure.plugins.supervisor.child import Child, ChildState, ChildStatus, Context, Restart
from tenure.plugins.supervisor.restarts import Again, Done, Intensity, RestartPolicy, TooOften
from tenure.plugins.supervisor.running import Running, running

_log = logging.getLogger("tenure.supervisor")

START_WITHIN = 30.0
_MAX_ERROR = 300


class Keeper:
    """The life of one child in one term."""

    def __init__(
        self,
        child: Child,
        policy: RestartPolicy,
        *,
        context: Callable[[], Context],
        may_begin: Callable[[], bool],
        clock: Clock,
        random: Random,
        changed: Callable[[], None],
        gave_up: Callable[[Child], None],
        after: Keeper | None = None,
    ) -> None:
        """`context` is asked for at each start, and `may_begin` just before it. `after` is the keeper of an earlier
        start of this child that would not stop: this one waits for it."""
        self.child = child
        self._after = after
        self._context = context
        self._may_begin = may_begin
        self._clock = clock
        self._random = random
        self._changed = changed
        self._gave_up = gave_up
        self._intensity = Intensity(policy, Restart(child.restart))
        self._running: Running | None = None
        self._task: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self.status = ChildStatus(name=child.name, state=ChildState.WAITING)

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def up(self) -> None:
        """Returns when its first start succeeded or failed: the next child need not wait any longer."""
        await self._up.wait()

    async def stop(self, within: float) -> bool:
        """Have it ended in `within` seconds. False: it was told to, and has not."""
        began = self._clock.read()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=within)
        if self._running is None:
            if self.status.state not in (ChildState.COMPLETED, ChildState.FAILED):
                self._note(ChildState.STOPPED)
            return True
        self._note(ChildState.STOPPING)
        left = max(0.0, within - self._clock.read().leader_elapsed(began))
        if await self._end(self._running, left) and self._is_let_go():
            self._running = None
            self._note(ChildState.STOPPED)
            return True
        self._note(ChildState.OVERRAN)
        _log.warning("child %r was told to stop, and has not after %.1f s", self.child.name, within)
        return False

    def _is_let_go(self) -> bool:
        """Code of the child that runs in our own task, such as its `start`, has returned."""
        return self._task is None or self._task.done()

    @property
    def has_gone(self) -> bool:
        return self._running is None

    async def gone(self) -> None:
        """Returns when nothing of it runs any more, however long that takes."""
        if self._running is not None:
            if self._task is not None and not self._task.done():
                await asyncio.wait([self._task])
            await self._running.gone()
            self._running = None
            self._note(ChildState.STOPPED)

    async def _keep(self) -> None:
        try:
            if self._after is not None:
                self._up.set()  # the other children need not wait for it
                await self._after.gone()
                self._after = None
            while self._may_begin():
                began = self._clock.read()
                failure = await self._live()
                now = self._clock.read()
                if self._running is not None and not await self._end(self._running, self.child.stop_within):
                    self._note(ChildState.OVERRAN, error="it failed, and did not stop: it is not started beside itself")
                    return
                self._running = None
                ran = now.leader_elapsed(began)
                verdict = self._intensity.ended(failure is not None, ran, now, self._random.random())
                match verdict:
                    case Done():
                        self._note(ChildState.FAILED if failure else ChildState.COMPLETED, error=failure)
                        return
                    case TooOften(failures=failures):
                        self._note(ChildState.FAILED, error=failure)
                        _log.error("child %r ended %d times, and is left alone: %s", self.child.name, failures, failure)
                        self._gave_up(self.child)
                        return
                    case Again(pause=pause):
                        self._note(ChildState.BACKING_OFF, error=failure)
                        _log.warning("child %r ended (%s); again in %.1f s", self.child.name, failure, pause)
                        await self._clock.sleep(pause)
        finally:
            self._up.set()

    async def _live(self) -> str | None:
        """One start, until it ends by itself. Gives why it failed; `None`: it ended well."""
        try:
            context = self._context()
            self._note(ChildState.STARTING, starts=self.status.starts + 1, token=context.token)
            self._running = running(self.child.runs, context)
            async with asyncio.timeout(START_WITHIN):
                await self._running.begin()
            self._note(ChildState.RUNNING)
            self._up.set()
            await self._running.wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._failed("it waited for something that was cancelled")
        except TimeoutError as error:
            return self._failed(str(error) or f"it did not start within {START_WITHIN:g} s, or timed out")
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            _log.debug("child %r failed", self.child.name, exc_info=error)
            return self._failed(text_of(error, _MAX_ERROR))
        return None

    def _failed(self, why: str) -> str:
        self.status = msgspec.structs.replace(self.status, failures=self.status.failures + 1)
        self._up.set()
        # It becomes a part of a JSON record, which knows no half of a surrogate pair.
        return why[:_MAX_ERROR].encode(errors="replace").decode()

    async def _end(self, running: Running, within: float) -> bool:
        try:
            return await running.stop(within)
        except asyncio.CancelledError:
            raise
        except Exception:
            _log.exception("stopping child %r failed", self.child.name)
            return False

    def _note(self, state: ChildState, *, error: str | None = None, starts: int = 0, token: int = 0) -> None:
        status = self.status
        self.status = msgspec.structs.replace(
            status,
            state=state,
            starts=starts or status.starts,
            token=token or status.token,
            last_error=error if error is not None else status.last_error,
            since=self._clock.read().wall_ns / 1e9,
            pid=self._running.pid if self._running is not None else None,
        )
        self._changed()

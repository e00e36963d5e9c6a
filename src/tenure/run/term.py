"""The program through one term of leadership: started, started again, stopped. It never runs beside itself."""

from __future__ import annotations

import asyncio
import enum
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from tenure.clock import Clock
from tenure.coordinator.lead import Lead
from tenure.entropy import Random
from tenure.errors import CommandStillRunning, ConfigError, LeadershipLost
from tenure.plugins.supervisor import watchdog
from tenure.plugins.supervisor.child import Command, token_of
from tenure.plugins.supervisor.command import CommandProcess, End
from tenure.plugins.supervisor.restarts import Again, Done, Intensity, TooOften
from tenure.run.plan import EXIT_FAILED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, RunPlan
from tenure.run.readiness import ReadyFile
from tenure.run.telling import Teller

_LOOKS_FOR_SURVIVORS = 1.0
_TRIES_AGAIN_AFTER = 0.2
_TELLS_OF_SURVIVORS = 30


class _Why(enum.Enum):
    """Why the program was told to end."""

    TERM_OVER = "leadership ended"
    ASKED = "we were asked to end"


class Term:
    """One term. `live()` runs the program until that is over, `end()` ends it, `pass_on()` gives it a signal."""

    def __init__(
        self,
        plan: RunPlan,
        lead: Lead,
        *,
        stdin: int | None,
        tell: Teller,
        status: Callable[[str], None],
        ready: ReadyFile,
        clock: Clock,
        random: Random,
    ) -> None:
        self.lead = lead
        self._plan = plan
        self._stdin = stdin
        self._tell = tell
        self._status = status
        self._ready = ready
        self._clock = clock
        self._random = random
        self._program = Path(plan.argv[0]).name
        self._process: CommandProcess | None = None
        self._ending: _Why | None = None
        self._told_to_end = asyncio.Event()
        self._living: asyncio.Task[int | None] | None = None
        self._stops: set[asyncio.Task[None]] = set()
        self.ran = False
        """The program was started at least once."""

    def begin(self, over: Callable[[int | None], None]) -> None:
        """`over` is called once nothing of the program runs any more: with an exit code if all is done, or with
        `None` if only this term is."""
        self._living = asyncio.get_running_loop().create_task(self._live())
        self._living.add_done_callback(lambda task: over(self._result(task)))

    @property
    def is_over(self) -> bool:
        """Nothing of it runs any more, or will."""
        return self._living is not None and self._living.done()

    # Being told to end

    async def end(self) -> None:
        """Leadership is over, or is being handed on: returns when nothing of the program runs any more."""
        if self._ending is None:
            self._ending = _Why.TERM_OVER
        self._told_to_end.set()
        self._stop(self._plan.stop_within)
        if self._living is not None:
            await asyncio.wait([self._living])

    def ask_to_end(self, number: int, *, at_once: bool = False) -> None:
        """We were told to end, by this signal. The lease is kept until the program has ended."""
        self._ending = _Why.ASKED
        self._told_to_end.set()
        if at_once:
            self._stop(0.0)
        elif number == signal.SIGTERM:
            self._stop(self._plan.stop_within)
        elif self._process is not None:
            self._process.signal(number)
            self._later(self._stop_after(self._process))

    def pass_on(self, number: int) -> bool:
        if self._process is None:
            return False
        self._process.signal(number)
        return True

    def _stop(self, within: float) -> None:
        if self._process is not None:
            self._later(self._see_to_its_end(self._process, within))

    async def _stop_after(self, process: CommandProcess) -> None:
        """It was sent SIGINT or SIGQUIT, and gets its time; then it is told as any other."""
        await self._clock.sleep(self._plan.stop_within)
        await self._see_to_its_end(process, min(1.0, self._plan.stop_within))

    async def _see_to_its_end(self, process: CommandProcess, within: float) -> None:
        try:
            await process.stop(within)
        except CommandStillRunning as error:
            self._tell("still-running", str(error), wrong=True, pids=list(error.pids))  # it is killed again and again

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    # Running

    async def _live(self) -> int | None:
        intensity = Intensity(self._plan.restarts, self._plan.when.restart)
        starts = 0
        code = 0
        while self._why() is None and self.lead.is_current():
            starts += 1
            began = self._clock.read()
            process = CommandProcess()
            try:
                await self._start(process, starts)
                code = await self._until_over(process)
            except LeadershipLost:
                # Too little of the lease is left. Either the term ends, or it is renewed after all.
                starts -= 1
                await self._pause(_TRIES_AGAIN_AFTER)
                continue
            except ConfigError as error:
                self._tell("cannot-run", str(error), wrong=True)
                return EXIT_NOT_FOUND if "was not found" in str(error) else EXIT_NOT_EXECUTABLE
            except OSError as error:
                self._tell("cannot-run", f"{self._program} could not be started: {error.strerror}", wrong=True)
                code = EXIT_NOT_EXECUTABLE
            finally:
                await self._certainly_over(process)
                self._process = None
                self._ready.remove()
            why = self._why()
            if why is _Why.ASKED:
                self._say_exited(code, "as we were asked to end")
                return code
            if process.end is End.EXITED and self._plan.when.is_done(code):
                self._say_exited(code, "the lease is given back")
                return code
            if why is _Why.TERM_OVER or not self.lead.is_current():
                return None
            if process.end not in (None, End.EXITED):
                self._tell("lost-watchdog", f"what guards {self._program} was harmed, so it was ended", wrong=True)
            now = self._clock.read()
            ran = now.leader_elapsed(began)
            verdict = intensity.ended(code != 0, ran, now, self._random.random())
            match verdict:
                case Done():
                    self._say_exited(code, "the lease is given back")
                    return code
                case TooOften(failures=failures):
                    within = self._plan.restarts.within
                    self._say_exited(
                        code, f"{failures} times within {within:g} s, which is too often: the lease is given back"
                    )
                    return code or EXIT_FAILED
                case Again(pause=pause):
                    self._say_exited(code, f"it is started again in {pause:.1f} s")
                    await self._pause(pause)
        return 0 if self._why() is _Why.ASKED else None

    def _why(self) -> _Why | None:
        """Asked anew each time: it changes while others run."""
        return self._ending

    async def _start(self, process: CommandProcess, starts: int) -> None:
        plan, lead = self._plan, self.lead
        self._process = process
        self.ran = True
        await process.start(
            Command(*plan.argv, terminate_within=plan.stop_within),
            env=self.environment(token_of(lead.epoch, starts)),
            deadline=lead.time_to_wind_up,
            background=plan.background,
            stdin=self._stdin,
        )
        facts: dict[str, Any] = {"epoch": lead.epoch, "pid": process.pid}
        sentence = f"leading {lead.namespace!r}, epoch {lead.epoch}: {self._program} runs (pid {process.pid})"
        self._tell("started", sentence, **facts)
        self._status(sentence)
        trouble = self._ready.write({"namespace": lead.namespace, "worker_id": lead.worker_id, **facts})
        if trouble is not None:
            self._tell("ready-file", trouble, wrong=True)

    async def _until_over(self, process: CommandProcess) -> int:
        moved = asyncio.ensure_future(self._tell_of_background(process))
        try:
            return await process.wait()
        except CommandStillRunning:
            return 128 + signal.SIGKILL  # it is waited for before anything else happens
        finally:
            moved.cancel()

    async def _certainly_over(self, process: CommandProcess) -> None:
        """However we got here: nothing of it runs any more when this returns."""
        while True:
            try:
                await process.stop(0.0)
            except CommandStillRunning as error:
                await self._outlive(error)
                if process.end is not None:
                    return
            else:
                return

    async def _tell_of_background(self, process: CommandProcess) -> None:
        await process.moved_to_background()
        self._tell(
            "background",
            f"{self._program} has exited with 0 and left processes running: it is taken to have moved to the "
            "background, and watched until the last of them ends (--background end: they are ended)",
        )

    async def _outlive(self, error: CommandStillRunning) -> None:
        """The watchdog was killed, and something of the program could not be. While it lives the lease is kept, if it
        can be: nobody else is to start the program."""
        looks = 0
        while left := [pid for pid in error.pids if _lives(pid)]:
            if looks % _TELLS_OF_SURVIVORS == 0:
                self._tell(
                    "still-running",
                    f"{self._program} has left processes that cannot be ended ({', '.join(map(str, left))}): the "
                    "lease is kept meanwhile; end them by hand",
                    wrong=True,
                    pids=left,
                )
            looks += 1
            await self._clock.sleep(_LOOKS_FOR_SURVIVORS)

    async def _pause(self, seconds: float) -> None:
        """Between two starts; cut short when we are told to end."""
        waits = [
            asyncio.ensure_future(self._told_to_end.wait()),
            asyncio.ensure_future(self._clock.sleep(seconds)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def environment(self, token: int) -> Mapping[str, str]:
        return {
            "TENURE_EPOCH": str(self.lead.epoch),
            "TENURE_TOKEN": str(token),
            "TENURE_NAMESPACE": self.lead.namespace,
            "TENURE_WORKER_ID": self.lead.worker_id,
        }

    def _result(self, task: asyncio.Task[int | None]) -> int | None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._tell("defect", f"this is a defect of tenure ({type(error).__name__}: {error})", wrong=True)
        return EXIT_FAILED if task.cancelled() or error is not None else task.result()

    def _say_exited(self, code: int, what_follows: str) -> None:
        how = f"was ended by signal {code - 128}" if code > 128 else f"exited with {code}"
        self._tell("exited", f"{self._program} {how}: {what_follows}", code=code, epoch=self.lead.epoch)


def _lives(pid: int) -> bool:
    process = watchdog.look_at(pid)
    return process is not None and not process.has_ended

"""One `tenure run`: takes part in the election, runs the program while it leads, and knows when to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.events import LeaderChanged, NamedEvent
from tenure.coordinator.lead import Lead
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.entropy import Random
from tenure.errors import CoordinationError
from tenure.plugins.supervisor.command import adopt_orphans
from tenure.run.health import HealthCommand
from tenure.run.plan import (
    EXIT_FAILED,
    EXIT_LOST,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    SECOND_SIGNAL_AFTER,
    OnLost,
    RunPlan,
)
from tenure.run.readiness import ReadyFile, Systemd
from tenure.run.telling import Teller
from tenure.run.term import Term

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
_DRAIN_ON_TOP = 2.0
"""Seconds beyond `stop_within` that a handover waits: for the watchdog, and for what is left to be reaped."""


class RunSession:
    """Made once, run once: `code = await RunSession(...).run()`."""

    def __init__(
        self,
        plan: RunPlan,
        url: str,
        namespace: str,
        config: CoordinatorConfig,
        *,
        tell: Teller,
        systemd: Systemd,
        show_health_output: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        assert config.worker_id is not None
        self._plan = plan
        self._url = url
        self._namespace = namespace
        self._worker_id = config.worker_id
        self._tell = tell
        self._systemd = systemd
        self._clock = clock
        self._random = random if random is not None else Random()
        self._ready = ReadyFile(plan.ready_file)
        self._term: Term | None = None
        self._joined = False
        self._asked_by: int | None = None
        self._asked_at: Reading | None = None
        self._main: asyncio.Task[int] | None = None
        self._program = Path(plan.argv[0]).name
        drain = max(config.drain_timeout, plan.stop_within + _DRAIN_ON_TOP)
        self._config = config.replace(drain_timeout=drain)
        if plan.health_cmd is not None:
            health = HealthCommand(
                plan.health_cmd,
                within=plan.health_within,
                env=self._health_environment,
                changed=self._health_changed,
                output=None if show_health_output else subprocess.DEVNULL,
            )
            self._config = self._config.replace(health_check=health)

    async def run(self) -> int:
        """The exit code. Raises `TenureError` if it could not take part at all."""
        cannot = self._why_not()
        if cannot is not None:
            return cannot
        self._ready.prepare()
        adopt_orphans()
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[int] = loop.create_future()
        self._heed_signals(loop)
        beating = loop.create_task(self._beat_for_systemd())
        self._main = loop.create_task(self._take_part())
        try:
            return await self._main
        except asyncio.CancelledError:
            if self._over.done() and not self._joined:
                return self._over.result()  # told to end before it took part
            raise
        finally:
            beating.cancel()
            self._systemd.stopping()

    def _why_not(self) -> int | None:
        """Checked before anybody could be kept waiting for us."""
        program = self._plan.argv[0]
        if shutil.which(program) is not None:
            return None
        if os.sep in program and Path(program).exists():
            self._tell("cannot-run", f"the program {program!r} may not be executed", wrong=True)
            return EXIT_NOT_EXECUTABLE
        self._tell(
            "cannot-run", f"the program {program!r} was not found: give its full path, or check PATH", wrong=True
        )
        return EXIT_NOT_FOUND

    async def _take_part(self) -> int:
        async with Database(self._url, worker_id=self._worker_id) as database:
            coordinator = await database.get_global_coordinator(self._namespace, config=self._config)
            coordinator.on(LeaderChanged.name, self._leader_changed)
            coordinator.subscribe(self)
            await coordinator.start()
            self._joined = True
            where = f"{self._namespace!r} at {database.url} as {self._worker_id}"
            self._tell("joined", f"standing by for {where}", namespace=self._namespace, worker_id=self._worker_id)
            self._systemd.ready(f"standing by for {where}")
            try:
                return await self._until_over(coordinator)
            finally:
                self._systemd.stopping()
                await self._wind_up(coordinator)

    async def _until_over(self, coordinator: GlobalCoordinatorService) -> int:
        ended = asyncio.ensure_future(coordinator.must_go_on())
        try:
            waits: list[asyncio.Future[Any]] = [self._over, ended]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._over.done():
                return self._over.result()
            try:
                ended.result()
            except CoordinationError as error:
                self._tell("ended", str(error), wrong=True)
            return EXIT_FAILED
        finally:
            ended.cancel()
            with contextlib.suppress(asyncio.CancelledError, CoordinationError):
                await ended

    async def _wind_up(self, coordinator: GlobalCoordinatorService) -> None:
        """The program first: whatever ended us, the lease is not given back over its head."""
        if self._term is not None:
            await self._term.end()
        await coordinator.stop()

    # As a subscriber

    def on_become_coordinator(self, lead: Lead) -> None:
        if self._over.done() or self._asked_by is not None:
            return
        term = self._term = Term(
            self._plan,
            lead,
            stdin=subprocess.DEVNULL if os.isatty(0) else None,
            tell=self._tell,
            status=self._systemd.status,
            ready=self._ready,
            clock=self._clock,
            random=self._random,
        )
        term.begin(self._term_over)

    async def on_stop_being_coordinator(self) -> None:
        term = self._term
        if term is None:
            return
        await term.end()
        if self._term is term:
            self._term = None
        if self._over.done():
            return
        if self._asked_by is not None:
            self._finish(0)  # asked to end, and leadership ended first, and the program with it
            return
        ended = f", and {self._program} has ended" if term.ran else ""
        what = "standing by" if self._plan.on_lost is OnLost.STAND else "giving up"
        why = term.lead.ended or "it was handed on"
        sentence = f"epoch {term.lead.epoch} is over ({why}){ended}; {what}"
        self._tell("lost", sentence, epoch=term.lead.epoch, reason=why)
        self._systemd.status(sentence)
        if self._plan.on_lost is OnLost.EXIT:
            self._finish(EXIT_LOST)

    def _term_over(self, code: int | None) -> None:
        if code is not None:
            self._finish(code)

    def _leader_changed(self, event: NamedEvent) -> None:
        assert isinstance(event, LeaderChanged)
        if (event.new_leader or event.previous_leader) == self._worker_id or self._over.done():
            return  # our own terms are told of anyway
        who = f"{event.new_leader} leads, epoch {event.epoch}" if event.new_leader else "nobody leads"
        sentence = f"standing by for {self._namespace!r}: {who}"
        self._tell("leader", sentence, leader=event.new_leader, epoch=event.epoch)
        self._systemd.status(sentence)

    # Ending

    def _finish(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)
        if not self._joined and self._main is not None:
            self._main.cancel()

    def _heed_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (*_ENDING, *_PASSED_ON):
            # What was ignored before us (nohup, a job in the background) stays so.
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            handler = self._asked if number in _ENDING else self._pass_on
            loop.add_signal_handler(number, handler, number)

    def _asked(self, number: int) -> None:
        now = self._clock.read()
        again = self._asked_at is not None
        if self._asked_at is not None and now.leader_elapsed(self._asked_at) < SECOND_SIGNAL_AFTER:
            return
        self._asked_at = self._asked_at if self._asked_at is not None else now
        self._asked_by = number
        name = signal.Signals(number).name
        term = self._term
        if term is None or term.is_over or self._over.done():
            self._finish(0 if number == signal.SIGTERM else 128 + number)
            self._tell("stopping", f"{name}: leaving", signal=name)
            return
        term.ask_to_end(number, at_once=again)
        how = "is killed" if again else f"is told to end, and gets {self._plan.stop_within:g} s"
        self._tell("stopping", f"{name}: {self._program} {how}", signal=name)

    def _pass_on(self, number: int) -> None:
        if self._term is not None and self._term.pass_on(number):
            return
        if number == signal.SIGHUP and self._plan.has_terminal:
            self._asked(number)  # the terminal was closed, and nobody would ever end us

    # Parts

    def _health_environment(self) -> dict[str, str]:
        term = self._term
        leading = {"TENURE_EPOCH": str(term.lead.epoch)} if term is not None else {}
        return {"TENURE_NAMESPACE": self._namespace, "TENURE_WORKER_ID": self._worker_id, **leading}

    def _health_changed(self, healthy: bool, why: str) -> None:
        if self._over.done() or self._asked_by is not None:
            return  # the last one is cut off, which says nothing
        if healthy:
            self._tell("healthy", f"the health command says that this machine is fit ({why})")
        else:
            self._tell("unhealthy", f"the health command fails: {why}", wrong=True)

    async def _beat_for_systemd(self) -> None:
        every = self._systemd.heartbeat_seconds
        while every is not None:
            self._systemd.beat()
            await self._clock.sleep(every)

"""Work that goes on after the end of its term: has it ended before somebody else may lead?"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

from tenure.coordinator.events import OverranLease
from tenure.coordinator.hooks import HookOverrun, Seat
from tenure.coordinator.lead import Lead

_log = logging.getLogger("tenure.coordinator")

EXIT_OVERRAN = 75
"""The exit code of a process that ended rather than overlap its successor."""
EXITS_BEFORE = 0.25
"""Seconds of the lease that are left when it ends."""
_LAST_CHANCE = 0.1
"""Where the lease is gone already, hooks that have nothing to do get this long to say so."""
_LOOKS_EVERY = 0.25
"""Timers stand still while a machine sleeps, and the lease does not."""

Hooks = list[tuple[Seat, "asyncio.Future[None]"]]
"""What each subscriber has left to do for a term."""


def pending(hooks: Hooks) -> list[asyncio.Future[None]]:
    """What still runs. Nothing does on a loop that is closed."""
    return [hook for seat, hook in hooks if not hook.done() and not seat.is_gone]


async def all_returned(hooks: Hooks) -> None:
    while waiting := pending(hooks):
        await asyncio.wait(waiting, timeout=_LOOKS_EVERY)


class OverrunWatch:
    """Reports hooks that outlive their lease, and ends the process for those that must not."""

    def __init__(
        self,
        namespace: str,
        emit: Callable[[OverranLease], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._namespace = namespace
        self._emit = emit
        self._spawn = spawn
        self._exit_process = exit_process
        self._deadly: set[asyncio.Task[None]] = set()

    def watch(self, lead: Lead, hooks: Hooks, *, told: bool = False) -> None:
        """From the end of its term on. `told`: listeners have been told already."""
        watch = self._spawn(self._watch(lead, hooks, told))
        if any(seat.overrun is HookOverrun.EXIT for seat, _ in hooks):
            self._deadly.add(watch)
            watch.add_done_callback(self._deadly.discard)

    def overran(self, lead: Lead, what: str) -> None:
        self._emit(OverranLease(self._namespace, lead.epoch, what))

    async def settled(self) -> None:
        """A process that promised to end rather than overlap its successor does not forget it while it leaves."""
        if self._deadly:
            await asyncio.wait(list(self._deadly))

    async def _watch(self, lead: Lead, hooks: Hooks, told: bool) -> None:
        deadly = [(seat, hook) for seat, hook in hooks if seat.overrun is HookOverrun.EXIT]
        if deadly and await self._late(lead, deadly, EXITS_BEFORE):
            _log.critical(
                "hooks for epoch %d of %r still run, and its lease runs out: this process ends, as it was told to",
                lead.epoch,
                self._namespace,
            )
            self._exit_process(EXIT_OVERRAN)
        late = await self._late(lead, hooks, 0.0)
        if late and not told:
            self.overran(lead, f"{late} hooks that had not returned")
            _log.warning(
                "%d hooks for epoch %d of %r still run, and its lease has run out: another process may lead already",
                late,
                lead.epoch,
                self._namespace,
            )

    async def _late(self, lead: Lead, hooks: Hooks, before: float) -> int:
        """How many have not returned when `before` seconds of the lease are left."""
        patience = _LAST_CHANCE
        while (waiting := pending(hooks)) and patience > 0:
            await asyncio.wait(waiting, timeout=min(patience, _LOOKS_EVERY))
            patience = lead.time_to_wind_up() - before
        return len(pending(hooks))

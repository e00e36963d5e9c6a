"""`--health-cmd`: is this machine fit to run the program? A shell command says so by its exit code."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping

from tenure.errors import TenureError
from tenure.plugins.supervisor.child import Command
from tenure.plugins.supervisor.command import CommandProcess

_TERMINATE_WITHIN = 0.5


class HealthCommand:
    """Fit if it exits with 0 in time. All that it started is ended when it is over, or too slow."""

    def __init__(
        self,
        line: str,
        *,
        within: float,
        env: Callable[[], Mapping[str, str]],
        changed: Callable[[bool, str], None],
        output: int | None = subprocess.DEVNULL,
    ) -> None:
        """`changed` is told of every answer that differs from the one before, with the reason."""
        self._command = Command("sh", "-c", line, terminate_within=_TERMINATE_WITHIN)
        self._within = within
        self._env = env
        self._changed = changed
        self._output = output
        self._last: bool | None = None

    async def __call__(self) -> bool:
        try:
            healthy, why = await self._ask()
        except asyncio.CancelledError:
            self._note(False, "it was cut off, having taken too long")
            raise
        self._note(healthy, why)
        return healthy

    def _note(self, healthy: bool, why: str) -> None:
        if healthy is not self._last:
            self._last = healthy
            self._changed(healthy, why)

    async def _ask(self) -> tuple[bool, str]:
        process = CommandProcess()
        try:
            async with asyncio.timeout(self._within):
                # What bounds it is the time that it is given, not a lease: it also runs where nobody leads.
                await process.start(
                    self._command,
                    env=self._env(),
                    deadline=lambda: float("inf"),
                    stdout=self._output,
                    stderr=self._output,
                )
                code = await process.wait()
        except TimeoutError:
            await _end(process)
            return False, f"it had not ended after {self._within:g} s"
        except asyncio.CancelledError:
            await _end(process)
            raise
        except (TenureError, OSError) as error:
            return False, str(error)
        return code == 0, f"it exited with {code}"


async def _end(process: CommandProcess) -> None:
    try:
        await process.stop(0.0)
    except TenureError:
        pass  # it hangs in the kernel; it is killed again and again meanwhile

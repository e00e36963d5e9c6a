"""Run one piece of asynchronous work as a command: a polite end on SIGTERM, as on Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

T = TypeVar("T")


def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Schedulers end a job with SIGTERM; what the work tidies up at its end is tidied up then too."""

    async def stoppable() -> T:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(stoppable())
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise click.Abort from None

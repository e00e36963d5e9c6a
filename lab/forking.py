"""A leader that has children: `python -m lab.forking URL FOLDER HOW`, where HOW is how it makes them.

    fork       os.fork, in the middle of its event loop
    mp-fork    multiprocessing, by fork
    mp-spawn   multiprocessing, by spawn

Parent and child note their belief (lab.believer) in FOLDER for three seconds, in `parent.log` and `child.log`, and what
the child saw is in `child.json`: a `Childhood`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from lab.believer import BeliefLog, say
from tenure import CoordinatorConfig, Database

SECONDS = 3.0
PATIENCE = 20.0
CONFIG = CoordinatorConfig.fast(startup_jitter_max=0)


class Childhood(msgspec.Struct):
    leads_at_first: bool | None = None
    """Answered by the coordinator of the parent, before anything else."""
    refusals: dict[str, str] = {}
    """What each use of the parent's coordinator raised: the name of the error and its message."""
    own: str = ""
    """What came of a database and coordinator that the child opened for itself."""


class Idle:
    """The least that can be subscribed."""

    async def on_become_coordinator(self, lead: Any) -> None: ...

    async def on_stop_being_coordinator(self) -> None: ...


def uses_of(coordinator: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Ways of using a coordinator that need more of it than memory."""

    async def subscribe() -> None:
        coordinator.subscribe(Idle())

    return {
        "start": coordinator.start,
        "get_leader": lambda: coordinator.get_leader(fresh=True),
        "get_active_workers": lambda: coordinator.get_active_workers(fresh=True),
        "step_down": coordinator.step_down,
        "subscribe": subscribe,
    }


def grow_up(coordinator: Any, folder: Path, url: str) -> None:
    """What a child does: note its belief by the parent's coordinator, use that, and join with one of its own."""
    seen = Childhood()
    seen.leads_at_first = coordinator.is_leader()
    log = BeliefLog(coordinator, "child", folder / "child.log")
    log.start()
    ends = time.monotonic() + SECONDS
    for name, use in uses_of(coordinator).items():
        seen.refusals[name] = asyncio.run(_outcome(use))
    if url.startswith("file:"):
        seen.own = asyncio.run(_outcome(lambda: _join(url, folder)))
    time.sleep(max(0.0, ends - time.monotonic()))
    log.stop()
    (folder / "child.json").write_bytes(msgspec.json.encode(seen))


def grow_up_elsewhere(url: str, folder: Path) -> None:
    """What a child does that shares nothing with its parent."""
    seen = Childhood(own=asyncio.run(_outcome(lambda: _join(url, folder))))
    (folder / "child.json").write_bytes(msgspec.json.encode(seen))
    os._exit(0)


async def _outcome(use: Callable[[], Awaitable[Any]]) -> str:
    try:
        async with asyncio.timeout(PATIENCE):
            result = await use()
    except Exception as failure:
        return f"{type(failure).__name__}: {failure}"
    return f"returned {result}"


async def _join(url: str, folder: Path) -> str:
    """Stand for a while, with the parent in office; the leader that it saw."""
    async with Database(url, worker_id="child") as database:
        coordinator = await database.get_global_coordinator("default", config=CONFIG)
        await coordinator.start()
        log = BeliefLog(coordinator, "child-own", folder / "child-own.log")
        log.start()
        await asyncio.sleep(SECONDS)
        leader = await coordinator.get_leader(fresh=True)
        log.stop()
        await coordinator.stop()
        return str(leader)


async def lead(url: str, folder: Path, how: str) -> None:
    async with Database(url, worker_id="parent") as database:
        coordinator = await database.get_global_coordinator("default", config=CONFIG)
        await coordinator.start()
        async with asyncio.timeout(PATIENCE):
            while not coordinator.is_leader():
                await asyncio.sleep(0.01)
        log = BeliefLog(coordinator, "parent", folder / "parent.log")
        log.start()
        await asyncio.sleep(0.5)
        # A process with threads that forks is warned of it from Python 3.12 on. It is what is tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        ended = HOWS[how](coordinator, folder, url)
        async with asyncio.timeout(PATIENCE + 2 * SECONDS):
            while (code := ended()) is None:
                await asyncio.sleep(0.02)
        say("child ended", code=code)
        await asyncio.sleep(0.5)
        log.stop()
        await coordinator.stop()


def _fork(coordinator: Any, folder: Path, url: str) -> Callable[[], int | None]:
    child = os.fork()
    if not child:
        code = 1
        try:
            grow_up(coordinator, folder, url)
            code = 0
        except BaseException as failure:
            say("child failed", error=repr(failure))
        finally:
            os._exit(code)

    def ended() -> int | None:
        pid, status = os.waitpid(child, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    return ended


def _mp_fork(coordinator: Any, folder: Path, url: str) -> Callable[[], int | None]:
    process = multiprocessing.get_context("fork").Process(target=grow_up, args=(coordinator, folder, url), daemon=True)
    process.start()
    return lambda: process.exitcode


def _mp_spawn(coordinator: Any, folder: Path, url: str) -> Callable[[], int | None]:
    process = multiprocessing.get_context("spawn").Process(target=grow_up_elsewhere, args=(url, folder), daemon=True)
    process.start()
    return lambda: process.exitcode


HOWS = {"fork": _fork, "mp-fork": _mp_fork, "mp-spawn": _mp_spawn}


if __name__ == "__main__":
    try:
        asyncio.run(lead(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)

"""A lifespan for Starlette, FastAPI and every server that knows lifespans: work that one of the servers does.

    async def run_while_leading(lead: tenure.Lead) -> None:
        while True:
            await send_what_is_due(lead.epoch)
            await asyncio.sleep(1)

    app = FastAPI(lifespan=tenure.asgi.lifespan("s3://bucket/app", lead=run_while_leading))

Guarantee: `run_while_leading` runs only while this process leads, and is cancelled before another may lead. At shutdown
it is cancelled, and the lease released. What it raises never ends the server, `sys.exit()` included. A server that
cannot do the work any more leaves the fleet, and serves on: none leads without working.

Assumption: the server runs lifespans (uvicorn, hypercorn, gunicorn with a worker of uvicorn's).

Not guaranteed: that it has ended when another leads if it blocks the loop or ignores cancellation; see
`tenure.coordinator`.

Nothing of Starlette is imported: a lifespan takes the application and gives an async context manager.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, TypeAlias, cast

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.apart import apart
from tenure.coordinator.config import CoordinatorConfig, check_config
from tenure.coordinator.layout import folder_of
from tenure.coordinator.lead import Lead
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.errors import ConfigError, TenureError

__all__ = ["lifespan"]

_log = logging.getLogger("tenure.asgi")

Work: TypeAlias = Callable[[Lead], Awaitable[object]]
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
TRIES_IN_A_TERM = 5
"""After so many failures in a row leadership is given back: it may go better in another process."""
WELL_AFTER_SECONDS = 60.0
"""Work that ran for so long was well: its failure is the first of a row."""


def lifespan(
    url: str,
    namespace: str = "default",
    *,
    lead: Work | None = None,
    config: CoordinatorConfig | None = None,
    worker_id: str | None = None,
    inner: Lifespan | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Lifespan:
    """What `FastAPI(lifespan=...)` and `Starlette(lifespan=...)` take.

    At startup the coordinator of `namespace` joins the fleet, and is there as `app.state.tenure`; a store that cannot
    be used fails the startup. If it is stopped there, this process leads no more. `lead(lead)` is run whenever this
    process leads. When it returns, its work is done for this term; when it raises, that is logged, and it is called
    again after a pause of 1 to 30 s. `inner` is a lifespan of your own: it is entered before the first call, and left
    after the last.

    Shutdown takes twice `drain_timeout`, and the rest of a request or two, if the work ignores its cancellation: once
    for the work, and once for its lease. Give the server more than that before it is killed.

    Give no `worker_id` where several server processes share these arguments: each must have its own.
    """
    if lead is not None and not callable(lead):
        raise ConfigError(f"lead is {lead!r}: give an async function of one argument, the lead")
    if inner is not None and not callable(inner):
        raise ConfigError(f"inner is {inner!r}: give a lifespan, a function of one argument, the application")
    # What cannot be is refused where it is written, and not at startup.
    Database(url, worker_id=worker_id)
    folder_of(namespace)
    check_config(config)

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(Database(url, worker_id=worker_id))
            coordinator = await database.get_global_coordinator(namespace, config=config)
            await coordinator.start()
            state = getattr(app, "state", None)
            if state is not None:
                state.tenure = coordinator
            given = await stack.enter_async_context(inner(app)) if inner is not None else None
            if lead is not None:
                task = asyncio.create_task(_lead_again_and_again(coordinator, lead, clock), name="tenure-lead")
                stack.push_async_callback(_end, task, coordinator.config.drain_timeout)
            yield given

    return run


async def _lead_again_and_again(coordinator: GlobalCoordinatorService, work: Work, clock: Clock) -> None:
    try:
        async with aclosing(cast("AsyncGenerator[Lead, None]", coordinator.terms())) as terms:
            async for lead in terms:
                async with lead:
                    await _work(lead, work, clock)
                if _is_told_to_end():
                    return
    except TenureError as error:
        # A newer process has our worker id, or somebody stopped the coordinator. The server serves on.
        _log.error("%r will not lead any more in this process: %s", coordinator.namespace, error)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException:
        if _is_told_to_end():
            raise
        _log.exception("%r will not lead any more in this process", coordinator.namespace)
    if coordinator.running and not _is_told_to_end():
        # It would lead without doing the work, and keep it from those that do.
        _log.error("%r leaves the fleet: what works while it leads has ended", coordinator.namespace)
        try:
            await coordinator.stop()
        except TenureError:
            _log.exception("%r did not leave as it should", coordinator.namespace)


async def _work(lead: Lead, work: Work, clock: Clock) -> None:
    """Returns when leadership shall be given back, or is over."""
    failures = 0
    while failures < TRIES_IN_A_TERM:
        began = clock.read()
        try:
            result = work(lead)
            if not inspect.isawaitable(result):
                raise ConfigError(f"{work!r} is no async function: what runs while leading must be one")
            await apart(result)
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if isinstance(error, asyncio.CancelledError) and _is_told_to_end():
                raise
            # A CancelledError that nobody asked us for is the work's own, of a task that it waited for.
            if _is_over(lead):
                _log.info("work for epoch %d of %r ended with its term", lead.epoch, lead.namespace, exc_info=True)
                return
            well = clock.read().leader_elapsed(began) >= WELL_AFTER_SECONDS
            failures = 1 if well else failures + 1
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1))
            _log.exception(
                "work for epoch %d of %r failed, %d of %d times in a row; next in %g s",
                *(lead.epoch, lead.namespace, failures, TRIES_IN_A_TERM, pause),
            )
            await clock.sleep(pause)
        else:
            if not _is_over(lead):
                # Done for this term. Leading on without work is better than one election after another.
                await asyncio.Event().wait()
            return
    _log.error("work of %r failed %d times in a row: leadership is given back", lead.namespace, failures)


def _is_over(lead: Lead) -> bool:
    """Asked of work that ended: its cancellation may have come out of it as something else."""
    return not lead.is_current() or _is_told_to_end()


def _is_told_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _end(task: asyncio.Task[None], seconds: float) -> None:
    """Work that ignores its cancellation is left to the end of the lease, and does not hold up the shutdown."""
    task.cancel()
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        _log.warning("work still runs %g s after it was cancelled: the shutdown goes on without it", seconds)
    elif not task.cancelled() and (error := task.exception()) is not None:
        _log.error("what leads failed while it was stopped", exc_info=error)

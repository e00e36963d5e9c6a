"""Where in tenure's own code a task stands: for counting at which points a fault struck."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

OUTSIDE = "outside tenure"


def point_of(callback: Callable[..., object], arguments: Iterable[object]) -> str:
    """Where things go on when this callback runs: in the task that it resumes or is about to wake, if it does that."""
    owner = getattr(callback, "__self__", None)
    candidates = [owner, getattr(owner, "_task", None)]  # a task; an asyncio.Timeout knows whom it interrupts
    for argument in arguments:
        if isinstance(argument, asyncio.Future):  # a timer that ends a sleep: whoever waits for that future
            waiting: Iterable[tuple[Any, Any]] = argument._callbacks or ()
            candidates += [getattr(waiter, "__self__", None) for waiter, _ in waiting]
    for candidate in candidates:
        if isinstance(candidate, asyncio.Task):
            return innermost(candidate)
    module = getattr(callback, "__module__", None) or "?"
    if module.startswith("tenure.testing"):
        return OUTSIDE
    return f"{module.removeprefix('tenure.')}:{getattr(callback, '__qualname__', type(callback).__qualname__)}"


def innermost(task: asyncio.Task[Any]) -> str:
    """The innermost function of tenure, without `tenure.testing`, in which the task stands: `module:function`.

    Every request ends in the store: what made it says more, so that is named, with its caller and the request:
    `coordinator.lease:LeaseDesk.renew > _write > replace`.
    """
    place = OUTSIDE
    above: list[str] = []  # the functions on the way, those of the store left out
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame, code, following = _look_into(awaited)
        if frame is not None and code is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("tenure.") and not module.startswith("tenure.testing"):
                place = f"{module.removeprefix('tenure.')}:{code.co_qualname}"
                if not module.startswith("tenure.store"):
                    above.append(place)
        awaited = following
    if not place.startswith("store.") or not above:
        return place
    return " > ".join([*above[-2:-1], _name(above[-1]) if above[1:] else above[-1], _name(place)])


def _name(place: str) -> str:
    return place.rpartition(".")[2].rpartition(":")[2]


def _look_into(awaited: Any) -> tuple[FrameType | None, CodeType | None, Any]:
    """The frame of something awaitable, its code, and what it waits for in turn."""
    if isinstance(awaited, CoroutineType):
        return awaited.cr_frame, awaited.cr_code, awaited.cr_await
    if isinstance(awaited, AsyncGeneratorType):
        return awaited.ag_frame, awaited.ag_code, awaited.ag_await
    if isinstance(awaited, GeneratorType):
        return awaited.gi_frame, awaited.gi_code, awaited.gi_yieldfrom
    if type(awaited).__name__ in ("async_generator_asend", "async_generator_athrow", "coroutine_wrapper"):
        inner = [held for held in gc.get_referents(awaited) if isinstance(held, AsyncGeneratorType | CoroutineType)]
        return None, None, inner[0] if inner else None
    return None, None, None

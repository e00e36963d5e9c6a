"""Wait in real time until something is so. Only for real processes and threads: simulated time needs no waiting."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

PATIENCE = 120.0
"""A busy machine is not a defect. What a test promises about time it asserts itself."""


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]], what: object = "", *, within: float = PATIENCE, pause: float = 0.02
) -> T: ...
@overload
async def eventually(
    condition: Callable[[], T], what: object = "", *, within: float = PATIENCE, pause: float = 0.02
) -> T: ...
async def eventually(
    condition: Callable[[], Any], what: object = "", *, within: float = PATIENCE, pause: float = 0.02
) -> Any:
    """What `condition` gives, once that is true. It may be async.

    `what` says what is waited for; if it can be called, its answer at the end is shown: a log, a state.
    """
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if inspect.isawaitable(found):
            try:
                found = await asyncio.wait_for(found, max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise AssertionError(_in_vain(condition, what, within, "no answer")) from None
                raise
        if found:
            return found
        assert time.monotonic() < deadline, _in_vain(condition, what, within, found)
        await asyncio.sleep(pause)


def eventually_here(
    condition: Callable[[], T], what: object = "", *, within: float = PATIENCE, pause: float = 0.02
) -> T:
    """As `eventually`, for a test that is not async: it blocks."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, _in_vain(condition, what, within, found)
        time.sleep(pause)
    return found


def _in_vain(condition: Callable[[], Any], what: object, within: float, last: object) -> str:
    if callable(what):
        what = what()
    return f"not within {within:g} s: {what or _source_of(condition)}; the last answer was {last!r}"


def _source_of(condition: Callable[[], Any]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)

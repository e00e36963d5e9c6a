"""To wait in real time, and to say what was waited for in vain."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.support.waiting import eventually, eventually_here


async def test_it_gives_what_came_true() -> None:
    tries = itertools.count()
    assert await eventually(lambda: next(tries) > 2 and "there") == "there"
    tries = itertools.count()
    assert eventually_here(lambda: next(tries) > 2 and "there") == "there"


async def test_a_condition_may_be_async() -> None:
    tries = itertools.count()

    async def found() -> int:
        await asyncio.sleep(0)
        return max(0, next(tries) - 2)

    assert await eventually(found) == 1


async def test_what_does_not_come_true_is_named() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: a leader; the last answer was \[\]"):
        await eventually(lambda: [], "a leader", within=0.05)
    with pytest.raises(AssertionError, match="not within 0 s: a leader; the last answer was 0"):
        eventually_here(lambda: 0, "a leader", within=0)
    log: list[str] = []
    with pytest.raises(AssertionError, match=r"\['started'\]"):
        eventually_here(lambda: log.append("started") if not log else None, lambda: log, within=0.05)
    with pytest.raises(AssertionError, match=r"eventually\(lambda: len\(log\) == 2, within=0\)"):
        await eventually(lambda: len(log) == 2, within=0)


async def test_a_condition_that_hangs_is_given_up() -> None:
    async def never() -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(AssertionError, match="no answer"):
        await eventually(never, within=0.05)


async def test_what_a_condition_raises_is_raised() -> None:
    async def broken() -> bool:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await eventually(broken)
    with pytest.raises(ZeroDivisionError):
        eventually_here(lambda: 1 / 0)

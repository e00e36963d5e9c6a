"""Users' code in a task of its own: what passes in, and what does not come back."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from tenure.coordinator.apart import apart


async def test_what_it_cancels_is_its_own_task() -> None:
    async def times_out() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7
        raise AssertionError

    assert await apart(times_out()) == 7
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_who_waits_passes_a_cancellation_on() -> None:
    begun, told = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    waiting = asyncio.ensure_future(apart(waits()))
    await begun.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert told.is_set()


async def test_one_that_is_cancelled_before_it_began_is_no_warning() -> None:
    async def never() -> None:
        raise AssertionError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        waiting = asyncio.ensure_future(apart(never()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        gc.collect()
    assert waiting.cancelled()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, ValueError])
async def test_what_it_raises_is_for_who_waits(kind: type[BaseException]) -> None:
    async def raises() -> None:
        raise kind("end")

    with pytest.raises(kind, match="end"):
        await apart(raises())


async def test_its_task_is_among_the_others_while_it_runs() -> None:
    tasks: set[asyncio.Task[None] | None] = set()

    async def looks() -> bool:
        return asyncio.current_task() in tasks

    assert await apart(looks(), among=tasks)
    await asyncio.sleep(0)
    assert not tasks

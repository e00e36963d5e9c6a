"""Elapsed time: a leader never counts less than a follower, whatever the clocks do."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.clock import SYSTEM_CLOCK, Reading, SystemClock
from tenure.testing import SimulatedClock

Steps = list[tuple[str, float]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.floats(0, 1e4)),
        st.tuples(st.just("suspend"), st.floats(0, 1e5)),
        st.tuples(st.just("step_wall"), st.floats(-1e6, 1e6)),
        st.tuples(st.just("slew"), st.floats(-0.1, 0.1)),
        st.tuples(st.just("rate"), st.floats(0.99, 1.01)),
    ),
    max_size=12,
)


def play(clock: SimulatedClock, steps: Steps) -> None:
    for name, value in steps:
        if name in ("slew", "rate"):
            setattr(clock, name, value)
        else:
            getattr(clock, name)(value)


@given(STEPS, STEPS)
def test_a_leader_never_counts_less_than_a_follower(before: Steps, after: Steps) -> None:
    clock = SimulatedClock()
    play(clock, before)
    since = clock.read()
    play(clock, after)
    now = clock.read()
    assert now.leader_elapsed(since) >= now.follower_elapsed(since) >= 0


@given(STEPS)
def test_elapsed_time_brackets_the_true_time_within_drift(steps: Steps) -> None:
    """Slew only ever widens the bracket; what is left outside is the drift that the protocol allows for."""
    clock = SimulatedClock()
    since = clock.read()
    play(clock, [(name, abs(value) if name == "slew" else value) for name, value in steps])
    now = clock.read()
    assert now.leader_elapsed(since) >= clock.true_seconds * 0.99 - 1e-6
    assert now.follower_elapsed(since) <= clock.true_seconds * 1.01 + 1e-6


def test_suspend_is_counted_by_both() -> None:
    clock = SimulatedClock()
    since = clock.read()
    clock.advance(5)
    clock.suspend(3600)
    now = clock.read()
    assert now.leader_elapsed(since) == pytest.approx(3605)
    assert now.follower_elapsed(since) == pytest.approx(3605)
    assert now.monotonic_ns - since.monotonic_ns == 5_000_000_000
    assert now.raw_ns - since.raw_ns == 5_000_000_000


@pytest.mark.parametrize(("slew", "leader", "follower"), [(0.08, 108, 100), (-0.08, 100, 92)])
def test_a_slewed_clock_is_trusted_only_to_the_safe_side(slew: float, leader: float, follower: float) -> None:
    clock = SimulatedClock(slew=slew)
    since = clock.read()
    clock.advance(100)
    assert clock.read().leader_elapsed(since) == pytest.approx(leader)
    assert clock.read().follower_elapsed(since) == pytest.approx(follower)


def test_slew_and_suspend_together() -> None:
    clock = SimulatedClock(slew=0.08)
    since = clock.read()
    clock.advance(100)
    clock.suspend(1000)
    assert clock.read().leader_elapsed(since) == pytest.approx(1108)
    assert clock.read().follower_elapsed(since) == pytest.approx(1100)


@pytest.mark.parametrize(("rate", "seconds"), [(1.01, 101), (0.99, 99)])
def test_a_drifting_clock_is_off_by_its_rate(rate: float, seconds: float) -> None:
    clock = SimulatedClock(rate=rate)
    since = clock.read()
    clock.advance(60)
    clock.suspend(40)
    assert clock.read().leader_elapsed(since) == pytest.approx(seconds)
    assert clock.read().follower_elapsed(since) == pytest.approx(seconds)
    assert clock.true_seconds == 100


@pytest.mark.parametrize("step", [3600.0, 1.5, -1.5, -1e6])
def test_the_wall_clock_changes_no_elapsed_time(step: float) -> None:
    clock = SimulatedClock()
    since = clock.read()
    clock.advance(10)
    clock.step_wall(step)
    now = clock.read()
    assert now.wall_ran_ahead(since) == pytest.approx(step)
    assert now.leader_elapsed(since) == now.follower_elapsed(since) == pytest.approx(10)


def test_the_wall_clock_keeps_up_with_suspend() -> None:
    clock = SimulatedClock(slew=0.01)
    since = clock.read()
    clock.suspend(3600)
    clock.advance(60)
    assert clock.read().wall_ran_ahead(since) == pytest.approx(0)


def test_readings_are_plain_differences() -> None:
    since = Reading(boottime_ns=0, monotonic_ns=0, raw_ns=0, wall_ns=0)
    now = Reading(boottime_ns=7_000_000_000, monotonic_ns=4_000_000_000, raw_ns=5_000_000_000, wall_ns=9_000_000_000)
    assert now.leader_elapsed(since) == 8.0  # 5 s unslewed, and 3 s of suspend
    assert now.follower_elapsed(since) == 7.0
    assert now.wall_ran_ahead(since) == 2.0


@pytest.mark.req("EL-15")
def test_each_clock_of_this_system_is_read_from_the_clock_that_its_rule_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only BOOTTIME counts suspended time, and only MONOTONIC_RAW is not slewed: on a machine that is awake and in step
    all of them look alike, so that no difference of two readings shows which is which."""
    if sys.platform != "linux":
        pytest.skip("other kernels have other clocks")
    numbers = {
        time.CLOCK_BOOTTIME: 1_000,
        time.CLOCK_MONOTONIC: 2_000,
        time.CLOCK_MONOTONIC_RAW: 3_000,
        time.CLOCK_REALTIME: 4_000,
    }
    monkeypatch.setattr(time, "clock_gettime_ns", numbers.__getitem__)
    monkeypatch.setattr(time, "time_ns", lambda: numbers[time.CLOCK_REALTIME])
    assert SystemClock().read() == Reading(boottime_ns=1_000, monotonic_ns=2_000, raw_ns=3_000, wall_ns=4_000)


def test_the_clocks_of_this_system_move_forward() -> None:
    readings = [SYSTEM_CLOCK.read() for _ in range(50)]
    first, last = readings[0], readings[-1]
    for earlier, later in itertools.pairwise(readings):
        assert later.boottime_ns >= earlier.boottime_ns
        assert later.monotonic_ns >= earlier.monotonic_ns
        assert later.raw_ns >= earlier.raw_ns
    assert 0 < last.leader_elapsed(first) < 60
    assert last.leader_elapsed(first) >= last.follower_elapsed(first)
    assert first.boottime_ns + 1_000_000_000 > first.monotonic_ns


async def test_the_system_clock_sleeps_at_least_as_long_as_asked() -> None:
    clock = SystemClock()
    before = clock.read()
    await clock.sleep(0.01)
    await clock.sleep(0)
    await clock.sleep(-1)
    elapsed = clock.read().leader_elapsed(before)
    assert 0.0095 < elapsed < 5


# Simulated sleep.


async def sleeper(clock: SimulatedClock, seconds: float, woken: list[float]) -> None:
    await clock.sleep(seconds)
    woken.append(seconds)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_sleepers_wake_when_due_and_in_order() -> None:
    clock, woken = SimulatedClock(), []
    async with asyncio.TaskGroup() as group:
        for seconds in (3.0, 1.0, 2.0):
            group.create_task(sleeper(clock, seconds, woken))
        await turns()
        clock.advance(0.999)
        await turns()
        assert woken == []
        clock.advance(0.001)
        await turns()
        assert woken == [1.0]
        clock.advance(10)
        await turns()
        assert woken == [1.0, 2.0, 3.0]
    assert clock.true_seconds == 11.0


async def test_those_due_together_wake_in_the_order_in_which_they_went_to_sleep() -> None:
    clock, woken = SimulatedClock(), []

    async def named(name: int) -> None:
        await clock.sleep(1.0)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        for name in range(5):
            group.create_task(named(name))
        await turns()
        clock.advance(1)
    assert woken == [0, 1, 2, 3, 4]


async def test_nobody_wakes_in_suspend_and_it_does_not_count_as_sleep() -> None:
    clock, woken = SimulatedClock(), []
    task = asyncio.create_task(sleeper(clock, 5.0, woken))
    await turns()
    clock.suspend(3600)
    await turns()
    assert woken == []
    clock.advance(4.9)
    await turns()
    assert woken == []
    clock.advance(0.1)
    await task


@pytest.mark.parametrize(("rate", "slew", "true_seconds"), [(1.25, 0.0, 8.0), (0.8, 0.0, 12.5), (1.0, 0.25, 8.0)])
async def test_sleep_follows_this_hosts_clock(rate: float, slew: float, true_seconds: float) -> None:
    clock, woken = SimulatedClock(rate=rate, slew=slew), []
    task = asyncio.create_task(sleeper(clock, 10.0, woken))
    await turns()
    clock.advance(true_seconds - 0.001)
    await turns()
    assert woken == []
    clock.advance(0.001)
    await task


@given(st.floats(0.001, 100), st.floats(0.9, 1.1), st.floats(-0.08, 0.08), st.floats(0.01, 0.4))
def test_a_sleeper_is_never_woken_early(seconds: float, rate: float, slew: float, step: float) -> None:
    async def measure() -> int:
        clock, woken = SimulatedClock(rate=rate, slew=slew), []
        task = asyncio.create_task(sleeper(clock, seconds, woken))
        await turns()
        while not woken:
            clock.advance(seconds * step)
            await turns()
        await task
        return clock.read().monotonic_ns

    with asyncio.Runner() as runner:
        assert runner.run(measure()) >= int(seconds * 1e9) - 1  # a nanosecond is lost in rounding


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock, woken = SimulatedClock(), []
    task = asyncio.create_task(sleeper(clock, 1.0, woken))
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    clock.advance(2)
    assert woken == []


async def test_no_time_passes_in_a_sleep_of_nothing() -> None:
    clock = SimulatedClock()
    before = clock.read()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.read() == before


@pytest.mark.parametrize("wrong", [lambda: SimulatedClock(rate=0), lambda: SimulatedClock().advance(-1)])
def test_time_that_goes_back_cannot_be_simulated(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"forward|does not go back"):
        wrong()

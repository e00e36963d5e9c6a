"""Tasks of former leaders are refused, but for a short grace that nothing can lengthen."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.coordinator.fencing import EpochFence, EpochValidation
from tenure.testing import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def fence_at(epoch: int, clock: SimulatedClock, *, grace_period: float = 5.0) -> EpochFence:
    """A fence that has just seen the change from epoch - 1 to epoch."""
    fence = EpochFence(grace_period=grace_period)
    fence.observe(epoch - 1, clock.read())
    clock.advance(3600)
    fence.observe(epoch, clock.read())
    return fence


@pytest.mark.req("EF-7")
def test_a_task_of_the_current_leader(clock: SimulatedClock) -> None:
    fence = fence_at(6, clock)
    assert fence.validate_epoch(6, clock.read()) == EpochValidation(
        valid=True, reason="current", task_epoch=6, current_epoch=6
    )
    assert fence.is_epoch_valid(6, clock.read()) is True


@pytest.mark.req("EF-7")
@pytest.mark.req("EF-2")
def test_a_stale_task_is_refused_counted_and_warned_about(
    clock: SimulatedClock, caplog: pytest.LogCaptureFixture
) -> None:
    fence = fence_at(6, clock)
    clock.advance(5.1)
    with caplog.at_level(logging.WARNING, "tenure.coordinator"):
        result = fence.validate_epoch(5, clock.read())
    assert result == EpochValidation(valid=False, reason="stale", task_epoch=5, current_epoch=6)
    assert fence.drift_events == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert fence.is_epoch_valid(5, clock.read()) is False
    assert fence.drift_events == 2


@pytest.mark.req("EF-3")
def test_a_higher_epoch_is_accepted_and_remembered(clock: SimulatedClock) -> None:
    fence = fence_at(6, clock)
    assert fence.validate_epoch(9, clock.read()) == EpochValidation(True, "current", 9, 9)
    assert fence.current_epoch == 9
    assert not fence.is_epoch_valid(6, clock.read())


@pytest.mark.req("EF-7")
@pytest.mark.req("EF-4")
def test_grace_just_after_the_change(clock: SimulatedClock, caplog: pytest.LogCaptureFixture) -> None:
    fence = fence_at(6, clock)
    clock.advance(5)
    with caplog.at_level(logging.WARNING, "tenure.coordinator"):
        result = fence.validate_epoch(5, clock.read())
    assert result == EpochValidation(valid=True, reason="grace_period", task_epoch=5, current_epoch=6)
    assert fence.drift_events == 0
    assert "late" in caplog.text
    clock.advance(0.01)
    assert not fence.is_epoch_valid(5, clock.read())


@pytest.mark.req("EF-4")
def test_a_stamp_only_narrows_the_grace(clock: SimulatedClock) -> None:
    fence = fence_at(6, clock)
    assert fence.is_epoch_valid(5, clock.read(), dispatched_ago=4.9)
    assert not fence.is_epoch_valid(5, clock.read(), dispatched_ago=5.1)
    assert not fence.is_epoch_valid(5, clock.read(), dispatched_ago=float("nan"))
    clock.advance(6)
    assert not fence.is_epoch_valid(5, clock.read(), dispatched_ago=0.0)
    assert not fence.is_epoch_valid(5, clock.read(), dispatched_ago=-1000.0)


@pytest.mark.req("EF-4")
def test_a_deposed_leader_that_wakes_an_hour_later_is_refused(clock: SimulatedClock) -> None:
    fence = fence_at(6, clock)
    clock.suspend(3600)
    assert not fence.is_epoch_valid(5, clock.read(), dispatched_ago=0.1)


@pytest.mark.req("EF-4")
def test_a_process_that_saw_no_change_grants_no_grace(clock: SimulatedClock) -> None:
    fence = EpochFence()
    fence.observe(6, clock.read())  # this process has just started; the epoch may be hours old
    assert not fence.is_epoch_valid(5, clock.read())
    fence.observe(7, clock.read())
    assert fence.is_epoch_valid(6, clock.read())


@pytest.mark.req("EF-4")
def test_hearing_of_the_same_epoch_again_does_not_renew_the_grace(clock: SimulatedClock) -> None:
    fence = fence_at(6, clock)
    clock.advance(4)
    fence.observe(6, clock.read())
    fence.observe(5, clock.read())
    assert fence.is_epoch_valid(6, clock.read())
    clock.advance(2)
    assert not fence.is_epoch_valid(5, clock.read())


@pytest.mark.req("EF-4")
@pytest.mark.parametrize("slew", [-0.08, 0.08])
def test_a_slewed_clock_never_lengthens_the_grace(slew: float) -> None:
    clock = SimulatedClock(slew=slew)
    fence = fence_at(6, clock)
    clock.advance(5.05)
    assert not fence.is_epoch_valid(5, clock.read())


@pytest.mark.req("EF-5")
def test_two_epochs_back_there_is_no_grace(clock: SimulatedClock) -> None:
    fence = fence_at(6, clock)
    assert fence.validate_epoch(4, clock.read()).reason == "stale"
    assert fence.drift_events == 1


def test_no_grace_at_all(clock: SimulatedClock) -> None:
    fence = fence_at(6, clock, grace_period=0.0)
    clock.advance(0.001)
    assert not fence.is_epoch_valid(5, clock.read())


@pytest.mark.req("EF-6")
def test_switched_off_every_task_is_accepted_and_nothing_is_counted(
    clock: SimulatedClock, caplog: pytest.LogCaptureFixture
) -> None:
    fence = EpochFence(enabled=False)
    fence.observe(6, clock.read())
    for epoch in (1, 5, 6, 7):
        assert fence.is_epoch_valid(epoch, clock.read())
    assert fence.drift_events == 0
    assert fence.current_epoch == 6
    assert caplog.records == []


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.floats(0, 4)), max_size=40))
def test_the_known_epoch_never_falls_and_old_tasks_never_pass(steps: list[tuple[int, bool, float]]) -> None:
    clock = SimulatedClock()
    fence = EpochFence()
    for epoch, is_task, pause in steps:
        clock.advance(pause)
        before, drifts = fence.current_epoch, fence.drift_events
        if is_task:
            result = fence.validate_epoch(epoch, clock.read())
            assert result.valid == (result.reason != "stale")
            assert result.valid or epoch < before
            assert epoch >= before - 1 or not result.valid
            assert fence.drift_events == drifts + (not result.valid)
            assert result.current_epoch == fence.current_epoch
        else:
            fence.observe(epoch, clock.read())
        assert fence.current_epoch == max(before, epoch)

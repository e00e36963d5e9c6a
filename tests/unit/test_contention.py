"""Slow heartbeats are counted, and reported within a limit."""

from __future__ import annotations

import pytest

from tenure.coordinator.config import ContentionConfig
from tenure.coordinator.contention import ContentionDetector
from tenure.coordinator.events import ContentionDetected
from tenure.testing import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def detector(interval: float = 5.0, **settings: float) -> ContentionDetector:
    return ContentionDetector("default", interval, ContentionConfig(**settings))  # type: ignore[arg-type]


@pytest.mark.req("CD-1")
def test_a_slow_heartbeat_is_reported_in_full(clock: SimulatedClock) -> None:
    now = clock.read()
    event = detector().observe(12.5, now)
    assert event == ContentionDetected(
        namespace="default", duration=12.5, expected=5.0, ratio=2.5, threshold=2.0, timestamp=now.wall_ns / 1e9
    )
    assert event.name == "contention:detected"


@pytest.mark.req("CD-1")
def test_only_what_is_longer_than_the_threshold_is_slow(clock: SimulatedClock) -> None:
    contention = detector()
    assert contention.observe(10.0, clock.read()) is None
    assert contention.events == 0
    assert contention.observe(10.001, clock.read()) is not None


@pytest.mark.req("CD-2")
def test_one_event_in_thirty_seconds_and_every_one_counted(clock: SimulatedClock) -> None:
    contention = detector()
    reported = []
    for _ in range(61):  # one slow heartbeat each second, for a minute
        reported.append(contention.observe(11, clock.read()) is not None)
        clock.advance(1)
    assert [second for second, was_reported in enumerate(reported) if was_reported] == [0, 30, 60]
    assert contention.events == 61


@pytest.mark.req("CD-2")
def test_the_limit_does_not_care_for_the_wall_clock(clock: SimulatedClock) -> None:
    contention = detector()
    assert contention.observe(11, clock.read()) is not None
    clock.step_wall(3600)
    assert contention.observe(11, clock.read()) is None
    clock.step_wall(-7200)
    clock.advance(30)
    assert contention.observe(11, clock.read()) is not None


@pytest.mark.req("CD-3")
def test_switched_off_it_neither_reports_nor_counts(clock: SimulatedClock) -> None:
    contention = detector(enabled=False)
    assert contention.observe(1000, clock.read()) is None
    assert contention.events == 0


@pytest.mark.req("CD-4")
def test_threshold_and_limit_are_settings(clock: SimulatedClock) -> None:
    contention = detector(interval=1.0, threshold=3.0, rate_limit=5.0)
    assert contention.observe(3.0, clock.read()) is None
    event = contention.observe(3.1, clock.read())
    assert event is not None
    assert event.threshold == 3.0
    clock.advance(4.9)
    assert contention.observe(4, clock.read()) is None
    clock.advance(0.1)
    assert contention.observe(4, clock.read()) is not None


def test_without_a_limit_each_is_reported(clock: SimulatedClock) -> None:
    contention = detector(rate_limit=0)
    assert all(contention.observe(11, clock.read()) for _ in range(3))

"""The breaker opens after repeated failures, waits, tries again, and never gets stuck."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.coordinator.breaker import CircuitBreaker, CircuitBreakerStatus
from tenure.coordinator.config import CircuitBreakerConfig
from tenure.testing import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def make(threshold: int = 5, reset: float = 30.0, attempts: int = 1) -> CircuitBreaker:
    return CircuitBreaker(
        CircuitBreakerConfig(failure_threshold=threshold, reset_timeout=reset, half_open_max_attempts=attempts)
    )


def open_it(breaker: CircuitBreaker, clock: SimulatedClock) -> None:
    while not breaker.failed(clock.read()):
        pass


@pytest.mark.req("CB-1")
def test_opens_at_the_fifth_failure_in_a_row(clock: SimulatedClock) -> None:
    breaker = CircuitBreaker(CircuitBreakerConfig())
    assert [breaker.failed(clock.read()) for _ in range(4)] == [False] * 4
    assert breaker.allows(clock.read())
    assert breaker.status().state == "closed"
    assert breaker.failed(clock.read())
    assert not breaker.allows(clock.read())
    assert breaker.status().state == "open"


def test_a_success_starts_the_count_again(clock: SimulatedClock) -> None:
    breaker = make(threshold=2)
    breaker.failed(clock.read())
    breaker.succeeded(clock.read())
    assert not breaker.failed(clock.read())
    assert breaker.status().failure_count == 1


@pytest.mark.req("CB-1")
def test_skips_while_open_and_no_longer(clock: SimulatedClock) -> None:
    breaker = make()
    open_it(breaker, clock)
    clock.advance(29.9)
    assert not breaker.allows(clock.read())
    clock.advance(0.1)
    assert breaker.allows(clock.read())
    assert breaker.status().state == "half-open"


@pytest.mark.req("CB-2")
def test_half_open_lets_one_attempt_through(clock: SimulatedClock) -> None:
    breaker = make()
    open_it(breaker, clock)
    clock.advance(30)
    assert breaker.allows(clock.read())
    breaker.begin(clock.read())
    assert not breaker.allows(clock.read())


@pytest.mark.req("CB-2")
def test_half_open_lets_as_many_through_as_configured(clock: SimulatedClock) -> None:
    breaker = make(attempts=2)
    open_it(breaker, clock)
    clock.advance(30)
    breaker.begin(clock.read())
    assert breaker.allows(clock.read())
    breaker.begin(clock.read())
    assert not breaker.allows(clock.read())


@pytest.mark.req("CB-2")
def test_a_success_while_half_open_closes(clock: SimulatedClock) -> None:
    breaker = make()
    open_it(breaker, clock)
    clock.advance(30)
    breaker.begin(clock.read())
    breaker.succeeded(clock.read())
    assert breaker.status() == CircuitBreakerStatus("closed", 0, 5, 30.0, 1)
    assert breaker.allows(clock.read())


@pytest.mark.req("CB-2")
def test_a_failure_while_half_open_opens_again_for_the_whole_time(clock: SimulatedClock) -> None:
    breaker = make()
    open_it(breaker, clock)
    clock.advance(30)
    breaker.begin(clock.read())
    assert breaker.failed(clock.read())
    assert breaker.status() == CircuitBreakerStatus("open", 6, 5, 30.0, 2)
    clock.advance(29.9)
    assert not breaker.allows(clock.read())
    clock.advance(0.1)
    assert breaker.allows(clock.read())


def test_what_passes_an_open_breaker_neither_closes_it_nor_prolongs_it(clock: SimulatedClock) -> None:
    breaker = make()
    open_it(breaker, clock)
    clock.advance(20)
    breaker.succeeded(clock.read())
    assert breaker.status().state == "open"
    assert not breaker.failed(clock.read())
    clock.advance(10)
    assert breaker.allows(clock.read())


def test_an_attempt_that_never_reports_does_not_hold_it_for_ever(clock: SimulatedClock) -> None:
    breaker = make()
    open_it(breaker, clock)
    clock.advance(30)
    breaker.begin(clock.read())
    clock.advance(29.9)
    assert not breaker.allows(clock.read())
    clock.advance(0.1)
    assert breaker.allows(clock.read())


def test_suspended_time_counts(clock: SimulatedClock) -> None:
    breaker = make()
    open_it(breaker, clock)
    clock.suspend(3600)
    assert breaker.allows(clock.read())


@pytest.mark.req("CB-4")
def test_status_says_everything(clock: SimulatedClock) -> None:
    breaker = make(threshold=3, reset=7)
    assert breaker.status() == CircuitBreakerStatus(
        state="closed", failure_count=0, failure_threshold=3, reset_timeout=7.0, trips=0
    )
    breaker.failed(clock.read())
    assert breaker.status().failure_count == 1
    open_it(breaker, clock)
    status = breaker.status()
    assert (status.state, status.failure_count, status.trips) == ("open", 3, 1)
    clock.advance(7)
    breaker.allows(clock.read())
    assert breaker.status().state == "half-open"


@given(
    st.lists(st.sampled_from(["try ok", "try fail", "try lost", "fail", "ok", "wait"]), max_size=60), st.integers(1, 3)
)
def test_whatever_happened_a_working_store_closes_it(steps: list[str], attempts: int) -> None:
    clock = SimulatedClock()
    breaker = make(threshold=2, reset=10, attempts=attempts)
    opened = 0
    for step in steps:
        if step == "wait":
            clock.advance(4)
        elif step == "ok":
            breaker.succeeded(clock.read())
        elif step == "fail":
            opened += breaker.failed(clock.read())
        elif breaker.allows(clock.read()):
            breaker.begin(clock.read())
            if step == "try ok":
                breaker.succeeded(clock.read())
            elif step == "try fail":
                opened += breaker.failed(clock.read())
    assert breaker.status().trips == opened
    clock.advance(10)
    assert breaker.allows(clock.read())
    breaker.begin(clock.read())
    breaker.succeeded(clock.read())
    assert breaker.status().state == "closed"


def test_a_failure_after_the_wait_opens_again_also_if_nobody_asked(clock: SimulatedClock) -> None:
    """Renewals of a lease that holds pass the breaker without asking."""
    breaker = make()
    open_it(breaker, clock)
    clock.advance(30)
    assert breaker.failed(clock.read())
    assert not breaker.allows(clock.read())

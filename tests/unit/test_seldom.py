"""A warning that a lasting condition repeats is logged once a minute: WA-12."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tenure.coordinator import seldom as module
from tenure.coordinator import service as service_module
from tenure.coordinator.fencing import EpochFence
from tenure.coordinator.seldom import Seldom
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock

LOG = logging.getLogger("tenure.coordinator")


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.DEBUG, LOG.name)
    return lambda: [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_the_first_is_logged_and_later_ones_are_counted(
    clock: SimulatedClock, warnings: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    seldom = Seldom(LOG)
    for number in range(62):
        seldom.warning(clock.read(), "it failed: %d", number, extra={"event": "failed"})
        clock.advance(1)
    assert warnings() == ["it failed: 0", "it failed: 60 (and 59 times more since this was last logged)"]
    assert len(caplog.records) == 62  # the others are there for who looks at DEBUG
    assert all(record.event == "failed" for record in caplog.records)  # type: ignore[attr-defined]
    assert {record.filename for record in caplog.records} == {"test_seldom.py"}


def test_after_a_quiet_minute_it_is_logged_as_it_is(clock: SimulatedClock, warnings: Callable[[], list[str]]) -> None:
    seldom = Seldom(LOG)
    seldom.warning(clock.read(), "it failed")
    clock.advance(60)
    seldom.warning(clock.read(), "it failed")
    assert warnings() == ["it failed", "it failed"]


def test_what_is_twice_as_bad_does_not_wait(clock: SimulatedClock, warnings: Callable[[], list[str]]) -> None:
    seldom = Seldom(LOG)
    for size in (2.0, 3.0, 4.0, 7.0, 9.0):
        seldom.warning(clock.read(), "%g s", size, size=size)
    assert [text.split(" (")[0] for text in warnings()] == ["2 s", "4 s", "9 s"]


def test_each_has_its_own_minute(clock: SimulatedClock, warnings: Callable[[], list[str]]) -> None:
    seldom = Seldom(LOG)
    for _ in range(3):
        for what in ("a", "b"):
            seldom.warning(clock.read(), "%s failed", what, key=what)
        seldom.warning(clock.read(), "another")
    assert warnings() == ["a failed", "b failed", "another"]


def test_so_many_are_remembered(clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    seldom = Seldom(LOG)
    for number in range(10):
        seldom.warning(clock.read(), "x", key=str(number))
    assert list(seldom._logged) == ["7", "8", "9"]


async def test_a_loop_that_is_blocked_again_and_again(
    clock: SimulatedClock, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocked for 2.5 s at a time, it had two warnings for each, for as long as the process lived."""
    handed: dict[str, Any] = {}

    class Watch:
        def __init__(self, loop: object, clock: object, **callbacks: Any) -> None:
            handed.update(callbacks)

        async def run(self) -> None:
            await asyncio.sleep(0)

    monkeypatch.setattr(service_module, "LoopWatch", Watch)
    service = GlobalCoordinatorService(MemoryStore(), clock=clock)
    watching = service._watch_user_loop(None, asyncio.get_running_loop())  # type: ignore[arg-type]
    assert watching is not None
    for _ in range(200):
        handed["stalled"](1.0)
        handed["stalled"](2.5)
        clock.advance(3)
    handed["stalled"](9.0)
    assert len(warnings()) <= 2 + 2 * 10
    assert "9.0 s" in warnings()[-1]
    await asyncio.sleep(0)
    await watching
    await service.close()


def test_tasks_of_a_producer_that_stays_behind(clock: SimulatedClock, warnings: Callable[[], list[str]]) -> None:
    fence = EpochFence()
    fence.observe(6, clock.read())
    for _ in range(1000):
        assert not fence.validate_epoch(5, clock.read()).valid
        clock.advance(0.1)
    assert len(warnings()) == 2
    assert fence.drift_events == 1000

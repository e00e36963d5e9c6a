"""The scripted lease and the scripted clock."""

from __future__ import annotations

import pytest

from tenure.errors import LeadershipLost
from tests.support.clock import ScriptedClock
from tests.support.lease import ScriptedLease


class TestTheLease:
    def test_it_is_valid_until_the_test_ends_it(self) -> None:
        lease = ScriptedLease(7)
        assert (lease.epoch, lease.is_current(), lease.holds()) == (7, True, True)
        lease.ensure(3600)
        lease.valid = False
        assert (lease.is_current(), lease.holds(), lease.remaining(), lease.time_to_wind_up()) == (False, False, 0, 0)
        with pytest.raises(LeadershipLost):
            lease.ensure()

    def test_so_many_seconds_are_left(self) -> None:
        lease = ScriptedLease(left=3.0)
        lease.ensure(2.9)
        with pytest.raises(LeadershipLost):
            lease.ensure(3.0)
        lease.left = 0
        assert not lease.is_current()

    async def test_it_lapses_by_a_clock(self) -> None:
        clock = ScriptedClock()
        lease = ScriptedLease(left=3.0, clock=clock)
        await clock.sleep(2)
        assert lease.remaining() == pytest.approx(1)
        clock.advance(2)
        assert not lease.holds()


class TestTheClock:
    async def test_who_sleeps_makes_the_time_pass(self) -> None:
        clock = ScriptedClock()
        began, since = clock.read(), await clock.now()
        await clock.sleep(1.5)
        await clock.sleep(-1)
        clock.advance(2)
        assert clock.slept == [1.5, -1]
        assert clock.read().leader_elapsed(began) == 3.5
        assert await clock.now() == since + 3.5 == clock.read().wall_ns / 1e9

    async def test_something_may_happen_at_each_sleep(self) -> None:
        seen: list[str] = []

        async def second() -> None:
            seen.append(f"second at {clock.true_seconds:g}")

        clock = ScriptedClock(lambda: seen.append("first"), second)
        clock.on_sleep = lambda: seen.append("later")
        for _ in range(4):
            await clock.sleep(1)
        assert seen == ["first", "second at 2", "later", "later"]

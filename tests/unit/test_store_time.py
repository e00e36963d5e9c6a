"""The store's clock as one process sees it: DB-3's times to live stand on it."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.clock import Reading
from tenure.coordinator.membership import StampedBeat
from tenure.database.time import DRIFT, TIME_FOLDER, Span, StoreTime, span_of
from tenure.errors import AccessDenied, ConfigError, StoreError, StoreUnavailable
from tenure.store.memory import MemoryStore
from tenure.testing import Network, SimulatedBucket, SimulatedClock, SimulatedStore, World
from tenure.testing.machine import EPOCH_SECONDS
from tests.support.store import ANY, After, Hold, Request, ScriptedStore, WholeSeconds
from tests.unit.leases import at, numbered

DAY = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


# The arithmetic


def stamp(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_a_stamp_lies_between_sending_and_hearing() -> None:
    span = span_of(at(10), at(12), DAY.replace(microsecond=123_456))
    assert span.at == at(12)
    assert span.earliest == pytest.approx(DAY.timestamp() + 0.123456)
    assert span.latest == pytest.approx(DAY.timestamp() + 0.123456 + 2 / (1 - DRIFT))


@pytest.mark.parametrize(("microsecond", "rounding"), [(0, 1.0), (5_000, 0.001), (5_001, 0.0)])
def test_what_a_listing_may_have_rounded_down_is_allowed_for(microsecond: int, rounding: float) -> None:
    span = span_of(at(1), at(1), DAY.replace(microsecond=microsecond))
    assert span.latest - span.earliest == pytest.approx(rounding, abs=1e-6)


def test_knowledge_grows_older_and_wider() -> None:
    span = Span(at(0), 100.0, 101.0).aged(at(50))
    assert (span.earliest, span.latest) == (pytest.approx(149.5), pytest.approx(101.0 + 50 / 0.99))


def test_two_measurements_say_more_than_one() -> None:
    both = Span(at(0), 100.0, 101.0).narrowed(Span(at(0), 100.8, 101.8))
    assert (both.earliest, both.latest) == (100.8, 101.0)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_where_two_measurements_contradict_the_newer_counts(jump: float) -> None:
    newer = Span(at(10), 110.0 + jump, 111.0 + jump)
    assert Span(at(0), 100.0, 101.0).narrowed(newer) == newer


def test_what_is_told_late_is_aged_to_what_is_known() -> None:
    known = Span(at(100), 200.0, 201.0)
    both = known.narrowed(Span(at(0), 100.5, 101.5))
    assert both.at == at(100)
    assert (both.earliest, both.latest) == (200.0, 201.0)
    contradicted = known.narrowed(Span(at(0), 500.0, 501.0))
    assert contradicted == known


@given(
    data=st.lists(
        st.tuples(
            st.floats(0, 500),  # until the next measurement
            st.floats(0, 4),  # the way there
            st.floats(0, 4),  # and back
        ),
        min_size=1,
        max_size=6,
    ),
    rate=st.floats(1 - DRIFT / 2, 1 + DRIFT / 2),
    whole_seconds=st.booleans(),
    later=st.floats(0, 1000),
)
def test_the_truth_always_lies_inside(
    data: list[tuple[float, float, float]], rate: float, whole_seconds: bool, later: float
) -> None:
    """A host's clock that runs at `rate`, and a store's that is right."""
    true, span = 0.0, None
    for pause, there, back in data:
        true += pause
        sent = at(true * rate)
        true += there
        written = stamp(1_700_000_000 + true)
        true += back
        measured = span_of(sent, at(true * rate), written.replace(microsecond=0) if whole_seconds else written)
        span = measured if span is None else span.narrowed(measured)
        assert span.earliest - 1e-5 <= 1_700_000_000 + true <= span.latest + 1e-5
    assert span is not None
    true += later
    aged = span.aged(at(true * rate))
    assert aged.earliest - 1e-5 <= 1_700_000_000 + true <= aged.latest + 1e-5


# Measuring


class Stamped(ScriptedStore):
    """A store whose clock is `ahead` of the host's elapsed clock."""

    def __init__(self, clock: SimulatedClock, ahead: float = 0.0, *, whole_seconds: bool = False) -> None:
        self.clock = clock
        self.ahead = ahead
        super().__init__(inner=(WholeSeconds if whole_seconds else MemoryStore)(clock=self))

    def true_now(self) -> float:
        return 1_000_000_000 + self.clock.read().boottime_ns / 1e9 + self.ahead

    def read(self) -> Reading:
        return msgspec.structs.replace(self.clock.read(), wall_ns=round(self.true_now() * 1e9))

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a store does not sleep")


def store_time(store: Stamped, **options: Any) -> StoreTime:
    return StoreTime(store, clock=store.clock, draw_id=numbered("i"), **options)


@pytest.fixture
def clock() -> SimulatedClock:
    clock = SimulatedClock()
    clock.advance(0.123456)  # a full second would look rounded
    return clock


@pytest.mark.req("DB-3")
@pytest.mark.parametrize("whole_seconds", [False, True])
async def test_it_is_the_stores_clock(clock: SimulatedClock, whole_seconds: bool) -> None:
    store = Stamped(clock, ahead=86_400.0, whole_seconds=whole_seconds)
    time = store_time(store)
    assert time.uncertainty == math.inf
    assert time.skew is None
    assert abs(await time.now() - store.true_now()) <= time.uncertainty
    assert time.uncertainty <= (0.51 if whole_seconds else 0.01)
    clock.advance(60)
    assert abs(await time.now() - store.true_now()) <= time.uncertainty
    assert [request.verb for request in store.requests] == ["create", "list", "delete"]
    assert await store.keys() == []


@pytest.mark.req("DB-3")
async def test_the_wall_clock_of_this_host_has_no_part_in_it(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    time = store_time(store)
    before = await time.now()
    assert time.skew == pytest.approx(700_000_000, abs=0.1)
    for jump in (-7200.0, 3 * 7200.0):
        clock.step_wall(jump)
        assert await time.now() == pytest.approx(before, abs=0.01)
    assert time.skew == pytest.approx(700_000_000 + 4 * 3600, abs=0.1)


async def test_a_heartbeat_that_took_very_long_is_not_relied_on(clock: SimulatedClock) -> None:
    """What was told once cannot be taken back: half a minute too late would hold for half a minute."""
    store = Stamped(clock)
    sent = clock.read()
    stamped = datetime.fromtimestamp(store.true_now(), UTC)
    clock.advance(40)  # its process stood still
    beat = StampedBeat(sent, clock.read(), stamped)
    time = store_time(store, beats=lambda: beat)
    assert await time.now() == pytest.approx(store.true_now(), abs=0.1)
    assert time.uncertainty < 1
    assert store.count("create") == 1


async def test_heartbeats_save_measurements_and_keep_it_sharp(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    beats: list[StampedBeat] = []
    time = store_time(store, beats=lambda: beats[-1] if beats else None)
    await time.now()
    for _ in range(100):
        clock.advance(5)
        reading = clock.read()
        beats.append(StampedBeat(reading, reading, datetime.fromtimestamp(store.true_now(), UTC)))
        assert abs(await time.now() - store.true_now()) <= time.uncertainty <= 0.06
    assert [request.verb for request in store.requests] == ["create", "list", "delete"]
    clock.advance(130)  # heartbeats have ceased
    await time.now()
    assert store.count("create") == 2


async def test_what_is_learned_later_does_not_make_what_was_told_more_certain(clock: SimulatedClock) -> None:
    """A heartbeat that is stamped while it is measured, or right after, narrows what is known of later times only."""
    store = Stamped(clock, whole_seconds=True)
    beats: list[StampedBeat] = []
    time = store_time(store, beats=lambda: beats[-1] if beats else None)
    told = await time.now()
    off = time.uncertainty
    true = store.true_now()
    reading = clock.read()
    beats.append(StampedBeat(reading, reading, datetime.fromtimestamp(true, UTC).replace(microsecond=1)))
    assert time.uncertainty == off
    assert abs(told - true) <= time.uncertainty


@pytest.mark.req("DB-3")
def test_a_slow_clock_has_counted_less_than_has_passed() -> None:
    """A host whose clock loses one percent sees 99 s of 100."""
    span = Span(at(0.0), 1000.0, 1000.0).aged(at(99.0))
    assert span.earliest <= 1100.0 <= span.latest
    span = Span(at(0.0), 1000.0, 1000.0).aged(at(101.0))
    assert span.earliest <= 1100.0 <= span.latest


async def test_it_is_measured_again_after_a_while(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    time = store_time(store)
    await time.now()
    clock.advance(119)
    await time.now()
    assert store.count("create") == 1
    wide = time.uncertainty
    clock.advance(2)
    await time.now()
    assert store.count("create") == 2
    assert time.uncertainty < wide


async def test_suspend_counts(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    time = store_time(store)
    before = await time.now()
    clock.suspend(100)
    assert await time.now() == pytest.approx(before + 100, abs=0.01)
    assert store.count("create") == 1


@pytest.mark.req("DB-3")
async def test_it_never_goes_back(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    time = store_time(store)
    before = await time.now()
    store.ahead = -30.0  # somebody set the store's clock
    clock.advance(121)
    now = await time.now()
    assert now >= before
    assert time.uncertainty >= now - store.true_now() - 0.1
    clock.advance(10)
    store.ahead = -60.0
    clock.advance(121)
    later = await time.now()
    assert later >= now
    clock.advance(100)
    assert await time.now() == pytest.approx(store.true_now(), abs=2)


async def test_a_store_whose_clock_was_set_forward_is_followed(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    time = store_time(store)
    await time.now()
    store.ahead = 3600.0
    clock.advance(121)
    assert await time.now() == pytest.approx(store.true_now(), abs=0.1)


async def test_many_callers_share_one_measurement(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    gate = Hold()
    store.always("create", ANY, gate)
    time = store_time(store)
    callers = [asyncio.create_task(time.now()) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    callers[0].cancel()  # the one that began it; the others go on
    await asyncio.sleep(0)
    gate.release()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(isinstance(answer, float) for answer in answers[1:])
    assert store.count("create") == 1


async def test_a_failure_reaches_all_callers_and_the_next_one_tries_again(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    down = store.always("create list", ANY, "lost")
    time = store_time(store)

    async def ask() -> Any:
        callers = [asyncio.create_task(time.now()) for _ in range(3)]
        while not all(caller.done() for caller in callers):
            await asyncio.sleep(0)
            clock.advance(0.05)
        return await asyncio.gather(*callers, return_exceptions=True)

    answers = await ask()
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert store.count("create") == 3  # tries of one measurement
    down.stop()
    assert all(isinstance(answer, float) for answer in await ask())


async def test_an_older_measurement_is_good_for_a_while(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    time = store_time(store, remeasure_after=100.0, good_for=300.0)
    await time.now()
    store.always("create list", ANY, AccessDenied("no more"))

    async def ask() -> float:
        asking = asyncio.create_task(time.now())
        while not asking.done():
            await asyncio.sleep(0)
            clock.advance(0.05)
        return await asking

    clock.advance(150)
    assert abs(await ask() - store.true_now()) < 2
    sent = len(store.requests)
    assert abs(await ask() - store.true_now()) < 2
    assert len(store.requests) == sent, "a store that is down is not asked at every call"
    clock.advance(20)
    await ask()
    assert len(store.requests) > sent
    clock.advance(200)
    with pytest.raises(AccessDenied):
        await ask()


async def test_a_lost_reply_costs_precision_and_nothing_else(clock: SimulatedClock) -> None:
    async def takes_its_time(request: Request) -> None:
        clock.advance(3)

    store = Stamped(clock)
    store.on("create", ANY, After(takes_its_time, "kept"))
    time = store_time(store)
    assert abs(await time.now() - store.true_now()) <= time.uncertainty
    assert 1.4 < time.uncertainty < 1.7


async def test_a_heartbeat_can_take_the_place_of_a_measurement(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    time = store_time(store)
    sent = clock.read()
    clock.advance(0.2)
    time.observe(sent, clock.read(), stamp(store.true_now() - 0.1))
    assert abs(await time.now() - store.true_now()) <= time.uncertainty < 0.2
    assert store.log == []


async def test_what_cannot_be_removed_is_left(clock: SimulatedClock) -> None:
    store = Stamped(clock)
    store.always("delete", ANY, "lost")
    await store_time(store).now()
    (left,) = await store.keys()
    assert left.startswith(TIME_FOLDER)


@pytest.mark.parametrize(
    "options", [{"remeasure_after": 0}, {"remeasure_after": 700.0}, {"good_for": math.inf}, {"good_for": math.nan}]
)
def test_nonsense_is_refused_by_name(clock: SimulatedClock, options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        store_time(Stamped(clock), **options)


# Two hosts


@pytest.mark.req("DB-3")
@pytest.mark.parametrize("whole_seconds", [False, True])
def test_hosts_whose_wall_clocks_are_hours_apart_agree(whole_seconds: bool) -> None:
    """One of them runs a percent fast, the network loses replies, and the store's own clock is a day off."""
    spread: list[float] = []
    for seed in range(30):
        with World(seed) as world:
            bucket, network = SimulatedBucket(world, clock_offset=-86_400.0), Network(world)
            network.whole_second_times = whole_seconds
            network.change(lost_reply=0.05, late_landing=0.05, slow_reply=0.05, slow_seconds=3.0)
            last: dict[str, float] = {}

            async def watch(name: str, clock: Any, time: StoreTime, last: dict[str, float] = last) -> None:
                for _ in range(60):
                    await clock.sleep(11.0)
                    try:
                        now = await time.now()
                    except StoreError:
                        continue
                    assert now >= last.get(name, 0.0)
                    last[name] = now
                    off = now - (EPOCH_SECONDS - 86_400.0 + world.now)
                    assert abs(off) <= time.uncertainty + 1e-3
                    spread.append(abs(off))

            for name, wall, rate in (("a", -10_000.0, 1.0), ("b", 10_000.0, 1.009)):
                host = world.host(name, wall_offset=wall, rate=rate)
                store = SimulatedStore(bucket, host, network)
                host.start(watch(name, host.clock, StoreTime(store, clock=host.clock, draw_id=numbered(name))))
            world.run_until(900.0)
            assert world.errors == []
    assert len(spread) > 3000
    assert sorted(spread)[int(len(spread) * 0.99)] < 2.0

"""The decisions of a lock, its record, its settings, and `Held` on a clock of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tenure.clock import Reading
from tenure.coordinator.config import Hosting
from tenure.coordinator.lock import DistributedLock, Held
from tenure.coordinator.lock.contest import Patience
from tenure.coordinator.lock.records import MAX_TOKEN, LockRecord, decode_lock, lock_key
from tenure.coordinator.lock.rules import (
    Absent,
    Found,
    Known,
    LockRules,
    Refuse,
    Sight,
    Take,
    Wait,
    decide,
    judge,
    longest_poll,
    next_poll,
    observe,
)
from tenure.election.holding import Holding
from tenure.election.records import Damage, TooNew, encode
from tenure.errors import (
    ConfigError,
    CoordinationError,
    ForkedProcess,
    InvalidKey,
    LockError,
    LockLost,
    LockNotAnswered,
    LockTimeout,
    SchemaTooNew,
    StoreUnavailable,
)
from tenure.store import StoreInfo, Version
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.leases import at

RULES = LockRules(10.0)
V1, V2 = Version("1"), Version("2")
LAPSE = 10.0 * 1.01 + 0.1


def record(**changes: Any) -> LockRecord:
    fields: dict[str, Any] = {
        "write_id": "w1",
        "name": "job",
        "uid": "u1",
        "owner": "ada",
        "token": 7,
        "holder_write_id": "w1",
        "ttl_ms": 10_000,
    }
    return LockRecord(**fields | changes)


def seen(found: Found, since: float = 0.0, last: float | None = None, version: Version | None = V1) -> Sight:
    return Sight(found, version, at(since), at(since if last is None else last))


class TestDecisions:
    @pytest.mark.req("DB-4", "EF-9")
    def test_each_grant_has_the_next_token(self) -> None:
        assert decide(RULES, seen(Absent(), version=None), "me", at(0)) == Take(1)
        assert decide(RULES, seen(record(released=True)), "me", at(0)) == Take(8)
        assert decide(RULES, seen(record()), "me", at(LAPSE)) == Take(8, over_lapsed=True)
        assert decide(RULES, seen(record(uid="me")), "me", at(0)) == Take(8), "its own, granted too late"

    @pytest.mark.req("DB-4")
    def test_a_holder_is_left_alone_for_the_ttl_in_the_record_and_the_drift(self) -> None:
        assert decide(RULES, seen(record()), "me", at(LAPSE - 0.001)) == Wait(pytest.approx(0.001))
        assert isinstance(decide(LockRules(1.0), seen(record()), "me", at(5)), Wait), "its ttl counts, not ours"

    @pytest.mark.req("DB-4")
    @pytest.mark.parametrize("found", [Damage("torn"), TooNew(9)])
    def test_what_cannot_be_read_makes_no_holder(self, found: Damage | TooNew) -> None:
        assert decide(RULES, seen(found), "me", at(1e6)) == Refuse(found)

    @pytest.mark.req("DB-4")
    def test_a_holder_has_ended_before_a_waiter_may_begin(self) -> None:
        for ttl in (0.5, 15.0, 3600.0):
            rules = LockRules(ttl)
            assert rules.held_for < rules.lasts
            assert rules.lasts / 0.99 <= rules.lapses_after(ttl) / 1.01
            assert rules.renew_every + rules.request_timeout < rules.held_for, "one lost answer does not cost it"

    @pytest.mark.req("DB-4")
    def test_what_is_behind_what_was_seen_was_put_back(self) -> None:
        known = Known(7, "u1")
        assert judge(record(), known) == record()
        assert isinstance(judge(record(token=6), known), Damage)
        assert isinstance(judge(record(uid="u2"), known), Damage)
        assert isinstance(judge(Absent(), known), Damage)
        assert judge(Absent(), Known()) == Absent()
        assert isinstance(judge(record(token=MAX_TOKEN), Known()), Damage)


class TestWatching:
    def test_the_holders_write_is_timed_and_not_the_version(self) -> None:
        first = observe(None, record(), V1, at(0))
        touched = observe(first, record(write_id="outsider"), V2, at(5))
        assert touched.since == at(0)
        renewed = observe(touched, record(write_id="w2", holder_write_id="w2"), V1, at(6))
        assert renewed.since == at(6)

    def test_who_looked_away_for_a_ttl_begins_anew(self) -> None:
        first = observe(None, record(), V1, at(0))
        assert observe(first, record(), V1, at(10)).since == at(0)
        assert observe(first, record(), V1, at(10.1)).since == at(10.1)

    def test_the_same_write_under_another_version_was_put_back(self) -> None:
        first = observe(None, record(), V1, at(0))
        assert observe(first, record(), V2, at(1)).since == at(1)

    def test_polls_grow_to_a_tenth_of_the_ttl_and_are_bounded(self) -> None:
        assert longest_poll(0.5) == 0.05
        assert longest_poll(5.0) == 0.5
        assert longest_poll(3600.0) == 1.0
        poll, polls = 0.0, []
        for _ in range(12):
            poll = next_poll(poll, 15.0)
            polls.append(poll)
        assert polls[0] == 0.05
        assert polls == sorted(polls)
        assert polls[-1] == 1.0


class TestRecord:
    def test_it_comes_back_as_it_was_written(self) -> None:
        body = encode(record())
        assert decode_lock(body, "job") == record()
        assert {"holderWriteId", "writeId", "ttlMs", "token", "released", "schemaVersion"} <= set(json.loads(body))

    @pytest.mark.parametrize(
        "change",
        [{"token": 0}, {"token": "7"}, {"ttlMs": 0}, {"ttlMs": 3_600_001}, {"uid": ""}, {"owner": "x" * 201}],
    )
    def test_what_breaks_a_bound_is_damage(self, change: dict[str, Any]) -> None:
        body = json.dumps(json.loads(encode(record())) | change).encode()
        assert isinstance(decode_lock(body, "job"), Damage)

    def test_the_record_of_another_lock_is_damage(self) -> None:
        assert isinstance(decode_lock(encode(record(name="other")), "job"), Damage)

    def test_a_newer_form_is_told_apart_from_damage(self) -> None:
        assert decode_lock(b'{"schemaVersion": 2}', "job") == TooNew(2)

    def test_its_key(self) -> None:
        assert lock_key("a/b") == "plugin=locks/lock=a~2fb.json"
        with pytest.raises(ConfigError, match="name"):
            lock_key("")
        with pytest.raises(ConfigError, match="128"):
            lock_key("x" * 129)
        with pytest.raises(InvalidKey, match="shorten"):
            lock_key("é" * 100)


class Google(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.info = StoreInfo("gs", "gs://bucket")


class TestSettings:
    @pytest.mark.parametrize(
        ("ttl", "message"),
        [
            (30_000, "looks like milliseconds.*30000 ms is 30"),
            (0.4, "at least 0.5"),
            (-1, "at least"),
            (float("nan"), "finite"),
            ("30", "number of seconds"),
            (True, "number of seconds"),
            (10**400, "finite"),
        ],
    )
    async def test_a_ttl_that_cannot_be(self, ttl: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            DistributedLock(MemoryStore(), "job", ttl=ttl)

    async def test_durations_may_be_timedeltas(self) -> None:
        assert DistributedLock(MemoryStore(), "job", ttl=timedelta(minutes=1)).ttl == 60

    async def test_google_is_not_written_more_often_than_it_bears(self) -> None:
        with pytest.raises(ConfigError, match="at least 6 s on gs://"):
            DistributedLock(Google(), "job", ttl=5)
        DistributedLock(Google(), "job", ttl=6)

    @pytest.mark.parametrize("timeout", [-1, 86_401, "5"])
    async def test_a_timeout_that_cannot_be(self, timeout: Any) -> None:
        with pytest.raises(ConfigError, match="timeout"):
            await DistributedLock(MemoryStore(), "job").acquire(timeout=timeout)

    @pytest.mark.parametrize("timeout", [-1, 86_401, "5", None])
    async def test_a_timeout_that_who_only_tries_cannot_have(self, timeout: Any) -> None:
        with pytest.raises(ConfigError, match="timeout"):
            await DistributedLock(MemoryStore(), "job").try_acquire(timeout=timeout)

    async def test_an_owner_that_cannot_be(self) -> None:
        with pytest.raises(ConfigError, match="owner"):
            DistributedLock(MemoryStore(), "job", owner="line\nbreak")

    def test_errors(self) -> None:
        assert issubclass(LockLost, LockError)
        assert issubclass(LockTimeout, LockError)
        assert issubclass(LockNotAnswered, LockError)
        assert issubclass(LockNotAnswered, StoreUnavailable), "DR-2: as any store that does not answer"
        assert not issubclass(LockNotAnswered, LockTimeout)
        assert issubclass(LockError, CoordinationError)


class SetClock:
    def __init__(self) -> None:
        self.now: Reading = at(0)

    def read(self) -> Reading:
        return self.now

    async def sleep(self, seconds: float) -> None: ...


def held_at_zero(clock: Any) -> Held:
    return Held(name="job", owner="ada", token=7, holding=Holding(at(0), RULES.lasts, RULES.held_for), clock=clock)


class TestHeld:
    @pytest.mark.req("DB-4")
    def test_it_ends_by_itself_and_for_good(self) -> None:
        clock = SetClock()
        held = held_at_zero(clock)
        clock.now = at(7.4)
        assert held.is_held()
        assert held.remaining() == pytest.approx(0.1)
        clock.now = at(7.5)
        assert not held.is_held()
        assert held.time_to_wind_up() == pytest.approx(2.4)
        assert not held.confirmed(at(7.4), RULES.lasts, RULES.held_for)
        assert not held.is_held(), "a renewal that comes late does not revive it"
        clock.now = at(0)
        assert not held.is_held()

    @pytest.mark.req("DB-4")
    def test_a_renewal_counts_from_its_own_sending(self) -> None:
        clock = SetClock()
        held = held_at_zero(clock)
        clock.now = at(5)
        assert held.confirmed(at(3), RULES.lasts, RULES.held_for)
        assert held.remaining() == pytest.approx(5.5)
        assert held.confirmed(at(1), RULES.lasts, RULES.held_for)
        assert held.remaining() == pytest.approx(3.5), "assigned, not the larger"

    def test_a_release_ends_it_before_it_is_sent(self) -> None:
        clock = SetClock()
        held = held_at_zero(clock)
        held.sending(at(1), 0.0)
        clock.now = at(1)
        assert held.time_to_wind_up() == 0
        assert not held.is_held()

    def test_ensure(self) -> None:
        clock = SetClock()
        held = held_at_zero(clock)
        held.ensure(7.4)
        with pytest.raises(LockLost, match=r"7\.5 s more, and 8 s"):
            held.ensure(8)
        held.end("taken")
        with pytest.raises(LockLost, match="taken"):
            held.ensure()

    @pytest.mark.req("DB-4")
    async def test_a_wall_clock_that_was_put_right_ends_it(self) -> None:
        clock = SetClock()
        held = held_at_zero(clock)
        clock.now = at(1, wall_ahead=1.5)
        assert not held.is_held()

    @pytest.mark.req("DB-4")
    async def test_it_does_not_pass_to_a_forked_child(self, monkeypatch: pytest.MonkeyPatch) -> None:
        held = held_at_zero(SetClock())
        pid = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: pid + 1)
        assert not held.is_held()
        assert held.time_to_wind_up() == 0
        with pytest.raises(ForkedProcess):
            await held.release()
        monkeypatch.undo()
        assert held.is_held(), "the parent still holds it"


def on_loop(store: MemoryStore | None = None, **settings: Any) -> DistributedLock:
    return DistributedLock(store or MemoryStore(), "job", hosting=Hosting.LOOP, **settings)


class TestScope:
    @pytest.mark.req("DB-4", "EF-9")
    async def test_tokens_rise_from_holder_to_holder(self) -> None:
        lock = on_loop()
        tokens = []
        for _ in range(3):
            async with lock as held:
                assert held.is_held()
                tokens.append(held.token)
            assert not held.is_held()
            assert await held.release() is True, "asked again, it says the same"
        assert tokens == [1, 2, 3]
        await lock.aclose()

    @pytest.mark.req("DB-4")
    async def test_two_tasks_with_one_object_never_both_hold_it(self) -> None:
        lock = on_loop()
        inside = most = 0

        async def work() -> None:
            nonlocal inside, most
            async with lock:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.01)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(5)))
        assert most == 1
        await lock.aclose()

    async def test_a_task_that_would_wait_for_itself_is_told(self) -> None:
        lock = on_loop()
        async with lock:
            with pytest.raises(LockError, match="not reentrant"):
                await lock.acquire()
            with pytest.raises(LockError, match="not reentrant"):
                async with lock:
                    pass
            assert await lock.try_acquire() is None
        await lock.aclose()

    @pytest.mark.req("DB-4")
    async def test_timeouts(self) -> None:
        lock = on_loop()
        async with lock:

            async def other() -> None:
                with pytest.raises(LockTimeout, match="held by"):
                    await lock.acquire(timeout=0.1)
                with pytest.raises(LockTimeout):
                    await lock.acquire(timeout=0)

            await asyncio.create_task(other())
        held = await lock.acquire(timeout=0)
        await held.release()
        await lock.aclose()

    @pytest.mark.req("DB-4")
    async def test_a_body_whose_lock_was_taken_is_cancelled_and_told(self) -> None:
        store = MemoryStore()
        lock = on_loop(store, ttl=0.5)
        wound_up = False
        with pytest.raises(LockLost, match="taken"):
            async with lock:
                await store.put(lock_key("job"), encode(record(token=9)))
                try:
                    await asyncio.sleep(20)
                finally:
                    await asyncio.sleep(0)
                    wound_up = True
        assert wound_up
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await lock.aclose()

    async def test_a_cancellation_from_outside_stays_one(self) -> None:
        lock = on_loop()
        entered = asyncio.Event()

        async def work() -> None:
            async with lock:
                entered.set()
                await asyncio.sleep(20)

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = await lock.acquire(timeout=1)
        assert again.token == 2, "and it was released"
        await lock.aclose()

    @pytest.mark.req("DB-4")
    async def test_closing_cancels_bodies_gives_back_and_refuses_more(self) -> None:
        lock = on_loop()
        entered = asyncio.Event()

        async def work() -> None:
            async with lock:
                entered.set()
                await asyncio.sleep(20)

        task = asyncio.create_task(work())
        await entered.wait()
        waiting = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.1)
        await lock.aclose()
        with pytest.raises(LockLost, match="closed"):
            await task
        with pytest.raises(LockError, match="closed"):
            await waiting
        with pytest.raises(LockError, match="closed"):
            await lock.acquire()

    async def test_a_lock_that_lapsed_before_it_was_given_is_not_a_store_without_answers(self) -> None:
        lock = on_loop()
        contest = lock._contest(Patience.AT_ONCE, None)
        held = await lock._contend(contest)
        assert held is not None
        held.end("deadline")
        error = contest.not_acquired()
        assert isinstance(error, LockTimeout)
        assert "stood still" in str(error)
        assert (error.owner, error.token) == (None, None)
        await lock.aclose()

    async def test_a_record_that_is_damaged_has_no_holder_to_name(self) -> None:
        """DR-2"""
        store = MemoryStore()
        await store.put(lock_key("job"), b"{")
        with pytest.raises(LockError, match="rebuild"):
            await on_loop(store).holder()
        await store.put(lock_key("job"), b'{"schemaVersion": 2}')
        with pytest.raises(SchemaTooNew):
            await on_loop(store).holder()

    async def test_rebuild_leaves_a_sound_record_alone(self) -> None:
        lock = on_loop()
        async with lock:
            pass
        with pytest.raises(LockError, match="not damaged"):
            await lock.rebuild(above=1)
        await lock.aclose()


def test_the_simulated_clock_is_a_clock_for_held() -> None:
    clock = SimulatedClock()
    start = clock.read()
    held = Held(name="job", owner="a", token=1, holding=Holding(start, RULES.lasts, RULES.held_for), clock=clock)
    clock.suspend(8)
    assert not held.is_held(), "a suspend counts"
    assert msgspec.structs.asdict(held.holding)["lasts"] == RULES.lasts

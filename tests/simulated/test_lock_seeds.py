"""A lock in simulated time, judged on true time: what random trouble meets too rarely."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tenure.coordinator.lock import Held, LockHolder
from tenure.coordinator.lock.records import LockRecord, decode_lock
from tenure.errors import LockError, LockNotAnswered, LockTimeout, SchemaTooNew, StoreUnavailable
from tenure.simulate.lock_fleet import Contender, LockFleet
from tenure.simulate.lock_judge import KEY
from tenure.simulate.lock_judge import LOCK as NAME
from tenure.testing import World
from tenure.testing.broken import broken


class Violation(AssertionError):
    """A promise was broken."""


class WatchedFleet(LockFleet):
    """What its judge reports is raised."""

    def run(self, seconds: float) -> None:
        super().run(seconds)
        for violation in self.judge.violations:
            raise Violation(f"{violation.check}: {violation.what} at {violation.at}")


@contextmanager
def lock_fleet(seed: int = 1, *, busy: bool = True) -> Iterator[WatchedFleet]:
    with World(seed) as world:
        fleet = WatchedFleet(world, busy=busy)
        yield fleet
        world.on_step = None


# What random trouble meets too rarely


def hold(fleet: LockFleet, node: Contender) -> None:
    """Have `node` hold the lock, and nothing else happen."""
    task = node.host.start(node.lock.acquire())
    fleet.run(1.0)
    assert task.done()
    assert node.believing()


def takeover(fleet: LockFleet, node: Contender, within: float) -> float:
    """Seconds until `node`, which waits, has it."""
    began = fleet.world.now
    node.host.start(node.lock.acquire())
    while not node.believing():
        fleet.run(0.01)
        if fleet.world.now - began > within:
            raise Violation(f"not taken over within {within:g} s")
    return fleet.world.now - began


def slow_holder_and_fast_waiter() -> None:
    """At the very edge of what clocks may do, and a waiter that sees the last renewal the moment it is written."""
    for instant in range(14):
        with lock_fleet(instant, busy=False) as fleet:
            holder, waiter = sorted(fleet.nodes, key=lambda node: node.host.machine.rate)[:: len(fleet.nodes) - 1]
            assert (holder.host.machine.rate, waiter.host.machine.rate) == (0.99, 1.01)
            holder.ttl = 60.0  # two percent of it are more than a look takes to come round
            holder.host.crash()
            holder.start()
            hold(fleet, holder)
            waiter.host.start(waiter.lock.acquire())
            fleet.run(19.0 + instant * 0.3)
            fleet.network.cut(holder.name)
            fleet.run(1.5 * holder.ttl)
            assert waiter.grants == 1


def renewal_counted_from_the_wrong_sending() -> None:
    """A renewal lands, and the store answers it with an error, and the look at it too; a later one is turned down; then
    the way to the store is cut, at any instant around that."""
    for instant in range(60):
        with lock_fleet(instant, busy=False) as fleet:
            holder, waiter = fleet.nodes[0], fleet.nodes[1]
            hold(fleet, holder)
            waiter.host.start(waiter.lock.acquire())
            written = len(_renewals(fleet, holder))
            fleet.network.change(holder.name, server_error=1.0)
            while len(_renewals(fleet, holder)) == written:
                fleet.run(0.01)
            fleet.run(0.3 * holder.ttl)  # others were sent by now, and landed nowhere
            fleet.network.reset(holder.name)
            fleet.run(0.005 * instant)
            fleet.network.cut(holder.name)
            fleet.run(2 * holder.ttl)


def _renewals(fleet: LockFleet, node: Contender) -> list[str]:
    body = fleet.bucket.body(KEY)
    record = decode_lock(body or b"", NAME)
    seen: list[str] = node.__dict__.setdefault("seen", [])
    if isinstance(record, LockRecord) and record.holder_write_id not in seen:
        seen.append(record.holder_write_id)
    return seen


def dead_holder_and_an_outsider() -> None:
    """Somebody keeps touching the record; a dead holder is not renewed by that."""
    with lock_fleet(3, busy=False) as fleet:
        holder, waiter = fleet.nodes[0], fleet.nodes[1]
        hold(fleet, holder)
        holder.host.crash()
        for number in range(400):
            fleet.world.call_at(fleet.world.now + 0.3 * number, fleet.touch)
        takeover(fleet, waiter, within=holder.ttl * 1.01 / 0.99 + 0.1 + 0.2)


def answer_after_the_deadline() -> None:
    """A process stops just after it sent a renewal, and hears the answer when it had to give the lock up already."""
    for seed in range(5):
        with lock_fleet(seed, busy=False) as fleet:
            holder = fleet.nodes[0]
            hold(fleet, holder)
            before = fleet.network.requests[holder.name, "replace"]
            while fleet.network.requests[holder.name, "replace"] == before:
                fleet.run(0.001)
            holder.host.freeze(0.5 * holder.ttl)
            fleet.run(0.45 * holder.ttl)
            assert not holder.believing()
            fleet.run(0.1 * holder.ttl)
            if holder.believing():
                raise Violation("it was over, and is held again")


def a_renewal_seen_by_a_slow_read() -> None:
    for seed in range(4):
        for share in (0.5, 0.7, 0.9, 0.98):
            slow_read_of_a_fresh_renewal(seed, share)


def slow_read_of_a_fresh_renewal(seed: int, share: float) -> None:
    """A waiter's read is long on its way. The holder renews just before the read is served, and is then cut off: what
    the read shows is much younger than its sending. `share`: of the time that the waiter gives a request."""
    with lock_fleet(seed, busy=False) as fleet:
        holder, waiter = sorted(fleet.nodes, key=lambda node: node.host.machine.rate)[:: len(fleet.nodes) - 1]
        holder.ttl, waiter.ttl = 6.0, 20.0
        for node in (holder, waiter):
            node.host.crash()
            node.start()
        fleet.network.change(holder.name, latency=(0.002, 0.002))
        hold(fleet, holder)
        waiter.host.start(waiter.lock.acquire())
        fleet.run(3.0)
        seconds = share * waiter.lock._rules.request_timeout
        sent = slow_read(fleet, waiter, seconds)
        fleet.world.run_until(sent + seconds - 0.02)
        holder.host.start(holder.tenancies[-1].held.renew())
        fleet.run(0.01)
        renewed = fleet.bucket.body(KEY)
        fleet.network.cut(holder.name)
        fleet.run(0.012)
        (contest,) = waiter.keeper._contests
        sight = contest.desk.watch.sight
        assert sight is not None
        assert sight.found == decode_lock(renewed or b"", NAME), "the read showed the renewal"
        while holder.entitled():  # in true time, and to the end of winding up
            if waiter.grants:
                raise Violation(f"taken while {holder.tenancies[-1].held.time_to_wind_up():.2f} s of it were left")
            fleet.run(0.01)
        fleet.run(2.0)
        assert waiter.grants == 1


def slow_read(fleet: LockFleet, node: Contender, seconds: float) -> float:
    """Have the next read of `node` take so long to the bucket, and its answer no time. Gives when it was sent."""
    sent: list[float] = []

    def delay(host: str, verb: str, key: str, now: float) -> None:
        if host == node.name and verb == "get" and not sent:
            sent.append(now)
            fleet.network.change(node.name, latency=(seconds, seconds))

    fleet.network.on_request = delay
    while not sent:
        fleet.run(0.001)
    fleet.network.on_request = None
    fleet.network.change(node.name, latency=(0.001, 0.001))
    return sent[0]


DIRECTED: dict[str, tuple[Callable[[], None], str]] = {
    "drift": (slow_holder_and_fast_waiter, "lock-no-drift-margin"),
    "sending": (renewal_counted_from_the_wrong_sending, "lock-valid-until-by-max"),
    "outsider": (dead_holder_and_an_outsider, "lock-version-timed"),
    "late answer": (answer_after_the_deadline, "lock-renewed-after-deadline"),
    "slow read": (a_renewal_seen_by_a_slow_read, "lock-waiter-clock-before-read"),
}


@pytest.mark.req("DB-4")
@pytest.mark.parametrize("name", sorted(DIRECTED))
def test_at_the_edge(name: str) -> None:
    DIRECTED[name][0]()


@pytest.mark.parametrize("name", sorted(DIRECTED))
def test_a_rule_that_matters_at_the_edge_is_missed(name: str) -> None:
    scenario, variant = DIRECTED[name]
    with broken(variant), pytest.raises(Violation):
        scenario()


# Cancelled at every await


@pytest.mark.req("DB-4")
@pytest.mark.parametrize("kind", ["free", "held", "dead", "lossy"])
def test_an_acquisition_cancelled_at_any_point_leaves_nothing_behind(kind: str) -> None:
    """At every callback of the process, from the first to the one that gives the lock to its caller."""
    points = 0
    # Most of a long wait is one look after another.
    for callbacks in itertools.chain(range(1, 30), range(30, 600, 7 if kind == "lossy" else 1)):
        with lock_fleet(5, busy=False) as fleet:
            first, second, third = fleet.nodes[0], fleet.nodes[1], fleet.nodes[2]
            if kind != "free":
                hold(fleet, first)
                if kind in ("dead", "lossy"):
                    first.host.crash()
                else:
                    fleet.world.call_at(fleet.world.now + 0.6, give_back, first)
            if kind == "lossy":  # what it sends happens, and most answers never arrive
                fleet.network.change(second.name, lost_reply=0.6)
            done = cancelled_after(fleet, second, callbacks)
            fleet.network.reset()
            fleet.run(0.3 + 2 * second.ttl)
            points += 1
            if done:
                break
            assert not second.believing(), f"cancelled after {callbacks} callbacks, and it is held"
            assert not second.entitled()
            if kind in ("free", "held"):
                assert takeover(fleet, third, within=0.5) < 0.5, f"{callbacks}: it had to lapse"
            else:
                takeover(fleet, third, within=2 * max(first.ttl, second.ttl) + 1.0)
    else:
        raise AssertionError("it never got the lock")
    print(f"\n{kind}: cancelled at {points - 1} points")
    assert points >= 5


def give_back(node: Contender) -> None:
    node.host.start(node.tenancies[0].close())


def cancelled_after(fleet: LockFleet, node: Contender, callbacks: int) -> bool:
    """Cancel an acquisition just after so many callbacks of its process. True: it had the lock by then."""
    task = node.host.start(node.lock.acquire())
    left = [callbacks]
    check = fleet.world.on_step

    def count(host: object) -> None:
        if check is not None:
            check(host)  # type: ignore[arg-type]
        if host is node.host:
            left[0] -= 1
            if left[0] == 0 and not task.done():
                task.cancel()

    fleet.world.on_step = count
    while left[0] > 0 and not task.done():
        fleet.run(0.05)
    fleet.world.on_step = check
    fleet.run(0.0)
    return task.done() and not task.cancelled()


# Trying again and again


@pytest.mark.req("DB-4")
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_those_who_only_try_find_out_that_a_holder_died(tasks: int) -> None:
    """Several tasks of one process try at once: what one has seen is not lost to the others."""
    with lock_fleet(3, busy=False) as fleet:
        holder, trying = fleet.nodes[0], fleet.nodes[1]
        hold(fleet, holder)
        holder.host.crash()

        async def try_again_and_again() -> None:
            while not any(await asyncio.gather(*(trying.lock.try_acquire() for _ in range(tasks)))):
                await trying.host.clock.sleep(0.1)

        fleet.network.change(trying.name, latency=(0.01, 0.01))
        trying.host.start(try_again_and_again())
        fleet.run(holder.ttl * 1.02 + 0.1 + 1.0)
        assert trying.grants == 1


def finished(fleet: LockFleet, task: asyncio.Task[Any], within: float) -> float:
    """Seconds until `task` is done."""
    began = fleet.world.now
    while not task.done():
        fleet.run(0.01)
        assert fleet.world.now <= began + within, f"not done within {within:g} s"
    return fleet.world.now - began


def again(node: Contender) -> Contender:
    """A new process, which has seen nothing yet."""
    node.host.crash()
    node.start()
    return node


@pytest.mark.parametrize("seed", range(4))
def test_a_new_process_that_may_wait_takes_over_from_a_holder_that_died(seed: int) -> None:
    """DR-2: four new processes, one after another, found it held, and so would each after them."""
    with lock_fleet(seed, busy=False) as fleet:
        holder, newcomer = fleet.nodes[0], fleet.nodes[1]
        hold(fleet, holder)
        holder.host.crash()
        for _ in range(4):
            at_once = again(newcomer).host.start(newcomer.lock.try_acquire())
            finished(fleet, at_once, within=1.0)
            assert at_once.result() is None, "it cannot know"
        waiting = again(newcomer).host.start(newcomer.lock.try_acquire(timeout=1.1 * holder.ttl + 1))
        seconds = finished(fleet, waiting, within=(1.1 * holder.ttl + 1) / 0.99)
        assert waiting.result().token == 2
        assert holder.ttl <= seconds <= (holder.ttl * 1.01 + 0.1) / 0.99 + 0.5


def test_who_may_wait_less_than_a_lease_finds_out_with_the_next_call() -> None:
    """DR-2: what one call has watched counts for the next of the same process."""
    with lock_fleet(3, busy=False) as fleet:
        holder, trying = fleet.nodes[0], fleet.nodes[1]
        hold(fleet, holder)
        holder.host.crash()
        for acquired in (False, False, True):
            task = trying.host.start(trying.lock.try_acquire(timeout=0.4 * holder.ttl))
            finished(fleet, task, within=0.5 * holder.ttl)
            assert (task.result() is not None) is acquired


def test_who_may_wait_is_told_at_once_that_the_holder_is_alive() -> None:
    """DR-2: a cron job that runs unless another does need not wait for the other to end."""
    with lock_fleet(3, busy=False) as fleet:
        holder, trying = fleet.nodes[0], fleet.nodes[1]
        hold(fleet, holder)
        task = trying.host.start(trying.lock.try_acquire(timeout=100.0))
        assert finished(fleet, task, within=holder.ttl) <= holder.ttl / 3 / 0.99 + 1.5
        assert task.result() is None
        assert holder.believing()


def test_who_may_wait_gets_a_lock_that_is_released_meanwhile() -> None:
    with lock_fleet(3, busy=False) as fleet:
        holder, trying = fleet.nodes[0], fleet.nodes[1]
        holder.ttl = 15.0  # so that it does not renew it before
        hold(fleet, again(holder))
        task = trying.host.start(trying.lock.try_acquire(timeout=100.0))
        fleet.run(0.1)
        give_back(holder)
        finished(fleet, task, within=2.0)
        assert task.result().token == 2


@pytest.mark.parametrize("timeout", [0.0, 2.0])
def test_a_store_that_gives_no_answer_does_not_keep_who_only_tries(timeout: float) -> None:
    """DR-2: with a server that was frozen it took 14 s."""
    with lock_fleet(3, busy=False) as fleet:
        holder, trying = fleet.nodes[0], fleet.nodes[1]
        trying.ttl = 15.0
        again(trying)
        hold(fleet, holder)
        fleet.network.cut(trying.name)
        task = trying.host.start(trying.lock.try_acquire(timeout=timeout))
        limit = timeout or 3.75
        assert finished(fleet, task, within=10.0) <= limit / 0.99 + 0.1
        with pytest.raises(LockNotAnswered, match=r"the store gave no answer.*and it is not known who holds it"):
            task.result()


def test_a_take_that_gets_no_answer_in_time_is_taken_back() -> None:
    """DR-2: the answer comes too late for who tried, and nobody is left to release the lock."""
    with lock_fleet(3, busy=False) as fleet:
        trying, other = fleet.nodes[0], fleet.nodes[1]

        def deaf(host: str, verb: str, key: str, now: float) -> None:
            if host == trying.name and verb == "create":
                fleet.network.cut_replies(trying.name)

        fleet.network.on_request = deaf
        task = trying.host.start(trying.lock.try_acquire(timeout=0.5))
        finished(fleet, task, within=1.0)
        with pytest.raises(LockNotAnswered):
            task.result()
        fleet.network.on_request = None
        fleet.network.heal(trying.name)
        fleet.run(0.5 * trying.ttl)
        hold(fleet, other)


def test_whenever_the_time_is_over_nothing_is_left_behind() -> None:
    """DR-2: also where it is over while the write that takes the lock is on its way, and the answer is `None`."""
    taken_back = 0
    for instant in range(20):
        with lock_fleet(3, busy=False) as fleet:
            holder, trying = fleet.nodes[0], fleet.nodes[1]
            hold(fleet, holder)
            holder.host.crash()
            timeout = holder.ttl * 1.01 + 0.1 + 0.01 * instant
            task = trying.host.start(trying.lock.try_acquire(timeout=timeout))
            finished(fleet, task, within=timeout * 1.02)
            if task.result() is not None:
                continue
            fleet.run(1.0)
            record = decode_lock(fleet.bucket.body(KEY) or b"", NAME)
            assert isinstance(record, LockRecord)
            assert record.owner == holder.name or record.released
            taken_back += record.owner == trying.name
    assert taken_back


def test_a_timeout_says_who_holds_it_and_a_silent_store_is_another_error() -> None:
    """DR-2"""
    with lock_fleet(3, busy=False) as fleet:
        holder, waiter = fleet.nodes[0], fleet.nodes[1]
        hold(fleet, holder)
        for timeout in (0.0, 3.0):
            task = waiter.host.start(waiter.lock.acquire(timeout=timeout))
            finished(fleet, task, within=4.0)
            with pytest.raises(LockTimeout, match=rf"held by '{holder.name}' under token 1") as held:
                task.result()
            assert (held.value.owner, held.value.token) == (holder.name, 1)
        task = waiter.host.start(waiter.lock.acquire(timeout=12.0))
        fleet.run(2.0)
        fleet.network.cut(waiter.name)
        finished(fleet, task, within=12.0)
        with pytest.raises(LockNotAnswered, match=rf"no answer.*before, it was held by '{holder.name}' under token 1"):
            task.result()
        for timeout in (0.0, 3.0):
            task = waiter.host.start(waiter.lock.acquire(timeout=timeout))
            finished(fleet, task, within=12.0)
            with pytest.raises(LockNotAnswered) as silent:
                task.result()
            assert not isinstance(silent.value, LockTimeout)
            assert isinstance(silent.value, StoreUnavailable)


def test_who_has_just_released_it_asks_again_also_within_a_short_timeout() -> None:
    """The pause in which others come to look was longer than the time that was given."""
    with lock_fleet(3, busy=False) as fleet:
        node = fleet.nodes[0]
        fleet.network.change(node.name, latency=(0.001, 0.001))

        async def twice() -> Held:
            await (await node.lock.acquire()).release()
            return await node.lock.acquire(timeout=0.02)

        task = node.host.start(twice())
        finished(fleet, task, within=1.0)
        assert task.result().token == 2


def test_the_holder_is_named_until_its_lease_has_lapsed_before_our_eyes() -> None:
    """DR-2"""
    with lock_fleet(3, busy=False) as fleet:
        holder, asking = fleet.nodes[0], fleet.nodes[1]

        def ask() -> Any:
            task = asking.host.start(asking.lock.holder())
            finished(fleet, task, within=1.0)
            return task.result()

        assert ask() is None, "nobody ever held it"
        hold(fleet, holder)
        assert ask() == LockHolder(owner=holder.name, token=1, ttl=holder.ttl)
        fleet.run(3 * holder.ttl)
        assert ask() is not None, "it renews"
        give_back(holder)
        fleet.run(0.5)
        assert ask() is None, "it was released"
        hold(fleet, holder)
        holder.host.crash()
        died = fleet.world.now
        while (found := ask()) is not None:
            assert found.token == 2
            fleet.run(0.2)
        assert holder.ttl / 1.01 <= fleet.world.now - died <= holder.ttl * 1.02 / 0.99 + 0.5


# What a damaged record does


@pytest.mark.req("DB-4", "EF-9")
@pytest.mark.parametrize("body", [b"", b"{", b"\xff" * 40, b'{"schemaVersion": 1, "token": 0}'])
def test_a_damaged_record_makes_no_holder_and_stays_as_it_is(body: bytes) -> None:
    with lock_fleet(7, busy=False) as fleet:
        node = fleet.nodes[0]
        fleet.bucket.corrupt(KEY, body)
        task = node.host.start(node.lock.acquire())
        fleet.run(30.0)
        with pytest.raises(LockError, match="rebuild"):
            task.result()
        assert fleet.bucket.body(KEY) == body
        node.host.start(node.lock.rebuild(above=41))
        fleet.run(1.0)
        hold(fleet, node)
        assert node.believing() == [42]


def test_a_newer_record_is_left_alone() -> None:
    with lock_fleet(7, busy=False) as fleet:
        node = fleet.nodes[0]
        fleet.bucket.corrupt(KEY, b'{"schemaVersion": 2, "anything": [1]}')
        task = node.host.start(node.lock.acquire())
        fleet.run(5.0)
        with pytest.raises(SchemaTooNew):
            task.result()


@pytest.mark.req("DB-4")
def test_a_record_that_was_rolled_back_or_removed_makes_no_holder_where_it_is_known() -> None:
    with lock_fleet(7, busy=False) as fleet:
        node, other = fleet.nodes[0], fleet.nodes[1]
        hold(fleet, node)
        old = fleet.bucket.body(KEY)
        assert old is not None
        node.host.start(node.tenancies[0].close())
        fleet.run(1.0)
        hold(fleet, other)
        other.host.start(other.tenancies[0].close())
        fleet.run(1.0)
        hold(fleet, other)
        fleet.bucket.restore(KEY, old)
        fleet.run(2 * other.ttl)
        assert not other.believing(), "a holder notices at its next renewal"
        again = other.host.start(other.lock.acquire(timeout=60))
        fleet.run(61.0)
        with pytest.raises(LockError, match="rolled back") as refused:
            again.result()
        assert not isinstance(refused.value, LockTimeout)
        fleet.bucket.remove(KEY)
        gone = other.host.start(other.lock.acquire(timeout=60))
        fleet.run(61.0)
        with pytest.raises(LockError, match="gone"):
            gone.result()


# How long, and how dear


@pytest.mark.req("DB-4")
def test_takeover_after_a_crash_keeps_its_bound() -> None:
    taken = []
    for instant in range(30):
        with lock_fleet(instant, busy=False) as fleet:
            holder, waiter = fleet.nodes[0], fleet.nodes[1]
            hold(fleet, holder)
            waiting = waiter.host.start(waiter.lock.acquire())
            fleet.run(1.0 + instant * 0.1)
            holder.host.crash()
            crashed = fleet.world.now
            while not waiting.done():
                fleet.run(0.01)
                assert fleet.world.now < crashed + 60
            poll = min(max(0.05, holder.ttl / 10), 1.0) * 1.25
            requests = 4 * 0.020 + 0.040
            bound = (holder.ttl * 1.01 + 0.1 + poll) / 0.99 + requests
            assert fleet.world.now - crashed <= bound
            taken.append((fleet.world.now - crashed) / holder.ttl)
    print(f"\ntakeover: {min(taken):.2f} to {max(taken):.2f} ttl")


@pytest.mark.req("DB-4")
def test_requests_of_a_holder_and_of_a_waiter() -> None:
    with lock_fleet(2, busy=False) as fleet:
        holder, waiter = fleet.nodes[0], fleet.nodes[1]
        hold(fleet, holder)
        waiter.host.start(waiter.lock.acquire())
        fleet.run(10.0)
        before = fleet.network.requests.copy()
        fleet.run(60.0)
        asked = fleet.network.requests - before
        held = {verb: count for (host, verb), count in asked.items() if host == holder.name}
        waited = {verb: count for (host, verb), count in asked.items() if host == waiter.name}
        poll = min(max(0.05, holder.ttl / 10), 1.0)
        print(f"\nttl {holder.ttl:g} s, per minute: held {held}, waiting {waited}")
        assert set(held) == {"replace"}
        assert held["replace"] <= 60 / (holder.ttl / 3) * 1.02 + 1
        assert set(waited) == {"get"}
        assert waited["get"] <= 60 / (poll * 0.9)

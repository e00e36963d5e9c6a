"""The simulated bucket keeps the store's contract, and every fault of the network has its stated effect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.errors import ConfigError, InvalidKey, NotFound, ServerError, StoreError, StoreUnavailable
from tenure.store import Applied, NotModified, Rejected, Store, Stored, Unknown, Version
from tenure.store.memory import MemoryStore
from tenure.testing import Conditions, Host, Network, SimulatedBucket, SimulatedStore, World, Write

Call = Callable[[Store], Awaitable[Any]]


class Scene:
    """One host, one bucket, one network; every change of the bucket is in `writes`."""

    def __init__(self, seed: int = 1, **conditions: Any) -> None:
        self.world = World(seed)
        self.bucket = SimulatedBucket(self.world)
        self.network = Network(self.world, Conditions(**conditions))
        self.host = self.world.host("a")
        self.store = self.store_of(self.host)
        self.writes: list[Write] = []
        self.bucket.watchers.append(self.writes.append)

    def store_of(self, host: Host) -> SimulatedStore:
        return SimulatedStore(self.bucket, host, self.network)

    def ask(self, call: Call, *, host: Host | None = None) -> Answer:
        """Start a call now, on the host of the scene or on another."""
        host = self.host if host is None else host
        store = self.store if host is self.host else self.store_of(host)
        answer = Answer(self.world)
        host.start(answer.wait_for(call(store)))
        return answer

    def told(self, call: Call) -> Any:
        """What the caller got within ten minutes."""
        answer = self.ask(call)
        self.world.run_until(self.world.now + 600.0)
        return answer.value

    @property
    def hits(self) -> dict[str, int]:
        return dict(self.network.hits)


class Answer:
    """What a call on a simulated host came to, and when."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.at: float | None = None
        self._value: Any = None
        self._error: BaseException | None = None

    async def wait_for(self, call: Awaitable[Any]) -> None:
        try:
            self._value = await call
        except StoreError as error:
            self._error = error
        self.at = self.world.now

    @property
    def value(self) -> Any:
        assert self.at is not None, "there was no answer"
        if self._error is not None:
            raise self._error
        return self._value


def create(store: Store) -> Awaitable[Any]:
    return store.create("k", b"new")


def put(store: Store) -> Awaitable[Any]:
    return store.put("k", b"new")


def delete(store: Store) -> Awaitable[Any]:
    return store.delete("k")


def get(store: Store) -> Awaitable[Any]:
    return store.get("k")


async def listing(store: Store) -> list[str]:
    return [entry.key async for entry in store.list()]


CALLS = {"create": create, "put": put, "delete": delete, "get": get, "list": listing}


def expect_no_answer(scene: Scene, verb: str, error: type[StoreError] = StoreUnavailable) -> Answer:
    """The caller of `verb` is told that nothing is known."""
    if verb in ("delete", "get"):
        scene.bucket.restore("k", b"old")
        scene.writes.clear()
    answer = scene.ask(CALLS[verb])
    scene.world.run_until(scene.world.now + 600.0)
    if verb == "create":
        assert isinstance(answer.value, Unknown)
        assert type(answer.value.error) is error
        assert scene.hits["unknown"] == 1
    else:
        with pytest.raises(error):
            _ = answer.value
    return answer


class TestContract:
    """Every call has the outcome that it has on the memory store, from which the expectations are taken."""

    async def walk(self, store: Store) -> list[Any]:
        said: list[Any] = []

        async def note(call: Awaitable[Any]) -> Any:
            try:
                answer = await call
            except StoreError as error:
                answer = error
            if isinstance(answer, NotFound):
                said.append(str(answer))
            elif isinstance(answer, list):
                said.append([(entry.key, entry.version, entry.size) for entry in answer])
            else:
                said.append(answer)
            return answer

        async def entries(**options: Any) -> list[Any]:
            return [entry async for entry in store.list(**options)]

        await note(store.get("a/x"))
        first = await note(store.create("a/x", b"1"))
        await note(store.create("a/x", b"2"))
        await note(store.get("a/x"))
        await note(store.get("a/x", unless=first.version))
        second = await note(store.replace("a/x", b"22", first.version))
        await note(store.replace("a/x", b"3", first.version))
        await note(store.get("a/x", unless=first.version))
        await note(store.replace("a/none", b"3", second.version))
        await note(store.put("a/y", b"4"))
        await note(store.put("b", b"55"))
        await note(store.put("a-z", b"6"))
        await note(entries())
        await note(entries(prefix="a/"))
        await note(entries(prefix="a/", after="a/x"))
        await note(entries(prefix="a/", after="a"))
        await note(entries(after="a/y"))
        await note(entries(prefix="c/"))
        await note(store.delete("a/x", "a/none"))
        await note(store.delete())
        await note(store.get("a/x"))
        await note(store.create("a/x", b"1"))
        await note(store.replace("a/x", b"7", second.version))
        return said

    async def test_as_the_memory_store(self) -> None:
        reference = await self.walk(MemoryStore())
        scene = Scene()
        task = scene.host.start(self.walk(scene.store))
        scene.world.run_until(60.0)
        assert task.result() == reference
        assert scene.hits == {"applied": 3, "rejected": 4}

    def test_types(self) -> None:
        scene = Scene()
        applied = scene.told(create)
        assert isinstance(applied, Applied)
        assert scene.told(get) == Stored(b"new", applied.version)
        assert isinstance(scene.told(lambda store: store.get("k", unless=applied.version)), NotModified)
        assert isinstance(scene.told(create), Rejected)

    def test_what_cannot_be_sent_is_refused(self) -> None:
        scene = Scene()

        async def main() -> None:
            for call in (
                scene.store.get("a//b"),
                scene.store.put("", b""),
                scene.store.create("ä", b""),
                scene.store.replace("a b", b"", Version("1")),
                scene.store.delete("k", "/"),
                listing_of("no-slash"),
            ):
                with pytest.raises(InvalidKey):
                    await call
            await scene.store.aclose()
            with pytest.raises(StoreError, match="closed"):
                await scene.store.get("k")

        async def listing_of(prefix: str) -> None:
            async for _ in scene.store.list(prefix):
                pass

        scene.host.start(main())
        scene.world.run_until(1.0)
        assert not scene.world.errors
        assert not scene.network.requests

    def test_long_listings_come_in_pages(self) -> None:
        scene = Scene()
        for number in range(2500):
            scene.bucket.restore(f"k/{number:05d}", b"")
        assert scene.told(listing) == scene.bucket.keys()
        assert scene.network.requests["a", "list"] == 3

    def test_modified_is_the_clock_of_the_store(self) -> None:
        scene = Scene()

        async def modified(store: Store) -> list[datetime]:
            return [entry.modified async for entry in store.list()]

        scene.world.run_until(10.5)
        scene.bucket.clock_offset = 100.25
        scene.bucket.restore("k", b"")
        assert scene.told(modified) == [datetime.fromtimestamp(1_700_000_110.75, UTC)]
        scene.network.whole_second_times = True
        assert scene.told(modified) == [datetime.fromtimestamp(1_700_000_110, UTC)]


class TestGroundTruth:
    def test_the_scenario_reaches_in(self) -> None:
        scene = Scene()
        bucket = scene.bucket
        scene.world.run_until(2.0)
        bucket.restore("a/x", b"1")
        bucket.corrupt("a/x", b"\xff")
        bucket.restore("a/y", b"1")
        bucket.restore("b", b"1")
        assert bucket.keys() == ["a/x", "a/y", "b"]
        assert bucket.keys("a/") == ["a/x", "a/y"]
        assert bucket.body("a/x") == b"\xff"
        assert bucket.body("none") is None
        assert bucket.wipe("a/") == 2
        bucket.remove("b")
        bucket.remove("b")
        assert bucket.keys() == []
        assert bucket.versions == 4
        assert scene.writes == [
            Write(2.0, "a/x", None, b"1", "outside", "restore"),
            Write(2.0, "a/x", b"1", b"\xff", "outside", "corrupt"),
            Write(2.0, "a/y", None, b"1", "outside", "restore"),
            Write(2.0, "b", None, b"1", "outside", "restore"),
            Write(2.0, "a/x", b"\xff", None, "outside", "wipe"),
            Write(2.0, "a/y", b"1", None, "outside", "wipe"),
            Write(2.0, "b", b"1", None, "outside", "remove"),
        ]

    def test_the_same_bytes_put_back_have_a_new_version(self) -> None:
        scene = Scene()
        applied = scene.told(create)
        scene.bucket.restore("k", b"new")
        assert isinstance(scene.told(lambda store: store.replace("k", b"", applied.version)), Rejected)

    def test_watchers_know_who_and_when_and_may_end_the_run(self) -> None:
        scene = Scene(latency=(0.5, 0.5))
        scene.told(create)
        assert scene.writes == [Write(0.5, "k", None, b"new", "a", "create")]

        def complain(write: Write) -> None:
            raise AssertionError("the checker's own complaint")

        scene.bucket.watchers.append(complain)
        with pytest.raises(AssertionError, match="own complaint"):
            scene.told(put)

    def test_requests_are_counted_and_shown(self) -> None:
        scene = Scene()
        seen: list[tuple[str, str, str, float]] = []
        scene.network.on_request = lambda *about: seen.append(about)
        for call in CALLS.values():
            scene.ask(call)
        scene.world.run_until(3.0)
        assert seen == [
            ("a", "create", "k", 0.0),
            ("a", "put", "k", 0.0),
            ("a", "delete", "k", 0.0),
            ("a", "get", "k", 0.0),
            ("a", "list", "", 0.0),
        ]
        assert scene.network.requests == {("a", verb): 1 for verb in CALLS}


class TestLatency:
    def test_lies_in_its_range_each_way(self) -> None:
        scene = Scene(latency=(0.1, 0.3))
        there, back = [], []
        for _ in range(300):
            sent = scene.world.now
            answer = scene.ask(put)
            scene.world.run_until(sent + 1.0)
            assert answer.at is not None
            there.append(scene.writes[-1].at - sent)
            back.append(answer.at - scene.writes[-1].at)
        for delays in (there, back):
            assert 0.1 <= min(delays) < 0.12
            assert 0.28 < max(delays) <= 0.3001
            assert sum(delays) / len(delays) == pytest.approx(0.2, abs=0.02)

    def test_without_faults_in_spite_of_troubles_of_others(self) -> None:
        """What is drawn for the fault is used for the latency too: that must not skew it."""
        scene = Scene(latency=(0.1, 0.3), lost_request=0.5)
        delays = []
        for _ in range(400):
            sent, before = scene.world.now, len(scene.writes)
            scene.ask(put)
            scene.world.run_until(sent + 10.0)
            delays += [write.at - sent for write in scene.writes[before:]]
        assert min(delays) < 0.11
        assert max(delays) > 0.29
        assert sum(delays) / len(delays) == pytest.approx(0.2, abs=0.02)

    def test_factor_and_conditions_of_one_host(self) -> None:
        scene = Scene(latency=(0.1, 0.1))
        other = scene.world.host("b")
        scene.network.change("b", latency=(0.4, 0.4))
        scene.network.latency_factor = 2.0
        slow, fast = scene.ask(get, host=other), scene.ask(get)
        scene.world.run_until(10.0)
        assert fast.at == pytest.approx(0.4)
        assert slow.at == pytest.approx(1.6)
        scene.network.change(timeout=1.0)
        assert scene.network.conditions("b") == Conditions(latency=(0.4, 0.4), timeout=1.0), (
            "changes for all are for all"
        )
        scene.network.reset("b")
        assert scene.network.conditions("b") == scene.network.conditions() == Conditions((0.1, 0.1), 1.0)
        scene.network.reset()
        assert scene.network.conditions("a") == Conditions()

    def test_conditions_that_cannot_be(self) -> None:
        with pytest.raises(ConfigError, match="lost_reply is 2"):
            Conditions(lost_reply=2.0)
        with pytest.raises(ConfigError, match="together"):
            Conditions(lost_reply=0.6, repeated=0.6)
        with pytest.raises(ConfigError, match="latency"):
            Conditions(latency=(2.0, 1.0))

    def test_longer_than_the_timeout_lands_all_the_same(self) -> None:
        scene = Scene(latency=(7.0, 7.0))
        answer = expect_no_answer(scene, "create")
        assert answer.at == 5.0
        assert [write.at for write in scene.writes] == [7.0]
        assert scene.hits == {"timeout": 1, "unknown": 1}

    def test_a_reply_after_the_timeout_is_not_heard(self) -> None:
        scene = Scene(latency=(3.0, 3.0))
        answer = expect_no_answer(scene, "put")
        assert answer.at == 5.0
        assert [write.at for write in scene.writes] == [3.0]


WRITES = ["create", "put", "delete"]


class TestFaults:
    """One fault at a time, with certainty."""

    @pytest.mark.parametrize("verb", CALLS)
    def test_lost_request(self, verb: str) -> None:
        scene = Scene(lost_request=1.0)
        answer = expect_no_answer(scene, verb)
        assert answer.at == 5.0
        assert scene.writes == []
        assert scene.hits["lost_request"] == scene.hits["timeout"] == 1

    @pytest.mark.parametrize("verb", CALLS)
    def test_lost_reply(self, verb: str) -> None:
        scene = Scene(lost_reply=1.0)
        answer = expect_no_answer(scene, verb)
        assert answer.at == 5.0
        assert len(scene.writes) == (verb in WRITES)
        assert scene.hits["lost_reply"] == scene.hits["timeout"] == 1

    @pytest.mark.parametrize("verb", WRITES)
    def test_late_landing(self, verb: str) -> None:
        landed, told = [], []
        for seed in range(40):
            scene = Scene(seed, late_landing=1.0)
            answer = expect_no_answer(scene, verb)
            assert len(scene.writes) == 1
            assert scene.hits["late_landing"] == scene.hits["late_landing_applied"] == 1
            landed.append(scene.writes[0].at)
            told.append(answer.at)
        assert 30.0 < max(landed) <= 40.0
        assert min(landed) < 5.0
        assert {at == 5.0 for at in told if at is not None} == {True, False}, "some at once, some at the timeout"

    def test_late_landing_is_judged_when_it_lands(self) -> None:
        scene = Scene(late_landing=1.0)
        scene.ask(create)
        scene.world.call_at(0.0, scene.bucket.restore, "k", b"another's")
        scene.world.run_until(60.0)
        assert scene.bucket.body("k") == b"another's"
        assert scene.hits["late_landing_rejected"] == 1

    def test_late_landing_of_a_delete_removes_what_was_written_meanwhile(self) -> None:
        scene = Scene(late_landing=1.0)
        scene.ask(delete)
        scene.bucket.restore("k", b"written meanwhile")
        scene.world.run_until(60.0)
        assert scene.bucket.keys() == []
        nothing = Scene(late_landing=1.0)
        nothing.ask(delete)
        nothing.world.run_until(60.0)
        assert nothing.hits["late_landing_rejected"] == 1

    @pytest.mark.parametrize("verb", ["get", "list"])
    def test_a_late_read_is_a_lost_one(self, verb: str) -> None:
        scene = Scene(late_landing=1.0)
        expect_no_answer(scene, verb)
        assert scene.hits["lost_request"] == 1
        assert "late_landing" not in scene.hits

    def test_repeated(self) -> None:
        scene = Scene(repeated=1.0)
        assert isinstance(scene.told(create), Rejected)
        assert scene.bucket.body("k") == b"new", "it was told that it did not happen, and it did"
        version = scene.told(get).version
        assert isinstance(scene.told(lambda store: store.replace("k", b"2", version)), Rejected)
        assert scene.bucket.body("k") == b"2"
        assert scene.told(put) == scene.told(get).version
        assert len(scene.writes) == 4
        scene.told(delete)
        assert scene.hits == {"repeated": 4, "rejected": 2}

    def test_the_answer_to_the_second_copy_may_come_too_late(self) -> None:
        scene = Scene(repeated=1.0, latency=(4.0, 4.0))
        answer = expect_no_answer(scene, "create")
        assert answer.at == 5.0

    def test_another_may_come_between_the_copies(self) -> None:
        scene = Scene(repeated=1.0, latency=(1.0, 1.0))
        answer = scene.ask(put)
        scene.world.call_at(1.5, scene.bucket.restore, "k", b"between")
        scene.world.run_until(10.0)
        assert [write.new for write in scene.writes] == [b"new", b"between", b"new"]
        assert answer.value == Version("3")

    @pytest.mark.parametrize("verb", CALLS)
    def test_slow_request(self, verb: str) -> None:
        told = set()
        for seed in range(20):
            scene = Scene(seed, slow_request=1.0)
            scene.bucket.restore("k", b"old")
            scene.writes.clear()
            answer = scene.ask(CALLS[verb])
            scene.world.run_until(60.0)
            assert scene.hits["slow_request"] == 1
            assert len(scene.writes) == (verb in ("put", "delete"))
            assert answer.at is not None
            told.add(answer.at == 5.0)
        assert told == {True, False}, "some are slower than the timeout"

    def test_slow_reply(self) -> None:
        told = set()
        for seed in range(20):
            scene = Scene(seed, slow_reply=1.0)
            answer = scene.ask(create)
            scene.world.run_until(60.0)
            assert scene.hits["slow_reply"] == 1
            assert scene.writes[0].at <= 0.02
            assert answer.at is not None
            assert isinstance(answer.value, Unknown if answer.at == 5.0 else Applied)
            told.add(answer.at == 5.0)
        assert told == {True, False}

    @pytest.mark.parametrize("verb", CALLS)
    def test_server_error(self, verb: str) -> None:
        happened = set()
        for seed in range(20):
            scene = Scene(seed, server_error=1.0)
            answer = expect_no_answer(scene, verb, ServerError)
            assert answer.at is not None
            assert answer.at < 0.05
            happened.add(len(scene.writes))
            assert scene.hits[f"server_error_{'applied' if scene.writes else 'not_applied'}"] == 1
        assert happened == ({0, 1} if verb in WRITES else {0})

    def test_shares_are_kept(self) -> None:
        shares: dict[str, Any] = {
            "lost_request": 0.05,
            "lost_reply": 0.1,
            "late_landing": 0.05,
            "repeated": 0.1,
            "slow_request": 0.05,
            "slow_reply": 0.1,
            "server_error": 0.1,
        }
        scene = Scene(**shares)
        for number in range(4000):
            scene.world.call_at(number * 0.01, scene.ask, put)
        scene.world.run_until(200.0)
        counted = {**scene.hits}
        counted["server_error"] = counted["server_error_applied"] + counted["server_error_not_applied"]
        for fault, share in shares.items():
            assert counted[fault] / 4000 == pytest.approx(share, abs=0.02), fault


class TestSwitches:
    def test_cut_and_heal(self) -> None:
        scene = Scene()
        other = scene.world.host("b")
        scene.network.cut(scene.host)
        answer, others = scene.ask(create), scene.ask(get, host=other)
        scene.world.run_until(10.0)
        assert isinstance(answer.value, Unknown)
        assert answer.at == 5.0
        with pytest.raises(NotFound):
            _ = others.value
        assert scene.writes == []
        assert scene.hits["cut"] == 1
        scene.network.heal(scene.host)
        assert isinstance(scene.told(create), Applied)

    def test_a_cut_catches_what_is_under_way(self) -> None:
        there = Scene(latency=(1.0, 1.0))
        there.world.call_at(0.5, there.network.cut, "a")
        expect_no_answer(there, "create")
        assert there.writes == []
        back = Scene(latency=(1.0, 1.0))
        back.world.call_at(1.5, back.network.cut, "a")
        answer = expect_no_answer(back, "create")
        assert answer.at == 5.0
        assert len(back.writes) == 1

    def test_cut_replies(self) -> None:
        scene = Scene()
        scene.network.cut_replies("a")
        answer = expect_no_answer(scene, "create")
        assert answer.at == 5.0
        assert len(scene.writes) == 1
        assert scene.hits["cut_reply"] == 1
        scene.network.heal("a")
        assert isinstance(scene.told(create), Rejected)

    def test_outage_is_for_all(self) -> None:
        scene = Scene(late_landing=1.0)
        other = scene.world.host("b")
        scene.ask(put)  # under way when the outage begins
        scene.world.call_at(0.0, scene.network.outage, True)
        scene.world.run_until(50.0)
        scene.ask(put)
        scene.ask(put, host=other)
        scene.world.run_until(100.0)
        assert scene.writes == []
        assert scene.hits["outage"] == 3
        scene.network.outage(False)
        scene.network.reset()
        assert scene.told(put) == Version("1")


class TestHostsThatFail:
    def test_a_cancelled_caller_does_not_stop_its_request(self) -> None:
        scene = Scene(latency=(1.0, 1.0))

        async def main() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await scene.store.put("k", b"")

        scene.host.start(main())
        scene.world.run_until(5.0)
        assert len(scene.writes) == 1
        assert not scene.world.errors

    def test_an_error_for_a_caller_that_is_cancelled_at_that_moment_is_no_noise(self) -> None:
        scene = Scene(latency=(1.0, 1.0))
        task = scene.host.start(scene.store.get("k"))
        scene.host.freeze_after(2, 10.0)  # answered, and not yet gone on
        scene.world.run_until(5.0)
        task.cancel()
        scene.world.run_until(20.0)
        assert task.cancelled()
        assert not scene.world.errors

    def test_a_frozen_host_hears_when_it_thaws(self) -> None:
        scene = Scene(latency=(1.0, 1.0))
        answer = scene.ask(create)
        scene.world.call_at(0.5, scene.host.freeze, 30.0)
        scene.world.run_until(30.0)
        assert len(scene.writes) == 1
        scene.world.run_until(31.0)
        assert answer.at == 30.5
        assert isinstance(answer.value, Applied), "the answer had come in time, and lay there"

    def test_what_a_dead_host_sent_still_lands(self) -> None:
        for conditions in ({"latency": (1.0, 1.0)}, {"late_landing": 1.0}, {"repeated": 1.0, "latency": (1.0, 1.0)}):
            scene = Scene(**conditions)
            answer = scene.ask(put)
            scene.world.run_until(0.0)
            scene.host.crash()
            scene.world.run_until(60.0)
            assert len(scene.writes) == (2 if "repeated" in conditions else 1)
            assert answer.at is None
            assert "unknown" not in scene.hits

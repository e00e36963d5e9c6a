"""`tenure.blocking`: threads and scripts. Real threads, processes and clocks, on a directory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tenure
from tenure import blocking
from tenure.blocking.portal import Flag
from tenure.coordinator import runner
from tenure.coordinator.lock import LockHolder
from tenure.coordinator.overrun import EXIT_OVERRAN
from tenure.errors import (
    ConfigError,
    CoordinationError,
    Fenced,
    InvalidUrl,
    LeadershipLost,
    LeadershipTimeout,
    LockError,
    LockTimeout,
    RecordNotFound,
    RequestRefused,
    TenureError,
)
from tests.support.waiting import eventually_here

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0
SWIFT = tenure.CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)
"""A lease of three seconds."""
SHORT = SWIFT.replace(
    heartbeat_interval=0.25,
    heartbeat_jitter=0.05,
    lease_timeout=1.5,
    worker_timeout=2.0,
    standby_watch_interval=0.1,
    drain_timeout=0.5,
)
"""A lease of one and a half, and half a second for bodies to end in."""
LONG = SWIFT.replace(
    lease_timeout=60.0, worker_timeout=90.0, heartbeat_interval=0.5, drain_timeout=10.0, request_timeout=5.0
)
"""A lease that no test waits for: who leads within seconds was given it."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "bucket").as_uri()


@contextmanager
def joined(
    url: str, worker_id: str, config: tenure.CoordinatorConfig = SWIFT
) -> Iterator[tuple[blocking.Database, blocking.Coordinator]]:
    with blocking.Database(url, worker_id=worker_id) as database:
        coordinator = database.get_global_coordinator(config=config)
        coordinator.start()
        yield database, coordinator


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


_EARLIER: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def earlier_threads() -> None:
    """Other tests of this process may have left some."""
    _EARLIER.clear()
    _EARLIER.update(threading.enumerate())


def background_threads() -> list[str]:
    """Those that this test has started."""
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("tenure") and thread not in _EARLIER
    ]


class Program:
    """A script of its own process. It says lines on standard output."""

    def __init__(self, source: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + source, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
        # One that hangs must fail its test, and not keep the reading of its lines waiting.
        self._alarm = threading.Timer(2 * PATIENCE, self._end_all)
        self._alarm.daemon = True
        self._alarm.start()

    def line(self) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, self._process.communicate()[1]
        return said.strip()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self, code: int = 0) -> tuple[str, str]:
        out, err = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == code, err
        return out, err

    def kill(self) -> None:
        self._alarm.cancel()
        self._end_all()
        self._process.communicate()

    def _end_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


PREAMBLE = """
import os, signal, sys, threading, time
import tenure
from tenure import blocking
from tenure.errors import *
from tests.integration.test_blocking import LONG, SHORT, SWIFT, joined
from tests.support.waiting import eventually_here
url = sys.argv[1] if len(sys.argv) > 1 else ""
def say(*words):
    print(*words, flush=True)
"""


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(source: str, *arguments: str) -> Program:
        started.append(Program(source, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.kill()


class TestInterrupted:
    """Signals come anywhere in a call, also where a lock is held."""

    def test_a_signal_handler_that_asks(self, url: str, program: Callable[..., Program]) -> None:
        source = """
import random
with joined(url, "ada") as (database, coordinator), coordinator.leadership() as leader:
    asked, records = 0, database.resource("records")
    def ask(*_):
        global asked
        asked += 1
        leader.is_current()
        if asked % 10 == 0:
            records.exists("a")
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.003))
    signal.signal(signal.SIGALRM, ask)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    until = time.monotonic() + 2
    while time.monotonic() < until:
        for _ in range(1000):
            leader.is_current()
        records.exists("a")
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
say("asked" if asked else "never")
"""
        assert program(source, url).end()[0] == "asked\n"

    def test_a_finalizer_that_runs_inside_a_call(self, url: str) -> None:
        with blocking.Database(url) as database:
            records, counted = database.resource("records"), threading.Event()
            assert database._portal is not None

            def inside() -> None:
                with database._portal._lock:  # type: ignore[union-attr]
                    records.count()
                counted.set()

            threading.Thread(target=inside, daemon=True).start()
            assert counted.wait(PATIENCE)

    def test_by_one_interrupt_after_another(self, url: str, program: Callable[..., Program]) -> None:
        source = """
import random
database = blocking.Database(url).connect()
records, interrupted = database.resource("records"), 0
signal.signal(signal.SIGALRM, signal.default_int_handler)
until = time.monotonic() + 3
while time.monotonic() < until:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.005))
        again = time.monotonic() + 0.05  # Python drops an interrupt that comes in a callback of a weak reference
        while time.monotonic() < again:
            records.exists("a")
    except KeyboardInterrupt:
        interrupted += 1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
records.insert({}, "a")
database.close()
say("interrupted" if interrupted else "never")
"""
        assert program(source, url).end()[0] == "interrupted\n"

    def test_many_wait_for_one_flag(self) -> None:
        flag = Flag()
        with ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(flag.wait, PATIENCE) for _ in range(8)]
            assert not flag.wait(0.05)
            flag.set()
            flag.set()
            assert [each.result(PATIENCE) for each in waiting] == [True] * 8
        assert flag.is_set()


class TestDropped:
    @pytest.mark.parametrize("where", ["the background thread", "the coordinator's thread"])
    @pytest.mark.parametrize("what", ["terms", "lead", "lock"])
    def test_in_a_cycle_and_collected_on_a_thread_of_tenures_own(self, what: str, where: str, url: str) -> None:
        class Service:
            def __init__(self, held: Iterator[object]) -> None:
                self.me, self.held = self, held
                next(held)

        def lead() -> Iterator[object]:
            with blocking.lead(url, worker_id="ada", config=LONG):
                yield

        def lock() -> Iterator[object]:
            with joined(url, "ada", LONG) as (database, _), database.lock("report", ttl=60):
                yield

        kinds: dict[str, Callable[[], Iterator[object]]] = {
            "terms": lambda: blocking.terms(url, worker_id="ada", config=LONG),
            "lead": lead,
            "lock": lock,
        }
        name = "tenure-blocking" if where == "the background thread" else "tenure-default"
        before = set(asyncio_loops(name))
        gc.disable()
        try:
            Service(kinds[what]())
            (loop,) = set(asyncio_loops(name)) - before
            loop.call_soon_threadsafe(gc.collect)
            eventually_here(lambda: not loop.is_running())
        finally:
            gc.enable()
        with (
            joined(url, "bob", LONG) as (database, coordinator),
            coordinator.leadership(timeout=PATIENCE),
            database.lock("report", timeout=PATIENCE),
        ):
            pass


def asyncio_loops(name: str) -> list[asyncio.AbstractEventLoop]:
    """Those that run on threads of this name."""
    running = [each for each in runner._running if each._name == name and each._loop is not None]
    return [each._loop for each in running if each._loop is not None and each._loop.is_running()]


class TestImport:
    def test_nothing_happens(self) -> None:
        source = (
            "import sys, threading, tenure\n"
            "assert 'tenure.blocking' not in sys.modules and 'tenure.asgi' not in sys.modules\n"
            "import tenure.blocking, tenure.asgi\n"
            "assert not any(name.startswith(('starlette', 'fastapi')) for name in sys.modules)\n"
            "print(threading.active_count())"
        )
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE)
        assert (done.stdout, done.stderr) == ("1\n", "")

    def test_what_cannot_be_is_refused_before_anything_is_written(self, url: str, tmp_path: Path) -> None:
        with pytest.raises(InvalidUrl):
            blocking.Database("nonsense")
        wrong: list[dict[str, Any]] = [
            {"overrun": "explode"},
            {"timeout": -1.0},
            {"timeout": "soon"},
            {"on_lost": "me"},
        ]
        for each in wrong:
            with pytest.raises(ConfigError, match=next(iter(each))), blocking.lead(url, config=SWIFT, **each):
                pass
        assert not list(tmp_path.rglob("state.json"))


class TestLeading:
    def test_a_body_runs_while_this_process_leads(self, url: str) -> None:
        with blocking.lead(url, config=LONG, worker_id="ada") as leader:
            assert leader.is_current()
            assert not leader.lost.is_set()
            assert 0 < leader.remaining() <= 60
            assert (leader.epoch, leader.namespace, leader.worker_id, leader.ended) == (1, "default", "ada", None)
            leader.ensure(1)
            with pytest.raises(LeadershipLost, match="asked for"):
                leader.ensure(1000)
            leader.put("report", b"by ada")
            assert leader.claim("report") == b"by ada"
            found = leader.get("report")
            assert found is not None
            assert (found.body, found.epoch) == (b"by ada", 1)
            leader.sleep(0.05)
            assert leader.wait_lost(0.01) is False
            leader.delete("report")
        assert not leader.is_current()
        assert leader.ended == "scope-ended"
        with pytest.raises(LeadershipLost):
            leader.ensure()
        eventually_here(lambda: not background_threads())
        with blocking.lead(
            url, config=LONG, worker_id="ben", timeout=PATIENCE
        ) as second:  # released, not left to lapse
            assert second.epoch > 1
            assert second.get("report") is not None

    def test_what_the_body_raises_comes_out_as_it_is(self, url: str) -> None:
        with pytest.raises(ZeroDivisionError), blocking.lead(url, config=SWIFT):
            _ = 1 // 0
        with joined(url, "ada") as (_, coordinator):

            def leave() -> None:
                coordinator.step_down()

            with pytest.raises(ZeroDivisionError), coordinator.leadership() as leader:
                thread = in_thread(leave)
                assert leader.wait_lost(PATIENCE)
                _ = 1 // 0
            thread.join()

    def test_a_loss_is_told_in_every_way_and_raised_at_the_end(self, url: str) -> None:
        told: list[tuple[blocking.Leader, str]] = []
        with joined(url, "ben") as (_, ben):
            eventually_here(ben.is_leader)
            with joined(url, "ada") as (_, ada):
                ben.step_down()
                with (
                    pytest.raises(LeadershipLost, match=r"epoch \d+ of 'default' ended"),
                    ada.leadership(
                        on_lost=lambda leader: told.append((leader, threading.current_thread().name))
                    ) as leader,
                ):
                    eventually_here(lambda: "ben" in ada.get_active_workers(fresh=True))
                    thread = in_thread(lambda: ben.transfer("ben", force=True))
                    began = time.monotonic()
                    with pytest.raises(LeadershipLost):
                        leader.sleep(PATIENCE)
                    assert time.monotonic() - began < PATIENCE - 5
                    assert leader.lost.is_set()
                    assert leader.lost.wait()
                    assert leader.wait_lost()
                    assert not leader.is_current()
                    assert leader.remaining() == 0
                    with pytest.raises(LeadershipLost):
                        leader.put("report", b"late")
                    eventually_here(lambda: told)
                thread.join()
                assert told == [(leader, "tenure-on-lost")]
                assert ben.is_leader()
                assert ben.get_epoch() > leader.epoch
                assert ada.get_leader(fresh=True) == "ben"

    def test_the_lease_is_not_given_away_while_the_body_runs(self, url: str) -> None:
        with joined(url, "ada") as (_, ada), joined(url, "ben") as (_, ben):
            ended = 0.0
            began: list[float] = []

            def follow() -> None:
                with ben.leadership(timeout=PATIENCE):
                    began.append(time.monotonic())

            with pytest.raises(LeadershipLost), ada.leadership():
                threads = [in_thread(follow), in_thread(ada.step_down)]
                deadline = time.monotonic() + 1.5  # drain_timeout is 3 s
                while time.monotonic() < deadline:
                    assert not ben.is_leader()
                    time.sleep(0.01)
                ended = time.monotonic()
            for thread in threads:
                thread.join()
            assert began
            assert began[0] >= ended

    def test_a_body_that_overruns_is_reported_and_fenced(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "tenure")
        with joined(url, "ada", SHORT) as (_, ada), joined(url, "ben", SHORT) as (_, ben):
            overran: list[Any] = []
            ada.on("lease:overran", overran.append)
            with pytest.raises(LeadershipLost), ada.leadership(timeout=PATIENCE) as leader:
                leader.put("report", b"by ada")
                held_until = time.monotonic()
                thread = in_thread(ada.step_down)
                while not ben.is_leader():
                    held_until = time.monotonic() if ada._service.holds_lease else held_until
                    time.sleep(0.005)
                # The drain took half a second, and then the lease was left to lapse: it was not released.
                assert ben.lead is not None
                assert ben.lead.claim("report") == b"by ada"
                with pytest.raises((LeadershipLost, Fenced)):
                    leader.put("report", b"late")
                eventually_here(lambda: overran)
            thread.join()
            assert "before its hooks had returned" in caplog.text

    def test_exit_ends_the_process_before_another_leads(self, url: str, program: Callable[..., Program]) -> None:
        script = program(
            """
with joined(url, "ada", SHORT) as (_, coordinator):
    with coordinator.leadership(overrun="exit") as leader:
        say(leader.epoch)
        threading.Thread(target=coordinator.step_down, daemon=True).start()
        time.sleep(60)
""",
            url,
        )
        assert script.line() == "1"
        with joined(url, "ben", SHORT) as (_, ben):
            while script._process.poll() is None:
                assert not ben.is_leader()
            eventually_here(ben.is_leader)
            script.end(EXIT_OVERRAN)

    def test_a_wait_that_takes_too_long(self, url: str) -> None:
        with blocking.lead(url, config=SWIFT, worker_id="ada") as leader:
            began = time.monotonic()
            with pytest.raises(TimeoutError) as caught, blocking.lead(url, config=SWIFT, worker_id="ben", timeout=0.5):
                pass
            assert isinstance(caught.value, LeadershipTimeout)
            assert "'ben' did not come to lead 'default'" in str(caught.value)
            assert 0.5 <= time.monotonic() - began < PATIENCE
            assert leader.is_current()

    def test_one_term_after_another(self, url: str) -> None:
        epochs: list[int] = []
        told: list[int] = []
        for leader in blocking.terms(url, config=SWIFT, on_lost=lambda lost: told.append(lost.epoch)):
            with leader:
                epochs.append(leader.epoch)
                if len(epochs) == 2:
                    break
        eventually_here(lambda: not background_threads())
        assert epochs == sorted(set(epochs))
        assert told == []
        with joined(url, "ada") as (_, ada):
            count = 0
            for leader in ada.terms():
                with leader:
                    count += 1
                    if count == 2:
                        break
                    thread = in_thread(ada.step_down)
                    leader.sleep(PATIENCE)
                    pytest.fail("it slept on")
            thread.join()
            with pytest.raises(LeadershipLost, match="is over"):
                for leader in ada.terms():
                    with leader:
                        pass
                    thread = in_thread(ada.step_down)
                    leader.sleep(PATIENCE)  # outside `with leader` it is not quiet
            thread.join()
        assert leader.epoch > epochs[-1] > 0

    async def test_terms_of_the_async_api(self, url: str) -> None:
        epochs: list[int] = []
        async with asyncio.timeout(PATIENCE):
            async for lead in tenure.terms(url, config=SWIFT, worker_id="ada"):
                async with lead:
                    epochs.append(lead.epoch)
                if len(epochs) == 2:
                    break
        assert len(set(epochs)) == 2
        assert epochs == sorted(epochs)

    def test_what_would_wait_for_itself_is_refused(self, url: str) -> None:
        with joined(url, "ada") as (database, ada):
            with ada.leadership() as leader:
                for wrong in (
                    ada.stop,
                    ada.step_down,
                    ada.elect_again,
                    lambda: ada.transfer("ben"),
                    database.close,
                ):
                    with pytest.raises(CoordinationError, match="with` block"):
                        wrong()
                with pytest.raises(CoordinationError, match="terms"), leader:
                    pass
                assert leader.is_current()
            with pytest.raises(RequestRefused):
                ada.step_down()

    def test_a_health_check_that_uses_the_blocking_api(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        """It runs on the background thread, which would wait for itself."""
        asked: list[str] = []

        def healthy() -> bool:
            try:
                database.read_fenced("report")
            except CoordinationError as error:
                asked.append(str(error))
            return True

        config = SWIFT.replace(health_check=healthy, health_check_interval=0.2)
        with blocking.Database(url) as database:
            database.get_global_coordinator(config=config).start()
            eventually_here(lambda: asked)
        assert "would wait for itself" in asked[0]


class TestDatabase:
    def test_a_coordinator(self, url: str) -> None:
        with joined(url, "ada") as (database, ada), joined(url, "ben") as (_, ben):
            eventually_here(lambda: ada.is_leader() or ben.is_leader())
            assert repr(ada) == "<blocking Coordinator 'default' as 'ada'>"
            assert database.get_global_coordinator().worker_id == "ada"
            eventually_here(lambda: ada.get_active_workers(fresh=True) == ["ada", "ben"])
            leader = ada if ada.is_leader() else ben
            other = ben if leader is ada else ada
            assert leader.lead is leader.lead is not None
            assert other.lead is None
            assert ada.get_leader(fresh=True) == leader.worker_id
            assert ada.running
            assert ada.get_metrics().heartbeat_count >= 0
            assert ada.get_circuit_breaker_status().state == "closed"
            assert leader.get_epoch() == leader.lead.epoch
            handover = other.transfer(other.worker_id, force=True)
            assert handover.leader == other.worker_id
            assert database.usage().total > 0
            leader.lead  # noqa: B018 - may be None by now, and must not raise
            ada.stop()
            assert not ada.running
            with pytest.raises(CoordinationError, match="not running"), ada.leadership():
                pass

    def test_handlers_run_on_a_thread_and_may_use_the_api(self, url: str) -> None:
        seen: list[tuple[str, str | None]] = []
        with joined(url, "ada") as (_, ada):

            def note(event: Any) -> None:
                seen.append((threading.current_thread().name, ada.get_leader(fresh=True)))

            subscription = ada.on("leader:changed", note)
            eventually_here(lambda: any(leader == "ada" for _, leader in seen))
            subscription.cancel()
            assert not ada.off("leader:changed", note)
            assert {name for name, _ in seen} == {"tenure-events"}

            async def wrong(event: Any) -> None: ...

            with pytest.raises(ConfigError, match="is async"):
                ada.on("leader:changed", wrong)

    def test_records(self, url: str) -> None:
        class Email(msgspec.Struct):
            to: str
            read: bool = False

        with blocking.Database(url) as database:
            emails = database.resource("emails", Email)
            first = emails.insert(Email("ada@example.com"), "first")
            assert emails.get("first").data == Email("ada@example.com")
            assert (
                emails.update("first", Email("ben@example.com"), if_version=first.version).data.to == "ben@example.com"
            )
            assert emails.patch("first", {"read": True}).data.read
            with pytest.raises(tenure.Conflict):
                emails.patch("first", {"read": False}, if_version=first.version)
            assert [each.error for each in emails.insert_many([Email("c"), Email("d")])] == [None, None]
            assert emails.count() == 3
            assert len(emails.list(limit=2).records) == 2
            assert len(list(emails.records())) == 3
            assert emails.exists("first")
            emails.delete("first")
            assert emails.get_or_none("first") is None
            with pytest.raises(RecordNotFound):
                emails.get("first")
            assert database.resource("plain").insert({"a": 1}).data == {"a": 1}
            with pytest.raises(tenure.ConfigError):
                database.resource("emails")

    def test_locks(self, url: str) -> None:
        with blocking.Database(url, worker_id="ada") as database, blocking.Database(url, worker_id="ben") as other:
            with database.lock("job", ttl=5) as held:
                assert held.is_held()
                assert (held.name, held.owner, held.token, held.ended) == ("job", "ada", 1, None)
                held.ensure(0.1)
                assert held.renew() > 0
                lock = other.lock("job", ttl=5, timeout=0.2)
                assert lock.try_acquire() is None
                assert lock.try_acquire(timeout=0.2) is None
                with pytest.raises(LockTimeout, match="held by 'ada' under token 1"), lock:
                    pass
                assert lock.holder() == LockHolder(owner="ada", token=1, ttl=5.0)
                with pytest.raises(CoordinationError):
                    database.close()
            assert not held.is_held()
            assert held.release() is True
            assert lock.holder() is None
            mine = database.lock("job", ttl=5)
            with mine, pytest.raises(LockError, match="reentrant"):
                mine.acquire()
            got = other.lock("job", ttl=5).acquire(timeout=PATIENCE)
            assert got.token > held.token
            assert got.release()

    def test_a_lock_that_another_thread_leaves(self, url: str) -> None:
        with blocking.Database(url) as database:
            lock = database.lock("report")
            in_thread(lock.__enter__).join(PATIENCE)
            with pytest.raises(LockTimeout):  # and not "this thread holds it already", of one with its ident
                lock.acquire(0.2)
            lock.__exit__(None, None, None)
            with lock as held:
                assert held.is_held()
            with pytest.raises(LockError, match="not inside"):
                lock.__exit__(None, None, None)

    def test_one_lock_many_threads(self, url: str) -> None:
        inside, most, counted = 0, 0, 0
        with blocking.Database(url) as database:
            lock = database.lock("counter", ttl=5)

            def count() -> None:
                nonlocal inside, most, counted
                with lock:
                    inside += 1
                    most = max(most, inside)
                    found = counted
                    time.sleep(0.005)
                    counted = found + 1
                    inside -= 1

            with ThreadPoolExecutor(6) as pool:
                for done in [pool.submit(count) for _ in range(12)]:
                    done.result(PATIENCE)
        assert (most, counted) == (1, 12)

    def test_use_before_and_after(self, url: str) -> None:
        database = blocking.Database(url)
        with pytest.raises(TenureError, match="not connected"):
            database.read_fenced("x")
        database.close()  # nothing to do
        with database:
            things = database.resource("things")
            ada = database.get_global_coordinator(config=SWIFT)
            ada.start()
            eventually_here(ada.is_leader)
            leader = ada.lead
            assert leader is not None
            held = database.lock("job").acquire()
        database.close()
        eventually_here(lambda: not background_threads())
        assert not ada.is_leader()
        assert not leader.is_current()
        assert not held.is_held()
        assert held.release() is False
        for use in (
            things.count,
            ada.start,
            ada.stop,
            ada.step_down,
            lambda: ada.get_leader(fresh=True),
            lambda: leader.get("x"),
            lambda: ada.on("*", print),
            lambda: ada.leadership().__enter__(),
            lambda: next(iter(ada.terms())),
            lambda: database.lock("other"),
            lambda: database.resource("things"),
            database.usage,
            database.get_global_coordinator,
        ):
            with pytest.raises(TenureError, match="is closed"):
                use()
        with database:  # opened again
            assert database.resource("things").count() == 0

    def test_a_store_that_cannot_be_opened_leaves_nothing_behind(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(tenure.TenureError), blocking.Database((tmp_path / "file").as_uri()):
            pass
        eventually_here(lambda: not background_threads())

    def test_closing_ends_the_waits_of_other_threads(self, url: str) -> None:
        failed: list[BaseException] = []
        with joined(url, "ada") as (_, ada):
            eventually_here(ada.is_leader)
            database = blocking.Database(url, worker_id="ben").connect()
            ben = database.get_global_coordinator(config=SWIFT)
            ben.start()
            held = database.lock("job").acquire()

            def wait(scope: Any) -> None:
                try:
                    with scope:
                        pytest.fail("it was not to be had")
                except BaseException as error:
                    failed.append(error)

            threads = [in_thread(lambda scope=scope: wait(scope)) for scope in (ben.leadership(), database.lock("job"))]
            time.sleep(0.3)
            database.close()
            for thread in threads:
                thread.join(PATIENCE)
            assert len(failed) == 2
            assert all(isinstance(error, TenureError) for error in failed), failed
            assert not held.is_held()

    def test_close_waits_for_a_body_on_another_thread(self, url: str) -> None:
        database = blocking.Database(url, worker_id="ada").connect()
        ada = database.get_global_coordinator(config=SWIFT)
        ada.start()
        inside, ended, failed = threading.Event(), [], []

        def work() -> None:
            try:
                with ada.leadership() as leader:
                    inside.set()
                    leader.wait_lost(PATIENCE)
                    time.sleep(0.5)
                    ended.append(time.monotonic())
            except LeadershipLost as error:
                failed.append(error)

        thread = in_thread(work)
        inside.wait(PATIENCE)
        database.close()
        assert ended
        thread.join(PATIENCE)
        assert failed
        with blocking.lead(url, config=SWIFT, worker_id="ben", timeout=PATIENCE):
            pass

    @pytest.mark.parametrize("how", ["stop", "close"])
    def test_a_loop_over_terms_ends_when_it_is_stopped(self, how: str, url: str) -> None:
        epochs: list[int] = []
        ended: list[str] = []
        database = blocking.Database(url, worker_id="ada").connect()
        ada = database.get_global_coordinator(config=SWIFT)
        with pytest.raises(CoordinationError, match="not running"):
            next(iter(ada.terms()))
        ada.start()

        def work() -> None:
            for leader in ada.terms():
                epochs.append(leader.epoch)
                leader.wait_lost(PATIENCE)
            ended.append("quietly")

        thread = in_thread(work)
        eventually_here(lambda: epochs)
        ada.stop() if how == "stop" else database.close()
        thread.join(PATIENCE)
        database.close()
        assert (len(epochs), ended) == (1, ["quietly"])


class TestWhereALoopRuns:
    async def test_it_works_and_warns(self, url: str) -> None:
        with (
            pytest.warns(RuntimeWarning, match="where an event loop runs") as caught,
            blocking.lead(url, config=SWIFT, timeout=PATIENCE) as leader,
        ):
            leader.put("report", b"1")
        assert caught[0].filename == __file__

    async def test_in_a_notebook_it_does_not_warn(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ipykernel", object())
        seen: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with joined(url, "ada") as (_, ada):
                ada.on("leader:changed", lambda event: seen.append(threading.current_thread().name))
                eventually_here(lambda: seen)
        assert set(seen) == {"tenure-events"}

    async def test_and_on_a_thread_of_the_loop_as_anywhere(self, url: str) -> None:
        def work() -> int:
            with blocking.lead(url, config=SWIFT) as leader:
                return leader.epoch

        assert await asyncio.to_thread(work) == 1


WAITS = {
    "leading": "blocking.lead(url, config=LONG, worker_id='ada').__enter__()",
    "lock": "blocking.Database(url).connect().lock('job', ttl=60).acquire()",
}
HOLDS = {
    "sleep": "leader.sleep(60)",
    "lost": "leader.lost.wait()",
    "body": "time.sleep(60)",
}


class TestCtrlC:
    @pytest.mark.parametrize("waits", WAITS)
    def test_in_a_call_that_waits(self, waits: str, url: str, program: Callable[..., Program]) -> None:
        with blocking.Database(url, worker_id="ben") as database:
            ben = database.get_global_coordinator(config=LONG)
            ben.start()
            eventually_here(ben.is_leader)
            with database.lock("job", ttl=60):
                script = program(
                    f"say('waits')\ntry:\n    {WAITS[waits]}\nexcept KeyboardInterrupt:\n    say('out')", url
                )
                assert script.line() == "waits"
                time.sleep(1.0)
                script.interrupt()
                assert script.line() == "out"
                assert script.end() == ("", "")
            with database.lock("job", ttl=60, timeout=PATIENCE):  # nothing is left of the attempt
                assert ben.is_leader()

    @pytest.mark.parametrize("holds", HOLDS)
    def test_in_a_body(self, holds: str, url: str, program: Callable[..., Program]) -> None:
        script = program(
            f"""
try:
    with blocking.lead(url, config=LONG, worker_id="ada") as leader:
        say("leads")
        {HOLDS[holds]}
except KeyboardInterrupt:
    say("out")
""",
            url,
        )
        assert script.line() == "leads"
        script.interrupt()
        assert script.line() == "out"
        with blocking.lead(url, config=LONG, worker_id="ben", timeout=PATIENCE) as leader:
            assert leader.epoch > 1
        assert script.end() == ("", "")


ENDS = {
    "in a scope that nobody left": """
database = blocking.Database(url, worker_id="ada").connect()
coordinator = database.get_global_coordinator(config=LONG)
coordinator.start()
scope = coordinator.leadership()
scope.__enter__()
database.lock("job", ttl=60).__enter__()
say("leads")
""",
    "in a loop over terms": """
terms = blocking.terms(url, config=LONG, worker_id="ada")
leader = next(terms)
database = blocking.Database(url).connect()
database.lock("job", ttl=60).acquire()
say("leads")
""",
    "by sys.exit in a body": """
with blocking.Database(url) as database, database.lock("job", ttl=60):
    with blocking.lead(url, config=LONG, worker_id="ada"):
        say("leads")
        sys.exit()
""",
    "with a daemon thread that looks": """
inside = threading.Event()
def work():
    for leader in blocking.terms(url, config=LONG, worker_id="ada"):
        inside.set()
        leader.wait_lost()
        return
threading.Thread(target=work, daemon=True).start()
inside.wait()
say("leads")
""",
}


class TestTheEndOfTheProcess:
    @pytest.mark.req("EL-11")
    @pytest.mark.parametrize("how", ENDS)
    def test_releases_what_is_held(self, how: str, url: str, program: Callable[..., Program]) -> None:
        script = program(ENDS[how], url)
        assert script.line() == "leads"
        assert script.end() == ("", "")
        began = time.monotonic()
        with blocking.lead(url, config=LONG, worker_id="ben", timeout=PATIENCE) as leader:
            assert leader.epoch > 1
        with blocking.Database(url) as database, database.lock("job", ttl=60, timeout=PATIENCE):
            pass
        assert time.monotonic() - began < PATIENCE  # the lease, and the lock's ttl, are twice that

    def test_waits_for_a_thread_as_the_interpreter_does(self, url: str, program: Callable[..., Program]) -> None:
        """Its lease is there for as long as it works; and then it is released."""
        script = program(
            """
inside = threading.Event()
def work():
    with joined(url, "ada", LONG) as (database, coordinator):
        with coordinator.leadership() as leader, database.lock("job", ttl=60) as held:
            inside.set()
            time.sleep(1.5)
            database.resource("things").insert({"a": 1}, "first")
            say(leader.is_current(), held.is_held())
threading.Thread(target=work).start()
inside.wait()
say("main ends")
""",
            url,
        )
        assert script.line() == "main ends"
        assert script.end() == ("True True\n", "")
        with blocking.lead(url, config=LONG, worker_id="ben", timeout=PATIENCE) as leader:
            assert leader.epoch > 1

    def test_with_a_pool_whose_threads_are_idle(self, url: str, program: Callable[..., Program]) -> None:
        script = program(
            """
from concurrent.futures import ThreadPoolExecutor
database = blocking.Database(url).connect()
pool = ThreadPoolExecutor(2)
say(pool.submit(lambda: database.resource("things").count()).result())
def work():
    with database.lock("job", ttl=60) as held:
        time.sleep(1)
        say(held.is_held())
pool.submit(work)
time.sleep(0.5)
""",
            url,
        )
        assert script.end() == ("0\nTrue\n", "")
        with blocking.Database(url) as database:
            held = database.lock("job").try_acquire()
            assert held is not None


class TestFork:
    @pytest.mark.req("EL-21")
    def test_a_forked_child_is_refused_everything(self, url: str, program: Callable[..., Program]) -> None:
        script = program(
            """
import json, warnings
warnings.simplefilter("ignore")
unopened = blocking.Database(url)
seen = {}
with joined(url, "ada", LONG) as (database, coordinator):
    things = database.resource("things")
    with coordinator.leadership() as leader, database.lock("job") as held:
        child = os.fork()
        if not child:
            uses = dict(
                sleep=lambda: leader.sleep(1), ensure=leader.ensure, put=lambda: leader.put("x", b""),
                get=lambda: leader.get("x"), count=things.count, start=coordinator.start, stop=coordinator.stop,
                step_down=coordinator.step_down, lead=lambda: coordinator.leadership().__enter__(),
                terms=lambda: next(coordinator.terms()), epoch=coordinator.get_epoch, renew=held.renew,
                release=held.release, lock=lambda: database.lock("x"), close=database.close,
                on=lambda: coordinator.on("*", print), connect=database.connect, connect_first=unopened.connect,
                held=held.ensure,
            )
            for name, use in uses.items():
                try:
                    seen[name] = f"returned {use()}"
                except Exception as error:
                    seen[name] = type(error).__name__
            seen["current"] = [leader.is_current(), coordinator.is_leader(), held.is_held(), not leader.lost.is_set(),
                               not leader.wait_lost()]
            try:
                with coordinator.leadership():
                    pass
            except Exception as error:
                seen["with"] = type(error).__name__
            say(json.dumps(seen))
            sys.exit(3)  # through all those `with` blocks, and the end of the interpreter
        seen["code"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        leader.ensure()
        held.ensure()
        leader.put("x", b"")
say(json.dumps(seen))
""",
            url,
        )
        said: dict[str, Any] = json.loads(script.line())
        assert said.pop("current") == [False] * 5
        assert len(said) == 20
        assert set(said.values()) == {"ForkedProcess"}, said
        assert json.loads(script.line()) == {"code": 3}
        assert script.end() == ("", "")


STAGE = """
import ast, asyncio, re, sys, threading, types
import tenure, tenure.blocking, tenure.database.core
from tests.integration.test_blocking import SWIFT
tenure.database.core.CoordinatorConfig = lambda **settings: SWIFT.replace(**settings)  # the default spreads a start
page, number, url = sys.argv[1:]
found = re.findall(r"```python\\n(.*?)```", open(f"docs/{page}").read(), re.DOTALL)
block = re.sub("s3://bucket/[a-z]+", url, found[int(number)])
class Done(Exception):
    pass
calls = []
def called(*arguments, **named):
    calls.append((arguments, named))
    if len(calls) == 2:
        raise Done
def once(*arguments, **named):
    calls.append((arguments, named))
async def called_async(*arguments):
    calls.append((arguments, {}))
base, client = types.ModuleType("django.core.management.base"), None
base.BaseCommand = object
sys.modules["django.core.management.base"] = base
fastapi = types.ModuleType("fastapi")
from starlette.applications import Starlette
fastapi.FastAPI = Starlette
sys.modules["fastapi"] = fastapi
names = dict(do_a_piece=called, work=called, send_what_is_due=called, work_that_cannot_be_asked_to_stop=once,
             write_report=once, run_the_job=once, print=once)
if page == "blocking.md":
    names["tenure"] = tenure  # its first block imports it
def perform():
    code = compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if asyncio.iscoroutine(result):
        asyncio.run(result)
"""

PAGES: dict[tuple[str, int], str] = {
    ("blocking.md", 0): "try:\n    perform()\nexcept Done:\n    say(len(calls))",
    ("blocking.md", 1): "perform()\nsay(1 + len(calls))",
    ("blocking.md", 2): "try:\n    perform()\nexcept Done:\n    say(len(calls))",
    ("blocking.md", 3): "perform()\nassert ((), {'fencing_token': 1}) in calls\nsay(2)",
    ("blocking.md", 4): """
perform()
from types import SimpleNamespace
ids = [names["view"](SimpleNamespace(order=5)) for _ in range(2)]
assert names["orders"].stats().inbox == 2
say(len(set(ids)))
""",
    ("blocking.md", 5): """
perform()
assert (({"order": 7},), {"fencing_token": calls[0][1]["fencing_token"]}) == calls[0]
assert calls[1][0][0] == "written"
say(len(calls))
""",
    ("blocking.md", 6): """
import time
names["time"] = time
perform()
assert calls[-1][0][0].startswith("nightly#")
say(sum(1 for given, named in calls if named.get("fencing_token")) + 1)
""",
    ("blocking.md", 7): "perform()\nperform()\nassert [given for given, _ in calls] == [(1,), (2,)]\nsay(len(calls))",
    ("recipes.md", 0): "perform()\nperform()\nsay(1 + len(calls))",
    ("recipes.md", 1): """
names["send_what_is_due"] = called_async
perform()
async def serve():
    async with names["app"].router.lifespan_context(names["app"]):
        while len(calls) < 2:
            await asyncio.sleep(0.05)
asyncio.run(serve())
say(len(calls))
""",
    (
        "recipes.md",
        2,
    ): (
        "names['send_what_is_due'] = once\nperform()\n"
        "names['post_worker_init'](None)\neventually_here(lambda: calls)\nsay(2)"
    ),
    ("recipes.md", 3): "perform()\ntry:\n    names['Command']().handle()\nexcept Done:\n    say(len(calls))",
    ("recipes.md", 4): "perform()\nsay(2)",
    ("recipes.md", 5): "perform()\nsay(2)",
}


class TestPages:
    def test_every_block_is_run(self) -> None:
        blocks = {
            (page, number)
            for page in ("blocking.md", "recipes.md")
            for number in range((ROOT / "docs" / page).read_text().count("```python\n"))
        }
        assert blocks == set(PAGES)

    @pytest.mark.parametrize(("page", "number"), PAGES)
    def test_what_the_pages_show(self, page: str, number: int, url: str, program: Callable[..., Program]) -> None:
        ran = program(STAGE + PAGES[page, number], page, str(number), url)
        out, err = ran.end()
        assert (out, err) == ("2\n", "")

"""A coordinator in somebody else's process: what it leaves alone, and what it survives. Real loops, threads and clocks.

What happens in the fleet is tested in simulated time; here it is one process, and how it behaves towards its host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import tenure
from tenure import CoordinatorConfig, Database, GlobalCoordinatorService, Lead, LeadershipLost
from tenure.coordinator.config import Hosting
from tests.support.waiting import eventually

SWIFT = CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05)
"""A lease of three seconds, and no time lost at the start."""
SHORT = CoordinatorConfig(
    heartbeat_interval=0.25,
    heartbeat_jitter=0.05,
    lease_timeout=1.5,
    worker_timeout=2.0,
    startup_jitter_max=0,
    takeover_delay=0.05,
    standby_watch_interval=0.1,
    min_epoch_duration=0,
    drain_timeout=1.0,
)
"""A lease of one and a half: for tests that must wait for it."""

PATIENCE = 20.0


@contextlib.asynccontextmanager
async def coordinating(
    url: str, config: CoordinatorConfig = SWIFT, **changes: Any
) -> AsyncIterator[GlobalCoordinatorService]:
    async with Database(url) as database:
        coordinator = await database.get_global_coordinator(config=config.replace(**changes))
        await coordinator.start()
        yield coordinator


async def look(url: str) -> dict[str, Any]:
    """What the lease says now."""
    async with Database(url) as database:
        stored = await database.store.get("plugin=coordinator/namespace=default/state.json")
        found: dict[str, Any] = json.loads(stored.body)  # type: ignore[union-attr]
        return found


async def workers(url: str) -> list[str]:
    async with Database(url) as database:
        prefix = "plugin=coordinator/namespace=default/workers/"
        return [entry.key.removeprefix(prefix) async for entry in database.store.list(prefix)]


def engines() -> list[threading.Thread]:
    """Threads on which coordinators of the namespace run."""
    return [thread for thread in threading.enumerate() if thread.name == "tenure-default"]


async def no_engine_is_left() -> None:
    """A thread that has said it is done still takes a moment to end."""
    await eventually(lambda: not engines())


def run_program(source: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    """What a program that imports tenure prints at its end."""
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    return found


class TestWhereItRuns:
    async def test_the_engine_has_a_thread_and_user_code_stays_on_its_loop(self, url_of: Callable[[str], str]) -> None:
        mine = threading.get_ident()
        seen: dict[str, int] = {}

        def note(name: str) -> None:
            seen[name] = threading.get_ident()

        class Plugin:
            def on_become_coordinator(self, lead: Lead) -> None:
                note("become")

            async def on_stop_being_coordinator(self) -> None:
                note("stop")

        async def healthy() -> bool:
            note("health")
            return True

        async with coordinating(url_of("memory"), health_check=healthy) as coordinator:
            coordinator.on("leader:changed", lambda event: note("event"))
            coordinator.subscribe(Plugin())
            (thread,) = engines()
            assert thread.daemon, "it keeps nobody's process alive"
            assert thread.ident != mine
            await eventually(lambda: {"become", "event"} <= set(seen))
        assert seen == dict.fromkeys(("health", "event", "become", "stop"), mine)
        await no_engine_is_left()

    async def test_or_all_of_it_on_the_users_loop(self, url_of: Callable[[str], str]) -> None:
        async with coordinating(url_of("memory"), hosting=Hosting.LOOP) as coordinator:
            await eventually(coordinator.is_leader)
            assert engines() == []

    @pytest.mark.req("MT-2")
    async def test_a_heartbeat_lasts_as_long_as_its_requests(self, url_of: Callable[[str], str]) -> None:
        config = SWIFT.replace(heartbeat_interval=0.2, heartbeat_jitter=0, standby_watch_interval=0.2)
        async with coordinating(url_of("memory"), config) as coordinator:
            await asyncio.sleep(2.6)
            metrics = coordinator.get_metrics()
        assert metrics.heartbeat_count >= 10
        assert metrics.heartbeat_latency_p50 < 0.1

    async def test_any_thread_may_ask(self, url_of: Callable[[str], str]) -> None:
        async with coordinating(url_of("memory")) as coordinator:
            await eventually(coordinator.is_leader)

            def ask() -> tuple[bool, int, str]:
                state = coordinator.get_circuit_breaker_status().state
                return coordinator.is_leader(), coordinator.get_epoch(), state

            assert await asyncio.to_thread(ask) == (True, 1, "closed")


class TestLoops:
    def test_a_database_is_used_on_one_loop_after_another(self, url_of: Callable[[str], str]) -> None:
        database = Database(url_of("memory"))

        epochs: list[int] = []

        async def lead_once() -> None:
            await database.connect()
            coordinator = await database.get_global_coordinator(config=SWIFT.replace(worker_id="w"))
            await coordinator.start()
            async with asyncio.timeout(PATIENCE), coordinator.leadership() as lead:
                epochs.append(lead.epoch)

        asyncio.run(lead_once())
        time.sleep(1.0)  # the watch on the first loop finds it closed
        asyncio.run(lead_once())
        assert epochs == [1, 2]

    @pytest.mark.req("EL-11")
    def test_closing_the_loop_that_started_it_releases_the_lease(self, url_of: Callable[[str], str]) -> None:
        url = url_of("directory")

        async def lead() -> None:
            database = await Database(url).connect()
            coordinator = await database.get_global_coordinator(config=SWIFT.replace(worker_id="w"))
            await coordinator.start()
            await eventually(coordinator.is_leader)

        asyncio.run(lead())
        asyncio.run(no_engine_is_left())
        assert asyncio.run(look(url))["leaderId"] is None
        assert asyncio.run(workers(url)) == []

    @pytest.fixture
    async def coordinator(self, url_of: Callable[[str], str]) -> AsyncIterator[GlobalCoordinatorService]:
        async with coordinating(url_of("memory")) as coordinator:
            yield coordinator

    @pytest.mark.parametrize("time_around", range(3))
    async def test_every_test_may_have_a_loop_of_its_own(
        self, coordinator: GlobalCoordinatorService, time_around: int
    ) -> None:
        """As with pytest-asyncio's fixtures: made, used and stopped on a loop that is closed right after."""
        async with asyncio.timeout(PATIENCE), coordinator.leadership() as lead:
            assert lead.epoch == 1
        await eventually(lambda: len(engines()) == 1)  # none is left of the test before

    @pytest.mark.parametrize("hosting", Hosting)
    def test_uvloop_will_do(self, url_of: Callable[[str], str], hosting: Hosting) -> None:
        uvloop = pytest.importorskip("uvloop")

        async def main(url: str) -> tuple[str, list[int]]:
            async with coordinating(url, hosting=hosting) as coordinator:
                epochs = []
                async with asyncio.timeout(PATIENCE):
                    async with coordinator.leadership() as lead:
                        epochs.append(lead.epoch)
                        await lead.put("key", b"value")
                    async with coordinator.leadership() as lead:
                        epochs.append(lead.epoch)
                        assert await lead.claim("key") == b"value"
                return type(asyncio.get_running_loop()).__module__, epochs

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(main(url_of("directory"))) == ("uvloop", [1, 2])
            runner.run(no_engine_is_left())


LEADS_AND_LEAVES = """
import asyncio, sys
from tenure import CoordinatorConfig, Database

async def lead():
    database = await Database(sys.argv[1]).connect()
    config = CoordinatorConfig.fast(worker_id="w", startup_jitter_max=0, takeover_delay=0.05)
    coordinator = await database.get_global_coordinator(config=config)
    await coordinator.start()
    while not coordinator.is_leader():
        await asyncio.sleep(0.02)
    if sys.argv[2] == "sys.exit":
        sys.exit(3)

loop = asyncio.new_event_loop()
loop.run_until_complete(lead())
# The loop is not closed, nothing is stopped: the interpreter just ends.
"""

ON_IMPORT = """
import json, logging, signal, sys, threading

before = {number: signal.getsignal(number) for number in signal.valid_signals()}
root_level, hook, threads = logging.root.level, sys.excepthook, threading.active_count()
import tenure

print(json.dumps({
    "threads": threading.active_count() - threads,
    "signals": [n for n in signal.valid_signals() if signal.getsignal(n) is not before[n]],
    "root": [len(logging.root.handlers), logging.root.level - root_level],
    "ours": [type(handler).__name__ for handler in logging.getLogger("tenure").handlers],
    "level": logging.getLogger("tenure").level,
    "propagates": logging.getLogger("tenure").propagate,
    "excepthook": sys.excepthook is hook,
    "heavy": sorted({"obstore", "rich", "click", "boto3", "tenure.testing"} & set(sys.modules)),
}))
"""


class TestTheProcess:
    @pytest.mark.req("EL-11")
    @pytest.mark.parametrize(("how", "code"), [("ends", 0), ("sys.exit", 3)])
    def test_the_end_of_the_interpreter_releases_the_lease(
        self, url_of: Callable[[str], str], how: str, code: int
    ) -> None:
        url = url_of("directory")
        run_program(LEADS_AND_LEAVES, url, how, code=code)
        state = asyncio.run(look(url))
        assert (state["leaderId"], state["previousLeader"], state["epoch"]) == (None, "w", 1)
        assert asyncio.run(workers(url)) == []

    def test_nothing_happens_on_import(self) -> None:
        assert run_program(ON_IMPORT) == {
            "threads": 0,
            "signals": [],
            "root": [0, 0],
            "ours": [],
            "level": logging.NOTSET,
            "propagates": True,
            "excepthook": True,
            "heavy": [],
        }

    async def test_signals_are_the_users(self, url_of: Callable[[str], str]) -> None:
        def handlers() -> dict[int, Any]:
            return {number: signal.getsignal(number) for number in signal.valid_signals()}

        before = handlers()
        async with coordinating(url_of("memory")) as coordinator:
            await eventually(coordinator.is_leader)
            assert handlers() == before
        assert handlers() == before

    async def test_the_log_tells_of_leadership_and_of_nothing_else(
        self, url_of: Callable[[str], str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        async with coordinating(url_of("memory"), worker_id="w") as coordinator:
            await eventually(coordinator.is_leader)
            await asyncio.sleep(1.0)  # a heartbeat or two
        assert [(record.levelname, record.name, record.message) for record in caplog.records] == [
            ("INFO", "tenure.coordinator", "w leads 'default', epoch 1"),
            ("INFO", "tenure.coordinator", "w no longer leads 'default', epoch 1: stopped"),
        ]

    async def test_a_worker_that_was_never_unhealthy_is_not_warned_about(
        self, url_of: Callable[[str], str], caplog: pytest.LogCaptureFixture
    ) -> None:
        async with coordinating(url_of("memory"), worker_id="w", health_check=lambda: True) as coordinator:
            await eventually(coordinator.is_leader)
        assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


class TestAStalledLoop:
    @pytest.mark.slow
    async def test_costs_nothing_and_is_reported(self, url_of: Callable[[str], str]) -> None:
        """A handler that blocks the user's loop for two leases, while a rival waits for the lease to lapse."""
        url = url_of("memory")
        stalls: list[Any] = []
        async with (
            coordinating(url, SHORT, worker_id="a") as coordinator,
            coordinating(url, SHORT, worker_id="b") as rival,
            asyncio.timeout(PATIENCE),
            coordinator.leadership() as lead,
        ):
            coordinator.on("loop:stalled", stalls.append)
            coordinator.on("plg:test:block", lambda event: time.sleep(3.0))
            await asyncio.sleep(0.3)
            before = time.monotonic()
            coordinator._bus.emit(_Block())
            await eventually(lambda: stalls)
            assert time.monotonic() - before >= 3.0
            assert lead.is_current()
            assert lead.epoch == rival.get_epoch() == 1
            assert (stalls[0].namespace, stalls[0].leading) == ("default", True)
            assert stalls[0].seconds >= 1.0

    async def test_ends_leadership_where_max_loop_stall_says_so(self, url_of: Callable[[str], str]) -> None:
        """Asked from another thread, since its own stands still."""
        url = url_of("memory")
        answers: list[tuple[float, bool]] = []
        async with coordinating(url, SHORT, worker_id="a", max_loop_stall=0.5) as coordinator:
            reasons: list[str] = []
            coordinator.on("coord:coordinator-demoted", lambda event: reasons.append(event.reason))
            await eventually(coordinator.is_leader)
            await asyncio.sleep(0.5)

            def ask() -> None:
                began = time.monotonic()
                while (now := time.monotonic() - began) < 1.9:
                    answers.append((now, coordinator.is_leader()))
                    time.sleep(0.02)

            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(2.0)
            asking.join()
            assert answers[0][1] is True
            ended = next(at for at, leads in answers if not leads)
            assert 0.4 <= ended < 1.4, "the limit, and at most a few pings of a quarter of a second"
            assert not any(leads for at, leads in answers if at > ended), "nor does it stand while it stands still"
            await eventually(lambda: reasons)
            assert reasons[0] == "loop-stalled"
            await eventually(coordinator.is_leader)
            assert coordinator.get_epoch() > 1


class _Block:
    name = "plg:test:block"


class TestScopes:
    async def test_a_body_whose_leadership_ends_is_cancelled_and_told(self, url_of: Callable[[str], str]) -> None:
        async with coordinating(url_of("memory")) as coordinator:
            ended = False
            with pytest.raises(LeadershipLost, match="epoch 1 of 'default' ended \\(step-down\\)"):
                async with asyncio.timeout(PATIENCE), coordinator.leadership() as lead:
                    stepping_down = asyncio.create_task(coordinator.step_down())
                    try:
                        await asyncio.sleep(60)
                    finally:
                        ended = not lead.is_current()
            assert ended
            await stepping_down
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0, "nothing is left of the cancellation"

    async def test_a_cancellation_from_outside_passes_through_and_gives_the_lease_back(
        self, url_of: Callable[[str], str]
    ) -> None:
        url = url_of("memory")
        entered = asyncio.Event()
        async with coordinating(url) as coordinator:

            async def main() -> None:
                async with coordinator.leadership():
                    entered.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(main())
            async with asyncio.timeout(PATIENCE):
                await entered.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert not coordinator.is_leader()
            assert (await look(url))["leaderId"] is None

    async def test_a_timeout_around_it_is_a_timeout(self, url_of: Callable[[str], str]) -> None:
        async with coordinating(url_of("memory")) as coordinator:
            await eventually(coordinator.is_leader)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5), coordinator.leadership():
                    await asyncio.sleep(60)

    async def test_who_is_cancelled_and_deposed_at_once_is_cancelled(self, url_of: Callable[[str], str]) -> None:
        """Whoever asked for the cancellation must get it; `LeadershipLost` would swallow it."""
        async with coordinating(url_of("memory")) as coordinator:
            entered = asyncio.Event()

            async def main() -> None:
                async with coordinator.leadership():
                    entered.set()
                    try:
                        await asyncio.sleep(60)
                    finally:
                        await asyncio.sleep(0.2)  # both have come by then

            task = asyncio.create_task(main())
            async with asyncio.timeout(PATIENCE):
                await entered.wait()
                stepping_down = asyncio.create_task(coordinator.step_down())
                await eventually(lambda: task.cancelling())
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await stepping_down

    async def test_what_the_body_raises_comes_out(self, url_of: Callable[[str], str]) -> None:
        url = url_of("memory")
        async with coordinating(url) as coordinator:
            with pytest.raises(ZeroDivisionError):
                async with asyncio.timeout(PATIENCE), coordinator.leadership():
                    raise ZeroDivisionError
            assert (await look(url))["leaderId"] is None

    async def test_terms_come_one_after_the_other(self, url_of: Callable[[str], str]) -> None:
        async with coordinating(url_of("memory")) as coordinator:
            epochs: list[int] = []
            cut_short: list[int] = []
            requests: list[asyncio.Task[None]] = []
            async with asyncio.timeout(PATIENCE):
                async for lead in coordinator.terms():
                    epochs.append(lead.epoch)
                    if lead.epoch == 3:
                        break
                    requests.append(asyncio.create_task(coordinator.step_down()))
                    async with lead:
                        try:
                            await asyncio.sleep(60)
                        except asyncio.CancelledError:
                            cut_short.append(lead.epoch)
                            raise
                await asyncio.gather(*requests)
            assert epochs == [1, 2, 3]
            assert cut_short == [1, 2]

    async def test_a_lead_outside_terms_is_no_scope(self, url_of: Callable[[str], str]) -> None:
        async with (
            coordinating(url_of("memory")) as coordinator,
            asyncio.timeout(PATIENCE),
            coordinator.leadership() as lead,
        ):
            with pytest.raises(tenure.TenureError, match="leadership\\(\\) is a scope of its own"):
                await lead.__aenter__()


class TestLead:
    """The front door: `async with tenure.lead(url) as lead`."""

    async def test_one_after_another(self, url_of: Callable[[str], str]) -> None:
        url = url_of("directory")
        epochs = []
        for _ in range(2):
            async with asyncio.timeout(PATIENCE), tenure.lead(url, config=SWIFT, worker_id="w") as lead:
                assert lead.is_current()
                assert lead.worker_id == "w"
                epochs.append(lead.epoch)
            assert not lead.is_current()
            assert (await look(url))["leaderId"] is None
        assert epochs == [1, 2]
        await no_engine_is_left()

    async def test_one_at_a_time(self, url_of: Callable[[str], str]) -> None:
        """Three in one process, each with a database of its own: bodies never overlap, and all get their turn."""
        url = url_of("memory")
        inside: list[str] = []
        done: list[tuple[str, int]] = []

        async def main(name: str) -> None:
            async with tenure.lead(url, config=SHORT, worker_id=name) as lead:
                inside.append(name)
                await asyncio.sleep(0.1)
                assert inside == [name]
                inside.remove(name)
                done.append((name, lead.epoch))

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(main(name) for name in "abc"))
        assert sorted(name for name, _ in done) == ["a", "b", "c"]
        assert [epoch for _, epoch in done] == [1, 2, 3]

    async def test_waiting_for_it_may_be_given_up(self, url_of: Callable[[str], str]) -> None:
        url = url_of("memory")
        async with asyncio.timeout(PATIENCE), tenure.lead(url, config=SWIFT, worker_id="a") as lead:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.7), tenure.lead(url, config=SWIFT, worker_id="b"):
                    pytest.fail("two lead at once")
            assert lead.is_current()
            await eventually(lambda: len(engines()) == 1)

"""Runs on the leader: what raises, hangs, ignores cancellation or never ends harms nothing but itself."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import SYSTEM_CLOCK
from tenure.errors import ConfigError, StoreUnavailable
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler import runs as runs_module
from tenure.plugins.scheduler.clerk import End, Start
from tenure.plugins.scheduler.commands import CommandPolicy, Commands
from tenure.plugins.scheduler.events import RunLeftBehind
from tenure.plugins.scheduler.job import CommandTarget, Job, every, job_from
from tenure.plugins.scheduler.run import Run
from tenure.plugins.scheduler.runs import Runs
from tests.support.lease import ScriptedLease

SCHEDULED_MS = 1_700_000_000_000


class Sent:
    """A queue that keeps what it is given; `errors` come first."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.errors: list[Exception] = []

    async def open(self, name: str) -> Any:
        self.name = name
        return self

    async def enqueue(self, body: Any, **options: Any) -> str:
        if self.errors:
            raise self.errors.pop(0)
        self.messages.append({"body": body, **options})
        return "id"


class Stage:
    def __init__(
        self, functions: dict[str, Callable[..., Any]], *, commands: Commands | None = None, **options: Any
    ) -> None:
        self.lease = ScriptedLease(4, left=30.0)
        self.sent = Sent()
        self.ends: list[End] = []
        self.left: list[RunLeftBehind] = []
        self.ended = asyncio.Event()
        self.runs = Runs(
            self.lease,  # type: ignore[arg-type]
            functions,
            self.sent,  # type: ignore[arg-type]
            commands=commands if commands is not None else Commands(CommandPolicy.ANY),
            name="scheduler",
            clock=SYSTEM_CLOCK,
            on_end=self._end,
            on_left_behind=self.left.append,
            **options,
        )
        self._numbers = 0

    def _end(self, end: End) -> None:
        self.ends.append(end)
        self.ended.set()

    def begin(self, function: str = "f", **options: Any) -> None:
        if not {"queue", "command"} & set(options):
            options["function"] = function
        self._numbers += 1
        job = job_from("job", every(1), **options)
        self.runs.begin(Start(self._numbers, job, SCHEDULED_MS, 7, 4, 1, ""))

    async def end(self) -> End:
        """The next one."""
        async with asyncio.timeout(20):
            while not self.ends:
                self.ended.clear()
                await self.ended.wait()
        return self.ends.pop(0)


@asynccontextmanager
async def stage(function: Callable[..., Any] | None = None, **options: Any) -> AsyncIterator[Stage]:
    made = Stage({"f": function} if function is not None else {}, **options)
    yield made
    await made.runs.wind_up()


class TestFunctions:
    @pytest.mark.req("EF-9")
    async def test_a_run_says_what_it_is(self) -> None:
        seen: list[Run] = []

        async def work(run: Run) -> None:
            seen.append(run)
            assert 0 < run.remaining() <= 5

        async with stage(work) as on:
            on.begin(payload={"x": 1}, timeout=5)
            assert await on.end() == End(1, 7)
        (run,) = seen
        assert (run.id, run.job, run.token, run.epoch, run.attempt) == (f"job@{SCHEDULED_MS}", "job", 7, 4, 1)
        assert run.scheduled.isoformat() == "2023-11-14T22:13:20+00:00"
        assert run.payload == {"x": 1}
        assert not run.manual

    async def test_what_a_run_does_to_its_payload_changes_no_definition(self) -> None:
        async def spoil(run: Run) -> None:
            run.payload["x"].append(2)

        job = job_from("job", every(1), function="f", payload={"x": [1]})
        async with stage(spoil) as on:
            on.runs.begin(Start(1, job, SCHEDULED_MS, 7, 4, 1, ""))
            assert (await on.end()).error is None
        assert job == job_from("job", every(1), function="f", payload={"x": [1]})

    async def test_one_without_parameters_is_called_without(self) -> None:
        called = []

        async def work() -> None:
            called.append(1)

        def plain() -> None:
            called.append(2)

        async with stage(work) as on:
            on.begin()
            assert (await on.end()).error is None
        async with stage(plain) as on:
            on.begin()
            assert (await on.end()).error is None
        assert called == [1, 2]

    @pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), StopIteration(), asyncio.CancelledError()])
    async def test_what_raises_has_failed(self, error: BaseException) -> None:
        async def work(run: Run) -> None:
            raise error

        async def good() -> None:
            pass

        on = Stage({"f": work, "good": good})
        on.begin()
        told = (await on.end()).error
        assert told is not None
        assert type(error).__name__ in told or "cancelled" in told
        on.begin("good")
        assert (await on.end()).error is None

    @pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), StopIteration()])
    async def test_and_so_has_a_plain_one(self, error: BaseException) -> None:
        def work(run: Run) -> None:
            raise error

        async with stage(work) as on:
            on.begin()
            told = (await on.end()).error
            assert told is not None
            assert type(error).__name__ in told

    async def test_an_exception_that_cannot_be_told(self) -> None:
        class Strange(Exception):
            def __str__(self) -> str:
                raise ValueError("no")

        async def work() -> None:
            raise Strange

        async with stage(work) as on:
            on.begin()
            assert "Strange" in ((await on.end()).error or "")

    @pytest.mark.req("SC-1")
    async def test_a_timeout_cancels(self) -> None:
        cancelled = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(1)
                raise

        async with stage(work) as on:
            on.begin(timeout=0.02)
            assert "longer than its timeout of 0.02 s" in ((await on.end()).error or "")
            assert cancelled == [1]
            assert not on.left

    async def test_what_ignores_its_cancellation_is_left_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runs_module, "ENDS_WITHIN", 0.02)
        let_go = asyncio.Event()

        async def stubborn() -> None:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    pass

        async with stage(stubborn) as on:
            on.begin(timeout=0.02)
            end = await on.end()
            await asyncio.sleep(0)
            counts = (on.runs.left_behind, on.runs.count)
            let_go.set()  # or the loop would never end
            await asyncio.sleep(0)
        assert "did not end" in (end.error or "")
        assert [event.run for event in on.left] == [f"job@{SCHEDULED_MS}"]
        assert counts == (1, 0)
        assert not on.ends, "what comes of it does not count"

    async def test_a_thread_that_hangs_is_left_behind_and_keeps_nobody_waiting(self) -> None:
        let_go = threading.Event()
        done = threading.Event()

        def hang() -> None:
            let_go.wait(20)
            done.set()

        on = Stage({"f": hang, "quick": lambda: None}, max_threads=1)
        on.begin(timeout=0.02)
        on.begin("quick")
        assert "its thread goes on" in ((await on.end()).error or "")
        assert (await on.end()).error is None
        assert len(on.left) == 1
        let_go.set()
        await asyncio.to_thread(done.wait, 20)

    async def test_so_many_threads_at_a_time(self) -> None:
        let_go = threading.Event()
        at_once = []
        lock = threading.Lock()
        running = 0

        def work() -> None:
            nonlocal running
            with lock:
                running += 1
                at_once.append(running)
            let_go.wait(20)
            with lock:
                running -= 1

        async with stage(work, max_threads=3) as on:
            for _ in range(6):
                on.begin()
            while len(at_once) < 3:
                await asyncio.sleep(0.001)
            let_go.set()
            for _ in range(6):
                assert (await on.end()).error is None
        assert max(at_once) == 3

    async def test_a_plain_function_may_give_something_to_wait_for(self) -> None:
        waited = []

        async def later() -> None:
            waited.append(1)

        async with stage(lambda: later()) as on:
            on.begin()
            assert (await on.end()).error is None
        assert waited == [1]

    async def test_when_the_term_ends_runs_are_cancelled_and_do_not_count(self) -> None:
        cancelled = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(1)
                raise

        on = Stage({"f": work})
        for _ in range(3):
            on.begin()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await on.runs.wind_up()
        assert (cancelled, on.ends, on.runs.count) == ([1, 1, 1], [], 0)

    async def test_nothing_begins_after_the_lease(self) -> None:
        async with stage(lambda: None) as on:
            on.lease.left = 0.0
            on.begin()
            assert "lease" in ((await on.end()).error or "")

    async def test_room(self) -> None:
        async def work() -> None:
            await asyncio.Event().wait()

        async with stage(work, max_runs=3) as on:
            assert on.runs.room() == 3
            on.begin()
            assert on.runs.room() == 2


class TestQueues:
    @pytest.mark.req("SC-1")
    async def test_a_message_has_the_occurrence_as_its_key(self) -> None:
        async with stage() as on:
            on.begin(queue="mails", body={"to": "ada"}, priority=3, headers={"x": "y"}, delay=2)
            assert (await on.end()).error is None
            (message,) = on.sent.messages
        assert on.sent.name == "mails"
        assert message["body"] == {"to": "ada"}
        assert message["dedup_key"] == f"scheduler/job@{SCHEDULED_MS}"
        assert (message["priority"], message["delay"], message["ordering_key"]) == (3, 2.0, None)
        assert message["headers"] == {
            "x": "y",
            "tenure-job": "job",
            "tenure-scheduled": "2023-11-14T22:13:20+00:00",
            "tenure-token": "7",
        }

    async def test_it_is_sent_until_it_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runs_module, "_SEND_PAUSE", 0.001)
        async with stage() as on:
            on.sent.errors = [StoreUnavailable("away"), StoreUnavailable("away")]
            on.begin(queue="mails", body=1)
            assert (await on.end()).error is None
            assert len(on.sent.messages) == 1

    async def test_what_can_never_be_sent_has_failed(self) -> None:
        async with stage() as on:
            on.sent.errors = [ConfigError("body has too many bytes")]
            on.begin(queue="mails", body=1)
            assert (await on.end()).error == "body has too many bytes"

    def test_the_longest_key_is_one_that_a_queue_takes(self) -> None:
        job = job_from("j" * 128, every(1), queue="q")
        run = Start(1, job, 221_845_392_000_000, 1, 1, 1, "m" * 32).run
        assert len(f"{'n' * 64}/{run}") <= 256
        assert S3QueuePlugin.slug == "s3-queue"


class TestCommands:
    @pytest.mark.req("SC-1")
    @pytest.mark.req("EF-9")
    async def test_a_command_runs_with_what_it_must_know(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        script = "echo $TENURE_JOB $TENURE_SCHEDULED $TENURE_TOKEN $TENURE_EPOCH > out"
        async with stage() as on:
            on.begin(command=("sh", "-c", script), cwd=str(tmp_path))
            assert (await on.end()).error is None
        assert out.read_text().split() == ["job", "2023-11-14T22:13:20+00:00", "7", "4"]

    async def test_one_that_exits_with_another_code_than_0_has_failed(self) -> None:
        async with stage() as on:
            on.begin(command=("sh", "-c", "exit 3"))
            assert (await on.end()).error == "it exited with 3"
            on.begin(command=("/nowhere/program",))
            assert "was not found" in ((await on.end()).error or "")

    async def test_one_that_this_process_may_not_run_is_not_started(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        async with stage(commands=Commands([("true",)])) as on:
            on.begin(command=("touch", str(mark)), timeout=5)
            assert "is not run: it comes from the bucket" in ((await on.end()).error or "")
            on.begin(command=("true",))
            assert (await on.end()).error is None
        assert not mark.exists()

    async def test_the_name_of_a_job_that_no_caller_could_give_reaches_no_program(self, tmp_path: Path) -> None:
        """It would be in its environment. One that a leader was told to add is checked there; a forged log is not."""
        mark = tmp_path / "mark"
        forged = Job(id="$(x)\n", schedule=every(1), target=CommandTarget(("touch", str(mark))))
        async with stage() as on:
            on.runs.begin(Start(1, forged, SCHEDULED_MS, 7, 4, 1, ""))
            assert "id is " in ((await on.end()).error or "")
        assert not mark.exists()

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="watched by means that Linux has")
    async def test_a_timeout_ends_it(self) -> None:
        async with stage() as on:
            on.begin(command=("sleep", "60"), timeout=0.2)
            assert "longer than its timeout" in ((await on.end()).error or "")
            assert not on.left

    async def test_it_ends_with_the_term(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        async with stage() as on:
            on.begin(command=("sh", "-c", f"echo > {mark}; sleep 60"))
            async with asyncio.timeout(20):
                while not mark.exists():
                    await asyncio.sleep(0.01)
        assert on.runs.count == 0
        assert not on.ends

"""Polling by real processes: every way in which a job can end, and a leader that is killed while one is in flight.

What ran is known from the checks themselves: each appends its job to a file. What became of a job is read from the
bucket, again and again, by a process that takes no part.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.background import BackgroundServer
from lab.process import spawn
from tenure import Database
from tenure.plugins.poll import Failure, Job, JobState, Summary, read_jobs, read_results
from tests.trials import STORES

pytestmark = [pytest.mark.slow, pytest.mark.clock, pytest.mark.req("SV-4")]
PATIENCE = 60.0


class Pollers:
    """Processes of `lab.poller`, and what can be known about them from outside."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.runs = folder / "runs"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ends: dict[str, tuple[JobState, Failure | None, str]] = {}
        """How each job was first seen to have ended."""
        self.changed: list[str] = []

    def command(self, name: str, seconds: float = 0.0, **settings: Any) -> dict[str, Any]:
        script = f"echo $TENURE_JOB_ID >> {self.runs}; sleep {seconds}"
        return {"name": name, "command": ["sh", "-c", script], "every": 2, **settings}

    def start(self, name: str, schedules: list[dict[str, Any]], *options: str) -> subprocess.Popen[bytes]:
        words = [
            sys.executable,
            "-m",
            "lab.poller",
            self.url,
            "--worker-id",
            name,
            "--schedules",
            json.dumps(schedules),
        ]
        self.processes[name] = spawn([*words, *options], self.folder / f"{name}.out", cwd=Path(__file__).parents[2])
        return self.processes[name]

    def said(self, name: str, what: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"{name}.out").read_bytes().split(b"\n")
        said = [json.loads(line) for line in lines if line.startswith(b"{")]
        return [entry for entry in said if entry["said"] == what]

    def leader(self) -> str | None:
        terms = [
            (entry["epoch"], name) for name in self.processes for entry in self.said(name, "leads") if self.alive(name)
        ]
        return max(terms)[1] if terms else None

    def alive(self, name: str) -> bool:
        return self.processes[name].poll() is None

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def all_said(self) -> str:
        return "\n".join(f"{file.name}: {file.read_text()[-1500:]}" for file in sorted(self.folder.glob("*.out")))

    async def freeze_when_registered(self, database: Database, name: str) -> None:
        agents = "plugin=poll/name=default/agents/"
        deadline = time.monotonic() + PATIENCE
        while f"{agents}worker={name}.json" not in [entry.key async for entry in database.store.list(agents)]:
            assert time.monotonic() < deadline, self.all_said()
            await asyncio.sleep(0.005)
        self.processes[name].send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()

    def ran(self) -> Counter[str]:
        return Counter(self.runs.read_text().split()) if self.runs.exists() else Counter()

    async def watch(self, database: Database) -> list[Job]:
        """Every job that is there, and whether one that had ended is another now."""
        jobs = await read_jobs(database)
        for job in jobs:
            if job.state.final:
                end = (job.state, job.failure, job.write_id)
                if self.ends.setdefault(job.id, end) != end:
                    self.changed.append(f"{job.id} was {self.ends[job.id]}, and is {end}")
        return jobs

    async def until(self, database: Database, condition: Callable[[list[Job]], object]) -> list[Job]:
        deadline = time.monotonic() + PATIENCE
        while True:
            jobs = await self.watch(database)
            if condition(jobs):
                return jobs
            assert time.monotonic() < deadline, self.all_said()
            await asyncio.sleep(0.1)

    async def result(self, database: Database, schedule: str, jobs: int = 1) -> Summary:
        """Its results, once so many jobs are counted."""
        deadline = time.monotonic() + PATIENCE
        while True:
            summary = (await read_results(database)).get(schedule)
            if summary is not None and summary.total >= jobs:
                return summary
            assert time.monotonic() < deadline, self.all_said()
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def pollers(url: str, folder: Path) -> AsyncIterator[tuple[Pollers, Database]]:
    fleet = Pollers(url, folder)
    try:
        async with Database(url) as database:
            yield fleet, database
        assert fleet.changed == []
        assert set(fleet.ran().values()) <= {1}, "no check was begun twice"
    finally:
        fleet.stop()


@pytest.fixture
def web() -> Iterator[BackgroundServer]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    server = BackgroundServer(answer)
    server.start()
    yield server
    server.stop()


@STORES
async def test_http_tcp_and_commands_are_run_and_their_results_readable_from_anywhere(
    kind: str, url_of: Callable[[str], str], tmp_path: Path, web: BackgroundServer
) -> None:
    async with pollers(url_of(kind), tmp_path) as (fleet, database):
        schedules: list[dict[str, Any]] = [
            {"name": "web", "http": f"http://127.0.0.1:{web.port}/"},
            {"name": "port", "tcp": ["127.0.0.1", web.port]},
            {"name": "closed", "tcp": ["127.0.0.1", 1]},
            fleet.command("program"),
        ]
        for name in "ab":
            fleet.start(name, schedules)
        for name in ("web", "port", "program"):
            summary = await fleet.result(database, name, jobs=2)
            assert summary.ok >= 1
            assert summary.availability == 1.0
        closed = await fleet.result(database, "closed", jobs=2)
        assert (closed.ok, closed.availability) == (0, 0.0)
        assert closed.last_result is not None
        assert closed.last_result.detail == "cannot connect: Connection refused"
        assert closed.last_state is JobState.COMPLETED, "the check worked, the service does not"
        jobs = await fleet.watch(database)
        text = repr(jobs) + repr(await read_results(database))
        assert "127.0.0.1" not in text, "no URL reaches the bucket"
        assert str(fleet.runs) not in text, "and no command"


@STORES
async def test_each_way_to_fail(kind: str, url_of: Callable[[str], str], tmp_path: Path) -> None:
    async with pollers(url_of(kind), tmp_path) as (fleet, database):
        schedules: list[dict[str, Any]] = [
            {"name": "nobody", "command": ["true"], "partition": "dc9"},
            {"name": "hangs", "command": ["sleep", "60"], "timeout": 1.0},
            {"name": "absent", "command": ["/no/such/program"]},
            {"name": "other", "command": ["true"]},
        ]
        fleet.start("a", schedules, "--only", "lead")
        fleet.start("b", [*schedules[:3], {"name": "other", "command": ["false"]}], "--only", "execute")
        nobody = await fleet.result(database, "nobody")
        assert nobody.last_failure is Failure.NO_WORKER
        hangs = await fleet.result(database, "hangs")
        assert hangs.last_failure is Failure.TIMEOUT
        absent = await fleet.result(database, "absent")
        assert absent.last_failure is Failure.EXECUTION_ERROR
        assert "FileNotFoundError" in absent.last_detail
        other = await fleet.result(database, "other")
        assert other.last_failure is Failure.EXECUTION_ERROR
        assert "defined otherwise" in other.last_detail


@STORES
async def test_a_worker_that_is_killed_while_it_runs_a_check_makes_it_a_timeout(
    kind: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    async with pollers(url_of(kind), tmp_path) as (fleet, database):
        schedules = [fleet.command("long", seconds=30, timeout=3.0)]
        fleet.start("a", schedules, "--only", "lead")
        fleet.start("b", schedules, "--only", "execute")
        await fleet.until(database, lambda jobs: [job for job in jobs if job.state is JobState.RUNNING])
        fleet.kill("b")
        jobs = await fleet.until(database, lambda jobs: [job for job in jobs if job.state.final])
        assert (jobs[0].failure, jobs[0].ended_by, jobs[0].result) == (Failure.TIMEOUT, "leader", None)


@STORES
@pytest.mark.parametrize("state", ["dispatching", "running"])
async def test_a_job_in_flight_when_the_leader_is_killed_ends_once(
    kind: str, state: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    async with pollers(url_of(kind), tmp_path) as (fleet, database):
        schedules = [fleet.command("long", seconds=12, timeout=30.0), fleet.command("quick")]
        fleet.start("a", schedules, "--only", "lead")
        while fleet.leader() is None:
            await asyncio.sleep(0.1)
        fleet.start("b", schedules)
        worker = fleet.start("c", schedules, "--only", "execute")
        if state == "dispatching":
            # As soon as they are registered: they have not seen yet what is dispatched to them.
            await asyncio.gather(*(fleet.freeze_when_registered(database, name) for name in ("b", "c")))
        jobs = await fleet.until(
            database, lambda jobs: [job for job in jobs if job.state.value == state and job.schedule == "long"]
        )
        job = next(job for job in jobs if job.schedule == "long")
        fleet.kill("a")
        if state == "dispatching":
            os.kill(worker.pid, signal.SIGCONT)
            fleet.processes["b"].send_signal(signal.SIGCONT)
        await fleet.until(database, lambda _: job.id in fleet.ends)
        assert fleet.leader() == "b" or fleet.ends[job.id][0] is JobState.COMPLETED
        if state == "running":
            assert fleet.ends[job.id][0] is JobState.COMPLETED, "its worker lives: it is finished"
        await fleet.until(database, lambda jobs: fleet.leader() == "b" and max(each.epoch for each in jobs) >= 2)
        await fleet.result(database, "quick", jobs=3)
        assert fleet.ran()[job.id] <= 1
        for number in range(1, job.number):
            assert f"long-{number:010d}" in fleet.ends

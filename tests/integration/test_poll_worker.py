"""Polling in one process, on a store in memory: static assignment, stopping, and two processes with one id."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from typing import cast

import pytest

from tenure import Database
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.lead import Lead
from tenure.plugins.poll import (
    CommandCheck,
    Failure,
    JobState,
    PollOrchestrator,
    PollSchedule,
    PollWorker,
    read_jobs,
    read_results,
)
from tenure.plugins.supervisor.child import Context
from tests.support.lease import ScriptedLease
from tests.support.waiting import eventually

_numbers = itertools.count(1)


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    async with Database(f"memory://poll-{os.getpid()}-{next(_numbers)}") as database:
        yield database


@contextlib.asynccontextmanager
async def static(database: Database, *schedules: PollSchedule) -> AsyncIterator[PollOrchestrator]:
    """Nobody is elected: this node was told to lead."""
    orchestrator = PollOrchestrator(schedules, tick=0.05)
    context = Context(
        name="poll", token=1, node="a", database=database, coordinator=None, lead=None, clock=SYSTEM_CLOCK
    )
    await orchestrator.start(context)
    try:
        yield orchestrator
    finally:
        await orchestrator.stop()
        await orchestrator.stop()  # twice is once


def worker(database: Database, *schedules: PollSchedule, name: str = "a") -> PollWorker:
    return PollWorker(
        database, None, schedules, worker_id=name, poll_interval=0.05, registration_interval=0.5, drain_timeout=0.1
    )


@pytest.mark.req("SV-4")
async def test_under_static_assignment_there_are_no_epochs_and_checks_are_run_all_the_same(database: Database) -> None:
    schedule = PollSchedule("true", CommandCheck("true"), every=1)
    executing = worker(database, schedule)
    await executing.start()
    async with static(database, schedule) as orchestrator:
        seen: list[object] = []
        orchestrator.on("plg:poll:job-completed", seen.append)
        await eventually(lambda: len(seen) >= 2)
        assert orchestrator.status().completed >= 2
        assert orchestrator.status().agents == 1
    await executing.stop()
    results = await read_results(database)
    assert results["true"].ok >= 2
    jobs = await read_jobs(database, schedule="true")
    assert [job.number for job in jobs] == list(range(1, len(jobs) + 1))
    assert {job.epoch for job in jobs} == {0}
    tokens = [job.token for job in jobs if job.token]
    assert tokens == sorted(set(tokens))
    assert [entry.key async for entry in database.store.list("plugin=poll/name=default/agents/")] == [], "it has left"


async def test_nothing_is_written_once_the_leadership_is_over(database: Database) -> None:
    schedule = PollSchedule("true", CommandCheck("true"), every=1)
    lead = ScriptedLease(7)
    orchestrator = PollOrchestrator([schedule], tick=0.05, dispatch_within=0.2)
    context = Context(
        name="poll",
        token=1,
        node="a",
        database=database,
        coordinator=None,
        lead=cast(Lead, lead),
        clock=SYSTEM_CLOCK,
    )
    await orchestrator.start(context)
    ended = asyncio.create_task(orchestrator.wait())
    await eventually(lambda: orchestrator.status().failed >= 2)  # nobody executes
    jobs = await read_jobs(database)
    assert {job.epoch for job in jobs} == {7}
    lead.valid = False
    before = [(entry.key, entry.version) async for entry in database.store.list("plugin=poll/")]
    await asyncio.sleep(2.5)
    assert [(entry.key, entry.version) async for entry in database.store.list("plugin=poll/")] == before
    assert not ended.done(), "it has not failed: there is nothing to start again"
    await orchestrator.stop()
    await ended


async def test_a_worker_that_is_stopped_says_what_became_of_its_check(database: Database) -> None:
    schedule = PollSchedule("long", CommandCheck("sleep", "60"), every=1, timeout=60)
    executing = worker(database, schedule)
    await executing.start()
    async with static(database, schedule):
        await eventually(lambda: executing.status().running)
        await executing.stop()
        jobs = await read_jobs(database)
        assert (jobs[0].state, jobs[0].failure) == (JobState.FAILED, Failure.EXECUTION_ERROR)
        assert "was stopped" in jobs[0].detail


async def test_of_two_processes_with_one_id_the_newer_executes(database: Database) -> None:
    schedule = PollSchedule("true", CommandCheck("true"), every=1)
    older, newer = worker(database, schedule), worker(database, schedule)
    await older.start()
    await newer.start()
    await eventually(lambda: older.status().replaced)
    async with static(database, schedule) as orchestrator:
        await eventually(lambda: orchestrator.status().completed)
    assert newer.status().executed >= 1
    assert older.status().executed == 0
    await older.stop()
    keys = [entry.key async for entry in database.store.list("plugin=poll/name=default/agents/")]
    assert len(keys) == 1, "the record is the newer one's"
    await newer.stop()


async def test_a_record_that_was_removed_is_written_again(database: Database) -> None:
    schedule = PollSchedule("true", CommandCheck("true"), every=1)
    executing = worker(database, schedule)
    await executing.start()
    await database.store.delete("plugin=poll/name=default/agents/worker=a.json")
    async with static(database, schedule) as orchestrator:
        await eventually(lambda: orchestrator.status().completed)
    await executing.stop()
    await executing.start()
    assert executing.status().registered
    await executing.stop()

"""More than one entry may hold: what was given at once, what was due before a change, what ended together."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.plugins.scheduler import clerk as clerk_module
from tenure.plugins.scheduler.job import at, every
from tenure.plugins.scheduler.records import Outcome
from tenure.plugins.scheduler.wire import Command
from tests.unit.schedule_rig import Rig
from tests.unit.schedules import Desk, declared, new_registry
from tests.unit.test_schedule_clerk import moment

HOUR = 3600.0
SMALL = 20_000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clerk_module, "MAX_EVENT_BYTES", SMALL, raising=False)
    monkeypatch.setattr(clerk_module, "MAX_ENDED_BYTES", SMALL // 4, raising=False)


def largest(desk: Desk) -> int:
    return max(len(msgspec.json.encode(work)) for work in desk.works)


def again(desk: Desk, *commands: Command) -> int:
    """Give them, and again while they are refused; gives how often that was."""
    for times in range(1, 100):
        before = len(desk.refused())
        desk.give(*commands)
        desk.tick()
        if len(desk.refused()) == before:
            return times
        assert "give it again" in desk.refused()[-1]
    raise AssertionError("there is no end to it")


def test_updates_of_large_jobs_that_are_given_at_once() -> None:
    desk = Desk(audited=False)
    for number in range(540):
        desk.add(f"j{number}", every(86_400), queue="q", body="a" * 64_000)
        if number % 100 == 99:
            desk.settle()
    desk.settle()
    desk.works.clear()
    desk.give(*(Command("update", f"j{number}", changes={"enabled": False}) for number in range(540)))
    desk.tick()
    assert largest(desk) < MAX_ENTRY_BYTES * 0.75
    followed = [job for job, state in desk.machine.jobs.items() if not state.job.enabled]
    assert followed == [f"j{number}" for number in range(len(followed))], "in order, up to where there was room"
    assert 200 < len(followed) < 540
    (reason,) = desk.refused()
    assert "give it again" in reason
    desk.works.clear()
    updates = [Command("update", f"j{number}", changes={"enabled": False}) for number in range(540)]
    assert again(desk, *updates) <= 3
    assert not any(state.job.enabled for state in desk.machine.jobs.values())
    assert largest(desk) < MAX_ENTRY_BYTES * 0.75


@pytest.mark.usefixtures("small")
def test_many_small_commands_that_are_refused() -> None:
    desk = Desk()
    for _ in range(5):
        desk.give(*(Command("remove", "nobody") for _ in range(1000)))
    desk.tick()
    assert largest(desk) < 1.1 * SMALL


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("id", ["", "job1"])
def test_a_pause_after_an_outage(known: bool, id: str) -> None:
    """The desk's auditor sees that every instant is decided once, in order, and before the pause."""
    desk = Desk()
    for number in range(4):
        desk.add(f"job{number}", every(1), misfire_grace=HOUR, jitter=5)
    desk.settle()
    desk.wait(HOUR / 2)
    if not known:
        desk.new_leader(functions=())
    assert again(desk, Command("pause", id)) > 1
    desk.settle()
    assert largest(desk) < 10 * SMALL, "2,000 decisions are made in any entry"
    assert desk.machine.paused if not id else desk.machine.jobs[id].paused
    assert desk.auditor.decided["job1"] == HOUR / 2


@pytest.mark.usefixtures("small")
def test_what_fires_in_the_place_of_others_is_decided_with_them() -> None:
    desk = Desk()
    for number in range(300):
        desk.add(f"job{number}", every(1), misfire="fire-all", catch_up=3, overlap="allow", misfire_grace=1)
    desk.settle()
    while any(f"job{number}" not in desk.machine.jobs for number in range(300)):
        for number in range(300):
            if f"job{number}" not in desk.machine.jobs:
                desk.add(f"job{number}", every(1), misfire="fire-all", catch_up=3, overlap="allow", misfire_grace=1)
        desk.settle()
    desk.wait(600)
    desk.works.clear()
    assert again(desk, Command("pause")) > 1
    for number in range(300):
        assert desk.outcomes(f"job{number}").count("fired") in (4, 5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("op", ["remove", "update", "add"])
def test_another_change_after_an_outage(op: str) -> None:
    desk = Desk()
    desk.add("job", every(1), misfire_grace=HOUR)
    desk.settle()
    desk.new_leader(functions=())
    desk.wait(HOUR / 2)
    job = msgspec.Raw(msgspec.json.encode(declared("job", every(7))))
    more: dict[str, Any] = {"update": {"changes": {"enabled": False}}, "add": {"job": job, "replace": True}}.get(op, {})
    assert again(desk, Command(op, "job", **more)) > 1
    assert largest(desk) < 1.1 * SMALL
    assert desk.auditor.decided["job"] == HOUR / 2


@pytest.mark.usefixtures("small")
def test_a_job_that_the_code_changes_after_an_outage() -> None:
    desk = Desk()
    desk.new_leader(jobs=[declared("job", every(1), misfire_grace=HOUR)])
    desk.settle()
    desk.works.clear()
    desk.wait(HOUR / 2)
    desk.new_leader(jobs=[declared("job", every(10), misfire_grace=HOUR)], functions=["work"])
    desk.settle()
    assert largest(desk) < 10 * SMALL
    assert desk.machine.jobs["job"].job.schedule == every(10)
    assert desk.auditor.decided["job"] == HOUR / 2


@pytest.mark.usefixtures("small")
def test_runs_that_fail_together() -> None:
    desk = Desk()
    for number in range(50):
        desk.add(f"job{number}", at(moment(1)))
    desk.settle()
    desk.wait(1)
    desk.settle()
    desk.works.clear()
    desk.finish(error="\0" * 1000)
    while desk.clerk.has_ends:
        desk.tick()
    assert largest(desk) < SMALL
    records = [desk.machine.records_of(f"job{number}")[0] for number in range(50)]
    assert {record.outcome for record in records} == {Outcome.FAILED}


@pytest.mark.usefixtures("small")
def test_each_caller_is_told() -> None:
    with Rig() as rig:
        leader = rig.lead(new_registry(["work"]))
        caller = rig.caller()
        taken: list[bool] = []

        async def one(number: int) -> None:
            job = declared(f"job{number}", every(3600), payload="x" * 1000)
            answer = await caller.calls.give(Command("add", job.id, msgspec.Raw(msgspec.json.encode(job))), 30.0)
            assert (answer is None) == (job.id in leader.machine.jobs)
            assert answer is None or "give it again" in answer
            taken.append(answer is None)

        async def script() -> None:
            await asyncio.gather(*(one(number) for number in range(60)))

        rig.at(2.0, caller.host, script)
        rig.run(60.0)
        assert len(taken) == 60
        assert 10 < sum(taken) < 30
        assert leader.leading.halted is None

"""Waiting for what a leader decides on a command."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tenure.errors import RequestNotAnswered, StoreError
from tenure.ledger import LogEntry, Receipt
from tenure.plugins.scheduler import calls
from tenure.plugins.scheduler.records import Refused, Work
from tenure.plugins.scheduler.wire import Command
from tests.support.store import ANY, Request
from tests.unit.schedule_rig import FOLDER, Rig
from tests.unit.schedules import new_registry


@pytest.mark.parametrize(
    ("verb", "words"),
    [("create", "may have been written, or may be still"), ("", "was not given to anybody: the store did not answer")],
)
def test_a_store_that_does_not_answer_holds_up_nobody_for_longer_than_within(verb: str, words: str) -> None:
    """And what is told is what is known: once the store answers, what was given is followed, by those after it too."""
    with Rig() as rig:
        leader = rig.lead(new_registry(["work"]))
        caller = rig.caller()
        took: list[float] = []
        held = True

        async def hold(request: Request) -> StoreError | None:
            while held and request.verb.startswith(verb):
                await caller.host.clock.sleep(0.1)
            return None

        async def script() -> None:
            nonlocal held
            began = rig.world.now
            await caller.give(Command("pause"), 5.0)
            took.append(rig.world.now - began)
            held = False
            await caller.give(Command("run-now", "nobody"), 30.0)

        caller.producer._store.inner.always(ANY, ANY, hold)  # type: ignore[attr-defined]
        rig.at(2.0, caller.host, script)
        rig.run(90.0)
        assert took[0] < 6
        first, second = caller.answers
        assert isinstance(first, RequestNotAnswered)
        assert words in str(first)
        assert "no job 'nobody'" in str(second)
        assert leader.machine.paused == bool(verb)
        assert [key for key in rig.bucket.keys(FOLDER) if "/inbox/" in key] == []


@pytest.mark.parametrize("is_slow", [False, True])
def test_who_waits_for_no_decision_has_it_written_all_the_same(is_slow: bool) -> None:
    """It was given up before it was sent."""
    with Rig() as rig:
        leader = rig.lead(new_registry(["work"]))
        caller = rig.caller()

        async def hold(request: Request) -> StoreError | None:
            await caller.host.clock.sleep(3.0 if is_slow else 0.0)
            return None

        caller.producer._store.inner.always(ANY, ANY, hold)  # type: ignore[attr-defined]
        rig.at(2.0, caller.host, lambda: caller.give(Command("pause"), 0.0))
        rig.run(60.0)
        (answer,) = caller.answers
        assert isinstance(answer, RequestNotAnswered)
        assert "it is written down, and will be decided on" in str(answer)
        assert leader.machine.paused


async def test_what_was_folded_before_its_caller_knew_is_remembered_of_the_last_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy process always has somebody who waits: what it remembers is bounded, and is what came last."""
    monkeypatch.setattr(calls, "_MOST_EARLY", 4)
    with Rig() as rig:
        caller = rig.caller()
        uid = f"{caller.producer.owner}-1"
        monkeypatch.setattr(type(caller.producer), "uid", uid)
        for number in range(1, 20):
            events = msgspec.json.encode(Work("w", (Refused(uid, number, 0, f"no {number}"),)))
            entry = LogEntry(
                write_id="w", seq=number, epoch=1, time_ms=0, folded={uid: [number]}, events=msgspec.Raw(events)
            )
            caller.calls._read(entry)
        assert len(caller.calls._early) == 4
        async with asyncio.timeout(1.0):
            assert await caller.calls._answer(Receipt(uid, 19, 0)) == "no 19"

"""The released version and the present one run at once on one bucket: leases, a lock and a supervised child.

Never two lead, hold the lock, or run the child; epochs and tokens rise; leadership moves both ways: by an end, by a
transfer that either asks for, and by SIGKILL. Members note a hundred times a second what they believe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from .test_released import WHEELS
from .versions import BEATS, PRESENT, Member, Stay, beats, stays, unpacked

SCRIPT = (
    """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import tenure
from tenure import Child, CoordinatorCandidate, CoordinatorConfig, Database
from tenure.plugins.supervisor import read_status
"""
    + BEATS
    + """
def say(**what):
    print(json.dumps(what), flush=True)

async def main(url, name, folder):
    config = CoordinatorConfig.fast(startup_jitter_max=0, min_epoch_duration=0)
    beats = Beats(folder, name)

    async def lead_on(service):
        async for lead in service.terms():
            async with lead:
                await lead.put("fenced", name.encode())
                while lead.is_current():
                    beats.note("lead", lead.epoch, lead.is_current)
                    await asyncio.sleep(0.01)

    async def hold(db):
        while True:
            async with db.lock("door", ttl=2) as held:
                for _ in range(5):
                    beats.note("lock", held.token, lambda: held.is_held)
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)

    async def child(context):
        while True:
            beats.note("child", context.token, lambda: True)
            await asyncio.sleep(0.01)

    async with Database(url, worker_id=name) as db:
        service = await db.get_global_coordinator("default", config=config)
        service.on("lease:damaged", lambda event: say(damaged=event.reason))
        await service.start()
        await db.use_plugin(CoordinatorCandidate([Child("child", child)], config=config))
        say(file=tenure.__file__)
        tasks = [asyncio.create_task(lead_on(service)), asyncio.create_task(hold(db))]
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            what, _, more = line.decode().strip().partition(" ")
            if what == "leader":
                say(leader=await service.get_leader())
            elif what == "transfer":
                await service.transfer(more, force=True)
                say(transfer=more)
            elif what == "runs":
                status = await read_status(db.store, "coordinator")
                running = status is not None and any(each.state.value == "running" for each in status.children)
                say(runs=status.node if running else None)
            for task in tasks:
                if task.done():
                    task.result()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

asyncio.run(main(*sys.argv[2:]))
"""
)


def test_two_at_once_and_numbers_that_fall_are_found() -> None:
    sound = ["lead 1 10 a", "lead 1 20 a", "lock 1 15 b", "lead 2 30 b", "lead 2 40 b", "lead 3 50 a"]
    assert [(stay.number, stay.name) for stay in stays(sound, "lead")] == [(1, "a"), (2, "b"), (3, "a")]
    for wrong, why in [
        ("lead 2 15 b", "two at once"),
        ("lead 1 15 b", "two at once"),
        ("lead 3 35 c", "two at once"),
        ("lead 1 25 b", "do not rise"),
        ("lead 2 60 c", "do not rise"),
    ]:
        with pytest.raises(AssertionError, match=why):
            stays([*sound, wrong], "lead")


@pytest.mark.slow
@pytest.mark.req("EF-1", "SV-2")
@pytest.mark.parametrize("kind", ["directory", "ministack"])
@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.name.split("-")[1])
async def test_never_two_of_anything(wheel: Path, kind: str, url_of: Callable[[str], str], tmp_path: Path) -> None:
    older, folder, url = unpacked(wheel, tmp_path / "older"), tmp_path / "beats", url_of(kind)
    folder.mkdir()
    members: list[Member] = []

    async def start(version: Path, name: str) -> Member:
        members.append(await Member.start(SCRIPT, version, url, name, str(folder)))
        return members[-1]

    async def both_work() -> None:
        """The child runs, as both see it, and both want the lock."""
        for member in (old1, new1):
            await member.until_it_says("runs", "old-1")
        await asyncio.sleep(1.0)

    try:
        old1 = await start(older, "old-1")
        await old1.leads()
        new1 = await start(PRESENT, "new-1")
        await both_work()
        await old1.ask("transfer", "new-1")
        await new1.leads()
        await both_work()
        await new1.ask("transfer", "old-1")
        await old1.leads()
        await both_work()
        old1.kill()
        await new1.leads()
        await new1.until_it_says("runs", "new-1")
        old2 = await start(older, "old-2")
        await asyncio.sleep(1.0)
        new1.kill()
        await old2.leads()
        await old2.until_it_says("runs", "old-2")
        new2 = await start(PRESENT, "new-2")
        await new2.until_it_says("runs", "old-2")
        await old2.stop()
        await new2.leads()
        await new2.until_it_says("runs", "new-2")
        await new2.stop()
        for member in members:
            assert not [said for said in member.said if "damaged" in said]
    finally:
        for member in members:
            member.kill()

    said = list(beats(folder))
    leads, locks, children = (stays(said, what) for what in ("lead", "lock", "child"))
    moves = {("old-1", "new-1"), ("new-1", "old-2"), ("old-2", "new-2")}
    assert moves | {("new-1", "old-1")} <= successions(leads)
    assert moves <= successions(children)
    assert {("old-1", "new-1"), ("new-1", "old-1"), ("old-2", "new-2")} <= successions(locks), "it goes to and fro"


def successions(found: list[Stay]) -> set[tuple[str, str]]:
    return {(one.name, other.name) for one, other in pairwise(found)}

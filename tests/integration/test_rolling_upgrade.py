"""Two versions run at once on one bucket, and the leader moves from the older to the newer one and back.

Messages, occurrences, amounts and records that expire survive each move, and are exact; a supervised child moves along,
and never runs twice; neither version refuses what the other wrote. What the newer one makes of a command that lies in
the bucket, a failed run, the older one reads as that. So with results, failed callbacks, log entries and the status of
children, which say their version now and did not before.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .versions import BEATS, FIXTURES, PATIENCE, PRESENT, Member, beats, stays, unpacked

OLDER = next((FIXTURES / "unreleased").glob("tenure-*.whl"))
EACH = 10
Occurrence = tuple[int, str | None]
"""When it was due, and its run."""

SCRIPT = (
    """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import tenure
from tenure import Child, CoordinatorCandidate, CoordinatorConfig, Database
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin, every
from tenure.plugins.supervisor import read_status
from tenure.plugins.ttl import TTLPlugin
"""
    + BEATS
    + """
def say(**what):
    print(json.dumps(what), flush=True)

async def main(url, name, folder, each):
    config = CoordinatorConfig.fast(startup_jitter_max=0)
    async with Database(url, worker_id=name) as db:
        queue = S3QueuePlugin("mail", config=config, tick_interval=0.3, poll_interval=0.3, result_retention=3600)
        schedule = SchedulerPlugin(config=config)
        counters = EventualConsistencyPlugin("pages", ["views"], config=config, interval=0.5)
        beats = Beats(folder, name)

        async def expired(record):
            say(expired=record.id, by=name)
            if record.data["n"] == 0:
                raise ValueError("no")

        ttl = TTLPlugin("sessions", ttl=2, tick=0.3, callback=expired, max_attempts=1, config=config)

        async def child(context):
            while True:
                beats.note("child", context.token, lambda: True)
                await asyncio.sleep(0.01)

        @queue.handler
        async def handle(message):
            say(handled=message.body["n"], by=name)
            return {"did": message.body["n"]}

        @schedule.job(every(1), id="beat")
        def beat():
            pass

        await db.use_plugin(queue, "mail")
        await db.use_plugin(schedule, "nightly")
        await db.use_plugin(counters, "pages")
        await db.use_plugin(ttl)
        await db.use_plugin(CoordinatorCandidate([Child("child", child)], config=config))
        service = await db.get_global_coordinator("default")
        for plugin in (queue, schedule, counters, ttl):
            plugin.on(f"plg:{plugin.slug}:halted", lambda event: say(halted=event.event.reason))
        service.on("lease:damaged", lambda event: say(damaged=event.reason))
        say(file=tenure.__file__)
        if name == "old-1":
            await schedule.add("stored", every(1), command=("true",), history=1000, wait=False)
        for n in range(each):
            id = await queue.enqueue({"n": f"{name}-{n}"})
            await counters.add("front", "views", 1)
            await db.resource("sessions").insert({"n": n}, id=f"{name}-{n}")
        say(sent=each, last=id)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            what, _, more = line.decode().strip().partition(" ")
            if what == "leader":
                say(leader=await service.get_leader(), epoch=service.get_epoch())
            elif what == "views":
                say(views=await counters.get("front", "views", consistent=True))
            elif what == "history":
                say(history=[[each.scheduled_ms, each.run] for each in await schedule.history("beat", 1000)])
            elif what == "stored":
                say(stored=[[each.worker, each.outcome, each.error] for each in await schedule.history("stored", 1000)
                            if each.state == "done" and each.outcome in ("fired", "failed")])
            elif what == "result":
                say(result=await queue.result(more, timeout=60))
            elif what == "failed":
                say(failed=sorted(each.id for each in await ttl.failed()))
            elif what == "left":
                say(left=len((await db.resource("sessions").list()).records))
            elif what == "runs":
                status = await read_status(db.store, "coordinator")
                running = status is not None and any(each.state.value == "running" for each in status.children)
                say(runs=status.node if running else None)
            else:
                break

asyncio.run(main(*sys.argv[2:5], int(sys.argv[5])))
"""
)


async def decides_after(member: Member, known: list[Occurrence]) -> list[Occurrence]:
    """All occurrences, once one more was decided than those before."""
    async with asyncio.timeout(PATIENCE):
        while len(history := [(due, run) for due, run in await member.ask("history")]) <= len(known):
            await asyncio.sleep(0.2)
        return history


async def has_seen_to(member: Member, what: str) -> None:
    """A job has runs that were seen to by this process."""
    async with asyncio.timeout(PATIENCE):
        while member.name not in {worker for worker, *_ in await member.ask(what)}:
            await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.req("EF-1", "SQ-1", "SC-2", "EC-2", "TT-2", "SV-2")
async def test_the_leader_moves_from_the_older_to_the_newer_version_and_back(tmp_path: Path) -> None:
    older, url, folder = unpacked(OLDER, tmp_path / "older"), f"file://{tmp_path / 'store'}", tmp_path / "beats"
    folder.mkdir()
    members: list[Member] = []
    history: list[Occurrence] = []
    names = ["old-1", "new-1", "old-2", "new-2"]
    try:
        for before, (version, name) in enumerate(zip([older, PRESENT, older, PRESENT], names, strict=True)):
            members.append(member := await Member.start(SCRIPT, version, url, name, str(folder), str(EACH)))
            sent = await member.until("sent")
            if before:
                failed = sorted(f"{each}-0" for each in names[: before + 1])
                for reader in members[-2:]:  # what the one before decided, which leads
                    await reader.until_it_says("runs", names[before - 1])
                    await reader.until_it_says("failed", failed)
                    assert await reader.ask("result", sent["last"]) == {"did": f"{name}-{EACH - 1}"}
                await members[-2].stop()
            await member.leads()
            decided, history = history, await decides_after(member, history)
            assert set(decided) <= set(history), "what the other version decided stays decided"
            assert len({due for due, _ in history}) == len(history), "each occurrence is decided once"
            await has_seen_to(member, "stored")
        last = members[-1]
        wanted = {f"{name}-{n}" for name in names for n in range(EACH)}
        async with asyncio.timeout(60):
            while wanted - (handled := _all_of(members, "handled")):
                await asyncio.sleep(0.2)
        assert handled == wanted
        assert await last.ask("views") == 4 * EACH
        await last.until_it_says("left", 0)
        assert _all_of(members, "expired") == wanted
        for worker, outcome, error in await last.ask("stored"):
            is_refused = "it comes from the bucket" in error
            assert (outcome == "failed") == is_refused == worker.startswith("new-"), (worker, outcome, error)
        await last.until_it_says("runs", last.name)
        await last.stop()
        for member in members:
            assert not [said for said in member.said if "halted" in said or "damaged" in said]
    finally:
        for member in members:
            member.kill()
    assert [stay.name for stay in stays(beats(folder), "child")] == names


def _all_of(members: list[Member], what: str) -> set[str]:
    return {said[what] for member in members for said in member.said if what in said}

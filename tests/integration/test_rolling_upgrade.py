"""Two versions run at once on one bucket, and the leader moves from the older to the newer one and back.

Messages, occurrences and amounts survive each move, and are exact; neither version refuses what the other wrote. What
the newer one makes of a command that lies in the bucket, a failed run, the older one reads as that.
"""

from __future__ import annotations

import asyncio
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tenure

OLDER = next((Path(__file__).parents[1] / "fixtures" / "unreleased").glob("tenure-*.whl"))
PRESENT = Path(tenure.__file__).parents[1]
EACH = 10
Occurrence = tuple[int, str | None]
"""When it was due, and its run."""

SCRIPT = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import tenure
from tenure import CoordinatorConfig, Database
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin, every

def say(**what):
    print(json.dumps(what), flush=True)

async def main(url, name, each):
    config = CoordinatorConfig.fast(startup_jitter_max=0)
    async with Database(url, worker_id=name) as db:
        queue = S3QueuePlugin("mail", config=config, tick_interval=0.3, poll_interval=0.3)
        schedule = SchedulerPlugin(config=config)
        counters = EventualConsistencyPlugin("pages", ["views"], config=config, interval=0.5)

        @queue.handler
        async def handle(message):
            say(handled=message.body["n"], by=name)

        @schedule.job(every(1), id="beat")
        def beat():
            pass

        await db.use_plugin(queue, "mail")
        await db.use_plugin(schedule, "nightly")
        await db.use_plugin(counters, "pages")
        service = await db.get_global_coordinator("default")
        for plugin in (queue, schedule, counters):
            plugin.on(f"plg:{plugin.slug}:halted", lambda event: say(halted=event.event.reason))
        service.on("lease:damaged", lambda event: say(damaged=event.reason))
        say(file=tenure.__file__)
        if name == "old-1":
            await schedule.add("stored", every(1), command=("true",), history=1000, wait=False)
        for n in range(each):
            await queue.enqueue({"n": f"{name}-{n}"})
            await counters.add("front", "views", 1)
        say(sent=each)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            what = line.decode().strip()
            if what == "leader":
                say(leader=await service.get_leader(), epoch=service.get_epoch())
            elif what == "views":
                say(views=await counters.get("front", "views", consistent=True))
            elif what == "history":
                say(history=[[each.scheduled_ms, each.run] for each in await schedule.history("beat", 1000)])
            elif what == "stored":
                say(stored=[[each.worker, each.outcome, each.error] for each in await schedule.history("stored", 1000)
                            if each.state == "done" and each.outcome in ("fired", "failed")])
            else:
                break

asyncio.run(main(sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


class Member:
    """One process of one version."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, version: Path, url: str, name: str) -> Member:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SCRIPT, str(version), url, name, str(EACH),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        member = cls(process)
        where = await member.until("file")
        assert where["file"].startswith(str(version)), "the other version ran"
        return member

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.said.append(json.loads(line))

    async def until(self, what: str, since: int = 0) -> dict[str, Any]:
        async with asyncio.timeout(90):
            while True:
                for said in self.said[since:]:
                    if what in said:
                        return said
                assert self._process.returncode is None, "it has ended"
                await asyncio.sleep(0.05)

    async def ask(self, what: str) -> Any:
        since = len(self.said)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n".encode())
        return (await self.until(what, since))[what]

    async def leads(self, name: str) -> None:
        async with asyncio.timeout(90):
            while await self.ask("leader") != name:
                await asyncio.sleep(0.2)

    async def decides_after(self, known: list[Occurrence]) -> list[Occurrence]:
        """All occurrences, once one more was decided than those before."""
        async with asyncio.timeout(90):
            while len(history := [(due, run) for due, run in await self.ask("history")]) <= len(known):
                await asyncio.sleep(0.2)
            return history

    async def has_seen_to(self, what: str, name: str) -> None:
        """A job has runs that were seen to by this process."""
        async with asyncio.timeout(90):
            while name not in {worker for worker, *_ in await self.ask(what)}:
                await asyncio.sleep(0.2)

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(60):
            assert await self._process.wait() == 0
            await self._reading

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


@pytest.mark.slow
@pytest.mark.req("EF-1", "SQ-1", "SC-2", "EC-2")
async def test_the_leader_moves_from_the_older_to_the_newer_version_and_back(tmp_path: Path) -> None:
    with zipfile.ZipFile(OLDER) as wheel:
        wheel.extractall(tmp_path / "older")
    url, older = f"file://{tmp_path / 'store'}", tmp_path / "older"
    members: list[Member] = []
    history: list[Occurrence] = []
    try:
        for before, (version, name) in enumerate(
            [(older, "old-1"), (PRESENT, "new-1"), (older, "old-2"), (PRESENT, "new-2")]
        ):
            members.append(await Member.start(version, url, name))
            await members[-1].until("sent")
            if before:
                await members[-2].stop()
            await members[-1].leads(name)
            decided, history = history, await members[-1].decides_after(history)
            assert set(decided) <= set(history), "what the other version decided stays decided"
            assert len({due for due, _ in history}) == len(history), "each occurrence is decided once"
            await members[-1].has_seen_to("stored", name)
        last = members[-1]
        wanted = {f"{name}-{n}" for name in ("old-1", "new-1", "old-2", "new-2") for n in range(EACH)}
        async with asyncio.timeout(60):
            while wanted - (handled := _handled(members)):
                await asyncio.sleep(0.2)
        assert handled == wanted
        assert await last.ask("views") == 4 * EACH
        for worker, outcome, error in await last.ask("stored"):
            is_refused = "it comes from the bucket" in error
            assert (outcome == "failed") == is_refused == worker.startswith("new-"), (worker, outcome, error)
        await last.stop()
        for member in members:
            assert not [said for said in member.said if "halted" in said or "damaged" in said]
    finally:
        for member in members:
            member.kill()


def _handled(members: list[Member]) -> set[str]:
    return {said["handled"] for member in members for said in member.said if "handled" in said}

"""Three acts: processes that count together, one that is killed in the middle of a write, and the doctor's verdict."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.demo.writer import KEY, Counter
from tenure.doctor import Report, examine
from tenure.store import Store, Stored, open_store

PROCESSES = 4
COUNTS_EACH = 50
KILLS = 10


class Result(msgspec.Struct, frozen=True):
    """What was counted."""

    acknowledged: int
    counted: int
    kills: int
    acknowledged_before_kills: int
    lost_by_kills: int
    doctor: Report

    @property
    def right(self) -> bool:
        return self.acknowledged == self.counted and self.lost_by_kills == 0 and self.doctor.fit is True


Say = Callable[[str], None]


async def tell(directory: Path, say: Say, clock: Clock = SYSTEM_CLOCK) -> Result:
    url = directory.as_uri()
    async with open_store(url) as store:
        acknowledged, counted = await _count_together(url, store, say)
        before, lost = await _kill_writers(url, store, say, clock)
    say("3. The doctor: is this directory fit to elect a leader on?")
    report = await examine(url)
    won = sum(race.winners for race in report.races.values())
    rounds = sum(race.rounds for race in report.races.values())
    say(f"   {won} of {rounds} races between {PROCESSES} processes had exactly one winner.")
    say(f"   Its verdict: {'fit' if report.fit else 'NOT fit'}.")
    return Result(acknowledged, counted, KILLS, before, lost, report)


async def _count_together(url: str, store: Store, say: Say) -> tuple[int, int]:
    say(f"1. {PROCESSES} processes count one object up, {COUNTS_EACH} times each, all at once, without a lock.")
    await store.put(KEY, msgspec.json.encode(Counter(value=0, write_ids=[])))
    acknowledged = sum(await asyncio.gather(*(_acknowledged(url, COUNTS_EACH) for _ in range(PROCESSES))))
    counted = (await _read(store)).value
    say(f"   {acknowledged} steps acknowledged, and the object says {counted}.")
    return acknowledged, counted


async def _kill_writers(url: str, store: Store, say: Say, clock: Clock) -> tuple[int, int]:
    say(f"2. {KILLS} writers are killed (SIGKILL) while they write.")
    total = lost = 0
    for number in range(KILLS):
        process = await _start(url, 1_000_000)
        assert process.stdout is not None
        last = int(await process.stdout.readline())
        await clock.sleep(0.003 * (number + 1))
        process.kill()
        rest = (await process.stdout.read()).split()
        await process.wait()
        last = int(rest[-1]) if rest else last
        total += 1 + len(rest)
        lost += max(0, last - (await _read(store)).value)
    say(f"   {total} steps acknowledged before they died, {lost} lost.")
    return total, lost


async def _acknowledged(url: str, count: int) -> int:
    process = await _start(url, count)
    output, _ = await process.communicate()
    return len(output.split())


async def _start(url: str, count: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure.demo.writer", url, str(count)), stdout=asyncio.subprocess.PIPE
    )


async def _read(store: Store) -> Counter:
    stored = await store.get(KEY)
    assert isinstance(stored, Stored)
    return msgspec.json.decode(stored.body, type=Counter)

"""A process that writes to a directory is killed again and again, each time at another instant of its work."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from lab.doomed_writer import TASKS, keys_of, number_of
from tenure.errors import NotFound
from tenure.store import Applied, Store, Stored, open_store
from tenure.store.directory.layout import LOCKS, TEMPORARY

ROOT = Path(__file__).resolve().parents[2]
LONGEST_LIFE = 0.08


class Doomed:
    """The process that forks writers, and what they said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.known: dict[str, int | None] = {}
        """The number of the last acknowledged body of each key; None: deleted."""
        self.in_doubt: dict[str, tuple[str, int]] = {}
        """The one write of each key that was begun and not acknowledged."""
        self.acknowledged = 0

    async def live_and_die(self, seed: int, seconds: float) -> str:
        """Let a writer live for so long after its birth; the verb it was about when it died, for the record."""
        self._process.stdin.write(b"%d\n" % seed)
        word, pid = (await self._hear()).split()
        assert word == "writer"
        await asyncio.sleep(seconds)
        os.kill(int(pid), signal.SIGKILL)
        begun: dict[str, str] = {}
        while True:
            word, *rest = (await self._hear()).split()
            if word == "gone":
                return ",".join(sorted(verb for verb in begun.values() if verb)) or "nothing"
            task, key, verb, number = rest
            if word == "try":
                begun[task] = verb
                self.in_doubt[key] = (verb, int(number))
            else:
                assert self.in_doubt.pop(key) == (verb, int(number))
                self.known[key] = None if verb == "delete" else int(number)
                begun[task] = ""
                self.acknowledged += 1

    async def judge(self, store: Store) -> None:
        """What is stored is what was last acknowledged, or what was begun after it, whole."""
        for key in (key for task in range(TASKS) for key in keys_of(task)):
            try:
                found = await store.get(key)
                assert isinstance(found, Stored)
                stored = number_of(found.body)
            except NotFound:
                stored = None
            allowed = {self.known.get(key)}
            if doubt := self.in_doubt.pop(key, None):
                allowed.add(None if doubt[0] == "delete" else doubt[1])
            assert stored in allowed, f"{key} holds {stored}, and should hold one of {allowed}"
            self.known[key] = stored

    async def _hear(self) -> str:
        async with asyncio.timeout(30):
            line = await self._process.stdout.readline()
        assert line, "the forking process ended"
        return line.decode()


@pytest.fixture
async def doomed(tmp_path: Path) -> AsyncIterator[Doomed]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lab.doomed_writer", str(tmp_path / "store")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    yield Doomed(process)
    process.stdin.close()
    try:
        async with asyncio.timeout(10):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("kills", [50, pytest.param(200, marks=pytest.mark.trials)])
@pytest.mark.slow
async def test_kills_tear_lose_and_block_nothing(kills: int, doomed: Doomed, tmp_path: Path) -> None:
    root, dice = tmp_path / "store", Random(kills)
    about: Counter[str] = Counter()
    left_behind = 0
    started = time.monotonic()
    async with open_store(root.as_uri()) as store:  # opened once: it neither sweeps nor waits, only reads
        for seed in range(1, kills + 1):
            about[await doomed.live_and_die(seed, dice.uniform(0, LONGEST_LIFE))] += 1
            left_behind += any((root / TEMPORARY).iterdir())
            await doomed.judge(store)
    elapsed = time.monotonic() - started
    print(
        f"\n{kills} kills in {elapsed:.1f} s, {doomed.acknowledged} acknowledged writes, {left_behind} kills left "
        f"temporary files behind; killed while about: {dict(about.most_common(8))}"
    )
    assert doomed.acknowledged >= kills, "the writers hardly wrote"
    assert left_behind >= kills // 20, "hardly a kill came in the middle of a write"
    assert kills - about["nothing"] >= kills // 4, "hardly a kill came in the middle of a write"

    assert [path.name for path in (root / LOCKS).iterdir() if not path.name.endswith(".0")] == [], (
        "a lock was stuck: somebody had to pass it by"
    )
    async with open_store(root.as_uri()) as store:
        assert list((root / TEMPORARY).iterdir()) == [], "opening did not sweep"
        await doomed.judge(store)
        listed = {entry.key async for entry in store.list()}
        assert listed == {key for key, number in doomed.known.items() if number is not None}


async def test_after_a_kill_a_fresh_process_writes_at_once(doomed: Doomed, tmp_path: Path) -> None:
    url, dice = (tmp_path / "store").as_uri(), Random(5)
    waits = []
    for seed in range(1, 11):
        await doomed.live_and_die(seed, dice.uniform(0.03, LONGEST_LIFE))
        started = time.monotonic()
        async with open_store(url) as store:
            for key in (key for task in range(TASKS) for key in keys_of(task)):
                await store.put(key, b"0 0 0 ")
            assert isinstance(await store.replace(key, b"1 0 0 ", (await store.get(key)).version), Applied)
        waits.append(time.monotonic() - started)
    # A stuck lock would cost a second each time, a loaded machine now and then.
    assert sorted(waits)[len(waits) // 2] < 1.0, waits

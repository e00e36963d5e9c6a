"""Counting up one object from many sides at once: what was acknowledged is there, and is there once.

The figures that each test prints (`pytest -s`) are what the stores did on this machine.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from lab.endpoint import S3Endpoint
from lab.fault_proxy import FaultProxy
from lab.faults import status_after_apply
from lab.http1 import Request
from lab.incrementer import Tally, Task, count_up, prepare, total
from tenure.store import Applied, Outcome, Prefixed, Rejected, Store, open_store
from tenure.store.cloud.store import CloudStore
from tenure.store.races import RaceKind, RaceReport, race
from tenure.store.url import parse_url

ROOT = Path(__file__).resolve().parents[2]
PROCESSES, WRITERS_EACH = 4, 4
WRITERS = PROCESSES * WRITERS_EACH
START_SECONDS = 60


def check(tally: Tally, final: int) -> None:
    """Each acknowledged increment counted up to a value of its own, and together they are all there is."""
    assert tally.unknown == 0, f"{tally.unknown} increments could not be settled"
    assert sorted(tally.values) == list(range(1, final + 1)), "an increment was lost, or counted twice"
    assert final == tally.applied


def report(what: str, tally: Tally) -> None:
    print(
        f"\n{what}: {tally.applied} increments in {tally.elapsed:.1f} s ({tally.applied / tally.elapsed:.0f}/s), "
        f"{tally.settled} of them settled, {tally.rejected} rejected"
    )


def is_conditional_write(request: Request) -> bool:
    return request.method == "PUT" and bool(request.header("if-match") or request.header("if-none-match"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ministack", pytest.param("ceph", marks=[pytest.mark.servers, pytest.mark.trials])])
async def test_a_thousand_increments_with_every_second_answer_lost(
    kind: str, url_of: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    endpoint = request.getfixturevalue(kind)
    proxy = FaultProxy(endpoint.url)
    by_proxy = endpoint.store_url("tests", parse_url(url_of(kind)).prefix.rstrip("/"), endpoint=proxy.start())
    shares = (334, 333, 333)
    try:
        async with open_store(by_proxy, timeout=20) as store:
            await prepare(store)
            rule = proxy.every(2, status_after_apply(500), is_conditional_write)
            tally, started = Tally(), time.monotonic()
            await asyncio.gather(
                *(count_up(store, f"w{n}", tally, at_most=share, dice=Random(n)) for n, share in enumerate(shares))
            )
            tally.elapsed = time.monotonic() - started
            proxy.clear()
            final = await total(store)
    finally:
        proxy.stop()
    report(f"{kind}, 500 after every second write ({rule.hits} times)", tally)
    assert final == 1000
    check(tally, final)
    assert rule.hits >= 400, "the fault did not happen"
    assert tally.settled >= 100, "no write was saved by settling it: the fault hit losers alone"


@pytest.mark.parametrize("seconds", [2.0, pytest.param(10.0, marks=pytest.mark.trials)])
async def test_sixteen_writers_in_one_process_on_memory(seconds: float) -> None:
    async with open_store("memory://") as store:
        await prepare(store)
        tally, started = Tally(), time.monotonic()
        await asyncio.gather(*(count_up(store, f"w{n}", tally, until=started + seconds) for n in range(WRITERS)))
        tally.elapsed = time.monotonic() - started
        report("memory, 16 tasks", tally)
        check(tally, await total(store))
        assert tally.rejected, "nobody was ever in anybody's way"


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("directory", 2.0),
        ("ministack", 2.0),
        *(pytest.param(kind, 2.0, marks=pytest.mark.servers) for kind in ("ceph", "azurite")),
        *(
            pytest.param(kind, 10.0, marks=[pytest.mark.servers, pytest.mark.trials])
            for kind in ("directory", "ministack", "ceph", "azurite")
        ),
    ],
)
async def test_sixteen_writers_in_four_processes(kind: str, seconds: float, url_of: Callable[[str], str]) -> None:
    url = url_of(kind)
    async with open_store(url, timeout=20) as store:
        await prepare(store)
        tally = await _count_up_in_processes(Task(url, WRITERS_EACH, seconds))
        report(f"{kind}, {PROCESSES} processes with {WRITERS_EACH} writers each", tally)
        check(tally, await total(store))
        assert tally.rejected, "nobody was ever in anybody's way"


async def _count_up_in_processes(task: Task) -> Tally:
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lab.incrementer"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            limit=64 * 1024 * 1024,
        )
        for _ in range(PROCESSES)
    ]
    tally = Tally()
    try:
        async with asyncio.timeout(START_SECONDS + 4 * task.seconds):
            for process in processes:
                process.stdin.write(msgspec.json.encode(task) + b"\n")
            for process in processes:
                assert await process.stdout.readline() == b"ready\n"
            for process in processes:
                process.stdin.write(b"go\n")
            for process in processes:
                tally.add(msgspec.json.decode(await process.stdout.readline(), type=Tally))
    finally:
        for process in processes:
            if process.returncode is None:
                try:
                    process.kill()
                except ProcessLookupError:
                    pass
            await process.communicate()
    return tally


async def test_a_store_that_checks_and_then_writes_is_found_out(racy: S3Endpoint) -> None:
    """That the tests here pass means something only because they fail where increments do get lost."""
    url = racy.store_url("bucket", "increments")
    async with open_store(url, timeout=20) as store:
        await prepare(store)
        tally, until = Tally(), time.monotonic() + 1
        await asyncio.gather(*(count_up(store, f"w{n}", tally, until=until) for n in range(8)))
        assert await total(store) < tally.applied
        result = await race(parse_url(url), RaceKind.CREATE, rounds=5, processes=2, store=store)
        assert result.violations
        assert "were told that they won" in result.violations[0]


RACED = [
    ("directory", 4, 1.0),
    ("ministack", 2, 1.0),  # a process less to share two cores with: the server is one itself
    *(pytest.param(kind, 4, 0.2, marks=pytest.mark.servers) for kind in ("ceph", "azurite")),
    *(
        pytest.param(kind, 4, 1.0, marks=[pytest.mark.servers, pytest.mark.trials])
        for kind in ("ministack", "ceph", "azurite")
    ),
]
"""Which store, by how many processes, and what part of the races."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "processes", "part"), RACED)
async def test_create_races_have_one_winner_each(
    kind: str, processes: int, part: float, url_of: Callable[[str], str]
) -> None:
    rounds = round(500 * part)
    result = await _race(url_of(kind), RaceKind.CREATE, rounds, processes)
    assert result.violations == ()
    assert result.winners == rounds
    assert result.undecided == 0


async def test_five_hundred_create_races_on_memory_have_one_winner_each() -> None:
    dice, winning = Random(500), set()

    async def contend(store: Store, key: str, writer: int) -> Outcome:
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
        return await store.create(key, b"%d" % writer)

    async with open_store("memory://") as store:
        for number in range(500):
            key = f"race/{number}"
            outcomes = await asyncio.gather(*(contend(store, key, writer) for writer in range(WRITERS)))
            (winner,) = [writer for writer, outcome in enumerate(outcomes) if isinstance(outcome, Applied)]
            assert sum(isinstance(outcome, Rejected) for outcome in outcomes) == WRITERS - 1
            assert (await store.get(key)).body == b"%d" % winner
            winning.add(winner)
    assert len(winning) > 1, "the races were decided before they began"


@pytest.mark.parametrize(("kind", "processes", "part"), RACED)
async def test_replace_races_have_one_winner_each(
    kind: str, processes: int, part: float, url_of: Callable[[str], str]
) -> None:
    rounds = round(100 * part)
    result = await _race(url_of(kind), RaceKind.REPLACE, rounds, processes)
    assert result.violations == ()
    assert result.winners + result.undecided == rounds
    # Ceph answers some losers 500; that *all* of a round lose happens where a server gives up on everyone at once.
    assert result.undecided <= 5


async def _race(url: str, kind: RaceKind, rounds: int, processes: int) -> RaceReport:
    async with open_store(url, timeout=20) as store:
        dialect: dict[str, object] | None = None
        if isinstance(store, Prefixed):
            assert isinstance(store.inner, CloudStore)
            dialect = msgspec.structs.asdict(store.inner.dialect)
        started = time.monotonic()
        result = await race(parse_url(url), kind, rounds=rounds, processes=processes, dialect=dialect, store=store)
        elapsed = time.monotonic() - started
        print(
            f"\n{store.info.provider} {kind.value}: {rounds} races of {result.contenders} in {elapsed:.1f} s, "
            f"{result.winners} with one winner, {result.unknown} answers unknown, {result.undecided} undecided"
        )
        assert [entry.key async for entry in store.list("tenure-race/")] == []
    return result

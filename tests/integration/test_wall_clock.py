"""The wall clock of one process is a day off, or leaps: leadership does not depend on it, except to end early.

libfaketime fakes the wall clock of a process. FAKETIME_DONT_FAKE_MONOTONIC keeps it from every other clock, BOOTTIME
among them, by which the logs are judged; NO_FAKE_STAT leaves the times of files alone, as those of a bucket would be.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.judge import Verdict

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
LEASE = 3.0
DAY = 86_400

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.clock]

CLOCKS = """
import ctypes, json, time
libc = ctypes.CDLL(None)
class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]
def kernel(clock):
    found = Timespec()
    assert libc.syscall(ctypes.c_long({number}), ctypes.c_long(clock), ctypes.byref(found)) == 0
    return found.seconds + found.nanoseconds / 1e9
names = ("CLOCK_REALTIME", "CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME")
print(json.dumps({{name: time.clock_gettime(getattr(time, name)) - kernel(getattr(time, name)) for name in names}}))
"""
CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}


def faked(offset: str) -> dict[str, str]:
    """The environment of a process whose wall clock is off by `offset`."""
    if not LIBRARIES:
        pytest.fail("not installed: libfaketime; run tools/install-servers, or: apt-get install libfaketime")
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


@pytest.fixture
async def cluster(url_of: Callable[[str], str], tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(url_of("directory"), tmp_path)
    yield cluster
    cluster.stop()


@pytest.mark.parametrize(("offset", "seconds"), [("+1d", DAY), ("-1d", -DAY)])
def test_only_the_wall_clock_is_faked(offset: str, seconds: float) -> None:
    """Else the logs would prove nothing: what the C library says is compared with what the kernel says."""
    program = CLOCKS.format(number=CLOCK_GETTIME[os.uname().machine])
    environment = {**os.environ, **faked(offset)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, timeout=30)
    off = json.loads(ran.stdout)
    assert off.pop("CLOCK_REALTIME") == pytest.approx(seconds, abs=0.5)
    assert off == pytest.approx(dict.fromkeys(off, 0.0), abs=0.5)
    assert "CLOCK_BOOTTIME" in off


@pytest.mark.req("EL-15")
@pytest.mark.parametrize("offset", ["+1d", "-1d"])
@pytest.mark.parametrize("odd", ["ada", *(pytest.param(name, marks=pytest.mark.trials) for name in ("ben", "cyd"))])
async def test_a_worker_whose_wall_clock_is_a_day_off_changes_nothing(cluster: Cluster, odd: str, offset: str) -> None:
    """As the leader that is killed in the end, or as one of its followers: one leader at a time, in good time."""
    for name in ("ada", "ben", "cyd"):
        cluster.start(name, env=faked(offset) if name == odd else None)
    leader = await cluster.settled()
    await asyncio.sleep(3 * LEASE)
    assert cluster.leaders() == [leader], "leadership changed without a reason"
    killed_ns = cluster.kill(leader)
    second = await cluster.settled()
    await asyncio.sleep(2 * LEASE)
    assert cluster.leaders() == [second]
    verdict = cluster.verdict([killed_ns])
    _check(verdict, terms=2)
    (reaction,) = verdict.reactions
    assert reaction.seconds is not None
    assert reaction.seconds <= LEASE * 1.05 + 1.5


@pytest.mark.req("EL-15")
@pytest.mark.parametrize(("leap", "ends_term"), [("+1d", True), ("-1d", False)])
async def test_the_leaders_wall_clock_leaps(cluster: Cluster, tmp_path: Path, leap: str, ends_term: bool) -> None:
    """Forward looks like a pause that no other clock counted, and ends the term. Back neither ends nor extends it."""
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    env = {**faked("+0"), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_CACHE_DURATION": "1"}
    del env["FAKETIME"]
    leader = cluster.start("ada", env=env)
    assert await cluster.settled() is leader
    cluster.start("ben")
    await cluster.settled()
    await asyncio.sleep(LEASE)
    offset.write_text(f"{leap}\n")
    await asyncio.sleep(3 * LEASE)
    leader = await cluster.settled()
    verdict = cluster.verdict()
    _check(verdict, terms=2 if ends_term else 1)
    if ends_term:
        cluster.kill(leader)
        await cluster.settled()  # the election goes on as ever afterwards
        _check(cluster.verdict(), terms=3)


def _check(verdict: Verdict, terms: int) -> None:
    assert verdict.violations == []
    assert len(verdict.terms) == terms, f"other terms than expected: {verdict.terms}"
    assert verdict.median_silence < 0.05

"""SIGTERM and SIGINT release the lease of a library program that has no handler of its own: SX-6."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tenure import Database, blocking, until_terminated
from tenure.errors import ConfigError
from tests.support.command import environment
from tests.support.waiting import eventually

ASYNC = """
import asyncio, signal, sys
import tenure

async def main(url):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    db = tenure.Database(url, worker_id="w1")
    async with tenure.until_terminated(db) as ended:
        coordinator = await db.get_global_coordinator(config=CONFIG)
        await coordinator.start()
        async with coordinator.leadership():
            print("leads", flush=True)
            await BODY
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    print("ended by", ended.signal and ended.signal.name, flush=True)

CONFIG = tenure.CoordinatorConfig(startup_jitter_max=0)
asyncio.run(main(sys.argv[1]))
print("goes on", flush=True)
"""
BLOCKING = """
import signal, sys, time
import tenure, tenure.blocking

db = tenure.blocking.Database(sys.argv[1], worker_id="w1")
before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
with tenure.blocking.until_terminated(db) as ended:
    coordinator = db.get_global_coordinator(config=tenure.CoordinatorConfig(startup_jitter_max=0))
    coordinator.start()
    for leader in coordinator.terms():
        with leader:
            print("leads", flush=True)
            BODY
assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
print("ended by", ended.signal and ended.signal.name, flush=True)
print("goes on", flush=True)
"""
PROGRAMS = {
    "async": ASYNC.replace("BODY", "asyncio.sleep(60)"),
    "blocking": BLOCKING.replace("BODY", "time.sleep(60)"),
    "waiting": BLOCKING.replace("BODY", "leader.sleep(60)"),
}
BOTH = pytest.mark.parametrize("kind", ["async", "blocking"])


def started(program: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", program, (folder / "store").as_uri()]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment({}))
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line == "leads\n", child.communicate()
    return child


def leader_of(folder: Path) -> str | None:
    (state,) = (folder / "store").rglob("state.json")
    leader = json.loads(state.read_text())["leaderId"]
    assert leader is None or isinstance(leader, str)
    return leader


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_signal_ends_the_block_and_releases_the_lease(kind: str, number: signal.Signals, tmp_path: Path) -> None:
    child = started(PROGRAMS[kind], tmp_path)
    assert leader_of(tmp_path) == "w1"
    child.send_signal(number)
    child.send_signal(number)  # as GNU timeout does
    out, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (0, "")
    assert out == f"ended by {number.name}\ngoes on\n"
    assert leader_of(tmp_path) is None


@BOTH
def test_a_body_that_ends_by_itself_releases_the_lease(kind: str, tmp_path: Path) -> None:
    program = {"async": ASYNC.replace("BODY", "asyncio.sleep(0)"), "blocking": BLOCKING.replace("BODY", "break")}[kind]
    child = started(program, tmp_path)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (0, "ended by None\ngoes on\n", "")
    assert leader_of(tmp_path) is None


@BOTH
def test_what_the_body_raises_is_raised(kind: str, tmp_path: Path) -> None:
    program = {"async": ASYNC.replace("await BODY", "1 / 0"), "blocking": BLOCKING.replace("BODY", "1 / 0")}[kind]
    child = started(program, tmp_path)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (1, "")
    assert "ZeroDivisionError" in err
    assert leader_of(tmp_path) is None


async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    stubborn = ASYNC.replace("await BODY", "await stubborn()").replace(
        "async def main",
        "async def stubborn():\n"
        "    while True:\n"
        "        try:\n"
        "            await asyncio.sleep(60)\n"
        "        except asyncio.CancelledError:\n"
        "            print('stays', flush=True)\n\n"
        "async def main",
    )
    child = started(stubborn, tmp_path)
    child.send_signal(signal.SIGTERM)
    assert child.stdout is not None
    assert child.stdout.readline() == "stays\n"

    def is_over() -> bool:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGTERM)
        return child.poll() is not None

    await eventually(is_over)
    child.communicate()
    assert child.returncode == -signal.SIGTERM


def test_signals_are_for_the_main_thread() -> None:
    def use() -> None:
        with (
            pytest.raises(ConfigError, match="main thread only"),
            blocking.until_terminated(blocking.Database("memory://")),
        ):
            raise AssertionError

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()


def test_the_other_kind_of_database_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tenure.blocking.until_terminated"):
        until_terminated(blocking.Database("memory://"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"in an async program use tenure.until_terminated"):
        blocking.until_terminated(Database("memory://"))  # type: ignore[arg-type]

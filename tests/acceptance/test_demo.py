"""`tenure demo`: the whole story with real processes, what it leaves behind, and how it ends when it is cut short."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from tenure.store import Access, open_store
from tenure.store.url import parse_url
from tests.support.command import Run, tenure_process
from tests.support.waiting import eventually_here

COMMAND = [sys.executable, "-m", "tenure", "demo"]
IN_TIME = 30.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def check(run: Run) -> None:
    result = run.json()
    assert run.code == 0, run.err
    assert result["right"] is True
    assert result["two_leaders_observed"] == 0
    assert result["leader_changes"] >= 3
    assert len(result["failover_seconds"]) == 3
    after_kill, after_freeze, _ = result["failover_seconds"]
    # A renewal is at most a heartbeat old, and nobody may lead before the lease has run out.
    assert min(after_kill, after_freeze) > 1.0
    epochs = [result["elected"]["epoch"], *(change["epoch"] for change in result["changes"])]
    assert epochs == sorted(set(epochs))
    assert set(epochs) <= set(result["epochs"])
    assert result["reports"] > 300
    assert result["work"]["done"] >= 30
    assert result["work"]["written"] == result["work"]["done"] + result["work"]["in_doubt_written"]
    assert result["thaw"]["refused"] >= 1
    assert result["thaw"]["landed"] == result["thaw"]["believed"] == 0
    assert result["audit"]["ok"] is True
    assert result["doctor"]["fit"] is True
    assert result["queue"]["taken"] >= 30
    assert result["queue"]["handled"] >= result["queue"]["taken"]
    assert result["queue"]["lost"] == result["queue"]["left"] == result["queue"]["dead"] == 0
    assert result["schedule"]["fired"] >= 5
    assert result["schedule"]["missing"] == result["schedule"]["fired_twice"] == 0
    assert result["counter"]["total"] == result["counter"]["amount"] + result["counter"]["in_doubt_counted"]
    assert result["counter"]["counted"] == result["queue"]["handled"]
    assert {verdict["about"] for verdict in result["verdicts"]} == {
        *("leaders", "failover", "work", "thaw", "audit", "doctor"),
        *("queue", "schedule", "counter"),
    }
    assert all(verdict["ok"] for verdict in result["verdicts"])


@pytest.mark.slow
def test_the_story_for_scripts_on_a_directory_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    run = tenure_process("demo", "--json", "--store", tmp_path.as_uri())
    check(run)
    assert run.json()["store"].startswith(f"{tmp_path.as_uri()}/tenure-demo-")
    for sentence in (
        "Three processes, ada, ben, cyd, want to lead",
        "is killed (SIGKILL)",
        "is frozen (SIGSTOP)",
        "its write was refused",
        "is asked to stop (SIGTERM)",
        "none lost, none done twice",
        "They also keep a shop",
        "and all handled: 0 lost",
        "fired, none twice",
        "acknowledged prices, once",
    ):
        assert sentence in run.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.trials
def test_the_story_on_a_bucket(url_of: Callable[[str], str]) -> None:
    url = url_of("ministack")
    secret = parse_url(url).options["secret_access_key"]
    run = tenure_process("demo", "--json", "--store", url)
    check(run)
    assert secret not in run.out + run.err
    assert "All that they share is a bucket" in run.err
    assert asyncio.run(_keys(url)) == []


async def _keys(url: str) -> list[str]:
    async with open_store(url, access=Access.READ_ONLY) as store:
        return [entry.key async for entry in store.list()]


def test_a_store_that_cannot_do_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url in ("memory://", "ftp://somewhere", f"file://{tmp_path}/file"):
        run = tenure_process("demo", "--store", url)
        assert run.code == 2, run.out + run.err
        assert len(run.err.strip().splitlines()) == 1
        assert run.out == ""


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """Before anything is begun."""
    (tmp_path / "starlette").mkdir()
    (tmp_path / "starlette" / "__init__.py").write_text("raise ImportError('not here')")
    run = tenure_process("demo", "--dashboard", PYTHONPATH=str(tmp_path))
    assert run.code == 2
    assert run.out == ""
    assert len(run.err.strip().splitlines()) == 1
    assert "pip install 'tenure[dashboard]'" in run.err


@linux
@pytest.mark.slow
def test_the_story_in_a_browser_goes_on_until_it_is_ended(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(
        [*COMMAND, "--dashboard"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert demo.stdout is not None
    told = ""
    while "Ctrl-C ends it" not in told:
        line = demo.stdout.readline()
        assert line, demo.communicate()
        told += line
        if "want to lead" in line:  # from the beginning
            found = re.search(r"on (http://127\.0\.0\.1:\d+/)\n.*token, (\w{32})\n", told)
            assert found is not None
            address, token = found.groups()
            assert _asked(address + "healthz") is not None
    assert told.count(address) == told.count(token) == 2
    assert "All is right" in told
    # Those who go on have a leader in a moment.
    eventually_here(lambda: _asked(address + "api/snapshot")["lease"]["leader"] in ("eva", "fin", "gus"))
    snapshot = _asked(address + "api/snapshot")
    assert snapshot["meta"]["namespace"] == "demo"
    assert [queue["name"] for queue in snapshot["queues"]["rows"]] == ["orders"]
    assert [job["id"] for job in snapshot["schedules"]["rows"]] == ["tick"]
    assert [counter["name"] for counter in snapshot["counters"]["rows"]] == ["shop"]
    started = _children(demo.pid)
    assert len(started) == 3
    demo.send_signal(signal.SIGINT)
    _, complaint = demo.communicate(timeout=IN_TIME)
    assert demo.returncode == 0, complaint
    assert complaint == ""
    assert {_state(pid) for pid in started} == {"gone"}
    assert list(tmp_path.iterdir()) == []


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=IN_TIME) as answer:
        return json.loads(answer.read())


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state(pid: int) -> str:
    """The letter of /proc; Z is for those whom nobody has buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def _with_a_frozen_leader(home: Path, *options: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    demo = subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(home)}
    )
    assert demo.stdout is not None
    while b"is frozen (SIGSTOP)" not in (line := demo.stdout.readline()):
        assert line, demo.communicate()
    eventually_here(lambda: "T" in map(_state, _children(demo.pid)))
    started = _children(demo.pid)
    assert len(started) == 3
    return demo, started


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGINT, ()),
        pytest.param(signal.SIGTERM, (), marks=pytest.mark.trials),
        pytest.param(signal.SIGHUP, (), marks=pytest.mark.trials),
        pytest.param(signal.SIGTERM, ("--dashboard",), marks=pytest.mark.trials),
    ],
)
def test_a_demo_that_is_stopped_ends_the_frozen_too(
    tmp_path: Path, number: signal.Signals, options: tuple[str, ...]
) -> None:
    demo, started = _with_a_frozen_leader(tmp_path, *options)
    demo.send_signal(number)
    demo.communicate(timeout=IN_TIME)
    assert demo.returncode == 130
    assert {_state(pid) for pid in started} == {"gone"}
    assert list(tmp_path.iterdir()) == []


@linux
@pytest.mark.slow
def test_a_demo_that_is_killed_takes_its_processes_with_it(tmp_path: Path) -> None:
    """The frozen one hears nothing of a broken pipe."""
    demo, started = _with_a_frozen_leader(tmp_path)
    demo.kill()
    demo.communicate(timeout=IN_TIME)
    eventually_here(lambda: {_state(pid) for pid in started} <= {"gone", "Z"})


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), pytest.param(120, 40, marks=pytest.mark.trials)])
def test_the_story_on_a_terminal(tmp_path: Path, columns: int, rows: int) -> None:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "TMPDIR": str(tmp_path)}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    demo = subprocess.Popen(COMMAND, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True)
    os.close(theirs)
    text = _read_all(ours).decode()
    assert demo.wait(IN_TIME) == 0, text[-3000:]
    for seen in ("tenure demo", "standing by", "frozen", "killed", "█", "░", "never two of them said at once"):
        assert seen in text
    assert "All is right" in text
    assert "demo --dashboard" in text
    # The cursor that was hidden is back.
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") >= 0
    assert list(tmp_path.iterdir()) == []


def _read_all(terminal: int) -> bytes:
    text = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            more = os.read(terminal, 65536)
        except OSError:  # whoever wrote there has gone
            break
        if not more:
            break
        text += more
    os.close(terminal)
    return text

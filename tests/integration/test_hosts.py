"""The same behaviour wherever Python runs: a plain thread, uvloop, a notebook, gunicorn.

One process leads, epochs rise, and no two work at the same time, judged by stamps of CLOCK_BOOTTIME, which all
processes of a machine share.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.hosted import CONFIG, KEY
from lab.judge import judge_logs
from lab.process import free_port, spawn, stop, wait_for_http
from tenure import RequestRefused, blocking
from tests.support.waiting import eventually_here

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.clock
HOSTS = ("thread", "script", "uvloop", "cell", "async-cell")
PATIENCE = 40.0
WORKERS = 4


def spans(folder: Path) -> list[tuple[int, int, int, str]]:
    """(begin, end, epoch, worker) of every body; one that a kill cut short ends when it began."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for path in folder.glob("*.spans"):
        for line in path.read_text().splitlines():
            epoch, began, *ended = map(int, line.split())
            found[path.stem, epoch] = (began, ended[0] if ended else began)
    return sorted((*span, epoch, worker) for (worker, epoch), span in found.items())


def misfits(found: list[tuple[int, int, int, str]]) -> list[str]:
    """Bodies that ran at the same time, and epochs that did not rise."""
    wrong = []
    for before, after in itertools.pairwise(found):
        if before[1] > after[0]:
            wrong.append(f"{before} and {after} overlap")
        if before[2] >= after[2]:
            wrong.append(f"{after} has no higher epoch than {before}")
    return wrong


def test_misfits_would_be_noticed() -> None:
    assert misfits([(1, 4, 1, "a"), (4, 9, 2, "b")]) == []
    assert len(misfits([(1, 5, 1, "a"), (4, 9, 2, "b")])) == 1
    assert len(misfits([(1, 4, 2, "a"), (4, 9, 2, "b")])) == 1


@pytest.mark.slow
@pytest.mark.req("EL-15")
def test_one_fleet_of_every_host(tmp_path: Path) -> None:
    """Each is given the lead in turn; then the one that leads is killed, and another goes on."""
    url, folder = (tmp_path / "bucket").as_uri(), tmp_path / "notes"
    folder.mkdir()
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for host in HOSTS:
            command = [sys.executable, "-W", "error", "-m", "lab.hosted", host, url]
            command += ["--worker-id", host, "--folder", str(folder)]
            processes[host] = spawn(command, tmp_path / f"{host}.out", cwd=ROOT)

        def said() -> str:
            return "\n".join(f"{host}: {(tmp_path / f'{host}.out').read_text()}" for host in HOSTS)

        with blocking.Database(url, worker_id="test") as database:
            fleet = database.get_global_coordinator(config=CONFIG)  # it asks, and takes no part
            eventually_here(lambda: set(HOSTS) <= set(fleet.get_active_workers(fresh=True)), said)
            first = fleet.get_leader(fresh=True)
            order = sorted(HOSTS, key=lambda host: host == first)
            for host in order:
                hand_to(fleet, host, said)
                eventually_here(lambda host=host: written_by(database) == host, said)  # type: ignore[misc]
            last = order[-1]
            processes[last].kill()
            processes[last].wait()
            killed = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            eventually_here(lambda: written_by(database) not in (None, last), said)
        for host, process in processes.items():
            if host != last:
                process.send_signal(signal.SIGTERM)
        for host, process in processes.items():
            if host != last:
                assert process.wait(PATIENCE) == 0, said()
        assert "Error" not in said(), said()
        found = spans(folder)
        assert misfits(found) == []
        assert {worker for *_, worker in found} == set(HOSTS)
        assert any(began > killed for began, *_ in found)
        verdict = judge_logs(sorted(folder.glob("*.log")))
        assert verdict.violations == []
        assert len(verdict.processes) == len(HOSTS)
    finally:
        for process in processes.values():
            stop(process)


def hand_to(fleet: blocking.Coordinator, host: str, said: Callable[[], object]) -> None:
    """One that has just been elected, or has just left, may not come to it at the first request."""

    def leads() -> bool:
        if fleet.get_leader(fresh=True) == host:
            return True
        try:
            return fleet.transfer(host, force=True, timeout=PATIENCE).leader == host
        except RequestRefused:
            return False

    eventually_here(leads, said)


def written_by(database: blocking.Database) -> str | None:
    found = database.read_fenced(KEY)
    return None if found is None or found.body is None else found.body.decode()


@pytest.mark.slow
@pytest.mark.parametrize("preload", [pytest.param(False, marks=pytest.mark.trials), True], ids=["", "preload"])
def test_gunicorn(preload: bool, tmp_path: Path) -> None:
    """One of four workers leads. It is killed: another leads, and the worker that gunicorn starts instead joins."""
    folder = tmp_path / "notes"
    folder.mkdir()
    with _gunicorn((tmp_path / "bucket").as_uri(), folder, preload) as (ask, said):

        def answers() -> dict[int, dict[str, Any]]:
            """Of all workers: which of them gets a request is up to the kernel."""
            found: dict[int, dict[str, Any]] = {}
            deadline = time.monotonic() + PATIENCE
            while len(found) < WORKERS:
                assert time.monotonic() < deadline, said()
                answer = ask()
                found[answer["pid"]] = answer
            return found

        def leaders() -> list[int]:
            return [pid for pid, answer in answers().items() if answer["leads"]]

        eventually_here(lambda: len(leaders()) == 1, said)
        if preload:
            every = answers().values()
            assert {answer["early"] for answer in every} == {"ForkedProcess"}, every
            assert {answer["early_leads"] for answer in every} == {False}
            assert {answer["forked"] for answer in every} == {True}
        (first,) = leaders()
        os.kill(first, signal.SIGKILL)
        eventually_here(lambda: any(pid != first for pid in leaders()), said)
        assert first not in answers()
        eventually_here(lambda: len(list(folder.glob("*.log"))) == WORKERS + 1, said)
    found = spans(folder)
    assert misfits(found) == []
    assert {worker for *_, worker in found} > {f"web-{first}"}
    verdict = judge_logs(sorted(folder.glob("*.log")))
    assert verdict.violations == []
    assert "Traceback" not in said(), said()


@contextmanager
def _gunicorn(
    url: str, folder: Path, preload: bool
) -> Iterator[tuple[Callable[[], dict[str, Any]], Callable[[], str]]]:
    port, log = free_port(), folder / "gunicorn.out"
    command = [
        *(sys.executable, "-m", "gunicorn", "-c", "lab/webworker.py", "--workers", str(WORKERS)),
        *("--no-control-socket", "--bind", f"127.0.0.1:{port}", "--worker-tmp-dir", str(folder)),
        *(["--preload"] if preload else []),
        "lab.webworker:application",
    ]
    env = {"LAB_URL": url, "LAB_FOLDER": str(folder), "LAB_PRELOAD": str(int(preload))}
    process = spawn(command, log, env, cwd=ROOT)
    address = f"http://127.0.0.1:{port}"

    def ask() -> dict[str, Any]:
        for _ in range(20):
            try:
                with urllib.request.urlopen(address, timeout=10) as answer:
                    found: dict[str, Any] = json.load(answer)
                return found
            except OSError:
                time.sleep(0.05)  # the worker that had this connection was killed
        raise AssertionError(log.read_text())

    try:
        wait_for_http(address, process, log)
        yield ask, log.read_text
    finally:
        stop(process, 20)

"""A leader that forks is still one leader: its children inherit all of its memory, and must not believe it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.forking import SECONDS, Childhood
from lab.judge import Verdict, judge_logs
from lab.process import free_port, spawn, stop, wait_for_http
from tests.trials import STORES

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 4

pytestmark = pytest.mark.slow


def check_one_leader(verdict: Verdict, leader: str) -> None:
    """One process answered true, without a break, and the others not once."""
    assert verdict.violations == []
    assert {term.process.split(":")[0] for term in verdict.terms} == {leader}
    assert len(verdict.terms) == 1, f"{leader} led under several epochs: {verdict.terms}"


@pytest.mark.req("EL-21")
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("fork", "ministack"),  # threads of a cloud client do not survive it
        ("mp-fork", "directory"),
        pytest.param("fork", "directory", marks=pytest.mark.trials),
        pytest.param("mp-fork", "ministack", marks=pytest.mark.trials),
    ],
)
def test_a_forked_child_of_the_leader_does_not_lead(
    how: str, kind: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    childhood, verdict = _raise_a_child(url_of(kind), tmp_path, how)
    assert childhood.leads_at_first is False
    assert len(childhood.refusals) == 5
    for use, refusal in childhood.refusals.items():
        assert refusal.startswith("ForkedProcess: "), f"{use}: {refusal}"
    check_one_leader(verdict, "parent")
    child = [process for process in verdict.processes if process.startswith("child:")]
    assert len(child) == 1, "the child noted nothing"
    if kind == "directory":  # threads of a cloud client do not survive a fork, also for a client opened afterwards
        assert childhood.own == "returned parent", "a coordinator that the child opened itself sees who leads"
        assert any(process.startswith("child-own:") for process in verdict.processes)


@pytest.mark.req("EL-21")
@STORES
def test_a_spawned_child_of_the_leader_joins_as_anybody_else(
    kind: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    childhood, verdict = _raise_a_child(url_of(kind), tmp_path, "mp-spawn")
    assert childhood.own == "returned parent"
    check_one_leader(verdict, "parent")
    assert any(process.startswith("child-own:") for process in verdict.processes)


def _raise_a_child(url: str, folder: Path, how: str) -> tuple[Childhood, Verdict]:
    command = [sys.executable, "-m", "lab.forking", url, str(folder), how]
    output = folder / "output"
    process = spawn(command, output, cwd=ROOT)
    try:
        code = process.wait(60)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the parent did not end:\n{output.read_text()}")
    finally:
        stop(process)
    assert code == 0, output.read_text()
    assert '"code": 0' in output.read_text(), output.read_text()
    childhood = msgspec.json.decode((folder / "child.json").read_bytes(), type=Childhood)
    return childhood, judge_logs(sorted(folder.glob("*.log")))


@pytest.mark.req("EL-21")
@STORES
def test_gunicorn_with_preload_has_one_leader(kind: str, url_of: Callable[[str], str], tmp_path: Path) -> None:
    """The master leads when it forks four workers. Over three seconds it alone answers true, and they answer false."""
    with _gunicorn(url_of(kind), tmp_path) as ask:
        answers = _ask_all(ask)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            answers.append(ask())
            time.sleep(0.05)
    assert len({answer["pid"] for answer in answers}) == WORKERS
    assert {answer["leads"] for answer in answers} == {False}
    assert {answer["led_at_first"] for answer in answers} == {False}
    assert {answer["refusal"] for answer in answers} == {"ForkedProcess"}
    verdict = judge_logs(sorted(tmp_path.glob("*.log")))
    check_one_leader(verdict, "master")
    assert len([process for process in verdict.processes if process.startswith("worker:")]) == WORKERS


@pytest.mark.req("EL-21")
def test_gunicorn_workers_with_coordinators_of_their_own(url_of: Callable[[str], str], tmp_path: Path) -> None:
    """What the error tells them to do works: all of them join, and of all processes one leads."""
    with _gunicorn(url_of("directory"), tmp_path, LAB_OWN="1") as ask:
        _ask_all(ask)
        deadline = time.monotonic() + 20
        while len(list(tmp_path.glob("own-*.log"))) < WORKERS and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(SECONDS)
    verdict = judge_logs(sorted(tmp_path.glob("*.log")))
    assert len([process for process in verdict.processes if process.startswith("own:")]) == WORKERS
    check_one_leader(verdict, "master")


@contextmanager
def _gunicorn(url: str, folder: Path, **env: str) -> Iterator[Callable[[], dict[str, Any]]]:
    port, log = free_port(), folder / "gunicorn.out"
    command = [
        *(sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS), "--no-control-socket"),
        *("--bind", f"127.0.0.1:{port}", "--worker-tmp-dir", str(folder), "lab.preloaded:create()"),
    ]
    process = spawn(command, log, {"LAB_URL": url, "LAB_FOLDER": str(folder), **env}, cwd=ROOT)
    address = f"http://127.0.0.1:{port}"

    def ask() -> dict[str, Any]:
        with urllib.request.urlopen(address, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    try:
        wait_for_http(address, process, log)
        yield ask
    finally:
        stop(process, 10)


def _ask_all(ask: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """An answer at least of every worker: which of them gets a request is up to the kernel."""
    answers, deadline = [], time.monotonic() + 20
    while len({answer["pid"] for answer in answers}) < WORKERS:
        assert time.monotonic() < deadline, f"not all workers answered: {answers}"
        answers.append(ask())
        time.sleep(0.01)
    return answers

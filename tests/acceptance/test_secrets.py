"""A secret that is planted wherever secrets come from is in no output, no error, no log, no process list, no bucket."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tenure
import tenure.blocking
import tenure.dashboard
from lab.endpoint import S3Endpoint
from tenure.store import Access, open_store
from tenure.store.url import parse_url
from tests.acceptance.test_dashboard_command import served

SECRET = "pLaNtEd5ecret0123456789abcdefghijklmnopq"
URL = f"s3://bucket/app?access_key_id=AKIAPLANTED&secret_access_key={SECRET}&session_token={SECRET}"


@contextmanager
def process_lists() -> Iterator[list[str]]:
    """The command line of every process that this one has started, directly or not, as anybody can read them."""
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            seen.update(lines_below(os.getpid()))

    found: list[str] = []
    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()
        found.extend(seen)


def lines_below(root: int) -> set[str]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    found = set()
    for pid in below - {root}:
        try:
            found.add(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def everything_below(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join(f"{path} {path.read_bytes().decode(errors='replace')}" for path in files)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the process list is read from /proc")
def test_run_passes_secrets_on_and_shows_none(tmp_path: Path) -> None:
    script = "import os; open('got', 'w').write(os.environ['DATABASE_PASSWORD']); import time; time.sleep(0.5)"
    secrets = {
        "DATABASE_PASSWORD": SECRET,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "TENURE_DASHBOARD_TOKEN": SECRET,
        "TENURE_DEBUG": "1",
    }
    place = tmp_path / "store"
    words = ["run", "--lease", "3s", "--membership", place.as_uri(), "--health-cmd", "true", "--", sys.executable, "-c"]
    with process_lists() as lines:
        done = subprocess.run(
            [sys.executable, "-m", "tenure", *words, script],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**os.environ, **secrets},
        )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got").read_text() == SECRET, "the program was not given it"
    assert SECRET not in done.stdout + done.stderr
    assert len(lines) >= 3, "the process list was not seen"
    assert SECRET not in "\n".join(lines)
    assert everything_below(place)
    assert SECRET not in everything_below(place)


def test_no_repr_has_it() -> None:
    url = parse_url(URL)
    database = tenure.Database(URL, worker_id="ada")
    app = tenure.dashboard.create_app(URL, token=SECRET)
    dashboard = app.state.dashboard
    objects: list[Any] = [url, database, app, dashboard, dashboard.access, dashboard.actions]
    objects += [tenure.blocking.Database(URL), tenure.S3QueuePlugin(resource="emails"), tenure.CoordinatorConfig()]
    for each in objects:
        for shown in (repr(each), str(each), f"{each}"):
            assert SECRET not in shown, type(each)
            assert "AKIAPLANTED" not in shown, type(each)


@pytest.mark.parametrize("query", ["", "&region=eu-west-1"])
async def test_no_error_and_no_log_has_it(query: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of a store that does not answer, opened by every door."""
    caplog.set_level(logging.DEBUG)
    url = f"{URL}&endpoint=http://127.0.0.1:1{query}"
    said = []
    for access in (Access.READ_ONLY, Access.READ_WRITE):
        with pytest.raises(tenure.TenureError) as caught:
            async with open_store(url, access=access) as store:
                await store.get("k")
        said += ["".join(traceback.format_exception(caught.value)), repr(caught.value)]
    assert "127.0.0.1:1" in said[0]
    for text in (*said, caplog.text):
        assert SECRET not in text


@pytest.fixture
def secret_url(ministack: S3Endpoint, url_of: Callable[[str], str]) -> str:
    """Of a place on a server, with keys in it. The server does not look at them."""
    place = parse_url(url_of("ministack"))
    options = {**place.options, "secret_access_key": SECRET, "access_key_id": "AKIAPLANTED"}
    return f"s3://{place.bucket}/{place.prefix}?" + "&".join(f"{name}={value}" for name, value in options.items())


def check_none(text: str, what: object = None) -> None:
    for secret in (SECRET, "AKIAPLANTED"):
        assert secret not in text, what


async def everything_in(url: str) -> str:
    async with open_store(url) as store:
        keys = [entry.key async for entry in store.list()]
        return "\n".join([*keys, *[repr((await store.get(key)).body) for key in keys]])


@pytest.mark.slow
def test_doctor_status_and_dashboard_on_a_server_show_none(secret_url: str, tmp_path: Path) -> None:
    """The URL comes from the environment with its keys in it, and goes on to the processes that race."""
    environment = {**os.environ, "TENURE_URL": secret_url, "TENURE_DEBUG": "1"}
    with process_lists() as lines:
        for words in (["doctor", "--rounds", "2", "--processes", "2"], ["status", "--no-wait"], ["queue", "list"]):
            done = subprocess.run(
                [sys.executable, "-m", "tenure", *words],
                capture_output=True,
                text=True,
                timeout=120,
                cwd=tmp_path,
                env=environment,
            )
            assert done.stdout + done.stderr
            check_none(done.stdout + done.stderr, words)
        dashboard = {"TENURE_URL": secret_url, "TENURE_DEBUG": "1", "TENURE_DASHBOARD_TOKEN": SECRET}
        with served("--port", "0", **dashboard) as server:
            check_none(server.said)
            assert "s3://" in json.dumps(server.ask("api/snapshot")[1]["meta"]["place"])
            for path in ("", "api/snapshot", "api/workers", "api/session", "readyz", "metrics", "static/index.html"):
                with urllib.request.urlopen(server.url + path, timeout=60) as answer:
                    check_none(answer.read().decode() + str(answer.headers), path)
            for name, body in (("step-down", b"{}"), ("queue-pause", b'{"queue": "emails"}')):
                status, told = server.ask(f"api/actions/{name}", body, Authorization=f"Bearer {SECRET}")
                assert status in (409, 422)
                check_none(json.dumps(told), name)
            code, errors = server.end()
        assert code == 0
        assert "asked for step-down" in errors
        check_none(errors)
    assert any("contender" in line for line in lines), "the races were not seen"
    assert any("tenure dashboard" in line for line in lines)
    check_none("\n".join(lines))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the process list is read from /proc")
async def test_run_on_a_server_shows_none(secret_url: str, tmp_path: Path) -> None:
    """The keys are in TENURE_URL. The program and a process that it leaves have them from there; the watchdogs and what
    checks the machine's health run beside it."""
    script = "sleep 3 & sh -c 'sleep 1'; echo $TENURE_URL > got; echo said by the program; exit 3"
    words = ["run", "--lease", "3s", "--membership", "--json", "--health-cmd", "sleep 0.1", "--health-interval", "1s"]
    with process_lists() as lines:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tenure", *words, "--", "sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**os.environ, "TENURE_URL": secret_url, "TENURE_DEBUG": "1"},
        )
    assert done.returncode == 3, done.stderr
    assert (tmp_path / "got").read_text().strip() == secret_url, "the program was not given it"
    assert "said by the program" in done.stdout
    check_none(done.stdout + done.stderr)
    for part in ("tenure run", "watchdog", "sleep 1", "sleep 0.1"):
        assert any(part in line for line in lines), f"{part} was not seen: {sorted(lines)}"
    check_none("\n".join(lines))
    bucket = await everything_in(secret_url)
    assert "state.json" in bucket
    check_none(bucket)


def test_run_on_a_store_that_does_not_answer_shows_none(tmp_path: Path) -> None:
    url = f"{URL}&region=eu-west-1&endpoint=http://127.0.0.1:1"
    done = subprocess.run(
        [sys.executable, "-m", "tenure", "run", "--", "true"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "TENURE_URL": url, "TENURE_DEBUG": "1"},
    )
    assert done.returncode == 125
    assert "127.0.0.1:1" in done.stderr
    check_none(done.stdout + done.stderr)

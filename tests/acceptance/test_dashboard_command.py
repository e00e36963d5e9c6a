"""`tenure dashboard` as a process: where it listens, whom it refuses, how it ends, and its page in the docs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.dashboard import listening, logging_to_stderr, serve
from tenure.cli.main import run
from tenure.dashboard.app import build
from tests.acceptance.pages import PYTHON, ROOT, SHELL, blocks, commands
from tests.acceptance.test_doctor import files_of
from tests.support.command import tenure_process

PATIENCE = 60.0
TOKEN = "a-token-of-some-length"


class Served:
    """The command as a process."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tenure", "dashboard", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r" is shown on (http://\S+/) ", self.said)  # that of a store has addresses as well
        assert found is not None, self.process.communicate()
        self.url = found[1]

    def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data, names)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                    return response.status, json.loads(response.read())
            except urllib.error.HTTPError as error:
                return error.code, json.loads(error.read())
            except ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


@contextlib.contextmanager
def served(*arguments: str, **environment: str) -> Iterator[Served]:
    server = Served(*arguments, **environment)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


@pytest.mark.req("OP-5")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_shows_a_bucket_writes_nothing_and_ends_when_told(tmp_path: Path, how: signal.Signals) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    before = files_of(bucket)
    with served(bucket.as_uri(), "--port", "0") as server:
        assert "only shows" in server.said
        status, found = server.ask("api/snapshot")
        assert status == 200
        assert found["meta"]["place"] == bucket.as_uri()
        assert found["lease"]["phase"] == "empty"
        assert server.ask("healthz") == (200, {"ok": True})
        assert server.ask("readyz") == (200, {"ok": True})
        assert server.ask("api/snapshot", Host="evil.example")[0] == 421
        assert server.ask("api/actions/step-down", b"{}")[0] == 403
        # Somebody who watches does not keep it from ending.
        watching = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2].rstrip("/"))))
        watching.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" in watching.recv(100)
        assert server.end(how) == (0, "")
        watching.close()
    assert files_of(bucket) == before


@pytest.mark.req("OP-5")
def test_with_a_token_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    bearer = f"Bearer {TOKEN}"
    with served(tmp_path.as_uri(), "--port", "0", TENURE_DASHBOARD_TOKEN=TOKEN) as server:
        assert TOKEN not in server.said
        assert server.ask("api/session")[1]["actions"] is True
        assert server.ask("api/actions/step-down", b"{}")[0] == 401
        status, answer = server.ask("api/actions/step-down", b"{}", Authorization=bearer)
        assert status == 409
        assert "nobody leads" in answer["says"]
        assert TOKEN not in server.end()[1]
    everywhere = ("--host", "0.0.0.0", "--allow-host", "ops.example.org", "--token-file", str(file), "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure", "dashboard", tmp_path.as_uri(), "--port", "0", *everywhere],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        text = ""
        while "}" not in text:
            text += process.stdout.readline()
        port = int(json.loads(text)["url"].rpartition(":")[2].rstrip("/"))
        there = f"http://127.0.0.1:{port}/"
        request = urllib.request.Request(f"{there}api/snapshot", headers={"Host": "ops.example.org"})
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=PATIENCE)
        request.add_header("Authorization", bearer)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            assert response.status == 200
    finally:
        process.terminate()
        process.communicate()


async def asked_once(port: int) -> str:
    """The status that a new connection is answered with; it is closed again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    status = (await reader.readline()).split()[1].decode()
    await reader.read()
    writer.close()
    await writer.wait_closed()
    return status


async def test_no_more_connections_than_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that send nothing count as well. Who is there stays, and whoever comes next is told to go away."""
    monkeypatch.setattr("tenure.cli.dashboard._MAX_CONNECTIONS", 4)
    app, parts = build(tmp_path.as_uri(), "default", interval=1.0)
    began = asyncio.Event()
    with listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.ensure_future(serve(app, parts, listener, began.set))
        opened: list[asyncio.StreamWriter] = []
        try:
            async with asyncio.timeout(PATIENCE):
                await began.wait()
                watcher, watching = await asyncio.open_connection("127.0.0.1", port)
                opened.append(watching)
                watching.write(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert b" 200 " in await watcher.readline()
                assert await asked_once(port) == "200"
                opened += [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(2)]
                assert await asked_once(port) == "503"
                await watcher.readuntil(b"event: ")
                for writer in opened[1:]:
                    writer.close()
                    await writer.wait_closed()
                while await asked_once(port) != "200":
                    await asyncio.sleep(0.05)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            for writer in opened:
                writer.close()


@pytest.mark.parametrize("debug", ["", "1"])
def test_who_asked_for_what_is_logged(tmp_path: Path, debug: str) -> None:
    bearer = f"Bearer {TOKEN}"
    environment = {"TENURE_DASHBOARD_TOKEN": TOKEN, "TENURE_DEBUG": debug}
    with served(tmp_path.as_uri(), "--port", "0", **environment) as server:
        body = b'{"to": "w-1", "force": true}'
        assert server.ask("api/actions/transfer", body, Authorization=bearer)[0] == 409
        code, errors = server.end()
    assert code == 0
    assert TOKEN not in errors
    (line,) = errors.splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line)
    assert "127.0.0.1 asked for transfer to='w-1' force=True, in vain: " in line


def test_which_proxies_are_believed_is_not_the_environments_to_say(tmp_path: Path) -> None:
    """With `*` whoever reaches the port would choose the address that is logged, and by which tries are counted."""
    environment = {"TENURE_DASHBOARD_TOKEN": TOKEN, "FORWARDED_ALLOW_IPS": "192.0.2.1"}
    with served(tmp_path.as_uri(), "--port", "0", **environment) as server:
        headers = {"Authorization": f"Bearer {TOKEN}", "X_Forwarded_For": "192.0.2.77"}
        assert server.ask("api/actions/step-down", b"{}", **headers)[0] == 409
        assert "192.0.2.77 asked for step-down" in server.end()[1], "this machine's own proxy"


def test_what_is_logged_is_fit_for_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("tenure.dashboard")
    with logging_to_stderr():
        log.info("asked for %s", "\x1b[2J\nforged")
        try:
            raise OSError("https://me:hunter2@example.org says \x1b[2J")
        except OSError:
            log.exception("could not be answered")
    log.info("nothing any more")
    found = capsys.readouterr().err.split("\n")
    assert found[0].endswith("asked for \\x1b[2J\\x0aforged")
    assert found[1].endswith("could not be answered")
    assert found[2] == "Traceback (most recent call last):"
    assert all(line.isprintable() and "hunter2" not in line and "any more" not in line for line in found)


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (("--host", "0.0.0.0"), {}, "others can reach"),
        (("--host", "no.such.host.invalid"), {"TENURE_DASHBOARD_TOKEN": TOKEN}, "no address of this machine"),
        ((), {"TENURE_DASHBOARD_TOKEN": "short"}, "5 characters"),
        (("--token-file", "/nonexistent/token"), {}, "/nonexistent/token"),
        (("--token-file", "/"), {}, "/"),
        (("--allow-host", "http://x"), {}, "host"),
        (("--port", "99999"), {}, "65535"),
        (("--interval", "0"), {}, "interval"),
    ],
)
def test_what_is_refused(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(["dashboard", tmp_path.as_uri(), *arguments]) == 2
    found = capsys.readouterr()
    assert sentence in found.err
    assert not any(token in found.out + found.err for token in environment.values())
    assert len(found.err.splitlines()) <= 2


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["dashboard", tmp_path.as_uri(), "--port", str(port)]) == 2
    assert f"port {port}" in capsys.readouterr().err


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_page_that_cannot_be_shown_is_not_announced(
    form: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["dashboard", (tmp_path / "mistyped").as_uri(), "--port", "0", *form]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert f"there is no directory {tmp_path}/mistyped" in found.err


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ImportError('no module named starlette')\n")
    found = tenure_process("dashboard", tmp_path.as_uri(), PYTHONPATH=str(tmp_path))
    assert found.code == 2
    assert "pip install 'tenure[dashboard]'" in found.err
    assert tenure_process("status", tmp_path.as_uri(), "--no-wait", PYTHONPATH=str(tmp_path)).code == 1, "others work"


class TestPage:
    """docs/dashboard.md"""

    PAGE = blocks(ROOT / "docs" / "dashboard.md")

    def test_the_python(self, tmp_path: Path) -> None:
        for block in self.PAGE:
            if block.kind == PYTHON:
                names: dict[str, Any] = {}
                exec(compile(block.text.replace("s3://bucket/app", tmp_path.as_uri()), block.place, "exec"), names)
                assert names["app"].routes[0].app is names["dashboard"]

    @pytest.mark.slow
    def test_the_commands(self, tmp_path: Path) -> None:
        (tmp_path / "dashboard.token").write_text(f"{TOKEN}\n")
        for block in self.PAGE:
            for line in commands(block) if block.kind == SHELL else ():
                if line.startswith("curl "):
                    self._curl(line, tmp_path)
                elif line.startswith("tenure "):
                    arguments = line.replace("s3://bucket/app", tmp_path.as_uri()).split()[2:]
                    arguments = [
                        each.replace("dashboard.token", str(tmp_path / "dashboard.token")) for each in arguments
                    ]
                    with served(*arguments, "--port", "0") as server:
                        assert server.ask("healthz") == (200, {"ok": True})
                        assert server.end()[0] == 0
                else:
                    subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)

    def _curl(self, line: str, tmp_path: Path) -> None:
        with served(tmp_path.as_uri(), "--port", "0", TENURE_DASHBOARD_TOKEN=TOKEN) as server:
            done = subprocess.run(
                ["sh", "-c", line.replace("http://127.0.0.1:8321/", server.url)],
                env={**os.environ, "TENURE_DASHBOARD_TOKEN": TOKEN},
                capture_output=True,
                text=True,
                check=True,
            )
            assert "there is no queue 'emails'" in json.loads(done.stdout)["error"]

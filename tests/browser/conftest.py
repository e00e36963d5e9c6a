"""Real processes on a directory, the real `tenure dashboard` in front of them, and a real Chromium that looks at it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from lab.node import node_home
from lab.process import spawn, stop, wait_for_http

CHROMIUM = Path(os.environ.get("TENURE_CHROMIUM") or "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TOKEN = "correct-horse-battery-staple"
PATIENCE = 60_000
"""Milliseconds: the machine may be busy. What is waited for comes within a few seconds on one that is not."""


class Fleet:
    """Processes of one election, by name."""

    def __init__(self, home: Path, bucket: str = "bucket") -> None:
        self.home = home
        self.url = (home / bucket).as_uri()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str, queues: tuple[str, ...] = (), does: tuple[str, ...] = (), lease: float = 3.0) -> None:
        """`does`: "--work", "--fill" (see `member`)."""
        more = [*(word for queue in queues for word in ("--queue", queue)), *does]
        for name in names:
            log = self.home / f"member-{len(self.processes)}.log"
            command = [sys.executable, "-m", "tests.browser.member", self.url, name, "--lease", str(lease), *more]
            self.processes[name] = spawn(command, log, cwd=Path(__file__).parents[2])
        for at, name in enumerate(self.processes):
            if name in names:
                _wait_for_line(self.home / f"member-{at}.log", self.processes[name])

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


class Dashboard:
    """`tenure dashboard` as a process of its own."""

    def __init__(self, home: Path, url: str, token: str | None, port: int, host: str) -> None:
        self._log = home / f"dashboard-{time.monotonic_ns()}.log"
        environment = {"TENURE_DASHBOARD_TOKEN": token or ""}
        command = [sys.executable, "-m", "tenure", "dashboard", url, "--port", str(port), "--host", host, "--json"]
        self.process = spawn(command, self._log, env=environment)
        _wait_for_line(self._log, self.process, "}")
        self.url = str(json.loads(self._log.read_text().partition("}")[0] + "}")["url"])
        self.port = int(self.url.rstrip("/").rpartition(":")[2])
        wait_for_http(f"{self.url}healthz", self.process, self._log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")


def _wait_for_line(log: Path, process: subprocess.Popen[bytes], text: str = "ready") -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if log.exists() and text in log.read_text(errors="replace"):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} did not say {text!r}; it said:\n{log.read_text(errors='replace')[-3000:]}")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Dashboard]]:
    """`serve(url)` starts a dashboard, `serve(url, token=None)` one that only shows."""
    with contextlib.ExitStack() as ended:

        def start(url: str, *, token: str | None = TOKEN, port: int = 0, host: str = "127.0.0.1") -> Dashboard:
            dashboard = Dashboard(tmp_path, url, token, port, host)
            ended.callback(stop, dashboard.process)
            return dashboard

        yield start


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Of one module: Playwright keeps an event loop while it runs, and async tests elsewhere need their own."""
    if not CHROMIUM.exists():
        pytest.fail(f"{CHROMIUM} is missing: run tools/install-servers, or apt-get install chromium", pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Complaints(list[str]):
    """What the browser complained of: errors in scripts, refused by the policy, not found."""

    def of(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("console", self._take)

    def _take(self, message: Any) -> None:
        # A refusal of an action, and a dashboard that was killed, are things that tests do on purpose.
        expected = ("status of 401", "status of 403", "status of 409", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED")
        if message.type in ("error", "warning") and not any(words in message.text for words in expected):
            self.append(f"{message.type}: {message.text}")


@pytest.fixture
def look(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """`look(url, color_scheme="dark", ...)` opens a page in a profile of its own. In the end no page has complained."""
    complaints = Complaints()
    with contextlib.ExitStack() as ended:

        def open_page(url: str, *, width: int = 1440, height: int = 900, **options: Any) -> Page:
            context = chromium.new_context(viewport={"width": width, "height": height}, **options)
            ended.callback(context.close)
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
            complaints.of(page)
            page.goto(url)
            return page

        yield open_page
    assert complaints == []


@pytest.fixture
def axe() -> Callable[[Page], list[str]]:
    """The rules of WCAG 2.2 A and AA and the best practices of axe-core that a page breaks. Needs `bypass_csp`."""
    source = node_home() / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        pytest.fail(f"{source} is missing: run tools/install-servers", pytrace=False)

    def check(page: Page) -> list[str]:
        page.add_script_tag(path=source)
        found = page.evaluate("async () => (await axe.run(document)).violations")
        return [
            f"{each['id']}: {each['help']}: {'; '.join(str(node['target']) for node in each['nodes'][:5])}"
            for each in found
        ]

    return check


def sign_in(page: Page, token: str = TOKEN) -> None:
    page.click("#sign-in")
    page.fill("#token", token)
    page.keyboard.press("Enter")
    page.wait_for_selector("#sign-out:visible")


def leader_on(page: Page, *, other_than: str | None = None) -> str:
    """Who leads, as the page says, once somebody does."""
    page.wait_for_function(
        """other => document.querySelector("#leader")?.dataset.phase === "leading"
                    && document.querySelector("#leader-name").textContent !== other""",
        arg=other_than,
        timeout=PATIENCE,
    )
    return page.inner_text("#leader-name")

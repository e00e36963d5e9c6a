"""`tenure.asgi.lifespan`, with Starlette's own test client and under a real uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import signal
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import tenure
import tenure.asgi
from lab.process import free_port, spawn, stop, wait_for_http
from tenure import CoordinatorConfig, Lead, LeadershipLost, blocking
from tenure.errors import ConfigError, InvalidUrl
from tests.support.waiting import eventually_here

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer versions of Starlette would rather have another client library than httpx
    from starlette.testclient import TestClient

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0
SWIFT = CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)
LONG = SWIFT.replace(lease_timeout=60.0, worker_timeout=90.0, heartbeat_interval=0.5, request_timeout=5.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "bucket").as_uri()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenure.asgi, "FIRST_PAUSE_SECONDS", 0.01)


async def answer(request: Request) -> JSONResponse:
    return JSONResponse({"leads": request.app.state.tenure.is_leader(), "inner": getattr(request.state, "pool", None)})


def app_with(lifespan: Any) -> Starlette:
    return Starlette(routes=[Route("/", answer)], lifespan=lifespan)


def test_work_runs_while_leading_and_ends_with_the_server(url: str) -> None:
    told: list[object] = []

    async def work(lead: Lead) -> None:
        told.append(lead.epoch)
        try:
            await asyncio.Event().wait()
        finally:
            told.append("ended")

    for epochs in (1, 2):  # the second server is given the lease, and does not wait for it to lapse
        with TestClient(app_with(tenure.asgi.lifespan(url, lead=work, config=LONG))) as client:
            eventually_here(lambda: told)
            assert client.get("/").json() == {"leads": True, "inner": None}
        assert told == [told[0], "ended"]
        assert isinstance(told[0], int)
        assert told[0] >= epochs
        told.clear()


def test_without_work_there_is_the_coordinator(url: str) -> None:
    with TestClient(app_with(tenure.asgi.lifespan(url, config=SWIFT, worker_id="ada"))) as client:
        eventually_here(lambda: client.get("/").json()["leads"])


def test_a_lifespan_of_your_own_is_around_the_work(url: str) -> None:
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def inner(app: Any) -> AsyncIterator[dict[str, Any]]:
        assert app.state.tenure.running
        told.append("open")
        yield {"pool": "open"}
        assert app.state.tenure.running
        told.append("close")

    async def work(lead: Lead) -> None:
        told.append("work")
        try:
            await asyncio.Event().wait()
        finally:
            told.append("stop")

    with TestClient(app_with(tenure.asgi.lifespan(url, lead=work, config=SWIFT, inner=inner))) as client:
        eventually_here(lambda: "work" in told)
        assert client.get("/").json()["inner"] == "open"
    assert told == ["open", "work", "stop", "close"]


def test_an_application_without_state(url: str) -> None:
    async def enter() -> None:
        async with tenure.asgi.lifespan(url, config=SWIFT)(object()):
            pass

    asyncio.run(enter())


@pytest.mark.usefixtures("impatient")
def test_work_that_fails_is_called_again_and_ends_no_server(url: str, caplog: pytest.LogCaptureFixture) -> None:
    epochs: list[int] = []

    async def work(lead: Lead) -> None:
        epochs.append(lead.epoch)
        raise ZeroDivisionError("oh")

    with TestClient(app_with(tenure.asgi.lifespan(url, lead=work, config=SWIFT))) as client:
        eventually_here(lambda: len(epochs) >= 7)
        assert client.get("/").status_code == 200
    assert epochs.count(epochs[0]) == tenure.asgi.TRIES_IN_A_TERM
    assert epochs[6] > epochs[0]
    assert "failed, 5 of 5 times in a row" in caplog.text
    assert "leadership is given back" in caplog.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["cancelled", "exit", "times out", "ends by a timeout"])
def test_work_that_ends_by_itself_in_an_odd_way_is_called_again(
    how: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    epochs: list[int] = []

    async def work(lead: Lead) -> None:
        epochs.append(lead.epoch)
        if len(epochs) == 3:
            await asyncio.Event().wait()
        if how == "exit":
            sys.exit(3)
        if how in ("times out", "ends by a timeout"):  # as in older libraries, which never take that back
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(0.01, task.cancel)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if how == "times out":
                    raise TimeoutError from None
                raise
        part = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        part.cancel()
        await part

    with TestClient(app_with(tenure.asgi.lifespan(url, lead=work, config=SWIFT))) as client:
        eventually_here(lambda: len(epochs) == 3)
        assert client.get("/").json()["leads"]
    assert len(set(epochs)) == 1
    assert sum("failed, " in record.getMessage() for record in caplog.records) == 2


def test_a_server_without_work_leaves_the_fleet_and_serves_on(url: str, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(BaseException):
        pass

    async def work(lead: Lead) -> None:
        raise Odd

    with TestClient(app_with(tenure.asgi.lifespan(url, lead=work, config=LONG))) as client:
        eventually_here(lambda: any("leaves the fleet" in record.getMessage() for record in caplog.records))
        with blocking.lead(url, config=LONG, timeout=PATIENCE):
            assert client.get("/").json()["leads"] is False
    assert any(
        record.levelno == logging.ERROR and "leaves the fleet" in record.getMessage() for record in caplog.records
    )


@pytest.mark.usefixtures("impatient")
def test_work_that_is_no_async_function(url: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Lead] = []
    with TestClient(app_with(tenure.asgi.lifespan(url, lead=calls.append, config=SWIFT))):  # type: ignore[arg-type]
        eventually_here(lambda: "is no async function" in caplog.text)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["raises another error", "returns", "raises LeadershipLost"])
def test_work_that_hides_its_cancellation_is_not_called_again_in_that_term(
    how: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    epochs: list[int] = []

    async def work(lead: Lead) -> None:
        epochs.append(lead.epoch)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "raises another error":
                raise ZeroDivisionError from None
            if how == "raises LeadershipLost":
                raise LeadershipLost("gone") from None

    app = app_with(tenure.asgi.lifespan(url, lead=work, config=SWIFT))
    with TestClient(app) as client:
        eventually_here(lambda: epochs)
        assert client.portal is not None
        client.portal.call(app.state.tenure.step_down)
        eventually_here(lambda: len(epochs) == 2)  # it stands again
        assert epochs[1] > epochs[0]
        began = time.monotonic()
    assert len(epochs) == 2
    assert time.monotonic() - began < 10
    assert "failed" not in caplog.text


def test_work_that_has_returned_is_done_for_its_term(url: str) -> None:
    epochs: list[int] = []

    async def work(lead: Lead) -> None:
        epochs.append(lead.epoch)

    app = app_with(tenure.asgi.lifespan(url, lead=work, config=SWIFT))
    with TestClient(app) as client:
        eventually_here(lambda: epochs)
        time.sleep(0.5)
        assert client.get("/").json()["leads"]
        assert len(epochs) == 1
        assert client.portal is not None
        client.portal.call(app.state.tenure.step_down)
        eventually_here(lambda: len(epochs) == 2)


def test_a_worker_that_is_replaced_serves_on(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(lead: Lead) -> None:
        await asyncio.Event().wait()

    with TestClient(app_with(tenure.asgi.lifespan(url, lead=work, config=SWIFT, worker_id="same"))) as client:
        eventually_here(lambda: client.get("/").json()["leads"])
        with blocking.lead(url, config=SWIFT, worker_id="same", timeout=PATIENCE):
            eventually_here(lambda: "will not lead any more in this process" in caplog.text)
            assert client.get("/").json()["leads"] is False


def test_what_cannot_be_is_refused_where_it_is_written(url: str) -> None:
    with pytest.raises(InvalidUrl):
        tenure.asgi.lifespan("nonsense")
    with pytest.raises(ConfigError, match="lead is"):
        tenure.asgi.lifespan(url, lead="work")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="inner is"):
        tenure.asgi.lifespan(url, inner=3)  # type: ignore[arg-type]


def test_a_store_that_cannot_be_used_fails_the_startup(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(tenure.TenureError), TestClient(app_with(tenure.asgi.lifespan((tmp_path / "file").as_uri()))):
        pass


@pytest.mark.slow
def test_two_servers_of_uvicorn(url: str, tmp_path: Path) -> None:
    """One works. It is told to end, and the other goes on at once; that one is killed, and a third goes on."""
    servers: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}

    def start() -> int:
        port, log = free_port(), tmp_path / f"server-{len(servers)}.out"
        command = [sys.executable, "-m", "uvicorn", "lab.webapp:app", "--port", str(port), "--log-level", "warning"]
        servers[port] = (spawn(command, log, {"LAB_URL": url}, cwd=ROOT), log)
        wait_for_http(f"http://127.0.0.1:{port}", *servers[port])
        return port

    def ask(port: int) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=10) as found:
            return dict(json.load(found))

    try:
        ports = [start(), start()]
        eventually_here(lambda: sorted(ask(port)["leads"] for port in ports) == [False, True])
        first, second = sorted(ports, key=lambda port: not ask(port)["leads"])
        servers[first][0].send_signal(signal.SIGTERM)
        assert servers[first][0].wait(PATIENCE) in (0, -signal.SIGTERM), servers[first][1].read_text()
        eventually_here(lambda: ask(second)["leads"])
        third = start()
        assert ask(third)["leads"] is False
        servers[second][0].kill()
        eventually_here(lambda: ask(third)["leads"])
        epoch = ask(third)["epoch"]
        eventually_here(lambda: '"begin", "boottime_ns"' in servers[third][1].read_text())
    finally:
        for process, _ in servers.values():
            stop(process, 10)
    told = [json.loads(line) for _, log in servers.values() for line in log.read_text().splitlines()]
    begins = sorted((each["boottime_ns"], each["epoch"]) for each in told if each["said"] == "begin")
    ends = {each["epoch"]: each["boottime_ns"] for each in told if each["said"] == "end"}
    assert [number for _, number in begins] == sorted({number for _, number in begins})
    assert begins[-1][1] == epoch
    assert len(begins) == 3
    for (_, before), (began, _) in itertools.pairwise(begins):
        assert ends.get(before, 0) <= began

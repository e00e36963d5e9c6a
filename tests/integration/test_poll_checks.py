"""Checks against real servers on loopback, and real programs."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.background import BackgroundServer, turns
from tenure.plugins.poll import CommandCheck, HttpCheck, Run, TcpCheck

RUN = Run(job_id="web-0000000001", schedule="web", token=42, epoch=3, timeout=5.0)


class Server:
    """Answers with what it is told to, and remembers the requests."""

    def __init__(self) -> None:
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        self.requests: list[bytes] = []
        self.hangs = False
        self._server = BackgroundServer(self._serve)
        self.url = self._server.start()
        self.port = self._server.port
        self.stop = self._server.stop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == b"\x16":  # somebody begins to speak TLS
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        self.requests.append(first + await reader.readuntil(b"\r\n\r\n"))
        if self.hangs:
            await asyncio.sleep(60)
        writer.write(self.answer)
        await writer.drain()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TestHttp:
    @pytest.mark.req("SV-4")
    async def test_an_expected_status_is_ok(self, server: Server) -> None:
        check = HttpCheck(f"{server.url}/a b?x=1&y=ä".replace(" ", "%20"), headers={"Authorization": "Bearer x"})
        verdict = await check.run(RUN)
        assert (verdict.ok, verdict.detail) == (True, "200 OK")
        request = server.requests[0].decode()
        assert request.startswith("GET /a%20b?x=1&y=%C3%A4 HTTP/1.1\r\n")
        assert f"\r\nHost: 127.0.0.1:{server.port}\r\n" in request
        assert "\r\nAuthorization: Bearer x\r\n" in request

    @pytest.mark.req("SV-4")
    async def test_another_status_is_not(self, server: Server) -> None:
        server.answer = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
        verdict = await HttpCheck(server.url).run(RUN)
        assert (verdict.ok, verdict.detail) == (False, "503 Service Unavailable, and 200 is expected")
        assert (await HttpCheck(server.url, expect=(200, 503)).run(RUN)).ok

    @pytest.mark.req("SV-4")
    async def test_a_redirect_is_not_followed(self, server: Server) -> None:
        server.answer = f"HTTP/1.1 302 Found\r\nLocation: {server.url}/next\r\n\r\n".encode()
        assert not (await HttpCheck(server.url).run(RUN)).ok
        assert len(server.requests) == 1

    @pytest.mark.req("SV-4")
    async def test_interim_answers_are_passed_over(self, server: Server) -> None:
        server.answer = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 204 \r\n\r\n"
        assert (await HttpCheck(server.url, expect=(204,)).run(RUN)).ok
        server.answer = b"HTTP/1.1 100 Continue\r\n\r\n" * 50
        assert "interim" in (await HttpCheck(server.url).run(RUN)).detail

    @pytest.mark.req("SV-4")
    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            (b"", "ended before"),
            (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
            (b"HTTP/1.1 abc\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 " + b"x" * 300_000, "over"),
            (b"\0" * 300_000, "over"),
        ],
    )
    async def test_nonsense_is_a_service_that_is_not_well(self, server: Server, answer: bytes, says: str) -> None:
        server.answer = answer
        verdict = await HttpCheck(server.url).run(RUN)
        assert not verdict.ok
        assert says in verdict.detail

    @pytest.mark.req("SV-4")
    async def test_nobody_there(self) -> None:
        verdict = await HttpCheck(f"http://127.0.0.1:{closed_port()}/").run(RUN)
        assert (verdict.ok, verdict.detail) == (False, "cannot connect: Connection refused")

    @pytest.mark.req("SV-4")
    async def test_a_server_that_speaks_no_tls(self, server: Server) -> None:
        verdict = await HttpCheck(server.url.replace("http://", "https://")).run(RUN)
        assert not verdict.ok
        assert verdict.detail

    @pytest.mark.req("SV-4")
    async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(self, tmp_path: Path) -> None:
        key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
        command = (
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
        )
        made = await asyncio.create_subprocess_exec(
            *command.split(), "-keyout", str(key), "-out", str(certificate), stderr=asyncio.subprocess.DEVNULL
        )
        assert await made.wait() == 0
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        verdict = await HttpCheck(f"https://127.0.0.1:{port}/").run(RUN)
        server.close()
        for _ in range(3):  # the server's side of the connection learns of its end
            await asyncio.sleep(0.1)
            await turns()
        assert not verdict.ok
        assert "certificate is not accepted" in verdict.detail

    async def test_it_can_be_cancelled(self, server: Server) -> None:
        server.hangs = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await HttpCheck(server.url).run(RUN)


class TestTcp:
    @pytest.mark.req("SV-4")
    async def test_a_port_that_is_open_and_one_that_is_not(self, server: Server) -> None:
        assert (await TcpCheck("127.0.0.1", server.port).run(RUN)).ok
        verdict = await TcpCheck("127.0.0.1", closed_port()).run(RUN)
        assert (verdict.ok, verdict.detail) == (False, "cannot connect: Connection refused")


class TestCommand:
    @pytest.mark.req("SV-4")
    async def test_the_status_decides_and_the_end_of_the_output_is_kept(self) -> None:
        verdict = await CommandCheck("sh", "-c", "echo out; echo $TENURE_JOB_ID $TENURE_TOKEN $TENURE_EPOCH >&2").run(
            RUN
        )
        assert (verdict.ok, verdict.detail) == (True, "out\nweb-0000000001 42 3")
        verdict = await CommandCheck("sh", "-c", "echo bad; exit 3").run(RUN)
        assert (verdict.ok, verdict.detail) == (False, "exit status 3, and 0 is expected: bad")
        assert (await CommandCheck("sh", "-c", "exit 3", expect=(3,)).run(RUN)).ok
        assert "signal 9" in (await CommandCheck("sh", "-c", "kill -9 $$").run(RUN)).detail

    async def test_nothing_passes_through_a_shell(self, tmp_path: Path) -> None:
        verdict = await CommandCheck("echo", f"; touch {tmp_path}/made").run(RUN)
        assert verdict.ok
        assert list(tmp_path.iterdir()) == []

    async def test_a_lot_of_output_is_neither_kept_nor_waited_for(self) -> None:
        program = "import sys; sys.stdout.write('x' * 5_000_000); sys.stdout.write('the end')"
        verdict = await CommandCheck(sys.executable, "-c", program).run(RUN)
        assert verdict.ok
        assert verdict.detail.endswith("the end")
        assert len(verdict.detail) <= 512

    @pytest.mark.req("SV-4")
    async def test_a_program_that_is_not_there_is_an_error(self) -> None:
        with pytest.raises(FileNotFoundError):
            await CommandCheck("/no/such/program").run(RUN)

    async def test_it_is_killed_with_its_process_group(self, tmp_path: Path) -> None:
        script = f"sleep 60 & echo $! > {tmp_path}/pid; trap '' TERM; sleep 60"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await CommandCheck("sh", "-c", script).run(RUN)
        pid = int((tmp_path / "pid").read_text())
        deadline = time.monotonic() + 5
        while is_running(pid):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    async def test_one_who_inherited_the_output_is_not_waited_for(self, tmp_path: Path) -> None:
        script = f"setsid sleep 30 & echo $! > {tmp_path}/pid; echo done"
        began = time.monotonic()
        verdict = await CommandCheck("sh", "-c", script).run(RUN)
        assert (verdict.ok, verdict.detail) == (True, "done")
        assert time.monotonic() - began < 10
        os.kill(int((tmp_path / "pid").read_text()), 9)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

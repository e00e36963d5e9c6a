"""The checks that come with polling: HTTP, TCP, and a command.

A service that is down, refuses, or answers otherwise than expected is a `Verdict` that is not ok. An exception means
that the check could not be made at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from tenure.coordinator.given import check_instance, shown
from tenure.errors import ConfigError
from tenure.plugins.poll.schedule import Run, Verdict

MAX_HEAD_BYTES = 64 * 1024
MAX_INTERIM_ANSWERS = 5
MAX_OUTPUT_BYTES = 512
"""Of a command: the end of what it printed."""
MAX_ARGUMENTS = 1000

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: ([^\r\n]{0,200}))?\r?\n")
_OWN_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding"})


class HttpCheck:
    """Ask for a URL; ok if the status is an expected one.

    Redirects are not followed (expect a 3xx if it is one), certificates are verified, and the body is not read. Header
    values are not part of the definition: they may be secrets, and may differ from worker to worker.
    """

    def __init__(
        self,
        url: str,
        expect: Collection[int] = (200,),
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._scheme, self._host, self._port, self._target = _parse_url(url)
        self._expect = _check_expected("expect", expect, 100, 599)
        if not isinstance(method, str) or not _TOKEN.fullmatch(method) or method != method.upper():
            raise ConfigError(f"method is {shown(method)}: give an HTTP method in capitals, e.g. 'GET' or 'HEAD'")
        self._method = method
        self._headers = _check_headers(headers if headers is not None else {})

    def __repr__(self) -> str:
        return f"HttpCheck({self._scheme}://{self._host}:{self._port}, …)"

    def definition(self) -> dict[str, Any]:
        return {
            "kind": "http",
            "method": self._method,
            "url": [self._scheme, self._host, self._port, self._target],
            "expect": self._expect,
            "headers": sorted(name.lower() for name in self._headers),
        }

    async def run(self, run: Run) -> Verdict:
        try:
            async with _connection(self._host, self._port, self._tls()) as (reader, writer):
                writer.write(self._request())
                await writer.drain()
                status, reason = await _read_status(reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            return Verdict(False, _why(error))
        if status in self._expect:
            return Verdict(True, f"{status} {reason}".strip())
        return Verdict(False, f"{status} {reason}".strip() + f", and {_either(self._expect)} is expected")

    def _request(self) -> bytes:
        default = {"http": 80, "https": 443}[self._scheme]
        host = f"[{self._host}]" if ":" in self._host else self._host
        lines = [
            f"{self._method} {self._target} HTTP/1.1",
            f"Host: {host}" if self._port == default else f"Host: {host}:{self._port}",
            "Connection: close",
        ]
        if not any(name.lower() == "user-agent" for name in self._headers):
            lines.append("User-Agent: tenure")
        if self._method in ("POST", "PUT", "PATCH"):
            lines.append("Content-Length: 0")
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self._scheme == "https" else None


class TcpCheck:
    """Connect; ok if that succeeds."""

    def __init__(self, host: str, port: int) -> None:
        if not isinstance(host, str) or not host or len(host) > 253 or not host.isprintable() or " " in host:
            raise ConfigError(f"host is {shown(host)}: give a host name or an address")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise ConfigError(f"port is {port!r}: give a number from 1 to 65535")
        self._host = host
        self._port = port

    def __repr__(self) -> str:
        return f"TcpCheck({self._host!r}, {self._port})"

    def definition(self) -> dict[str, Any]:
        return {"kind": "tcp", "host": self._host, "port": self._port}

    async def run(self, run: Run) -> Verdict:
        try:
            async with _connection(self._host, self._port, None):
                return Verdict(True, "connected")
        except OSError as error:
            return Verdict(False, _why(error))


class CommandCheck:
    """Run a program; ok if it exits with an expected status.

    It is started without a shell, with `TENURE_JOB_ID`, `TENURE_TOKEN` and `TENURE_EPOCH` in its environment, and is
    killed with its process group at the timeout. The end of what it prints is kept with the result.
    """

    def __init__(self, *argv: str, expect: Collection[int] = (0,), env: Mapping[str, str] | None = None) -> None:
        """`env` is added to this process's environment; its values are not part of the definition."""
        if not argv or not argv[0]:
            raise ConfigError("argv is empty: give the program and its arguments, e.g. CommandCheck('pg_isready')")
        if len(argv) > MAX_ARGUMENTS:
            raise ConfigError(f"argv has {len(argv)} arguments, and the limit is {MAX_ARGUMENTS}")
        for word in argv:
            if not isinstance(word, str) or "\0" in word:
                raise ConfigError(f"argv has {shown(word)}: every argument is text without NUL")
        self._argv = argv
        self._expect = _check_expected("expect", expect, 0, 255)
        if env is not None:
            check_instance("env", env, Mapping)
        self._env = dict(env) if env is not None else {}
        for name, value in self._env.items():
            if (
                not isinstance(name, str)
                or not isinstance(value, str)
                or not name
                or "=" in name
                or "\0" in name + value
            ):
                raise ConfigError(f"env has {name!r}: names and values are text without NUL, and names without =")

    def __repr__(self) -> str:
        return f"CommandCheck({self._argv[0]!r}, …)" if len(self._argv) > 1 else f"CommandCheck({self._argv[0]!r})"

    def definition(self) -> dict[str, Any]:
        return {"kind": "command", "argv": self._argv, "expect": self._expect, "env": sorted(self._env)}

    async def run(self, run: Run) -> Verdict:
        own = {"TENURE_JOB_ID": run.job_id, "TENURE_TOKEN": str(run.token), "TENURE_EPOCH": str(run.epoch)}
        # A pipe of our own, not asyncio's: with that one, waiting for the program is also waiting for everybody who
        # inherited its output.
        read_end, write_end = os.pipe()
        output = _Tail(read_end)
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=write_end,
                    env={**os.environ, **self._env, **own},
                    start_new_session=True,
                )
            finally:
                os.close(write_end)
            try:
                output.start()
                status = await process.wait()
            except BaseException:
                # Its own session, so its process group is its id; it is not reaped yet, so the id is not another's.
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
                raise
        finally:
            output.close()
        said = output.text()
        if status in self._expect:
            return Verdict(True, said or f"exit status {status}")
        how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return Verdict(False, f"{how}, and {_either(self._expect)} is expected" + (f": {said}" if said else ""))


class _Tail:
    """The end of what is written into a pipe. It is read as it comes, so that the writer never waits for us."""

    def __init__(self, read_end: int) -> None:
        self._read_end: int | None = read_end
        os.set_blocking(read_end, False)
        self._kept = b""
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        assert self._read_end is not None
        self._loop.add_reader(self._read_end, self._read)

    def close(self) -> None:
        """Take what is there, and stop: somebody who inherited the pipe may hold it open for ever."""
        if self._read_end is None:
            return
        for _ in range(16):
            if self._read_end is None or not self._read():
                break
        self._end()

    def text(self) -> str:
        return self._kept[-MAX_OUTPUT_BYTES:].decode(errors="replace").strip()

    def _read(self) -> bool:
        """True: there may be more."""
        if self._read_end is None:
            return False
        try:
            piece = os.read(self._read_end, 65536)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self._end()
            return False
        self._kept = (self._kept + piece)[-MAX_OUTPUT_BYTES:]
        return True

    def _end(self) -> None:
        if self._read_end is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = None


@contextlib.asynccontextmanager
async def _connection(
    host: str, port: int, tls: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    name = host if tls is not None else None
    reader, writer = await asyncio.open_connection(
        host, port, ssl=tls, server_hostname=name, limit=MAX_HEAD_BYTES, happy_eyeballs_delay=0.25
    )
    try:
        yield reader, writer
    finally:
        # Aborted, not closed: nothing is owed to the other side, which might never say goodbye.
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _read_status(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Status and reason of the final answer."""
    for _ in range(MAX_INTERIM_ANSWERS):
        head = await reader.readuntil(b"\n")
        line = _STATUS_LINE.fullmatch(head)
        if line is None:
            raise ValueError("what came back is not HTTP/1")
        status = int(line[1])
        if status >= 200:
            return status, (line[2] or b"").decode("latin-1").strip()
        while (await reader.readuntil(b"\n")).strip():
            pass
    raise ValueError(f"over {MAX_INTERIM_ANSWERS} interim answers, and no final one")


def _why(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'no reason given'}"
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved: {error.strerror}"
    if isinstance(error, EOFError):
        return "the connection ended before there was an answer"
    if isinstance(error, asyncio.LimitOverrunError):
        return f"the answer's head is over {MAX_HEAD_BYTES} bytes"
    if isinstance(error, OSError) and error.errno is not None:
        return f"cannot connect: {os.strerror(error.errno)}" if error.errno > 0 else "cannot connect"
    return str(error) or type(error).__name__


def _either(expected: tuple[int, ...]) -> str:
    return " or ".join(map(str, expected)) if len(expected) <= 5 else f"one of {len(expected)} values"


def _check_expected(what: str, values: Collection[int], least: int, most: int) -> tuple[int, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Collection) or not 0 < len(values) <= 500:
        raise ConfigError(f"{what} is {shown(values)}: give one or more numbers, e.g. ({least},)")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{what} has {value!r}: give numbers from {least} to {most}")
    return tuple(sorted(set(values)))


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    check_instance("headers", headers, Mapping)
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise ConfigError(f"headers has {name!r}: that is not the name of a header that can be given")
        if not isinstance(value, str) or not value.isprintable() or len(value) > 8192 or not _is_latin1(value):
            raise ConfigError(f"the value of header {name!r} is not one line of Latin-1 text")  # it may be a secret
    return dict(headers)


def _is_latin1(text: str) -> bool:
    return all(ord(each) < 256 for each in text)


def _parse_url(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port, and what is asked for. The URL itself stays out of messages: it may hold a secret."""
    if not isinstance(url, str):
        raise ConfigError(f"url is a {type(url).__name__}: give text, e.g. 'https://example.org/health'")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        name = (host or "").encode("ascii" if ":" in (host or "") else "idna").decode() if host else ""
    except (ValueError, UnicodeError):
        raise ConfigError("url cannot be read as a URL: give e.g. 'https://example.org:8443/health'") from None
    if parts.scheme not in ("http", "https") or not name or not url.isprintable() or " " in url:
        raise ConfigError("url must be http:// or https:// with a host, and without spaces")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "url holds a user name or password: give an Authorization header instead, which is not hashed"
        )
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + (
        "?" + quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]") if parts.query else ""
    )
    return parts.scheme, name, port or {"http": 80, "https": 443}[parts.scheme], target

"""Just enough HTTP/1.1 for the lab's own servers and its proxy: whole messages, keep-alive, nothing streamed.

Bodies are held in memory, which is right for lease-sized objects and wrong for anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

Header = tuple[str, str]

_BODILESS = (204, 304)


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: tuple[Header, ...] = ()
    body: bytes = b""

    @property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    def header(self, name: str) -> str | None:
        return find_header(self.headers, name)


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()

    def header(self, name: str) -> str | None:
        return find_header(self.headers, name)


Handler = Callable[[Request], Awaitable[Response]]


def find_header(headers: tuple[Header, ...], name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name), None)


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Answer requests of one client, in order, until either side closes."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while (request := await read_request(reader, writer)) is not None:
            response = await handler(request)
            writer.write(encode_response(response, request.method))
            await writer.drain()
            if (request.header("connection") or "").lower() == "close":
                break
    writer.close()


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """The next request, or None when the client has hung up between two of them."""
    try:
        first, headers = await _read_head(reader)
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise
        return None
    method, target, _ = first.split(" ", 2)
    if (find_header(headers, "expect") or "").lower() == "100-continue":
        # boto3 waits a second for this line before it sends the body of a PUT.
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return Request(method, target, headers, await _read_body(reader, headers))


async def read_response(reader: asyncio.StreamReader, method: str) -> Response:
    first, headers = await _read_head(reader)
    while first.split(" ", 2)[1].startswith("1"):
        first, headers = await _read_head(reader)
    status = int(first.split(" ", 2)[1])
    if method == "HEAD" or status in _BODILESS:
        return Response(status, b"", headers)
    framed = find_header(headers, "content-length") or find_header(headers, "transfer-encoding")
    return Response(status, await _read_body(reader, headers) if framed else await reader.read(), headers)


def encode_request(request: Request) -> bytes:
    headers = [h for h in request.headers if h[0].lower() not in ("content-length", "transfer-encoding", "expect")]
    if request.body or request.method in ("PUT", "POST"):
        headers.append(("Content-Length", str(len(request.body))))
    return _encode(f"{request.method} {request.target} HTTP/1.1", headers, request.body)


def encode_response(response: Response, method: str) -> bytes:
    headers = [h for h in response.headers if h[0].lower() != "transfer-encoding"]
    if response.header("date") is None:
        headers.append(("Date", formatdate(usegmt=True)))
    if response.header("content-length") is None and response.status not in _BODILESS:
        headers.append(("Content-Length", str(len(response.body))))
    # The answer to a HEAD announces the length of a body that it does not carry.
    body = b"" if method == "HEAD" or response.status in _BODILESS else response.body
    return _encode(f"HTTP/1.1 {response.status} {_reason(response.status)}", headers, body)


def _encode(first: str, headers: list[Header], body: bytes) -> bytes:
    lines = "\r\n".join([first, *(f"{name}: {value}" for name, value in headers), "", ""])
    return lines.encode("latin-1") + body


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, tuple[Header, ...]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, tuple((name.strip(), value.strip()) for name, _, value in pairs)


async def _read_body(reader: asyncio.StreamReader, headers: tuple[Header, ...]) -> bytes:
    if (find_header(headers, "transfer-encoding") or "").lower() != "chunked":
        return await reader.readexactly(int(find_header(headers, "content-length") or 0))
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return b"".join(parts)

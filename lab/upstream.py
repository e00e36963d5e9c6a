"""A proxy's connection to the server behind it."""

from __future__ import annotations

import asyncio
import time

from lab.http1 import Request, Response, encode_request, read_response

# Well under the keep-alive timeout of every server in the lab (Azurite's is 5 s), so that a request is never lost
# to a connection that the server was just about to close.
_REUSE_SECONDS = 1.0


class Upstream:
    """One connection to the store, opened when needed. It never sends a request a second time of its own accord."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used = 0.0

    async def send(self, request: Request) -> Response:
        reader, writer = await self._open()
        try:
            writer.write(encode_request(request))
            await writer.drain()
            response = await read_response(reader, request.method)
        except BaseException:
            self.close()
            raise
        self._used = time.monotonic()
        if (response.header("connection") or "").lower() == "close":
            self.close()
        return response

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None:
            is_stale = time.monotonic() - self._used > _REUSE_SECONDS or self._streams[0].at_eof()
            if not is_stale:
                return self._streams
            self.close()
        self._streams = await asyncio.open_connection(self._host, self._port)
        return self._streams

"""An asyncio server on a loopback port, in a thread with a loop of its own.

Its own thread, so that a test which blocks its loop (or has none) does not stop the server as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

_MOMENT = 0.01

Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class BackgroundServer:
    def __init__(self, connection: Connection, port: int = 0) -> None:
        self.port = port
        self._connection = connection
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failures: list[OSError] = []
        self._writers: set[asyncio.StreamWriter] = set()

    def start(self) -> str:
        """Listen, and return the URL. A second start after a stop takes the same port again."""
        assert self._thread is None, "already started"
        self._ready.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="lab-server", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failures:
            self._thread = None
            raise self._failures.pop()
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Close the port and every connection. Nothing is answered after this returns."""
        if self._thread is None:
            return
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=512)
        except OSError as failure:
            self._failures.append(failure)
            self._ready.set()
            return
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        # One that was accepted a moment ago has a task that has not begun, and would be left open if it never did.
        await asyncio.sleep(_MOMENT)
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(_MOMENT)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        # asyncio.run cancels what is still open when the loop ends, and a cancelled connection is no error.
        with contextlib.suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            await self._connection(reader, writer)
        writer.close()
        self._writers.discard(writer)

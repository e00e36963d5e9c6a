"""An asyncio server on a loopback port, in a thread with a loop of its own.

Its own thread, so that a test which blocks its loop (or has none) does not stop the server as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

# Turns of the loop, not time: on a busy machine a short sleep may be over after a single turn.
_TURNS = 50

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
        # One that was accepted a moment ago is still being made, and a server that is closed under it leaves it open
        # for ever: first nobody more is let in, then it is made, then the server is closed.
        for listening in server.sockets:
            self._loop.remove_reader(listening.fileno())
        await turns()
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await turns()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        # asyncio.run cancels what is still open when the loop ends, and a cancelled connection is no error.
        with contextlib.suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            await self._connection(reader, writer)
        # What is still to be written keeps a closed one open, and whoever stops the server must find it.
        writer.close()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await writer.wait_closed()
        self._writers.discard(writer)


async def turns() -> None:
    """Let the loop do what it has begun: a connection takes some turns to be made, and to be lost."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)

"""Servers that several processes use, started by one of them when they are first asked for.

The workers of pytest-xdist ask its controller. A worker that is killed takes no server with it, and the controller
leaves none behind: it stops all of them at its end.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

Serving = Callable[[], AbstractContextManager[Any]]
"""Starts a server, and gives where it is; stops it at the end."""


class NotServed(Exception):
    """The server is not installed, or did not start; the text says why."""


class SharedServers:
    """Hands out where servers are, to whoever asks on `address`, and starts each when it is asked for first."""

    def __init__(self, servers: Mapping[str, Serving]) -> None:
        self._servers = servers
        self._started: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        self._open = contextlib.ExitStack()
        # Linux kills a server when the thread that started it ends (`die_with_parent`): these last until `stop`.
        self._threads = ThreadPoolExecutor(len(servers), thread_name_prefix="shared-servers")
        self._listener = Listener(family="AF_UNIX")
        threading.Thread(target=self._listen, name="shared-servers", daemon=True).start()

    @property
    def address(self) -> str:
        return str(self._listener.address)

    def stop(self) -> None:
        """All of them. One that is still starting is waited for, so that it is not left behind."""
        self._listener.close()
        with self._lock:
            started = list(self._started.values())
        for each in started:
            each.exception()
        self._open.close()
        self._threads.shutdown()

    def _listen(self) -> None:
        while True:
            try:
                asked = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: Connection) -> None:
        with asked, contextlib.suppress(EOFError, OSError):  # a worker that is killed hears no answer
            name = asked.recv()
            with self._lock:
                if name not in self._started:
                    self._started[name] = self._threads.submit(self._start, name)
            try:
                asked.send((self._started[name].result(), ""))
            except Exception as problem:
                asked.send((None, str(problem) or type(problem).__name__))

    def _start(self, name: str) -> Any:
        serving = self._servers[name]()
        where = serving.__enter__()
        self._open.push(serving)
        return where


def ask(address: str, name: str) -> Any:
    """Where the server of this name is. Waits until it is started; raises `NotServed`."""
    with Client(address, family="AF_UNIX") as asking:
        asking.send(name)
        try:
            where, problem = asking.recv()
        except EOFError:
            raise NotServed(f"{name}: the process that starts it has ended") from None
    if problem:
        raise NotServed(problem)
    return where

"""One process that stands for election on ZooKeeper, by kazoo's Election.

    python -m bench.failover.peer_kazoo PORT PLACE LEASE NAME LOG

Believing is: the function that Election calls for the leader is running, and the connection is CONNECTED, as a listener
is told. kazoo's guide asks for just that: not to act while it is SUSPENDED, and to give up when it is LOST.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from kazoo.client import KazooClient, KazooState  # type: ignore[import-not-found, unused-ignore]  # in its own place
from kazoo.exceptions import KazooException  # type: ignore[import-not-found, unused-ignore]

from bench.failover.notes import PERIOD, Notes


class Process:
    def __init__(self, port: str, place: str, lease: float, name: str, log: str) -> None:
        self._client = KazooClient(f"127.0.0.1:{port}", timeout=lease)
        self._client.add_listener(self._told)
        self._election = self._client.Election(f"/{place}", name)
        self._elected = self._connected = False
        self._asked = threading.Event()
        self._over = threading.Event()
        self._notes = Notes(log, name, lambda: self._elected and self._connected)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        self._client.start()
        self._notes.start()
        while not self._asked.is_set():
            self._over.clear()
            try:
                self._election.run(self._lead)
            except KazooException as error:
                # The session was lost: the lock is gone with it, and cannot be released.
                print(type(error).__name__, error, flush=True)
                time.sleep(0.05)
        self._client.stop()
        self._client.close()
        time.sleep(10 * PERIOD)

    def _lead(self) -> None:
        self._elected = True
        if not self._asked.is_set():
            self._over.wait()
        self._elected = False

    def _told(self, state: str) -> None:
        self._connected = state == KazooState.CONNECTED
        if state == KazooState.LOST:
            self._over.set()

    def _end(self, *_: object) -> None:
        self._asked.set()
        self._over.set()
        self._election.cancel()


if __name__ == "__main__":
    port, place, lease, name, log = sys.argv[1:]
    Process(port, place, float(lease), name, log).run()

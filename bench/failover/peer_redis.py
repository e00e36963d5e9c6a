"""One process that wants a lock of Redis, by redis-py's Lock, and extends it from a thread, as its users do.

    python -m bench.failover.peer_redis PORT PLACE LEASE NAME LOG

Believing is: the lock was acquired, and the last extension, of which there is one every third of the lease, did not
fail. Beside that `lock.owned()` is noted, which asks the server each time.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

import redis  # type: ignore[import-not-found, unused-ignore]  # in an environment of its own
from redis.exceptions import LockError, RedisError  # type: ignore[import-not-found, unused-ignore]

from bench.failover.notes import PERIOD, Notes


class Process:
    def __init__(self, port: str, place: str, lease: float, name: str, log: str) -> None:
        self._lease = lease
        # Its token must not be local to the thread that acquired it, for another one extends it: so say its docs.
        self._lock = redis.Redis(port=int(port)).lock(place, timeout=lease, thread_local=False)
        self._held = False
        self._asked = threading.Event()
        self._notes = Notes(log, name, lambda: self._held, self._owned)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._asked.set())
        self._notes.start()
        threading.Thread(target=self._extend, daemon=True).start()
        while not self._asked.is_set():
            if self._held:
                self._asked.wait(0.05)
            elif self._lock.acquire(blocking_timeout=0.5):
                self._held = True
        if self._held:
            self._held = False
            self._lock.release()
        time.sleep(10 * PERIOD)

    def _extend(self) -> None:
        while True:
            time.sleep(self._lease / 3)
            if self._held:
                try:
                    self._lock.reacquire()
                except (LockError, RedisError) as error:
                    self._held = False
                    print(type(error).__name__, error, flush=True)

    def _owned(self) -> bool:
        return self._held and bool(self._lock.owned())


if __name__ == "__main__":
    port, place, lease, name, log = sys.argv[1:]
    Process(port, place, float(lease), name, log).run()

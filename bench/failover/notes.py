"""What a process of a peer notes: a hundred times a second, whether it believes that it leads, as `lab.judge` reads it.

It runs in the peers' environment, so it imports nothing but the standard library.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

PERIOD = 0.010


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Notes:
    """Asks from a thread of its own, and appends the answers to a file."""

    def __init__(self, path: str, name: str, believes: Callable[[], bool], holds: Callable[[], bool] | None = None):
        """`holds`: a second answer, for those that have one; otherwise it is the first again."""
        self._process = f"{name}:{os.getpid()}"
        self._believes, self._holds = believes, holds
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._term, self._leading = 0, False
        self._thread = threading.Thread(target=self._run, name="notes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while True:
            os.write(self._file, self._line().encode())  # one call: a line is there whole, or not at all
            time.sleep(PERIOD)

    def _line(self) -> str:
        before_ns = boottime_ns()
        held = self._holds() if self._holds is not None else None
        leading = self._believes()
        after_ns = boottime_ns()
        if leading and not self._leading:
            # The peers have no number for their terms that all of them know; the judge wants them told apart.
            self._term += 1
        self._leading = leading
        holding = leading if held is None else held
        epoch = self._term if leading or holding else 0
        return f"{before_ns} {after_ns} {self._process} {epoch} {leading:d} {holding:d}\n"

"""A program that notes a hundred times a second that it runs: an OS child whose overlap with another can be judged.

    TENURE_EPOCH=… TENURE_WORKER_ID=… python lab/ticker.py LOG

Its lines are those of `lab.believer`. It ignores SIGTERM if it is told to (`--stubborn`).
"""

from __future__ import annotations

import os
import signal
import sys
import time

PERIOD = 0.010


def tick(log: int, process: str, epoch: int) -> None:
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    os.write(log, f"{now} {now} {process} {epoch} 1 1\n".encode())


def main() -> None:
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    epoch = int(os.environ["TENURE_EPOCH"])
    process = f"{os.environ['TENURE_WORKER_ID']}:{os.getpid()}"
    while True:
        tick(log, process, epoch)
        time.sleep(PERIOD)


if __name__ == "__main__":
    main()

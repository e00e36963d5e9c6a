"""A program that notes a hundred times a second that it runs: an OS child whose overlap with another can be judged.

    TENURE_EPOCH=… TENURE_WORKER_ID=… python lab/ticker.py LOG [--stubborn] [--daemon] [--bare]

Its lines are those of `lab.believer`. If LOG is a folder, each process has a file of its own there. It ignores SIGTERM
if it is told to (`--stubborn`), moves to the background as daemons do (`--daemon`), and clears its environment as well
(`--bare`).
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


def become_daemon() -> None:
    """Fork, begin a session, fork again: what is left has no parent and no terminal."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)


def main() -> None:
    if "--as" in sys.argv:  # started again, without an environment
        epoch, worker = sys.argv[sys.argv.index("--as") + 1].split(":", 1)
    else:
        epoch, worker = os.environ["TENURE_EPOCH"], os.environ["TENURE_WORKER_ID"]
    if "--daemon" in sys.argv:
        become_daemon()
        again = [word for word in sys.argv if word not in ("--daemon", "--bare")]
        if "--bare" in sys.argv:
            os.execve(sys.executable, [sys.executable, "-S", *again, "--as", f"{epoch}:{worker}"], {})
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path = os.path.join(sys.argv[1], f"{worker}-{os.getpid()}") if os.path.isdir(sys.argv[1]) else sys.argv[1]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    process = f"{worker}:{os.getpid()}"
    while True:
        tick(log, process, int(epoch))
        time.sleep(PERIOD)


if __name__ == "__main__":
    main()

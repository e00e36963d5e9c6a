"""A program that is hard to end: it notes the instants at which it runs, and has children that do.

    python -I -S lab/stubborn.py LOG [ignore-term] [daemon] [clear] [children=N] [hop] [headless] [leave] [seconds=S]

Each process of it appends lines to LOG, `PID BOOTTIME_NS`, one about every 10 ms: the last one says until when it ran.
It ends by itself after 60 s, whatever a test forgot.

`ignore-term` ignores SIGTERM. `daemon` adds a grandchild that has forked twice and begun a session of its own, `clear`
one more that has an empty environment as well. `children=N` adds N, a chain of ten at a time. `hop` adds one that
forks, begins a session and ends, some hundred times a second. `headless` adds one whose first thread has ended, which
looks like a zombie and runs on. With `leave` the first process ends as soon as the others run.
"""

from __future__ import annotations

import os
import signal
import sys
import time

PERIOD = 0.010
CHAIN = 10


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def note_forever(log: int, until_ns: int) -> None:
    while boottime_ns() < until_ns:
        os.write(log, f"{os.getpid()} {boottime_ns()}\n".encode())
        time.sleep(PERIOD)
    os._exit(0)


def hop_forever(log: int, until_ns: int) -> None:
    while boottime_ns() < until_ns:
        os.write(log, f"{os.getpid()} {boottime_ns()}\n".encode())
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.002)
    os._exit(0)


def run_headless(log: int, until_ns: int) -> None:
    import ctypes
    import platform
    import threading

    threading.Thread(target=note_forever, args=(log, until_ns)).start()
    # The system call, which ends one thread; Python's own ways out all end the process.
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)


def add_chain(length: int, log: int, until_ns: int) -> None:
    """Each the child of the one before."""
    if os.fork():
        return
    if length > 1:
        add_chain(length - 1, log, until_ns)
    note_forever(log, until_ns)


def add_daemon(log: int, until_ns: int, *, clear: bool) -> None:
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    if clear:
        os.execve(
            sys.executable,
            [sys.executable, "-I", "-S", os.path.abspath(__file__), f"/proc/{os.getpid()}/fd/{log}", "ignore-term"],
            {},
        )
    note_forever(log, until_ns)


def main(path: str, *words: str) -> None:
    options = dict(word.partition("=")[::2] for word in words)
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    until_ns = boottime_ns() + int(float(options.get("seconds", "60")) * 1e9)
    if "ignore-term" in options:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "daemon" in options:
        add_daemon(log, until_ns, clear=False)
    if "clear" in options:
        os.set_inheritable(log, True)
        add_daemon(log, until_ns, clear=True)
        os.set_inheritable(log, False)
    for _ in range(int(options.get("children", "0")) // CHAIN):
        add_chain(CHAIN, log, until_ns)
    if "hop" in options and os.fork() == 0:
        hop_forever(log, until_ns)
    if "headless" in options and os.fork() == 0:
        run_headless(log, until_ns)
    if "leave" in options:
        time.sleep(0.3)
        return
    note_forever(log, until_ns)


if __name__ == "__main__":
    main(*sys.argv[1:])

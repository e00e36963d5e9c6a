"""Debian's redis-server, on a free port of this machine, keeping what it is given.

It appends every write to a file and flushes that once a second (`appendonly yes`, `appendfsync everysec`, the default
policy of that file): up to a second of acknowledged messages may be lost in a power failure. The directory store
flushes every write; flushing as often (`always`) would be slower. ministack, as it is started here, keeps its objects
in memory alone.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from lab.process import free_port, spawn, stop

SETTINGS = "appendonly yes, appendfsync everysec"


class RedisServer:
    def __init__(self, home: Path, flush: str = "everysec") -> None:
        """`flush`: its `appendfsync`."""
        self.home = home
        self.flush = flush
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> list[str]:
        return [] if shutil.which("redis-server") else ["redis-server"]

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        options = {"bind": "127.0.0.1", "port": self.port, "dir": self.home, "save": ""}
        options |= {"appendonly": "yes", "appendfsync": self.flush}
        command = ["redis-server", *(str(word) for name, value in options.items() for word in (f"--{name}", value))]
        self._process = spawn(command, self.home / "redis.log")
        deadline = time.monotonic() + 20
        while True:
            try:
                self.info("server")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)

    def info(self, section: str) -> dict[str, str]:
        lines = self._ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def commands(self) -> int:
        """That it was sent until now."""
        return int(self.info("stats")["total_commands_processed"])

    def version(self) -> str:
        return self.info("server")["redis_version"]

    def clear(self) -> None:
        self._ask("FLUSHALL")

    def _ask(self, *words: str) -> bytes:
        """One command and its answer, of which only bulk strings have more than a line."""
        request = b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(b"*%d\r\n" % len(words) + request)
            with connection.makefile("rb") as answer:
                first = answer.readline()
                return answer.read(int(first[1:])) if first.startswith(b"$") else first

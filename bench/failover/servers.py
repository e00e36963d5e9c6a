"""etcd and ZooKeeper of Debian, one node each, as child processes on free ports and in folders of their own.

One node answers without asking others: that is the quickest that they can be.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from lab.process import free_port, spawn, stop, wait_for_http

TICK_MS = 500
_JARS = Path("/usr/share/java")


class EtcdServer:
    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> list[str]:
        return [] if shutil.which("etcd") else ["etcd-server"]

    def start(self) -> str:
        """Its version."""
        peers = f"http://127.0.0.1:{free_port()}"
        options = {
            "data-dir": self._home / "data",
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "logger": "zap",
        }
        log = self._home / "etcd.log"
        self._process = spawn(["etcd", *(f"--{name}={value}" for name, value in options.items())], log)
        wait_for_http(f"{self.url}/health", self._process, log)
        done = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[0].rpartition(" ")[2]

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)


class ZooKeeperServer:
    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> list[str]:
        lacks = [] if (_JARS / "zookeeper.jar").exists() else ["zookeeper"]
        return lacks if shutil.which("java") else [*lacks, "default-jre"]

    def start(self) -> str:
        """Its version."""
        settings = {
            "tickTime": TICK_MS,
            "dataDir": self._home / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            # By default sessions of more than twenty ticks are made shorter.
            "maxSessionTimeout": 60_000,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
        }
        (self._home / "data").mkdir(parents=True)
        config = self._home / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        classes = ":".join(str(_JARS / name) for name in ("zookeeper.jar", "slf4j-simple.jar"))
        # Of logs, errors are enough.
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._process = spawn(["java", "-Xmx256m", quiet, "-cp", classes, main, str(config)], self._home / "server.log")
        deadline = time.monotonic() + 60
        while True:
            # It listens before it serves, and says so.
            if found := re.search(r"version: ([\d.]+)", self._ask()):
                return found[1]
            if time.monotonic() > deadline or self._process.poll() is not None:
                tail = (self._home / "server.log").read_text(errors="replace")[-1500:]
                raise RuntimeError(f"ZooKeeper did not start: {tail}")
            time.sleep(0.1)

    def _ask(self) -> str:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"srvr")
                with connection.makefile("r") as answer:
                    return answer.read()
        except OSError:
            return ""

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)

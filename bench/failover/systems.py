"""The systems that are compared: their servers, the command of one process, and what believing means in each.

Believing is what a program that uses the system's own client, as its documentation shows, can know without asking
anybody: that is what it acts upon.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bench.failover.servers import TICK_MS, EtcdServer, ZooKeeperServer
from bench.queue.peers import environment
from bench.queue.redis_server import SETTINGS, RedisServer
from bench.queue.s3db import VERSION, S3dbPeer, installed
from lab.buckets import make_bucket
from lab.cluster import ROOT
from lab.endpoint import S3Endpoint
from lab.ministack import Ministack
from tenure import CoordinatorConfig

PACKAGES = ("kazoo==2.11.0", "redis==7.4.1", "hiredis==3.5.0")
_GO_PATH = Path("/usr/share/gocode")
_SHOWN = ("heartbeat_interval", "heartbeat_jitter", "standby_watch_interval", "takeover_delay", "takeover_margin")


class System(ABC):
    name: ClassVar[str]
    label: ClassVar[str]
    belief: ClassVar[str]

    def __init__(self, home: Path, scratch: Path) -> None:
        self.home, self._scratch = home, scratch

    @staticmethod
    @abstractmethod
    def missing() -> Sequence[str]:
        """What has to be installed first."""

    @abstractmethod
    def start(self) -> str:
        """Install the clients and start the server; the versions of both."""

    @abstractmethod
    def stop(self) -> None: ...

    def lease(self, asked: float) -> float:
        """The nearest to this that it can have."""
        return asked

    @abstractmethod
    def settings(self, lease: float) -> str: ...

    @abstractmethod
    def command(self, place: str, lease: float, name: str, log: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        """One process that stands for the election at `place`."""


class TenureOnMinistack(System):
    name = "tenure"
    label = "tenure, S3"
    belief = "`is_leader()`"

    def __init__(self, home: Path, scratch: Path) -> None:
        super().__init__(home, scratch)
        self._server = Ministack(home)
        self._endpoint: S3Endpoint | None = None

    @staticmethod
    def missing() -> Sequence[str]:
        return Ministack.missing()

    def start(self) -> str:
        self._endpoint = self._server.start()
        make_bucket(self._endpoint, "bench")
        return "this checkout, ministack"

    def stop(self) -> None:
        self._server.stop()

    def settings(self, lease: float) -> str:
        config = CoordinatorConfig.fast() if lease == 3 else CoordinatorConfig.standard()
        shown = ", ".join(f"{name} {getattr(config, name):g} s" for name in _SHOWN)
        return f"CoordinatorConfig.{_preset(lease)}(), no startup jitter: {shown}"

    def command(self, place: str, lease: float, name: str, log: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        words = [sys.executable, "-m", "lab.believer", self._url(place), "--worker-id", name, "--log", str(log)]
        return [*words, "--preset", _preset(lease)], {}

    def _url(self, place: str) -> str:
        assert self._endpoint is not None
        return self._endpoint.store_url("bench", place)


class TenureOnDirectory(TenureOnMinistack):
    name = "tenure-directory"
    label = "tenure, directory"

    def start(self) -> str:
        return "this checkout, directory store"

    def stop(self) -> None: ...

    def _url(self, place: str) -> str:
        return (self.home / "store" / place).as_uri()


class S3db(System):
    name = "s3db"
    label = "s3db.js"
    belief = "`isLeader` of its coordinator"

    def __init__(self, home: Path, scratch: Path) -> None:
        super().__init__(home, scratch)
        self._server = Ministack(home)

    @staticmethod
    def missing() -> Sequence[str]:
        lacks = S3dbPeer.missing()
        return [lacks] if lacks else []

    def start(self) -> str:
        self._folder = installed(self._scratch, Path(__file__).parent / "s3db_believer.mjs")
        end = self._server.start()
        make_bucket(end, "bench")
        self._connection = f"http://{end.access_key}:{end.secret_key}@{end.url.removeprefix('http://')}/bench"
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
        return f"s3db.js {VERSION}, Node {node.stdout.strip()}, ministack"

    def stop(self) -> None:
        self._server.stop()

    def lease(self, asked: float) -> float:
        return max(5.0, asked)  # a shorter one is made so long

    def settings(self, lease: float) -> str:
        what = "its defaults" if lease == 15 else "the shortest that it takes"
        return f"{what}: {json.dumps(self._config(lease))}; retries 0, exitOnSignal false, disconnect() at SIGTERM"

    def command(self, place: str, lease: float, name: str, log: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        options = {
            "connection": f"{self._connection}/{place}?forcePathStyle=true",
            "config": self._config(lease),
            "name": name,
            "log": str(log),
            "suspended_ns": str(
                time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            ),
        }
        # Its id is made of the host name: processes with the same one would all lead.
        env = {"HOSTNAME": name, "NODE_NO_WARNINGS": "1"}
        return ["node", str(self._folder / "s3db_believer.mjs"), json.dumps(options)], env

    def _config(self, lease: float) -> dict[str, int]:
        if lease == 15:
            return {"heartbeatInterval": 5000, "heartbeatJitter": 1000, "leaseTimeout": 15000, "workerTimeout": 20000}
        return {"heartbeatInterval": 1000, "heartbeatJitter": 200, "leaseTimeout": 5000, "workerTimeout": 5000}


class Etcd(System):
    name = "etcd"
    label = "etcd"
    belief = "Campaign returned, and Done() of its session is not closed"

    def __init__(self, home: Path, scratch: Path) -> None:
        super().__init__(home, scratch)
        self._server = EtcdServer(home)

    @staticmethod
    def missing() -> Sequence[str]:
        lacks = [] if (_GO_PATH / "src/go.etcd.io/etcd/clientv3/concurrency").exists() else ["golang-etcd-server-dev"]
        return [*EtcdServer.missing(), *([] if shutil.which("go") else ["golang-go"]), *lacks]

    def start(self) -> str:
        self._program = self._built()
        return f"etcd {self._server.start()}, one node; its own client and concurrency package for Go"

    def stop(self) -> None:
        self._server.stop()

    def settings(self, lease: float) -> str:
        return f"concurrency.WithTTL({lease:g}), kept alive by its session; Resign and Close at SIGTERM"

    def command(self, place: str, lease: float, name: str, log: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        return [str(self._program), self._server.url, place, f"{lease:g}", name, str(log)], {}

    def _built(self) -> Path:
        source = Path(__file__).parent / "peer_etcd.go"
        program = self._scratch / f"peer_etcd-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
        if not program.exists():
            env = {**os.environ, "GO111MODULE": "off", "GOPATH": str(_GO_PATH), "GOFLAGS": ""}
            build = ["go", "build", "-o", str(program), str(source)]
            done = subprocess.run(build, env=env, capture_output=True, text=True, timeout=900)
            if done.returncode:
                raise RuntimeError(f"{source.name} could not be built: {done.stderr[-1000:]}")
        return program


class ZooKeeper(System):
    name = "zookeeper"
    label = "ZooKeeper"
    belief = "kazoo's Election runs the leader's function, and its connection is CONNECTED"

    def __init__(self, home: Path, scratch: Path) -> None:
        super().__init__(home, scratch)
        self._server = ZooKeeperServer(home)

    @staticmethod
    def missing() -> Sequence[str]:
        return ZooKeeperServer.missing()

    def start(self) -> str:
        self._bin = environment(self._scratch, "failover-venv", PACKAGES)
        return f"ZooKeeper {self._server.start()}, one node, {PACKAGES[0].replace('==', ' ')}"

    def stop(self) -> None:
        self._server.stop()

    def settings(self, lease: float) -> str:
        return f"session timeout {lease:g} s, tickTime {TICK_MS} ms; the function returns and stop() at SIGTERM"

    def command(self, place: str, lease: float, name: str, log: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        return _python(self._bin, "bench.failover.peer_kazoo", self._server.port, place, lease, name, log)


class Redis(System):
    name = "redis"
    label = "Redis lock"
    belief = "the lock was acquired, and the last extension did not fail"

    def __init__(self, home: Path, scratch: Path) -> None:
        super().__init__(home, scratch)
        self._server = RedisServer(home)

    @staticmethod
    def missing() -> Sequence[str]:
        return RedisServer.missing()

    def start(self) -> str:
        self._bin = environment(self._scratch, "failover-venv", PACKAGES)
        self._server.start()
        return f"Redis {self._server.version()} ({SETTINGS}), one node, redis-py {PACKAGES[1].partition('==')[2]}"

    def stop(self) -> None:
        self._server.stop()

    def settings(self, lease: float) -> str:
        return f"Lock(timeout={lease:g}), extended every {lease / 3:g} s, tried every 0.1 s; release() at SIGTERM"

    def command(self, place: str, lease: float, name: str, log: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        return _python(self._bin, "bench.failover.peer_redis", self._server.port, place, lease, name, log)


def _preset(lease: float) -> str:
    return "fast" if lease == 3 else "standard"


def _python(
    bin: Path, module: str, port: int, place: str, lease: float, name: str, log: Path
) -> tuple[Sequence[str], Mapping[str, str]]:
    words = [str(bin / "python"), "-m", module, str(port), place, f"{lease:g}", name, str(log)]
    return words, {"PYTHONPATH": str(ROOT)}


SYSTEMS: dict[str, type[System]] = {
    system.name: system for system in (TenureOnMinistack, TenureOnDirectory, S3db, Etcd, ZooKeeper, Redis)
}

"""Redis INCRBY, for the ratio. It is another thing: one server in memory, which everybody has to reach and which is
gone, or behind a replica, when it fails; nothing is read, kept beside a record or written to a bucket. With
`appendfsync always` a call that returned is on the disk, as with the directory store; with `everysec` up to a second of
them may be lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.counters.plan import Plan
from bench.queue.obey import ROOT, Node
from bench.queue.peers import environment
from bench.queue.redis_server import RedisServer
from bench.queue.tree import cpu_seconds

PACKAGES = ("redis==7.4.1", "hiredis==3.5.0")
FLUSHES = ("everysec", "always")
TOGETHER = (1, 1_000)
"""Commands in one pipeline; 1: each is awaited."""
_PROCESSES = 2


class RedisPeer:
    def __init__(self, home: Path, scratch: Path, plan: Plan, tell: Callable[[str], None]) -> None:
        self._home, self._plan, self._tell = home, plan, tell
        self._bin = environment(scratch, "redis-venv", PACKAGES)

    @staticmethod
    def missing() -> str | None:
        lacks = RedisServer.missing()
        return f"{', '.join(lacks)} missing: tools/install-servers redis-server" if lacks else None

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {"packages": list(PACKAGES), "rows": []}
        for flush in FLUSHES:
            server = RedisServer(self._home / flush, flush)
            server.start()
            try:
                found["subject"] = f"Redis {server.version()}, INCRBY"
                found["rows"] += [self._row(server, together) for together in TOGETHER]
            finally:
                server.stop()
        return found

    def _row(self, server: RedisServer, together: int) -> dict[str, Any]:
        runs = [self._once(server, together) for _ in range(self._plan.runs)]
        rates = ", ".join(f"{run['per_second']:,.0f}" for run in runs)
        self._tell(f"Redis, appendfsync {server.flush}, {together:,} in a pipeline: {rates} INCRBY/s")
        return {"appendfsync": server.flush, "in_a_pipeline": together, "processes": _PROCESSES, "runs": runs}

    def _once(self, server: RedisServer, together: int) -> dict[str, Any]:
        command = [str(self._bin / "python"), "-m", "bench.counters.peer_redis", json.dumps({"port": server.port})]
        nodes = [Node(command, self._home / f"redis-{number}.log", {"PYTHONPATH": str(ROOT)}) for number in range(2)]
        seconds = self._plan.redis_seconds
        try:
            for node in nodes:
                node.answer(30)
            server_cpu = cpu_seconds([server.pid])
            for node in nodes:
                node.tell(seconds=seconds, together=together, records=self._plan.records)
            shares = [node.answer(seconds + 60) for node in nodes]
            server_cpu = cpu_seconds([server.pid]) - server_cpu
        finally:
            for node in nodes:
                node.end()
        count = sum(share["count"] for share in shares)
        taken = max(share["ended"] for share in shares) - min(share["began"] for share in shares)
        return {
            "adds": count,
            "per_second": round(count / taken, 1),
            "client_cpu_us_per_add": round(sum(share["cpu"] for share in shares) / count * 1e6, 2),
            "server_cpu_us_per_add": round(server_cpu / count * 1e6, 2),
        }

"""The two that are compared: how their fleets, and their first leaders, are started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.coordination.plan import HEARTBEAT, Cell, Plan
from bench.queue.obey import Node
from bench.queue.s3db import installed
from lab.endpoint import S3Endpoint

FIRST_LEADER_WITHIN = 150.0


class Tenure:
    """As it comes, with its heartbeat of 5 s; `election only` is `membership=False`."""

    def __init__(self, endpoint: S3Endpoint, through: str, plan: Plan) -> None:
        self._endpoint, self._through, self._plan = endpoint, through, plan

    def start(self, cell: Cell, home: Path) -> Iterator[Node]:
        ids = [f"worker-{number:03d}" for number in range(cell.workers)]
        share = 1 if cell.workers <= self._plan.most_processes else self._plan.workers_in_a_process
        options = {"role": "worker", "plugins": cell.plugins, "membership": cell.mode != "election only"}
        for begin in range(0, len(ids), share):
            yield self._node(home / f"{begin}.log", cell.bucket, **options, workers=ids[begin : begin + share])

    def first(self, bucket: str, home: Path) -> dict[str, Any]:
        """Seconds for `connect` and `lead`."""
        return _one_answer(self._node(home / f"{bucket}.log", bucket, role="first"))

    def _node(self, log: Path, bucket: str, **options: Any) -> Node:
        url = self._endpoint.store_url(bucket, endpoint=self._through)
        given = json.dumps({"url": url, "heartbeat": HEARTBEAT, **options})
        return Node([sys.executable, "-m", "bench.coordination.node", given], log)


class S3db:
    """With the settings that its own documents give as recommended, which are its defaults.

    Its plugins' heartbeat is 5 s here as well (they come with 15 s, its coordinator with 5 s), and there is no jitter
    at the start. Each worker has a host name of its own, since those with the same one would all lead. The database is
    made before the fleet starts, and plugins start one after the other: those that start together, as `plugins: […]`
    does it, make a coordinator each (`parallel`). `no retries` is `executorPool: {retries: 0}`, which makes it quicker.
    """

    def __init__(self, endpoint: S3Endpoint, through: str, scratch: Path) -> None:
        self._endpoint, self._place = endpoint, through.removeprefix("http://")
        self._folder = installed(scratch, Path(__file__).parent / "s3db_coordination.mjs")

    def start(self, cell: Cell, home: Path) -> Iterator[Node]:
        _one_answer(self._node(home / "make.log", cell.bucket, "make", role="make", retries=0))
        options: dict[str, Any] = {"plugins": cell.plugins, "parallel": cell.mode == "parallel"}
        if cell.mode == "no retries":
            options["retries"] = 0
        for number in range(cell.workers):
            host = f"worker-{number:03d}"
            yield self._node(home / f"{host}.log", cell.bucket, host, role="worker", **options)

    def first(self, bucket: str, home: Path, **options: Any) -> dict[str, Any]:
        return _one_answer(self._node(home / f"{bucket}.log", bucket, bucket, role="first", **options))

    def _node(self, log: Path, bucket: str, host: str, **options: Any) -> Node:
        end = self._endpoint
        connection = f"http://{end.access_key}:{end.secret_key}@{self._place}/{bucket}?forcePathStyle=true"
        given = json.dumps({"connection": connection, "heartbeat": HEARTBEAT, **options})
        env = {"HOSTNAME": host, "NODE_NO_WARNINGS": "1"}
        return Node(["node", str(self._folder / "s3db_coordination.mjs"), given], log, env)


Trial = Callable[[str, Path], dict[str, Any]]


def _one_answer(node: Node) -> dict[str, Any]:
    try:
        return node.answer(FIRST_LEADER_WITHIN)
    finally:
        node.end()

"""s3db.js 21.6.2, the counters on S3 that there were: its EventualConsistencyPlugin on ministack.

One process, which adds and then consolidates. Its coordinator and its own consolidation, every minute, are off, so that
only what was asked for is counted; its client does not retry. As it comes it makes more requests, not fewer.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.counters.plan import Plan
from bench.queue.figures import difference, usd
from bench.queue.obey import Node
from bench.queue.s3db import VERSION, installed
from lab.endpoint import S3Endpoint

SETTINGS = {"autoConsolidate": False, "enableCoordinator": False}
RECORDS = 10
CALLERS = (1, 10)
_CONSOLIDATED_WITHIN = 900.0


class S3dbPeer:
    def __init__(
        self, endpoint: S3Endpoint, home: Path, scratch: Path, plan: Plan, tell: Callable[[str], None]
    ) -> None:
        self._endpoint, self._home, self._plan, self._tell = endpoint, home, plan, tell
        self._folder = installed(scratch, Path(__file__).parent / "s3db_counters.mjs")

    def run(self) -> dict[str, Any]:
        shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
        found: dict[str, Any] = {
            "subject": f"s3db.js {VERSION} on ministack",
            "settings": json.dumps(SETTINGS),
            "node": shown.stdout.strip(),
        }
        node = self._start()
        try:
            node.answer(90)
            node.ask(60, do="seed", count=RECORDS)
            found["adding"] = [self._add(node, callers) for callers in CALLERS]
            found["consolidating"] = self._consolidate(node, sum(row["adds"] for row in found["adding"]))
        finally:
            node.end()
        return found

    def _add(self, node: Node, callers: int) -> dict[str, Any]:
        count = self._plan.slow_adds
        row = self._measured(node, count, {"do": "add", "count": count, "callers": callers, "records": RECORDS}, 300)
        self._tell(f"s3db.js, {callers} callers: {row['per_second']} adds/s, {row['requests_each']} requests each")
        return {"callers": callers, **row}

    def _consolidate(self, node: Node, count: int) -> dict[str, Any]:
        row = self._measured(node, count, {"do": "consolidate"}, _CONSOLIDATED_WITHIN)
        row["counted"] = node.ask(60, do="total", records=RECORDS)["total"]
        self._tell(f"s3db.js, consolidating {count}: {row['seconds']} s, {row['requests_each']} requests an add")
        return row

    def _measured(self, node: Node, count: int, order: dict[str, Any], within: float) -> dict[str, Any]:
        before = node.ask(do="look")["requests"]
        done = node.ask(within, **order)
        requests = difference(node.ask(do="look")["requests"], before)
        seconds = done["ended"] - done["began"]
        return {
            "adds": count,
            "seconds": round(seconds, 2),
            "per_second": round(count / seconds, 2),
            "requests": requests,
            "requests_each": round(sum(requests.values()) / count, 2),
            "usd_per_million": round(usd(requests) / count * 1e6, 2),
        }

    def _start(self) -> Node:
        end = self._endpoint
        place = end.url.removeprefix("http://")
        connection = f"http://{end.access_key}:{end.secret_key}@{place}/bench/s3db?forcePathStyle=true"
        options = {"connection": connection, "settings": SETTINGS}
        command = ["node", str(self._folder / "s3db_counters.mjs"), json.dumps(options)]
        return Node(command, self._home / "s3db.log", {"NODE_NO_WARNINGS": "1"})

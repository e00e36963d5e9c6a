"""s3db.js 21.6.2, the queue on S3 that there was: its S3QueuePlugin on ministack.

It handles about one message a second, so it is given few, and its rate is that of those. As it comes it does not
install, nor run: see `PACKAGE`. Its polls and dispatches are quicker here than by default, there is no startup jitter,
and its client does not retry; ordering and its coordinator are on, as by default. Others have measured up to 2.6 a
second with settings that are not known here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.queue.figures import Throughput, difference
from bench.queue.marks import Marks
from bench.queue.obey import Node
from bench.queue.plan import Plan
from bench.queue.tree import cpu_seconds
from lab.endpoint import S3Endpoint

VERSION = "21.6.2"
PACKAGE = {
    "name": "bench-s3db",
    "private": True,
    "type": "module",
    "dependencies": {"s3db.js": VERSION, "node-cron": "^4", "glob": "*", "ws": "*"},
    # It asks for versions that the registry does not have, and for a parser of its command line that it does not need.
    "overrides": {"recker": "1.0.56", "tuiuiu.js": "1.0.50", "cli-args-parser": "file:./stub"},
}
_LACKING = "\nexport function createRedDbClient() { throw new Error('not there'); }\n"
QUEUE = {"concurrency": 5, "pollInterval": 200, "maxPollInterval": 1000, "ticketBatchSize": 50, "dispatchInterval": 100}
_OPEN = Path(__file__).parent / "s3db_open.mjs"
LEADER_WITHIN = 75.0
"""Its first leader takes about 36 s to be found."""
RUN_WITHIN = 120.0


class S3dbPeer:
    def __init__(
        self, endpoint: S3Endpoint, home: Path, scratch: Path, plan: Plan, tell: Callable[[str], None]
    ) -> None:
        self._endpoint, self._home, self._plan, self._tell = endpoint, home, plan, tell
        self._folder = installed(scratch, Path(__file__).parent / "s3db_node.mjs")

    @staticmethod
    def missing() -> str | None:
        lacks = [program for program in ("node", "npm") if shutil.which(program) is None]
        return f"{', '.join(lacks)} missing: `make servers`" if lacks else None

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {"subject": f"s3db.js {VERSION} on ministack", "settings": json.dumps(QUEUE)}
        found["note"] = (
            f"{self._plan.slow_messages} messages, one run each, of at most {RUN_WITHIN:g} s; handled before its "
            "first leader was there are not counted"
        )
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
        found["node"] = node.stdout.strip()
        if "throughput" in self._plan.parts:
            for workers in self._plan.workers:
                run = self._once(workers)
                found[f"throughput_{workers}"] = [run]
                self._tell(f"s3db.js, {workers} workers: {run['per_second']} messages/s of {run['messages']}")
        return found

    def _once(self, workers: int) -> dict[str, Any]:
        count = self._plan.slow_messages
        home = self._home / str(workers)
        marks = Marks(home / "marks", count + 1)
        nodes: list[Node] = []
        try:
            # One after the other: some of those that make the same database at once do not survive it.
            for role, number in [*(("worker", number) for number in range(workers)), ("producer", 0)]:
                nodes.append(self._start(role, number, workers, home))
                nodes[-1].answer(90)
            readers = [threading.Thread(target=_note, args=(node, marks), daemon=True) for node in nodes[:-1]]
            for reader in readers:
                reader.start()
            producer = nodes[-1]
            # The first message is not counted: it waits for a leader.
            producer.ask(60, do="many", first=0, count=1)
            marks.wait(0, 1, LEADER_WITHIN)
            before, cpu = self._requests(nodes, marks), cpu_seconds(node.pid for node in nodes)
            produced = producer.ask(RUN_WITHIN, do="many", first=1, count=count)
            marks.wait(1, count, RUN_WITHIN - (produced["ended"] - produced["began"]))
            return self._judge(marks, count, produced, nodes, before, cpu)
        finally:
            for node in nodes:
                node.process.kill()
                node.process.wait()

    def _judge(
        self, marks: Marks, count: int, produced: dict[str, Any], nodes: list[Node], before: dict[str, int], cpu: float
    ) -> dict[str, Any]:
        handled = count - marks.missing(1, count)
        requests = difference(self._requests(nodes, marks), before)
        if handled < count:
            # Only those count that were handled: they are put first.
            for place, at in enumerate(sorted(at for at in marks.times[1:] if at), 1):
                marks.times[place] = at
        if not handled:
            seconds = time.monotonic() - produced["began"]
            raise TimeoutError(f"s3db.js handled none of {count} messages within {seconds:.0f} s")
        run = Throughput(marks, 1, handled, produced["began"], produced["ended"])
        run.again = max(0, run.again)
        run.cpu = cpu_seconds(node.pid for node in nodes) - cpu
        run.requests = requests
        return {**run.as_json(), "enqueued": count, "enqueue_per_second": count / run.producing}

    def _requests(self, nodes: list[Node], marks: Marks) -> dict[str, int]:
        total: Counter[str] = Counter()
        for node in nodes[:-1]:
            node.tell(do="look")
        time.sleep(0.3)
        for file in marks.folder.glob("requests-*"):
            total.update(json.loads(file.read_text()))
        total.update(nodes[-1].ask(do="look")["requests"])
        return dict(total)

    def _start(self, role: str, number: int, workers: int, home: Path) -> Node:
        end = self._endpoint
        place = end.url.removeprefix("http://")
        options = {
            "role": role,
            "connection": f"http://{end.access_key}:{end.secret_key}@{place}/bench/s3db-{workers}?forcePathStyle=true",
            "queue": QUEUE,
            "padding": 150,
        }
        # Workers with the same host name would all lead.
        env = {**os.environ, "HOSTNAME": f"{role}-{number}", "NODE_NO_WARNINGS": "1"}
        command = ["node", str(self._folder / "s3db_node.mjs"), json.dumps(options)]
        return Node(command, home / f"{role}-{number}.log", env)


def _note(node: Node, marks: Marks) -> None:
    """What a worker says, until it ends."""
    while True:
        try:
            answer = node.answer(600)
        except (RuntimeError, TimeoutError, ValueError):
            return
        if "n" in answer:
            number = answer["n"]
            marks.seen[number] = min(255, marks.seen[number] + 1)
            if not marks.times[number]:
                marks.times[number] = answer["at"]
        elif "requests" in answer:
            (marks.folder / f"requests-{node.pid}").write_text(json.dumps(answer["requests"]))


def installed(scratch: Path, *scripts: Path) -> Path:
    """A folder with s3db.js in it, from npm, and with these scripts."""
    folder = scratch / "s3db"
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.read_text() != VERSION:
        (folder / "stub").mkdir(parents=True, exist_ok=True)
        (folder / "stub" / "package.json").write_text('{"name": "cli-args-parser", "version": "1.0.0"}')
        (folder / "stub" / "index.js").write_text("module.exports = {};\n")
        (folder / "package.json").write_text(json.dumps(PACKAGE))
        install = ["npm", "install", "--legacy-peer-deps", "--omit=optional", "--no-audit", "--no-fund"]
        done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"s3db.js could not be installed: {done.stderr[-1000:]}")
        module = folder / "node_modules" / "recker" / "dist" / "index.js"
        if "createRedDbClient" not in module.read_text():
            with module.open("a") as file:
                file.write(_LACKING)
        stamp.write_text(VERSION)
    for script in (_OPEN, *scripts):
        shutil.copy(script, folder)
    return folder

"""Many files of other tools in a real directory, in one process after another: work goes on, in bounded memory.

Some sort before all that is ours, some behind, and some between, with names that are almost like ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.coordinator.layout import folder_of
from tenure.store.directory.layout import file_of

pytestmark = pytest.mark.trials
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
"""For any one command, on a machine that has much else to do: alone it is a few."""
MEGABYTES = 80
"""Of a whole process; half of what was measured is there before a store is opened."""
WORKERS = folder_of("default") + "workers/"
INBOX = "plugin=s3-queue/name=jobs/inbox/"
CROWDS = {
    f"{WORKERS}-other-": 20_000,
    f"{WORKERS}worker=-other-": 40_000,
    f"{WORKERS}zz-other-": 20_000,
    f"{INBOX}-other-": 20_000,
    f"{INBOX}{0:020d}-other-": 20_000,
    f"{INBOX}zz-other-": 20_000,
    "-other-": 30_000,
    "zz-other-": 30_000,
}

LIFE = """
import asyncio, json, sys
from lab.lister import peak_megabytes
from tenure import CoordinatorConfig, Database, S3QueuePlugin

async def main(url):
    handled = asyncio.Queue()
    async with Database(url, worker_id="a") as database:
        coordinator = await database.get_global_coordinator("default", config=CoordinatorConfig.for_lease(20))
        await coordinator.start()
        queue = await database.use_plugin(S3QueuePlugin("jobs"))

        @queue.handler
        async def handle(message):
            handled.put_nowait(message.body)

        for number in range(20):
            await queue.enqueue(number)
        found = sorted([await handled.get() for _ in range(20)])
        print(json.dumps({"handled": found, "megabytes": peak_megabytes()}))
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(asyncio.wait_for(main(sys.argv[1]), 600))
"""
COMMAND = """
import sys
from lab.lister import peak_megabytes
from tenure.cli.main import run

code = run(sys.argv[1:])
print("peak", peak_megabytes(), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    # pytest keeps the folders of the last runs, and nobody wants to keep so many files.
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


def crowd(root: Path) -> None:
    """Further names of one file, as many as a file may have, and not durably: that is fast."""
    for stem, count in CROWDS.items():
        first = root / file_of(f"{stem}{0:07d}")
        first.parent.mkdir(parents=True, exist_ok=True)
        first.touch(exist_ok=False)
        folder = os.open(first.parent, os.O_RDONLY)
        try:
            name = first.name.removesuffix(f"{0:07d}")
            for number in range(1, count):
                os.link(first.name, f"{name}{number:07d}", src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    peak = float(done.stderr.rpartition("peak ")[2])
    print(f"{arguments[0]}: {peak:.0f} MB")
    assert "Traceback" not in done.stderr
    assert peak < MEGABYTES
    return done.stdout


@pytest.mark.slow
def test_work_and_commands_among_two_hundred_thousand_files_of_others(root: Path) -> None:
    assert sum(CROWDS.values()) == 200_000
    crowd(root)
    url = root.as_uri()
    with subprocess.Popen(
        [sys.executable, "-c", LIFE, url], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as life:
        try:
            assert life.stdout is not None
            lived = json.loads(life.stdout.readline())
            print(f"\na worker: {lived['megabytes']:.0f} MB")
            assert lived["handled"] == list(range(20))
            assert lived["megabytes"] < MEGABYTES

            status = json.loads(command("status", url, "--json"))
            assert status["leader"] == "a"
            assert [worker["worker_id"] for worker in status["workers"]] == ["a"]
            workers = json.loads(command("workers", url, "--json"))
            assert [worker["worker_id"] for worker in workers["workers"]] == ["a"]
            assert json.loads(command("queue", "list", url, "--json"))["queues"] == ["jobs"]
            audited = json.loads(command("audit", url, "--json"))
            assert (audited["ok"], audited["terms"]) == (True, 1)
        finally:
            life.kill()

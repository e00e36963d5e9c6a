"""A bucket that a released version wrote is read, and gone on with, by the present code; and the other way round.

The released version runs in a process of its own, from its wheel.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tenure import CoordinatorConfig, Database

WHEELS = sorted((Path(__file__).parents[1] / "fixtures").glob("tenure-*.whl"))

SCRIPT = """
import asyncio, json, sys
import tenure
from tenure import CoordinatorConfig, Database

async def main(url):
    config = CoordinatorConfig.fast(startup_jitter_max=0)
    async with Database(url, worker_id="released") as db:
        coordinator = await db.get_global_coordinator("default", config=config)
        await coordinator.start()
        async with coordinator.leadership() as lead:
            await lead.put("fenced", b"by " + lead.worker_id.encode())
            emails = db.resource("emails")
            seen = [record.data["n"] for record in (await emails.list()).records]
            await emails.insert({"n": len(seen) + 1})
            storage = db.plugin_storage("kind", "name")
            before = await storage.get("key")
            await storage.set("key", (before or 0) + 1)
            async with db.lock("lock", ttl=5) as held:
                token = held.token
            said = {"file": tenure.__file__, "epoch": lead.epoch, "seen": seen, "before": before, "token": token}
            print(json.dumps(said))

asyncio.run(main(sys.argv[1]))
"""


def test_there_is_a_wheel_of_each_release_in_the_changelog() -> None:
    changelog = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    released = [
        line.split()[1] for line in changelog.splitlines() if line.startswith("## ") and "unreleased" not in line
    ]
    assert [wheel.name.split("-")[1] for wheel in WHEELS] == sorted(released)


@pytest.fixture(params=WHEELS, ids=lambda wheel: wheel.name.split("-")[1])
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(request.param) as wheel:
        wheel.extractall(tmp_path / "released")
    return tmp_path / "released"


async def run_released(folder: Path, url: str) -> dict[str, Any]:
    def run() -> subprocess.CompletedProcess[str]:
        code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{SCRIPT}"
        return subprocess.run(
            [sys.executable, "-c", code, url], capture_output=True, text=True, timeout=60, check=False
        )

    ended = await asyncio.to_thread(run)
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    assert said["file"].startswith(str(folder)), "the released version did not run"
    return said


async def run_present(url: str) -> dict[str, Any]:
    config = CoordinatorConfig.fast(startup_jitter_max=0)
    async with Database(url, worker_id="present") as db:
        coordinator = await db.get_global_coordinator("default", config=config)
        await coordinator.start()
        async with coordinator.leadership() as lead:
            fenced = await lead.claim("fenced")
            await lead.put("fenced", b"by " + lead.worker_id.encode())
            emails = db.resource("emails")
            seen = [record.data["n"] for record in (await emails.list()).records]
            await emails.insert({"n": len(seen) + 1})
            storage = db.plugin_storage("kind", "name")
            before = await storage.get("key")
            await storage.set("key", (before or 0) + 1)
            async with db.lock("lock", ttl=5) as held:
                token = held.token
            return {"epoch": lead.epoch, "seen": seen, "before": before, "token": token, "fenced": fenced}


async def test_versions_take_turns_on_one_bucket(unpacked: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'store'}"
    turns = [
        await run_released(unpacked, url),
        await run_present(url),
        await run_released(unpacked, url),
        await run_present(url),
    ]
    assert [turn["epoch"] for turn in turns] == [1, 2, 3, 4]
    assert [turn["token"] for turn in turns] == [1, 2, 3, 4]
    assert [sorted(turn["seen"]) for turn in turns] == [[], [1], [1, 2], [1, 2, 3]]
    assert [turn["before"] for turn in turns] == [None, 1, 2, 3]
    assert turns[1]["fenced"] == turns[3]["fenced"] == b"by released"

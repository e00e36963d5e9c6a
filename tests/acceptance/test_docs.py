"""What docs/plugins.md and docs/supervisor.md show can be run, from the first block to the last.

The first block of each opens a database and then waits in `serve()`. The others are run there.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.plugins.supervisor.telemetry import TELEMETRY_NAMES
from tests.acceptance.fleet import fleet

DOCS = Path(__file__).parents[2] / "docs"
PATIENCE = 60.0


class Page:
    """The blocks of one page, which share their names."""

    def __init__(self, page: str, url: str, **names: Any) -> None:
        self.text = (DOCS / page).read_text()
        blocks = re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)
        self.first, *self.others = [
            compile(block.replace("s3://bucket/app", url), page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            for block in blocks
        ]
        self.names = {"__name__": page, "asyncio": asyncio, **names}

    async def run(self, serve: Callable[[], Awaitable[None]]) -> dict[str, Any]:
        self.names["serve"] = serve
        async with asyncio.timeout(PATIENCE):
            await eval(self.first, self.names)
        return self.names

    async def run_others(self) -> None:
        assert len(self.others) >= 5
        for block in self.others:
            result = eval(block, self.names)
            if asyncio.iscoroutine(result):
                await result


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults spread a fleet's start over five seconds."""

    def fast(**settings: Any) -> tenure.CoordinatorConfig:
        return tenure.CoordinatorConfig.fast(**{"startup_jitter_max": 0, **settings})

    monkeypatch.setattr("tenure.database.core.CoordinatorConfig", fast)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def test_plugins(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    written: list[tuple[int, int]] = []
    told: list[tuple[object, ...]] = []

    async def write_report(page: int, token: int) -> None:
        written.append((page, token))

    async with tenure.lead(url):  # what has a history needs no cold start
        pass
    page = Page(
        "plugins.md",
        url,
        write_report=write_report,
        task={"epoch": 1},
        print=lambda *words: told.append(words),
    )

    async def serve() -> None:
        await until(lambda: written)
        plugin = page.names["plugin"]
        assert plugin.is_coordinator
        async with fleet(url, "pod-7") as others:
            await page.run_others()
            await until(others["pod-7"].is_leader)
            await until(lambda: not plugin.is_coordinator)
            await until(lambda: (1, 0) in written)  # the one that works alone
            await until(lambda: any(words[1:] == ("->", "pod-7") for words in told))
        await plugin.coordinator.stop()
        await plugin.stop()

    await page.run(serve)
    assert written[0] == (1, 2)
    assert any("from a former leader, epoch 1: it is" in str(words[0]) for words in told)
    assert any(words[0] == "done, with" for words in told)


async def test_supervisor(tmp_path: Path) -> None:
    told: list[tuple[object, ...]] = []
    tokens: list[int] = []

    async def send_what_is_due(token: int) -> None:
        tokens.append(token)
        await asyncio.sleep(0.1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    page = Page(
        "supervisor.md",
        tmp_path.as_uri(),
        send_what_is_due=send_what_is_due,
        answer=answer,
        print=lambda *words: told.append(words),
    )
    in_tables = set(re.findall(r"^\| `(\w+)` \|.*\|.*\|$", page.text.partition("## Telemetry")[2], re.MULTILINE))
    assert {name.rpartition(".")[2] for name in TELEMETRY_NAMES} <= in_tables

    async def serve() -> None:
        async def running() -> bool:
            status = await page.names["candidate"].children()
            return status is not None and {child.state.value for child in status.children} == {"running"}

        while not await running():
            await asyncio.sleep(0.05)
        await page.run_others()
        await page.names["candidate"].stop()

    names = await page.run(serve)
    assert tokens
    assert [child.name for child in names["children"]] == ["mailer", "api", "log"]
    assert sum(words[:2] == ("node-1", 1) for words in told) == 3
    await until(lambda: ("node-1", "stopped") in told)

"""docs/telemetry.md: its blocks run, its table is that of the collector, its loggers are those that there are."""

from __future__ import annotations

import ast
import asyncio
import importlib
import io
import json
import logging
import re
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenure import Database
from tenure.telemetry.catalogue import CATALOGUE
from tenure.telemetry.logs import LOGGERS
from tests.support.waiting import eventually
from tests.unit.telemetry_rig import SWIFT, nowhere

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"


def table() -> str:
    """As the page must have it; print this when a metric is added."""
    rows = ["| metric | kind | labels | what |", "|---|---|---|---|"]
    for family in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind.value} | {labels} | {family.help} |")
    return "\n".join(rows)


@pytest.mark.req("MT-6")
def test_the_table_has_every_metric_as_the_collector_describes_it() -> None:
    assert table() in PAGE.read_text(), f"docs/telemetry.md needs this table:\n\n{table()}\n"


def test_the_list_of_loggers_is_complete() -> None:
    section = PAGE.read_text().split("## Logs")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(tenure\.\w+)` \|", section, re.MULTILINE)) == set(LOGGERS)


@pytest.fixture
def quiet() -> Iterator[None]:
    """A program sets up its own logging; the tests' is put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


async def test_every_block_is_run(
    quiet: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is a program of its own; the others are parts of one, with a database `db`."""
    exported = io.StringIO()  # else they write to what was standard output when their module was imported
    for module, name in (("trace", "ConsoleSpanExporter"), ("metrics", "ConsoleMetricExporter")):
        place = importlib.import_module(f"opentelemetry.sdk.{module}.export")
        monkeypatch.setattr(place, name, partial(getattr(place, name), out=exported))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    url = nowhere()
    program, *parts = [block.replace("s3://bucket/app", url).replace("9464", "0") for block in blocks]
    assert len(parts) == 4
    await _first_scrape(program)
    async with Database(nowhere(), worker_id="one") as db:
        names: dict[str, Any] = {"__name__": "page", "db": db}
        for part in parts:
            code = compile(part, "telemetry.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            found = eval(code, names)
            if asyncio.iscoroutine(found):
                await found
        # A registry of one's own, and a route
        from prometheus_client import generate_latest

        assert b"tenure_build_info" in generate_latest(names["registry"])
        transport = httpx.ASGITransport(app=names["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://here", follow_redirects=True) as client:
            answer = await client.get("/metrics")
        assert "tenure_build_info" in answer.text
        # Spans and metrics
        await db.store.put("folder/key", b"")
        names["tracers"].force_flush()
        names["meters"].force_flush()
        shown = exported.getvalue()
        assert "tenure.store put" in shown
        assert "tenure.store.requests" in shown
        # Logs
        logging.getLogger("tenure.coordinator").warning("a test", extra={"event": "test", "epoch": 7})
        line = capsys.readouterr().err.strip().splitlines()[-1]
        told = json.loads(line)
        assert (told["message"], told["worker"], told["event"], told["epoch"]) == ("a test", "one", "test", 7)
        names["tracers"].shutdown()
        names["meters"].shutdown()


async def _first_scrape(program: str) -> None:
    code = compile(program.replace("asyncio.run(main())", ""), "telemetry.md", "exec")
    names: dict[str, Any] = {"__name__": "page"}
    exec(code, names)
    printed = io.StringIO()
    with redirect_stdout(printed):
        task = asyncio.create_task(names["main"]())
        await eventually(lambda: "http" in printed.getvalue() or task.done())
    place = printed.getvalue().strip()

    def scrape() -> str:
        with urllib.request.urlopen(place, timeout=10) as answer:
            return str(answer.read().decode())

    text = await asyncio.to_thread(scrape)
    names_found = {family.name for family in text_string_to_metric_families(text)}
    assert "tenure_is_leader" in names_found
    task.cancel()
    await asyncio.wait([task])


def test_the_first_scrape_takes_ten_lines() -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    assert len([line for line in program.splitlines() if line.strip()]) <= 12
    assert SWIFT.heartbeat_interval < 1

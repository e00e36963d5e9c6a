"""Whoever does not use telemetry pays nothing for it: none of it is imported, and none of it need be installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("prometheus_client", "opentelemetry", "starlette", "uvicorn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""

WORKS = """
import asyncio
import tenure

async def main():
    config = tenure.CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0)
    async with tenure.Database("memory://absent") as db:
        queue = await db.use_plugin(tenure.S3QueuePlugin("emails", config=config))
        scheduler = await db.use_plugin(tenure.SchedulerPlugin(config=config))
        handled = asyncio.Event()

        @queue.handler
        async def handle(message):
            handled.set()

        await queue.enqueue("x")
        async with asyncio.timeout(30):
            await handled.wait()
        coordinator = await db.get_global_coordinator()
        assert coordinator.is_leader()
        coordinator.get_metrics()

asyncio.run(main())
import tenure.telemetry.logs
"""

LOADED = """
print([name for name in sys.modules if name.partition(".")[0] in ("prometheus_client", "opentelemetry")])
print([name for name in sys.modules if name.startswith("tenure.telemetry")])
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_everything_else_works_where_they_are_not_installed() -> None:
    done = run(BLOCKED + WORKS)
    assert done.returncode == 0, done.stderr


def test_nothing_of_telemetry_is_imported_by_the_rest() -> None:
    works = WORKS.replace("import tenure.telemetry.logs\n", "")
    done = run("import sys\n" + works + "import tenure.cli.main\n" + LOADED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "[]"]


@pytest.mark.parametrize(("module", "extra"), [("prometheus", "prometheus"), ("otel", "otel")])
def test_without_its_extra_a_module_says_what_to_install(module: str, extra: str) -> None:
    done = run(BLOCKED + f"import tenure.telemetry.{module}")
    assert done.returncode == 1
    assert f"pip install 'tenure[{extra}]'" in done.stderr
    assert "During handling" not in done.stderr


def test_importing_telemetry_sets_up_nothing() -> None:
    program = """
import logging, threading
before = (logging.root.handlers[:], threading.active_count(), dict(logging.root.manager.loggerDict).keys())
import tenure.telemetry.logs, tenure.telemetry.prometheus, tenure.telemetry.otel
from prometheus_client import REGISTRY
assert logging.root.handlers == before[0]
assert threading.active_count() == before[1]
assert not logging.getLogger("tenure").handlers
assert not [name for name in REGISTRY._names_to_collectors if name.startswith("tenure")]
"""
    done = run(program)
    assert done.returncode == 0, done.stderr

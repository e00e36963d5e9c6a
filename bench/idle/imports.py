"""How long a program waits until it has imported tenure: many fresh processes, one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from bench.idle import NEEDLESS

PROGRAMS = {
    "import asyncio": "import asyncio",
    "import tenure": "import tenure",
    "what a worker needs": "import tenure; tenure.Database, tenure.CoordinatorConfig, tenure.lead",
    "with a store opened": (
        "import asyncio, tempfile, pathlib, tenure\n"
        "async def main():\n"
        "    with tempfile.TemporaryDirectory() as folder:\n"
        "        async with tenure.Database(pathlib.Path(folder).as_uri()): pass\n"
        "asyncio.run(main())"
    ),
}
_TIMED = """\
import json, sys, time
wall, cpu = time.perf_counter(), time.process_time()
{program}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps([wall * 1000, cpu * 1000, [name for name in {needless!r} if name in sys.modules], len(sys.modules)]))
"""


def import_times(times: int) -> list[dict[str, Any]]:
    return [import_time(what, program, times) for what, program in PROGRAMS.items()]


def import_time(what: str, program: str, times: int) -> dict[str, Any]:
    """Compiled modules are kept, as they are in every installation: one run that is not counted writes them."""
    code = _TIMED.format(program=program, needless=NEEDLESS)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = []
    for _ in range(times + 1):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        runs.append(json.loads(done.stdout))
    walls, cpus = [run[0] for run in runs[1:]], [run[1] for run in runs[1:]]
    return {
        "what": what,
        "best_ms": round(min(walls), 2),
        "median_ms": round(median(walls), 2),
        "cpu_median_ms": round(median(cpus), 2),
        "needless_modules": sorted({name for run in runs for name in run[2]}),
        "modules": runs[-1][3],
        "samples_ms": [round(wall, 2) for wall in walls],
    }

"""`make bench-idle`: memory and CPU of workers that have nothing to do, and how long `import tenure` takes.

Two real processes on a directory and two on ministack, config as it comes (heartbeat 5 s, lease 15 s), one of each pair
leads. They are looked at from outside, in /proc: resident memory (MB are millions of bytes), and CPU time of all their
threads, counted for minutes and extrapolated to an hour. Imports are timed in fresh processes, with compiled modules
in place.

Bars: 45 MB, 10 CPU seconds an hour, 150 ms; click, rich, starlette, prometheus_client and opentelemetry not imported.

    python -m bench.idle --quick
    python -m bench.idle --only imports

A run as it comes (six minutes, nearly all of it waiting) is written to bench/results/idle.json; any other to
.bench/idle.json, unless `--keep`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.form import finish
from bench.idle.figures import limits
from bench.idle.imports import import_times
from bench.idle.measure import measure
from bench.idle.plan import Plan
from bench.idle.table import show
from bench.queue.__main__ import missing, server_of
from lab.buckets import make_bucket

PARTS = ("directory", "ministack", "imports")


def main() -> int:
    options = parse()
    plan = Plan.quick() if options.quick else Plan()
    parts = [part for part in PARTS if part in (options.only or PARTS)]
    console = Console(width=130)
    began = time.monotonic()
    left_out: list[str] = []

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {what}", highlight=False)

    result: dict[str, Any] = {
        "seeds": "none: nothing here is drawn at random but ids and heartbeat jitter",
        "plan": asdict(plan),
        "load_average_before": [round(load, 1) for load in os.getloadavg()],
        "imports": import_times(plan.imports) if "imports" in parts else [],
        "workers": [],
    }
    home = Path(tempfile.mkdtemp(prefix="bench-idle-"))
    with contextlib.ExitStack() as servers:
        urls = {}
        if "directory" in parts:
            urls["directory"] = (home / "store").as_uri()
        if "ministack" in parts:
            if reason := missing("ministack"):
                left_out.append(f"ministack ({reason})")
            else:
                endpoint, _ = servers.enter_context(server_of("ministack", home / "server"))
                make_bucket(endpoint, "bench")
                urls["ministack"] = endpoint.store_url("bench", "idle")
        if urls:
            try:
                result["workers"] = measure(urls, home, plan, tell)
            except (RuntimeError, TimeoutError, OSError) as error:
                left_out.append(f"workers: {error}")
    result |= {"left_out": left_out, "load_average_after": [round(load, 1) for load in os.getloadavg()]}
    show(result, console)
    for reason in left_out:
        console.print(f"left out: {reason}", markup=False)
    is_whole = plan == Plan() and parts == list(PARTS) and not left_out
    bars = limits(result["workers"], result["imports"])
    code = finish("idle", result, bars, console, is_whole=is_whole or options.keep)
    if left_out:
        console.print(f"logs: {home}")
        return 1
    shutil.rmtree(home, ignore_errors=True)
    return code


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.idle", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="for seconds: to see that it works")
    parser.add_argument("--keep", action="store_true", help="write to bench/results/idle.json whatever was measured")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

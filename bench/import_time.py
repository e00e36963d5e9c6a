"""What importing costs: tenure alone, what a worker uses, and each part of its telemetry.

    make bench-import_time

Each figure is the CPU time of a fresh interpreter, the best of several: the disk's cache is warm.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

STEPS = (
    ("import tenure", "import tenure"),
    ("a coordinator and a queue", "tenure.Database; tenure.S3QueuePlugin"),
    ("tenure.telemetry.logs", "import tenure.telemetry.logs"),
    ("tenure.telemetry.prometheus", "import tenure.telemetry.prometheus"),
    ("tenure.telemetry.otel", "import tenure.telemetry.otel"),
)
"""One after the other: each has what those before it imported."""
TELEMETRY = ("prometheus_client", "opentelemetry", "tenure.telemetry")


def measure() -> dict[str, float]:
    lines = ["import json, sys, time", "took, before = {}, time.process_time()"]
    for number, (name, statement) in enumerate(STEPS):
        if number == 2:
            lines.append(f"assert not [name for name in sys.modules if name.startswith({TELEMETRY!r})]")
        lines += [statement, "now = time.process_time()", f"took[{name!r}], before = now - before, now"]
    lines.append("print(json.dumps(took))")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What importing costs.")
    parser.add_argument("--times", type=int, default=15)
    times = parser.parse_args().times
    runs = [measure() for _ in range(times)]
    best = {name: round(1000 * min(run[name] for run in runs), 1) for name, _ in STEPS}
    for name, milliseconds in best.items():
        print(f"{name:30} {milliseconds:7.1f} ms")


if __name__ == "__main__":
    main()

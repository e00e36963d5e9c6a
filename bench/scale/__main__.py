"""`make bench-scale`: fleets of 10 to 10,000 workers, simulated: requests, bytes, the leader's cycle, failover.

The production classes run on simulated time, all in one thread, on a simulated bucket (`tenure.testing`): counts are
exact, the same for the same seed. A message takes 2 to 20 ms each way, evenly drawn, so that a request takes 22 ms on
average; nothing else takes time, and nothing fails but the leaders that are crashed. Config as it comes (heartbeat 5 s,
lease 15 s). CPU is real, of a leader alone in its world, with the records of so many others.

The largest fleet starts warm: one worker leads before the others come. Bars: what one worker asks in one heartbeat,
in requests and in bytes, grows by at most 10 % with the fleet.

    python -m bench.scale --quick
    python -m bench.scale --only 10 100

A run as it comes (some fifteen minutes of one core) is written to bench/results/scale.json; any other to
.bench/scale.json, unless `--keep`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
from typing import Any

from rich.console import Console

from bench.form import finish
from bench.scale.figures import ends, limits
from bench.scale.leader import leader_cpu
from bench.scale.measure import measure
from bench.scale.plan import Plan
from bench.scale.table import show


def main() -> int:
    options = parse()
    plan = Plan.quick() if options.quick else Plan()
    if options.only:
        plan.sizes = tuple(sorted(options.only))
        plan.failovers = {size: plan.failovers.get(size, 1) for size in plan.sizes}
    if options.seed is not None:
        plan.seed = options.seed
    console = Console(width=150)
    began = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {what}", highlight=False)

    result = run(plan, tell)
    show(result, console)
    for reason in result["left_out"]:
        console.print(f"left out: {reason}", markup=False)
    is_whole = plan == Plan() and not result["left_out"]
    code = finish(
        "scale", result, limits(result["sizes"], 2 * plan.latency[1]), console, is_whole=is_whole or options.keep
    )
    return 1 if result["left_out"] else code


def run(plan: Plan, tell: Any) -> dict[str, Any]:
    result: dict[str, Any] = {
        "seeds": f"{plan.seed}: what is counted is the same in every run",
        "plan": {**asdict(plan), "failovers": {str(size): count for size, count in plan.failovers.items()}},
        "load_average_before": [round(load, 1) for load in os.getloadavg()],
    }
    left_out: list[str] = []
    leaders = []
    for size in (*plan.sizes, *plan.beyond):
        try:
            leaders.append(leader_cpu(size, plan))
        except RuntimeError as error:
            # One size that fails does not cost the others their figures.
            left_out.append(f"a leader of {size:,}: {error}")
    tell("the leader's CPU: " + ", ".join(f"{row['workers']:,}: {row['cpu_ms_per_cycle']:.2f} ms" for row in leaders))
    sizes = []
    for size in plan.sizes:
        try:
            sizes.append(measure(size, plan, tell))
        except RuntimeError as error:
            left_out.append(f"{size:,} workers: {error}")
            tell(left_out[-1])
    result |= {
        "sizes": sizes,
        "leaders": leaders,
        "ends": ends(sizes, leaders, sum(plan.latency)) if sizes and leaders else [],
        "left_out": left_out,
        "load_average_after": [round(load, 1) for load in os.getloadavg()],
    }
    return result


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", type=int, metavar="WORKERS", help="sizes of fleets")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--quick", action="store_true", help="small counts: to see that it works")
    parser.add_argument("--keep", action="store_true", help="write to bench/results/scale.json whatever was measured")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

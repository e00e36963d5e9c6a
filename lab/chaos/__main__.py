"""`make chaos`: see the package's own text.

python -m lab.chaos --store ministack --minutes 3 --seed 7
python -m lab.chaos --store ministack --minutes 1 --broken believes-on     # must end with a violation
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lab.arguments import minutes, whole
from lab.ceph import Ceph
from lab.chaos.conductor import LIBRARIES, Conductor, Run
from lab.chaos.node import BROKEN
from lab.chaos.plan import KINDS, Kind, Timing, plan
from lab.chaos.recovery_judge import calm_seconds
from lab.chaos.site import SITES, home_for
from lab.chaos.verdict import Verdict, judge_run, table
from lab.ledger_cluster import ROOT
from lab.ministack import Ministack

FEWEST = 3
"""Processes. With two, nobody is left to take over while one is cut off and one has ended."""
MOST = 12
"""All of them are on one machine: with more, it is the machine that is tried."""


def missing(store: str) -> list[str]:
    """What has to be installed first."""
    found = {"ministack": Ministack.missing, "ceph": Ceph.missing}.get(store, list)()
    return [*found, *([] if LIBRARIES else ["libfaketime"])]


def main() -> int:
    arguments = parse_arguments()
    lacking = missing(arguments.store)
    if lacking:
        print(f"not installed: {', '.join(lacking)}; run tools/install-servers", file=sys.stderr)
        return 2
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", file=sys.stderr, flush=True)

    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(10**6)
    folder = arguments.logs or ROOT / ".reports" / "chaos" / f"{arguments.store}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    tell(f"{arguments.store}, seed {seed}, {arguments.minutes:g} min; logs in {folder}")
    try:
        verdict = asyncio.run(run(arguments, seed, folder, tell))
    except asyncio.CancelledError:
        tell("ended before it was over: nothing is judged")
        return 2
    (folder / "verdict.json").write_bytes(msgspec.json.format(msgspec.json.encode(verdict)))
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode({**as_dict(verdict), "violations": verdict.violations})).decode())
    else:
        print("\n".join(table(verdict)))
        if verdict.violations:
            print(f"again: make chaos STORE={arguments.store} SEED={seed} MINUTES={arguments.minutes:g}")
    return 1 if verdict.violations else 0


def as_dict(verdict: Verdict) -> dict[str, object]:
    return msgspec.structs.asdict(verdict)


async def run(arguments: argparse.Namespace, seed: int, folder: Path, tell: object) -> Verdict:
    assert callable(tell)
    # Whoever ends it early leaves nothing behind: servers that run by themselves, a disk that is mounted.
    current = asyncio.current_task()
    assert current is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, current.cancel)
    calm = arguments.calm or calm_seconds()
    timing = Timing(arguments.wave, calm)
    kinds = [Kind(name) for name in arguments.only] or list(KINDS[arguments.store])
    steps = plan(seed, arguments.minutes * 60, arguments.nodes, kinds, timing)
    noted = Run(
        store=arguments.store,
        seed=seed,
        seconds=arguments.minutes * 60,
        nodes=arguments.nodes,
        broken=arguments.broken,
        steps=list(steps),
        wipes=not arguments.skip_wiping,
    )
    with home_for(arguments.store) as home:
        site = SITES[arguments.store](Path(home))
        try:
            site.start(arguments.nodes)
            await Conductor(site, folder, steps, noted, timing, tell).conduct()
        finally:
            site.stop()
    tell("judging")
    return judge_run(folder, noted)


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.chaos", description="Everything at once, and what goes wrong.")
    parser.add_argument("--store", choices=sorted(SITES), default="ministack")
    parser.add_argument(
        "--minutes", type=minutes, default=3.0, help="of waves and calm; starting and settling come on top"
    )
    parser.add_argument("--seed", type=int, help="draws the plan; without one, any")
    parser.add_argument("--nodes", type=whole(FEWEST, MOST), default=5, help=f"processes, {FEWEST} to {MOST}")
    parser.add_argument("--wave", type=float, default=26.0, metavar="SECONDS")
    parser.add_argument("--calm", type=float, metavar="SECONDS", help="without it, as long as recovery may take")
    parser.add_argument(
        "--only", action="append", default=[], choices=[kind.value for kind in Kind], help="these faults"
    )
    parser.add_argument(
        "--broken", action="append", default=[], choices=sorted(BROKEN), help="every process is wrong so"
    )
    parser.add_argument("--skip-wiping", action="store_true", help="do not delete everything but the leases at the end")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="instead of .reports/chaos/STORE-SEED")
    parser.add_argument("--json", action="store_true", help="the verdict as one JSON object")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())

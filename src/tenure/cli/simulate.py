"""`tenure simulate`: try to make two leaders, or to break what a plugin promises, from thousands of seeds."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tenure.cli.numbers import Decimal, Whole
from tenure.cli.settings import one_of
from tenure.cli.text import show_json
from tenure.simulate.campaign import CatchRate, Report, catch_rates, run_campaign
from tenure.simulate.fleets import FLEETS
from tenure.simulate.seed import Plan
from tenure.testing.broken import all_variants, variants_of

_MAX_SHOWN = 60
ALL_FAULTS = dict.fromkeys(fault for fleet in FLEETS.values() for fault in fleet.faults)
LEAST_SHARE = 0.05
"""A broken variant that is caught more rarely would be missed by the few seeds that a change is tried on."""
EPILOG = "\b\nBroken variants, each of which leaves one rule out and must be caught:\n" + "\n".join(
    f"  {variant.name:<28}{variant.leaves_out}" for variant in all_variants().values()
)


class _Variant(click.Choice[str]):
    """One of so many that a complaint cannot list them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return str(value)
        close = get_close_matches(str(value)[:_MAX_SHOWN], self.choices, n=1)
        hint = f"did you mean {close[0]}?" if close else "`tenure simulate --help` lists them"
        return self.fail(f"there is no variant {str(value)[:_MAX_SHOWN]!r}: {hint}", param, ctx)


def _kinds(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    if value == "all":
        return ()
    kinds = tuple(part.strip() for part in value.split(",") if part.strip())
    for kind in kinds:
        if kind not in ALL_FAULTS:
            raise click.BadParameter(f"{kind[:_MAX_SHOWN]!r} is none of: all, {', '.join(ALL_FAULTS)}")
    if not kinds:
        raise click.BadParameter(f"give all, or some of: {', '.join(ALL_FAULTS)}")
    return kinds


@click.command(epilog=EPILOG, short_help="Look for two leaders, in simulated time.")
@click.option("--seeds", type=Whole(1, 10_000_000), default=100, show_default=True, help="How many to run.")
@click.option("--first-seed", type=Whole(0, 2**63 - 1), default=1, show_default=True, help="The first; replays a run.")
@click.option("--workers", type=Whole(1, 100), default=5, show_default=True, help="Processes in the fleet.")
@click.option("--minutes", type=Decimal(0.1, 100_000), default=10, show_default=True, help="Simulated, a seed.")
@click.option("--faults", callback=_kinds, default="all", show_default=True, help="Kinds of trouble, with commas.")
@click.option("--broken", type=_Variant(list(all_variants())), metavar="VARIANT", help="Leave one rule out: see below.")
@click.option("--rates", is_flag=True, help="Print in how many seeds each broken variant is caught.")
@click.option("--queue", is_flag=True, help="Run a queue on the fleet, and judge that as well.")
@click.option("--schedule", is_flag=True, help="Run a schedule on the fleet, and judge that as well.")
@click.option("--ttl", is_flag=True, help="Have records expire on the fleet, and judge that as well.")
@click.option("--counters", is_flag=True, help="Count on the fleet, and judge that as well.")
@click.option("--lock", is_flag=True, help="Contend for a lock, without a leader, and judge that.")
@click.option("--children", is_flag=True, help="Supervise children on the fleet, and judge that as well.")
@click.option("--records", is_flag=True, help="Write the same few records, without a leader, and judge that.")
@click.option("--polling", is_flag=True, help="Poll by checks on the fleet, and judge that as well.")
@click.option("--processes", type=Whole(1, 1024), help="Cores to use.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def simulate(
    seeds: int,
    first_seed: int,
    workers: int,
    minutes: float,
    faults: tuple[str, ...],
    broken: str | None,
    rates: bool,
    queue: bool,
    schedule: bool,
    ttl: bool,
    counters: bool,
    lock: bool,
    children: bool,
    records: bool,
    polling: bool,
    processes: int | None,
    as_json: bool,
) -> int:
    """Run the production classes in simulated time, with everything going wrong, and look for two leaders.

    Each seed is a fleet of its own, with drifting clocks, crashes, freezes, lost answers, damage to the bucket and
    people who ask for things; the same seed gives the same run. With --queue every process also enqueues and handles
    messages, and every message is accounted for: none lost, none that was acked delivered again. With --ttl every
    process writes records that expire, and refreshes them at the last instant: none goes early, none stays. With
    --schedule every process declares jobs, runs and changes them: each occurrence is decided once, and none early. With
    --counters every process adds, subtracts and sets while others change, delete and insert the same records: each
    amount is counted once. With --lock processes that elect no leader contend for a lock: never two holders, and what
    runs under a lock has ended before another gets it. With --children the leader runs supervised children: each on one
    node at most, and ended before the lease can pass on. With --records processes write the same few records: no
    update is lost, and each caller is told what happened. With --polling the leader hands out checks: each is begun
    once at most, and counted once.

    Exit code 1 on a violation, or if a long run left a kind of fault out. A broken variant ends when its own check
    reports, and exits with 1 as well: that is what it is for. With --rates every broken variant of the kind runs on all
    seeds, and exit code 1 says that one was caught in under 5 % of them.
    """
    given = {
        "queue": queue,
        "schedule": schedule,
        "ttl": ttl,
        "counters": counters,
        "lock": lock,
        "children": children,
        "records": records,
        "polling": polling,
    }
    what = one_of(*(name for name, is_given in given.items() if is_given)) or "election"
    owner = next((kind for kind in FLEETS if broken in variants_of(kind)), "election")
    if broken is not None and broken not in variants_of(what) and owner != "election":
        raise click.UsageError(f"{broken!r} is a broken {owner}: give --{owner} as well")
    if others := [fault for fault in faults if fault not in FLEETS[what].faults]:
        raise click.UsageError(f"no {what} has the fault {others[0]!r}: it has {', '.join(FLEETS[what].faults)}")
    until = None if broken is None else all_variants()[broken].check
    plan = Plan(workers=workers, minutes=minutes, faults=faults, broken=broken, what=what, until=until)
    if rates:
        one_of("rates", *(["broken"] if broken else []))
        return _show_rates(first_seed, seeds, plan, processes, as_json)
    with _bar() as bar:
        task = bar.add_task("simulating", total=seeds, violated=0)
        report = run_campaign(
            first_seed,
            seeds,
            plan,
            processes=processes,
            progress=lambda done, violated: bar.update(task, completed=done, violated=violated),
            stop_at_violation=broken is not None,
        )
    if as_json:
        show_json(report)
    else:
        _tell(report)
    return 1 if report.violations or report.not_covered else 0


def _show_rates(first_seed: int, seeds: int, plan: Plan, processes: int | None, as_json: bool) -> int:
    with _bar("caught") as bar:
        task = bar.add_task("simulating", total=seeds * len(variants_of(plan.what)), violated=0)
        found = catch_rates(
            first_seed,
            seeds,
            plan,
            processes=processes,
            progress=lambda done, caught: bar.update(task, completed=done, violated=caught),
        )
    rare = [rate for rate in found if rate.share < LEAST_SHARE]
    if as_json:
        show_json({"seeds": seeds, "rates": found, "rare": [rate.variant for rate in rare]})
    else:
        for rate in sorted(found, key=lambda rate: rate.share):
            click.echo(_as_line(rate))
    return 1 if rare else 0


def _as_line(rate: CatchRate) -> str:
    mixes = ", ".join(f"{mix} {caught} of {seeds}" for mix, (caught, seeds) in rate.by_mix.items())
    return f"{rate.share:>6.1%}  {rate.variant:<28} {rate.check:<14} {mixes}"


def _bar(counted: str = "violated") -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{counted}: {{task.fields[violated]}}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())


def _tell(report: Report) -> None:
    hours = report.simulated_seconds / 3600
    began = FLEETS[report.what].began
    click.echo(
        f"{report.seeds:,} seeds of {report.workers} workers, {hours:,.1f} simulated hours in "
        f"{report.wall_seconds:,.0f} s: {report.terms:,} {began}, at least {report.fewest_faults} faults a seed."
    )
    titles = {"fault": "Trouble made", "network": "Seen by requests", "end": "Terms ended by"}
    titles |= {name: fleet.title for name, fleet in FLEETS.items() if fleet.title}
    for name, title in titles.items():
        hits = {key.split(":", 1)[1]: count for key, count in report.coverage.items() if key.startswith(f"{name}:")}
        if not hits:
            continue
        click.echo(f"{title}: " + ", ".join(f"{key} {count:,}" for key, count in hits.items()))
    points = [key for key in report.coverage if key.startswith(("crash:", "freeze:", "suspend:"))]
    click.echo(f"Struck while waiting in {len({key.split(':', 1)[1] for key in points})} different places.")
    for item in report.not_covered:
        click.echo(f"NOT COVERED: {item}")
    first = report.first_violation
    if first is None:
        fleet = FLEETS[report.what]
        election = ("never two leaders, epochs rise, every grant its own, nobody left without a leader.",)
        promises = [each for each in (*(election if fleet.is_elected else ()), fleet.promise) if each]
        click.echo("No violation: " + "\n".join(promises))
        return
    click.echo(f"VIOLATED in {report.violations} seeds; first in seed {first.seed}, after {first.at:.3f} s:")
    click.echo(f"  {first.check}: {first.what}")
    if report.broken is None:
        click.echo(
            f"Replay it:  tenure simulate --first-seed {first.seed} --seeds 1 --workers {report.workers} "
            f"--minutes {report.minutes:g}{'' if report.what == 'election' else f' --{report.what}'}"
        )

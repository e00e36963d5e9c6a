"""`tenure doctor`: is this store fit?"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tenure.cli.numbers import Whole
from tenure.cli.place import located
from tenure.cli.running import run_until_stopped
from tenure.cli.text import show_json
from tenure.doctor import Report, examine
from tenure.doctor.examine import Progress as OnProgress

_VERDICT = {
    True: "[bold green]fit[/]: tenure is safe on this store",
    False: "[bold red]unfit[/]: do not run tenure on this store",
    None: "[bold yellow]could not tell[/]",
}
_MARK = {True: "[green]yes[/]", False: "[red]NO[/]", None: "[yellow]?[/]"}


@click.command(short_help="Prove that a store is fit, and measure it.")
@located
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--rounds", type=Whole(1, 1000), default=25, show_default=True, help="Races of each kind.")
@click.option("--processes", type=Whole(2, 16), default=4, show_default=True, help="Processes that race.")
def doctor(url: str, as_json: bool, rounds: int, processes: int) -> int:
    """Prove, by races between processes, that the store at URL honours conditional writes; measure how fast it is.

    Takes some seconds and about a thousand small requests; leaves no object behind. Exit code 0: fit; 1: unfit, with
    the reason; 2: it could not be told.
    """
    with _progress() as progress:
        report = run_until_stopped(examine(url, rounds=rounds, processes=processes, progress=progress))
    if as_json:
        show_json(report)
    else:
        show(report, Console(highlight=False))
    return report.exit_code


def show(report: Report, console: Console) -> None:
    """Print a report for a person."""
    console.print(f"[bold]{escape(report.url)}[/]", soft_wrap=True)
    if report.checks:
        table = Table(show_header=False, box=None, pad_edge=False)
        for check in report.checks:
            table.add_row(_MARK[check.ok], check.name, f"[dim]{escape(check.detail)}[/]")
        console.print(table)
    if report.races:
        table = Table("race", "rounds", "writers", "processes", "one winner", "unclear", "broken")
        for race in report.races.values():
            numbers = (race.rounds, race.contenders, race.processes, race.winners, race.unknown, len(race.violations))
            table.add_row(race.kind, *map(str, numbers))
        console.print(table)
    if report.latency_ms:
        table = Table("request", "p50 ms", "p99 ms", "samples")
        for verb, latency in report.latency_ms.items():
            table.add_row(verb, f"{latency.p50:.1f}", f"{latency.p99:.1f}", str(latency.samples))
        console.print(table)
    for name, value in _facts(report):
        console.print(f"[dim]{name + ':':<14}[/] {escape(value)}", soft_wrap=True)
    for note in report.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
    console.print(_VERDICT[report.fit])
    for reason in report.reasons:
        console.print(f"  - {reason}", soft_wrap=True, markup=False)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    if report.dialect:
        yield "dialect", ", ".join(f"{name} {value}" for name, value in report.dialect.items())
    if report.credentials:
        yield "credentials", report.credentials
    if report.bucket:
        yield "bucket", ", ".join(f"{name} {value}" for name, value in report.bucket.items())
    if report.clock_offset is not None:
        offset = report.clock_offset
        yield "store's clock", f"{offset.seconds:+.2f} s from ours (± {offset.uncertainty_seconds:.2f} s)"
    if report.recommended is not None:
        timings = report.recommended
        yield (
            "recommended",
            f"heartbeat {timings.heartbeat_interval_seconds:g} s, lease {timings.lease_timeout_seconds:g} s, "
            f"request timeout {timings.request_timeout_seconds:g} s ({timings.why})",
        )
    yield "took", f"{report.elapsed_seconds:.1f} s"


@contextlib.contextmanager
def _progress() -> Iterator[OnProgress]:
    """Bars on a terminal, a line for each finished step elsewhere; always on standard error."""
    if not sys.stderr.isatty():

        def line(step: str, done: int, total: int) -> None:
            if done == total:
                click.echo(f"{step}: {done} of {total}", err=True)

        yield line
        return
    columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def bar(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield bar

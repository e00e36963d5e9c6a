"""`tenure workers`: who is in the fleet, and who would lead next?"""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenure.cli.durations import short_time
from tenure.cli.place import placed
from tenure.cli.running import run_until_stopped
from tenure.cli.status import ELECTION_ONLY, Patience, exit_code, find_status, yes
from tenure.coordinator.reading import Status, WorkerStatus

MAX_ROWS = 1000


class Fleet(msgspec.Struct, frozen=True):
    """What `tenure workers --json` prints."""

    namespace: str
    leader: str | None
    epoch: int
    active: int
    workers: tuple[WorkerStatus, ...]
    workers_left_out: int
    problem: str | None


@click.command(short_help="List the workers, and who would lead next.")
@placed
@click.option("--no-wait", is_flag=True, help="Answer at once: workers may be dead that look alive.")
@click.option("--json", "as_json", is_flag=True, help="Print the workers as one JSON object.")
def workers(url: str, namespace: str, no_wait: bool, as_json: bool) -> int:
    """List the workers at URL, and the order in which they would lead.

    Only reads. Waits until the lease is renewed or has lapsed, as `tenure status` does. Exit code 0: workers are alive;
    1: none is; 2: it could not be told.
    """
    found = run_until_stopped(find_status(url, namespace, Patience.ONE_LOOK if no_wait else Patience.UNTIL_SURE))
    active = sum(worker.active for worker in found.workers)
    if as_json:
        fleet = Fleet(
            namespace=found.namespace,
            leader=found.leader,
            epoch=found.epoch,
            active=active,
            workers=found.workers,
            workers_left_out=found.workers_left_out,
            problem=found.problem,
        )
        click.echo(msgspec.json.format(msgspec.json.encode(fleet), indent=2))
    else:
        show(found, active, Console(highlight=False))
    if active:
        return 0
    return 2 if exit_code(found) == 2 else 1


def show(found: Status, active: int, console: Console) -> None:
    """Print the workers for a person."""
    namespace = escape(repr(found.namespace))
    if found.workers:
        table = Table("worker", "next", "priority", "healthy", "active", "age")
        table.add_column("started (its clock)", no_wrap=True)
        for worker in found.workers[:MAX_ROWS]:
            table.add_row(
                f"[bold]{escape(worker.worker_id)}[/]" if worker.is_leader else escape(worker.worker_id),
                place_of(worker),
                str(worker.priority),
                yes(worker.healthy),
                yes(worker.active),
                f"{worker.age_seconds:.0f} s",
                escape(short_time(worker.started_at)),
            )
        console.print(table)
        if len(found.workers) > MAX_ROWS:
            console.print(f"[dim]… and {len(found.workers) - MAX_ROWS} more (--json shows all)[/]")
        console.print(f"{active} of {len(found.workers)} workers of {namespace} are active")
        console.print(
            "[dim]next: the order of succession; age: of its last heartbeat, against the newest one's[/]",
            soft_wrap=True,
        )
    elif found.leader is not None:
        console.print(f"{namespace} is {ELECTION_ONLY}; {escape(found.leader)} leads, epoch {found.epoch}")
    else:
        console.print(
            f"[bold yellow]no workers[/] in {namespace}: is a coordinator running with this URL and this namespace?",
            soft_wrap=True,
        )
    if found.workers_left_out:
        console.print(f"[yellow]and {found.workers_left_out} more, whose records were not read[/]")
    if found.problem is not None:
        console.print(f"[yellow]problem:[/] {escape(found.problem)}", soft_wrap=True)


def place_of(worker: WorkerStatus) -> str:
    if worker.is_leader:
        return "[bold green]leads[/]"
    if worker.rank is not None:
        return str(worker.rank)
    return "-" if worker.eligible else "never"

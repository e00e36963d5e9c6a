"""`tenure workers`: who is in the fleet, and who would lead next?"""

from __future__ import annotations

import click
import msgspec
from rich.console import Console

from tenure.cli.place import placed
from tenure.cli.running import run_until_stopped
from tenure.cli.status import ELECTION_ONLY, Patience, find_status, show_what_is_missing, show_workers
from tenure.cli.text import console_for_output, marked, show_json
from tenure.coordinator.reading import Status, WorkerStatus

MAX_ROWS = 1000


class Fleet(msgspec.Struct, frozen=True):
    """What `tenure workers --json` prints."""

    namespace: str
    leader: str | None
    epoch: int
    membership: bool
    """False: its workers keep no records, and `workers` is empty for that reason."""
    active: int
    workers: tuple[WorkerStatus, ...]
    workers_left_out: int
    workers_unreadable: int
    first_unreadable: str | None
    problem: str | None


@click.command(short_help="List the workers, and who would lead next.")
@placed
@click.option("--no-wait", is_flag=True, help="Answer at once: workers may be dead that look alive.")
@click.option("--json", "as_json", is_flag=True, help="Print the workers as one JSON object.")
def workers(url: str, namespace: str, no_wait: bool, as_json: bool) -> int:
    """List the workers at URL, and the order in which they would lead.

    Only reads. Waits until the lease is renewed or has lapsed, as `tenure status` does. Exit code 0: workers are alive,
    or keep no records (`tenure run` without --membership) and somebody leads; 1: none is; 2: it could not be told.
    """
    found = run_until_stopped(find_status(url, namespace, Patience.ONE_LOOK if no_wait else Patience.UNTIL_SURE))
    active = sum(worker.active for worker in found.workers)
    if as_json:
        fleet = Fleet(
            namespace=found.namespace,
            leader=found.leader,
            epoch=found.epoch,
            membership=not is_election_only(found),
            active=active,
            workers=found.workers,
            workers_left_out=found.workers_left_out,
            workers_unreadable=found.workers_unreadable,
            first_unreadable=found.first_unreadable,
            problem=found.problem,
        )
        show_json(fleet)
    else:
        show(found, active, console_for_output())
    if found.workers_unclear:
        return 2
    if active or is_election_only(found):
        return 0
    return 2 if found.unclear else 1


def is_election_only(found: Status) -> bool:
    """Somebody leads, and nobody is on record."""
    return found.leader is not None and not found.workers and not found.workers_unreadable


def show(found: Status, active: int, console: Console) -> None:
    """Print the workers for a person."""
    namespace = marked(repr(found.namespace))
    if found.workers:
        show_workers(found.workers, console, MAX_ROWS)
        console.print(f"{active} of {len(found.workers)} workers of {namespace} are active", soft_wrap=True)
        console.print(
            "[dim]next: the order of succession; age: of its last heartbeat, against the newest one's[/]",
            soft_wrap=True,
        )
    elif found.workers_unreadable:
        console.print(f"[bold yellow]no workers[/] in {namespace} whose record can be read", soft_wrap=True)
    elif is_election_only(found):
        console.print(
            f"{namespace} is {ELECTION_ONLY}; {marked(str(found.leader))} leads, epoch {found.epoch}", soft_wrap=True
        )
    else:
        console.print(
            f"[bold yellow]no workers[/] in {namespace}: is a coordinator running with this URL and this namespace?",
            soft_wrap=True,
        )
    show_what_is_missing(found, console)
    if found.problem is not None:
        console.print(f"[yellow]problem:[/] {marked(found.problem)}", soft_wrap=True)

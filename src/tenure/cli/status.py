"""`tenure status`: who leads?"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import sys
from collections.abc import AsyncIterator, Callable

import click
import msgspec
from rich.console import Console
from rich.table import Table

from tenure.cli.durations import short_time
from tenure.cli.place import open_namespace, placed
from tenure.cli.running import run_until_stopped
from tenure.cli.text import console_for_output, fitting_table, marked, show_json
from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.coordinator.layout import worker_key
from tenure.coordinator.reading import (
    DEFAULT_WORKER_TIMEOUT,
    MAX_WORKERS_READ,
    Status,
    WorkerStatus,
    list_newest,
    read_state,
    read_status,
    read_worker_timeout,
    with_ranks,
)
from tenure.election.records import State
from tenure.observe.printable import printable
from tenure.store import Access, Store

_LOOKS_PER_LEASE = 30
_SHORTEST_PAUSE = 0.1
_WORST_DRIFT = 0.1
_MARGIN_SECONDS = 0.2
_LOOKS_FOR_BEATS = 10
_SHOWN = 100
LONGEST_WAIT = 661.0
"""The longest lease that the command takes is 600 s, and the drift. A record may name any other."""
_SILENT_SECONDS = 4.0
_NARROWEST_NAME = 16

Say = Callable[[str], None]
ELECTION_ONLY = "election-only: no worker records (membership is off)"


class Patience(enum.Enum):
    UNTIL_SURE = "watch until the lease is renewed, or has lapsed"
    ONE_LOOK = "believe what the lease says"


@click.command(short_help="Say who leads.")
@placed
@click.option("--no-wait", is_flag=True, help="Answer at once, from what the lease says: its holder may be dead.")
@click.option("--json", "as_json", is_flag=True, help="Print the status as one JSON object.")
def status(url: str, namespace: str, no_wait: bool, as_json: bool) -> int:
    """Say who leads at URL, and which workers there are.

    Only reads. A lease says who holds it, not whether they are alive, so it is watched until it is renewed (within a
    heartbeat, while somebody leads) or has lapsed. Exit code 0: somebody leads; 1: nobody does; 2: it could not be
    told.
    """
    found = run_until_stopped(find_status(url, namespace, Patience.ONE_LOOK if no_wait else Patience.UNTIL_SURE))
    if as_json:
        show_json(found)
    else:
        show(found, console_for_output())
    return exit_code(found)


def exit_code(found: Status) -> int:
    if found.leader is not None:
        return 0
    return 2 if found.unclear else 1


async def find_status(url: str, namespace: str, patience: Patience) -> Status:
    async with (
        open_namespace(url, namespace, Access.READ_ONLY) as store,
        _said(sys.stderr.isatty(), SYSTEM_CLOCK) as say,
    ):
        return await look(store, namespace, patience, SYSTEM_CLOCK, say)


@contextlib.asynccontextmanager
async def _said(at_once: bool, clock: Clock) -> AsyncIterator[Say]:
    """What is waited for: on a terminal at once, elsewhere if it takes so long that somebody will wonder."""
    waiting: list[asyncio.Task[None]] = []

    async def later(line: str) -> None:
        await clock.sleep(_SILENT_SECONDS)
        click.echo(line, err=True)

    def say(line: str) -> None:
        for task in waiting:
            task.cancel()
        if at_once:
            click.echo(line, err=True)
        else:
            waiting.append(asyncio.create_task(later(line)))

    try:
        yield say
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def look(store: Store, namespace: str, patience: Patience, clock: Clock, say: Say = lambda line: None) -> Status:
    """The status, which names a leader only if the lease is alive (or was not watched)."""
    if patience is Patience.ONE_LOOK:
        return await read_status(store, namespace, clock)
    before = await _versions(store)
    watched = await watch(store, clock, say)
    found = await read_status(store, namespace, clock)
    if watched is None and found.leader is None and any(worker.active for worker in found.workers):
        return await _believe_beats_alone(store, found, before, clock, say)
    if watched is None or found.leader is None or found.lease_seconds is None:
        return found
    if not watched.lapsed:
        left = found.lease_seconds - clock.read().follower_elapsed(watched.since)
        return msgspec.structs.replace(found, lease_remaining_seconds=max(0.0, left))
    if (found.epoch, found.renewals) != (watched.state.epoch, watched.state.renewals):
        return found  # taken, or renewed after all, in the last moment
    after = await _versions(store)
    beating = {key for key, version in after.items() if before.get(key) != version}
    if watched.cut_short:
        return msgspec.structs.replace(
            found,
            leader=None,
            lease_remaining_seconds=None,
            unclear=True,
            workers_unclear=any(
                worker.active and worker_key(worker.worker_id) not in beating for worker in found.workers
            ),
            problem=f"{found.leader!r} has not renewed the lease of epoch {found.epoch} for {LONGEST_WAIT:.0f} s, and "
            f"it is one of {found.lease_seconds:.0f} s, longer than is watched here: look again later",
        )
    return msgspec.structs.replace(
        found,
        leader=None,
        lease_remaining_seconds=0.0,
        workers=_only_beating(found.workers, beating, lapsed_uid=watched.state.uid),
        problem=f"{found.leader!r} has not renewed the lease of epoch {found.epoch} for "
        f"{clock.read().follower_elapsed(watched.since):.0f} s: it has lapsed, and nobody has taken it",
    )


async def _believe_beats_alone(
    store: Store, found: Status, before: dict[str, object], clock: Clock, say: Say
) -> Status:
    """Nobody holds the lease, so nothing but the heartbeats tells the living from what the dead have left."""
    timeout = await read_worker_timeout(store) or DEFAULT_WORKER_TIMEOUT
    wanted = min(timeout, (found.lease_seconds or timeout) * (1 + _WORST_DRIFT) + _MARGIN_SECONDS)
    lasts = min(wanted, LONGEST_WAIT)
    say(f"nobody leads; waiting for heartbeats of the workers, for {lasts:.0f} s at most")
    since = clock.read()
    waited_for = {worker_key(worker.worker_id) for worker in found.workers if worker.active}
    while (left := lasts - clock.read().follower_elapsed(since)) > 0:
        await clock.sleep(min(left, max(_SHORTEST_PAUSE, lasts / _LOOKS_FOR_BEATS)))
        after = await _versions(store)
        beating = {key for key, version in after.items() if before.get(key) != version}
        if waited_for <= beating:
            break
    again = await read_status(store, found.namespace, clock)
    if again.leader is not None:
        return again  # whoever took it is alive
    if wanted > lasts and not waited_for <= beating:
        quiet = len(waited_for - beating)
        return msgspec.structs.replace(
            again,
            workers_unclear=True,
            problem=f"{quiet} {'worker has' if quiet == 1 else 'workers have'} sent no heartbeat for {lasts:.0f} s, "
            f"and may be alive: their timeout is {timeout:.0f} s, longer than is waited for here",
        )
    return msgspec.structs.replace(again, workers=_only_beating(again.workers, beating))


def _only_beating(
    workers: tuple[WorkerStatus, ...], beating: set[str], lapsed_uid: str | None = None
) -> tuple[WorkerStatus, ...]:
    """Ages go by the newest record; where all have died, that is old as well."""
    return with_ranks(
        (
            msgspec.structs.replace(
                worker, is_leader=False, active=worker.active and worker_key(worker.worker_id) in beating
            )
            for worker in workers
        ),
        lapsed_uid=lapsed_uid,
    )


class Watched(msgspec.Struct, frozen=True):
    """The lease after having been watched: renewed or taken at `since`, or lapsed, not having been renewed since."""

    state: State
    since: Reading
    lapsed: bool
    cut_short: bool = False
    """It may not have lapsed after all: its lease is longer than anybody waits."""


async def watch(store: Store, clock: Clock, say: Say) -> Watched | None:
    """Look until the lease changes, or for as long as it lasts by anybody's clock, but never for longer than
    `LONGEST_WAIT`. `None`: nobody holds one."""
    first = await read_state(store)
    since = clock.read()
    if not isinstance(first, State) or first.released:
        return None
    wanted = first.lease_seconds * (1 + _WORST_DRIFT) + _MARGIN_SECONDS
    lasts = min(wanted, LONGEST_WAIT)
    say(f"watching the lease for a renewal, for {lasts:.0f} s at most (--no-wait: believe it as it is)")
    while (left := lasts - clock.read().follower_elapsed(since)) > 0:
        await clock.sleep(min(left, max(_SHORTEST_PAUSE, lasts / _LOOKS_PER_LEASE)))
        again = await read_state(store)
        now = clock.read()
        if not isinstance(again, State) or again.released:
            return None
        if again.leader_write_id != first.leader_write_id:
            return Watched(again, now, lapsed=False)
    return Watched(first, since, lapsed=True, cut_short=wanted > lasts)


async def _versions(store: Store) -> dict[str, object]:
    """Of as many records as a status reads, the newest: whoever beats is among them."""
    newest = (await list_newest(store, MAX_WORKERS_READ)).newest
    return {entry.key: (entry.version.e_tag, entry.version.generation) for entry in newest}


def show(found: Status, console: Console) -> None:
    """Print the status for a person."""
    namespace = marked(repr(found.namespace))
    if found.leader is not None:
        console.print(
            f"[bold]{marked(found.leader)}[/] leads {namespace}, epoch {found.epoch}: elected at "
            f"{marked(found.elected_at or 'an unknown time')}, renewed {found.renewals} times",
            soft_wrap=True,
        )
        left = found.lease_remaining_seconds or 0.0
        console.print(
            f"[dim]lease:[/] {found.lease_seconds:g} s, of which at most {left:.1f} s are left; mandate until "
            f"{marked(found.mandate_ends_at or 'an unknown time')}",
            soft_wrap=True,
        )
    elif found.problem is not None:
        verdict = "could not tell who leads" if exit_code(found) == 2 else "nobody leads"
        console.print(f"[bold yellow]{verdict}[/] {namespace}", soft_wrap=True)
    elif found.epoch:
        heir = f", for {marked(found.successor)} to take" if found.successor else ""
        console.print(
            f"[bold yellow]nobody leads[/] {namespace}: epoch {found.epoch} was released{heir}", soft_wrap=True
        )
    else:
        console.print(
            f"[bold yellow]nobody leads[/] {namespace}: there is no lease; is a coordinator running with this URL and "
            "this namespace?",
            soft_wrap=True,
        )
    if found.problem is not None:
        console.print(f"[yellow]problem:[/] {marked(found.problem)}", soft_wrap=True)
    if found.workers:
        show_workers(found.workers, console, _SHOWN)
    elif found.leader is not None and not found.workers_unreadable:
        console.print(f"[dim]{ELECTION_ONLY}[/]", soft_wrap=True)
    show_what_is_missing(found, console)


def show_workers(workers: tuple[WorkerStatus, ...], console: Console, most: int) -> None:
    """As many of their columns as the terminal has room for. A name is never cut: it is what one copies."""
    shown = workers[:most]

    def table(*columns: tuple[str, Callable[[WorkerStatus], str]]) -> Table:
        made = Table()
        made.add_column("worker", overflow="fold", min_width=min(_NARROWEST_NAME, max(map(_name_length, shown))))
        for title, _ in columns:
            made.add_column(title, overflow="fold")
        for worker in shown:
            made.add_row(_name(worker), *(cell(worker) for _, cell in columns))
        return made

    place: tuple[str, Callable[[WorkerStatus], str]] = ("next", place_of)
    rest = (("priority", _priority), ("healthy", _healthy), ("active", _active), ("age", _age))
    console.print(
        fitting_table(
            console,
            (
                lambda: table(place, *rest, ("started (its clock)", _started)),
                lambda: table(place, *rest),
                lambda: table(place, ("healthy", _healthy), ("active", _active), ("age", _age)),
                lambda: table(place, ("active", _active)),
            ),
        )
    )
    if len(workers) > most:
        console.print(f"[dim]… and {len(workers) - most} more (--json shows all)[/]", soft_wrap=True)


def show_what_is_missing(found: Status, console: Console) -> None:
    """Records that are not in the table."""
    if found.workers_left_out:
        console.print(f"[yellow]and {found.workers_left_out} more, whose records were not read[/]", soft_wrap=True)
    if found.workers_unreadable:
        objects = "object is" if found.workers_unreadable == 1 else "objects are"
        console.print(
            f"[yellow]{found.workers_unreadable} {objects} no record of a worker and left out:[/] "
            f"{marked(found.first_unreadable or '')}{' …' if found.workers_unreadable > 1 else ''}",
            soft_wrap=True,
        )


def place_of(worker: WorkerStatus) -> str:
    if worker.is_leader:
        return "[bold green]leads[/]"
    if worker.rank is not None:
        return str(worker.rank)
    return "-" if worker.eligible else "never"


def _name(worker: WorkerStatus) -> str:
    name = marked(worker.worker_id)
    return f"[bold]{name}[/]" if worker.is_leader else name


def _name_length(worker: WorkerStatus) -> int:
    return len(printable(worker.worker_id))


def _priority(worker: WorkerStatus) -> str:
    return str(worker.priority)


def _healthy(worker: WorkerStatus) -> str:
    return _yes(worker.healthy)


def _active(worker: WorkerStatus) -> str:
    return _yes(worker.active)


def _age(worker: WorkerStatus) -> str:
    return f"{worker.age_seconds:.0f} s"


def _started(worker: WorkerStatus) -> str:
    return marked(short_time(worker.started_at))


def _yes(answer: bool) -> str:
    return "yes" if answer else "[red]NO[/]"

"""How `tenure watch` looks on a terminal. Only draws: what is drawn is decided in `view`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.align import Align
from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tenure.cli.durations import short_time
from tenure.cli.text import marked
from tenure.clock import Reading
from tenure.coordinator.reading import WorkerStatus
from tenure.observe.printable import printable
from tenure.observe.view import Change, Kind, Phase, View

_TITLE, _LEADER, _FOOTER = 1, 6, 1
_LEAST_CHANGES = 5
_AROUND_WORKERS = 3  # the frame, and the names of the columns
_WIDEST_BAR = 40

_COLOUR = {
    Kind.ELECTED: "green",
    Kind.RENEWED: "green",
    Kind.JOINED: "green",
    Kind.BACK: "green",
    Kind.HEALTHY: "green",
    Kind.STORE_BACK: "green",
    Kind.LAPSED: "red",
    Kind.DAMAGED: "red",
    Kind.LEASE_GONE: "red",
    Kind.STORE_ERROR: "red",
    Kind.REFUSED: "yellow",
    Kind.STEPPED_DOWN: "yellow",
    Kind.LEFT: "yellow",
    Kind.SILENT: "yellow",
    Kind.UNHEALTHY: "yellow",
    Kind.UNREADABLE: "yellow",
    Kind.RESTARTED: "cyan",
    Kind.ASKED: "cyan",
}
_FRAME = {Phase.LEADING: "green", Phase.STARTING: "dim", Phase.RELEASED: "yellow", Phase.EMPTY: "yellow"}


class Footing(msgspec.Struct, frozen=True):
    """What the view itself costs."""

    requests: int
    usd_per_hour: float | None
    """`None`: it has not looked for long enough to say. 0: this store is free."""
    interval: float


def draw(
    view: View, place: str, changes: Sequence[Change], footing: Footing, now: Reading, *, width: int, height: int
) -> RenderableType:
    """One frame, `width` by `height`."""
    workers = view.ranked()
    room = max(0, height - _TITLE - _LEADER - _FOOTER)
    wanted = max(1, len(workers)) + _AROUND_WORKERS
    for_workers = max(_AROUND_WORKERS + 1, min(wanted, room - max(_LEAST_CHANGES, room // 3)))
    layout = Layout()
    layout.split_column(
        Layout(_title(view, place), size=_TITLE),
        Layout(_leader(view, now, width), size=_LEADER),
        Layout(_workers(view, workers, for_workers), size=for_workers),
        Layout(_changes(changes, max(1, room - for_workers - 2))),
        Layout(_footer(view, footing, width), size=_FOOTER),
    )
    return layout


def _title(view: View, place: str) -> RenderableType:
    return Text.assemble(
        (" tenure watch  ", "bold"),
        (place, "cyan"),
        ("  namespace ", "dim"),
        (view.namespace, "cyan"),
        overflow="ellipsis",
    )


def _leader(view: View, now: Reading, width: int) -> RenderableType:
    state = view.state
    lines: list[RenderableType] = [_headline(view)]
    if state is not None and not state.released:
        left = view.lease_left(now)
        ratio = left / state.lease_seconds
        cells = max(10, min(_WIDEST_BAR, width - 44))
        full = round(ratio * cells)
        colour = "green" if ratio > 1 / 3 else "yellow" if left > 0 else "red"
        lines.append(
            Text.assemble(
                ("lease    ", "dim"),
                ("━" * full, colour),
                ("━" * (cells - full), "grey23"),
                f"  {left:4.1f} s left of {state.lease_seconds:g} s",
            )
        )
        seen = "last renewal seen" if view.renewal_seen else "first seen, and not renewed since,"
        ago = view.since_renewal(now) or 0.0
        lines.append(Text.assemble(("renewal  ", "dim"), f"{seen} {ago:.1f} s ago; {state.renewals} in this term"))
        lines.append(
            Text.assemble(
                ("term     ", "dim"),
                f"since {_time(state.elected_at)}, mandate until {_time(state.mandate_ends_at)}",
                ("  by the leader's clock", "dim"),
                overflow="ellipsis",
            )
        )
    return Panel(Group(*lines), border_style=_FRAME.get(view.phase, "red"), padding=(0, 1))


def _headline(view: View) -> Text:
    state = view.state
    epoch = f"epoch {view.epoch}"
    if view.phase is Phase.LEADING and state is not None:
        doubt = "" if view.renewal_seen else "  holds the lease; not seen to renew it yet"
        return Text.assemble(
            ("● ", "bold green"),
            (printable(str(state.leader_id)), "bold"),
            (" leads" if view.renewal_seen else "", "bold"),
            f"  {epoch}",
            (doubt, "yellow"),
            overflow="ellipsis",
        )
    if view.phase is Phase.LAPSED and state is not None:
        return Text.assemble(
            ("○ nobody leads", "bold red"),
            f"  {epoch}: {printable(str(state.leader_id))} let its lease lapse",
            overflow="ellipsis",
        )
    if view.phase is Phase.RELEASED and state is not None:
        heir = f", for {printable(state.successor)} to take" if state.successor else ""
        return Text.assemble(("○ nobody leads", "bold yellow"), f"  {epoch} was released{heir}", overflow="ellipsis")
    if view.phase is Phase.EMPTY:
        return Text.assemble(("○ nobody leads", "bold yellow"), "  there is no lease: is a coordinator running?")
    if view.phase is Phase.STARTING:
        return Text("looking …", "dim")
    found = view.sight.found if view.sight is not None else None
    return Text.assemble(
        ("✗ the lease cannot be used", "bold red"),
        f"  {printable(str(getattr(found, 'reason', view.phase.value)))}",
        overflow="ellipsis",
    )


def _workers(view: View, workers: Sequence[WorkerStatus], height: int) -> RenderableType:
    active = sum(worker.active for worker in workers)
    more = f", {view.workers_left_out} not read" if view.workers_left_out else ""
    more += f", {len(view.unreadable)} not readable" if view.unreadable else ""
    title = f"workers: {active} active of {len(workers)}{more}"
    if view.workers is None:
        return Panel(Text("looking …", "dim"), title="workers", title_align="left", border_style="dim")
    if not workers:
        is_known = view.state is not None and not view.unreadable
        text = "election-only: no worker records" if is_known else "no worker records"
        return Panel(Text(text, "dim"), title=f"workers{more}", title_align="left", border_style="dim")
    rows = max(1, height - _AROUND_WORKERS)
    shown = workers if len(workers) <= rows else workers[: rows - 1]
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("worker", ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column("next", justify="right", no_wrap=True, ratio=1)
    table.add_column("priority", justify="right", no_wrap=True, ratio=1)
    table.add_column("heartbeat", justify="right", no_wrap=True, ratio=1)
    table.add_column("state", no_wrap=True, ratio=2)
    for worker in shown:
        mark = "[green]●[/] " if worker.is_leader else "  "
        name = f"[bold]{marked(worker.worker_id)}[/]" if worker.is_leader else marked(worker.worker_id)
        place = "leads" if worker.is_leader else str(worker.rank) if worker.rank is not None else "-"
        table.add_row(
            mark + name, place, str(worker.priority), f"{worker.age_seconds:.0f} s ago", _state(worker),
            style="" if worker.active else "dim",
        )  # fmt: skip
    if len(shown) < len(workers):
        table.add_row(f"[dim]  … and {len(workers) - len(shown)} more[/]")
    return Panel(table, title=title, title_align="left", border_style="dim")


def _state(worker: WorkerStatus) -> str:
    if not worker.active:
        return "[red]silent[/]"
    if not worker.healthy:
        return "[yellow]not healthy[/]"
    return "active" if worker.eligible else "active, never leads"


def _changes(changes: Sequence[Change], rows: int) -> RenderableType:
    lines = [
        Text.assemble(
            (_time(change.at) + "  ", "dim"),
            (f"{change.kind.value:<17}", _COLOUR.get(change.kind, "")),
            printable(change.detail),
            overflow="ellipsis",
            no_wrap=True,
        )
        for change in changes[-rows:]
    ]
    return Panel(Group(*lines), title="changes", title_align="left", border_style="dim")


def _footer(view: View, footing: Footing, width: int) -> RenderableType:
    if view.error is not None:
        return Text(
            f" the store does not answer, trying again: {printable(view.error)}",
            "red",
            overflow="ellipsis",
            no_wrap=True,
        )
    cost = f" (about {footing.usd_per_hour:.4f} USD an hour)" if footing.usd_per_hour else ""
    text = f" {footing.requests} requests{cost}; a look every {footing.interval:g} s; Ctrl-C ends, nothing is written"
    return Align.left(Text(text, "dim", overflow="ellipsis", no_wrap=True), width=width)


def _time(at: str) -> str:
    """Without the date."""
    return printable(short_time(at).rpartition(" ")[2]) or "?"


def is_drawable(encoding: str | None) -> bool:
    """Whether a terminal of this encoding has all that a frame is made of."""
    try:
        "╭─╮│╰╯━●○✗…".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True

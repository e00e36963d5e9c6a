"""The stage, drawn on a terminal: who leads, who led when, how the shop does, and what came of each act."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tenure.clock import Reading
from tenure.demo.cast import GONE, Role, State
from tenure.demo.shopfront import shopfront
from tenure.demo.stage import ACTS, FIRST_THREE, Stage

MIN_WIDTH = 76
MIN_HEIGHT = 23
MAX_WIDTH = 120
_WINDOW_SECONDS = 25.0
_MARK_SECONDS = 5
_REFRESH_SECONDS = 0.125
_COLUMNS_BESIDE_STRIP = 47
_ROWS = len(FIRST_THREE) + 1  # and the one that comes in the place of the first

_STYLE = {
    State.ABSENT: "dim",
    State.STARTING: "dim",
    State.LEADING: "bold green",
    State.STANDING_BY: "default",
    State.FROZEN: "bold cyan",
    State.LEAVING: "magenta",
    State.LEFT: "dim",
    State.KILLED: "bold red",
    State.DISMISSED: "dim",
    State.CRASHED: "bold red",
}
_STRIP = {
    State.ABSENT: (" ", ""),
    State.STARTING: ("·", "dim"),
    State.LEADING: ("█", "green"),
    State.STANDING_BY: ("─", "dim"),
    State.FROZEN: ("░", "cyan"),
    State.LEAVING: ("▒", "magenta"),
    State.LEFT: (" ", ""),
    State.KILLED: (" ", ""),
    State.DISMISSED: (" ", ""),
    State.CRASHED: (" ", ""),
}
_LAST_SIGN = {State.KILLED: ("✗", "bold red"), State.CRASHED: ("✗", "bold red"), State.LEFT: ("╴", "dim")}


def can_show(console: Console) -> bool:
    """Is there room for it, on a terminal that can move its cursor?"""
    return (
        console.is_terminal
        and not console.is_dumb_terminal
        and console.encoding.lower().startswith("utf")
        and console.width >= MIN_WIDTH
        and console.height >= MIN_HEIGHT
    )


@asynccontextmanager
async def showing(stage: Stage, console: Console) -> AsyncIterator[None]:
    """Draw the stage, again and again, until the body ends; the last picture stays."""

    async def draw(live: Live) -> None:
        while True:
            live.update(picture(stage, stage.clock.read(), console.width), refresh=True)
            await stage.clock.sleep(_REFRESH_SECONDS)

    with Live(picture(stage, stage.clock.read(), console.width), console=console, auto_refresh=False) as live:
        drawing = asyncio.create_task(draw(live))
        try:
            yield
        finally:
            drawing.cancel()
            live.update(picture(stage, stage.clock.read(), console.width), refresh=True)


def picture(stage: Stage, now: Reading, width: int) -> RenderableType:
    width = min(width, MAX_WIDTH)
    then = stage.curtain or now  # what comes after the curtain is no part of the time line
    sentence = Text(stage.sentence, style="bold", overflow="fold")
    # Two lines whether or not it needs them: what is below must not jump.
    lines = sentence.wrap(Console(width=width - 4), width - 4)
    spoken = Text("\n").join([*lines[:2], *([Text("")] * (2 - len(lines[:2])))])
    return Panel(
        Group(
            spoken,
            Text(""),
            _workers(stage, then, width),
            _legend(),
            _shop(stage, then, width),
            Text(""),
            _acts(stage),
        ),
        title="[bold]tenure demo[/]",
        title_align="left",
        subtitle=f"{now.leader_elapsed(stage.began):.1f} s",
        subtitle_align="right",
        box=box.ROUNDED,
        border_style="dim",
        width=width,
    )


def _workers(stage: Stage, now: Reading, width: int) -> Table:
    cells = width - 4 - _COLUMNS_BESIDE_STRIP
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", width=width - 4)
    table.add_column("worker", width=6)
    table.add_column("state", width=11)
    table.add_column("epoch", width=5, justify="right")
    table.add_column("done", width=4, justify="right")
    table.add_column("refused", width=7, justify="right")
    table.add_column("heard", width=6, justify="right")
    table.add_column(width=1)
    table.add_column(_scale(now.leader_elapsed(stage.began), cells), width=cells, no_wrap=True)
    for actor in stage.actors:
        style = _STYLE[actor.state]
        table.add_row(
            Text(actor.name, style=style),
            Text(actor.state.value, style=style),
            Text(str(actor.last_epoch or ""), style=style if actor.state is State.LEADING else "dim"),
            str(actor.done) if actor.done else "",
            Text(str(actor.refused), style="bold magenta") if actor.refused else "",
            Text(_silence(actor, now), style="dim" if actor.state in GONE else ""),
            "",
            strip(actor, stage, now, cells),
        )
    for _ in range(_ROWS - len(stage.actors)):
        table.add_row("")
    return table


def _shop(stage: Stage, now: Reading, width: int) -> Table:
    cells = width - 4 - _COLUMNS_BESIDE_STRIP
    return shopfront(stage, now, _COLUMNS_BESIDE_STRIP, cells, lambda cell: _instant(cell, cells, stage, now))


def _legend() -> Text:
    shown = {State.LEADING: "leads", State.STANDING_BY: "stands by", State.FROZEN: "frozen"}
    signs = [Text.assemble(_STRIP[state], (f" {word}", "dim")) for state, word in shown.items()]
    signs.append(Text.assemble(_LAST_SIGN[State.KILLED], (" killed", "dim")))
    legend = Text("   ").join(signs)
    legend.justify = "right"
    return legend


def _silence(actor: Role, now: Reading) -> str:
    """How long ago it said anything: this is all that others could know of one that is killed or frozen."""
    if not actor.said:
        return ""
    return f"{max(0.0, (now.boottime_ns - actor.said[-1].boottime_ns) / 1e9):.1f} s"


def _scale(elapsed: float, cells: int) -> str:
    """Seconds since the beginning, above the cells that they belong to."""
    first = _first_second(elapsed)
    line = [" "] * cells
    for mark in range(0, int(first + _WINDOW_SECONDS) + 1, _MARK_SECONDS):
        label = f"{mark} s"
        cell = round((mark - first) / _WINDOW_SECONDS * cells)
        if 0 <= cell <= cells - len(label):
            line[cell : cell + len(label)] = label
    return "".join(line)


def _first_second(elapsed: float) -> float:
    """The window begins with the story, and moves on only when it is full."""
    return max(0.0, elapsed - _WINDOW_SECONDS)


def _instant(cell: int, cells: int, stage: Stage, now: Reading) -> int | None:
    """The boottime that a cell of the time line stands for; None: it has not come."""
    elapsed = now.leader_elapsed(stage.began)
    second = _first_second(elapsed) + cell / cells * _WINDOW_SECONDS
    return None if second > elapsed else stage.began.boottime_ns + int(second * 1e9)


def strip(actor: Role, stage: Stage, now: Reading, cells: int) -> Text:
    """The last seconds of one process. Each cell shows one instant and not a stretch of time: within a stretch the
    leadership may pass on, and it would look as if two had led."""
    text = Text(no_wrap=True)
    before = State.ABSENT
    for cell in range(cells):
        instant = _instant(cell, cells, stage, now)
        if instant is None:
            break
        state = actor.state_at(instant)
        sign, style = _STRIP[state]
        if state is not before:
            sign, style = _LAST_SIGN.get(state, (sign, style))
        text.append(sign, style=style)
        before = state
    return text


def _acts(stage: Stage) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
    table.add_column(width=1)
    table.add_column(width=max(map(len, ACTS)))
    table.add_column(no_wrap=True, overflow="ellipsis")
    for number, title in enumerate(ACTS, 1):
        came_of = stage.came_of.get(number, "")
        if number == stage.act and not stage.over:
            table.add_row(Text("▶", style="bold green"), Text(title, style="bold"), came_of or Text("…", style="dim"))
        elif came_of:
            table.add_row(Text("✓", style="green"), title, came_of)
        else:
            table.add_row(Text("·", style="dim"), Text(title, style="dim"), "")
    return table

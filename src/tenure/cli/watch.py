"""`tenure watch`: see the election as it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator

import click
from rich.console import Console
from rich.live import Live

from tenure.cli.durations import between
from tenure.cli.place import open_namespace, placed
from tenure.cli.running import run_until_stopped
from tenure.cli.screen import Footing, draw, is_drawable
from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.observe.printable import json_text, printable
from tenure.observe.view import Change
from tenure.observe.watcher import Watcher
from tenure.store import Access
from tenure.store.metered import Metered
from tenure.store.url import parse_url

MAX_CHANGES_KEPT = 500
_FRAMES_PER_SECOND = 8
_TICK = 0.25
_SECONDS_BEFORE_COST = 10.0


@click.command(short_help="See the election as it goes on.")
@placed
@click.option(
    "--interval",
    type=between(0.1, 3600),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="Between two looks at the lease; at workers after every fifth.",
)
@click.option("--for", "lasting", type=between(0.1, 7 * 86400), metavar="DURATION", help="End after so long, e.g. 30s.")
@click.option("--json", "as_json", is_flag=True, help="Print each change as one JSON object on a line of its own.")
def watch(url: str, namespace: str, interval: float, lasting: float | None, as_json: bool) -> int:
    """Watch who leads at URL, and what changes.

    A live view on a terminal, a line for each change elsewhere. Only reads; a store that does not answer is asked again
    until it does. Ctrl-C ends it, with exit code 0; 2: the store cannot be looked at.
    """
    try:
        run_until_stopped(_watch(url, namespace, interval, lasting, as_json))
    except click.Abort:
        pass  # how a view ends
    except BrokenPipeError:
        _discard_output()
    return 0


async def _watch(url: str, namespace: str, interval: float, lasting: float | None, as_json: bool) -> None:
    clock = SYSTEM_CLOCK
    async with open_namespace(url, namespace, Access.READ_ONLY) as store:
        if as_json:
            teller: Lines | Screen = Lines(lambda change: json_text(change, indent=None))
        elif sys.stdout.isatty() and is_drawable(sys.stdout.encoding):
            teller = Screen(parse_url(url).shown, interval, clock)
        else:
            teller = Lines(_line)
        watcher = Watcher(Metered(store), namespace, interval, clock, teller.tell)
        with teller.shown(watcher):
            looking = asyncio.ensure_future(watcher.run())
            try:
                await _until_done(looking, teller, lasting, clock)
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)


async def _until_done(
    looking: asyncio.Future[None], teller: Lines | Screen, lasting: float | None, clock: Clock
) -> None:
    started = clock.read()
    while True:
        elapsed = clock.read().leader_elapsed(started)
        if lasting is not None and elapsed >= lasting:
            return
        if _reader_is_gone():
            raise BrokenPipeError
        teller.tick()
        tick = teller.every if lasting is None else min(teller.every, lasting - elapsed)
        pause = asyncio.ensure_future(clock.sleep(tick))
        await asyncio.wait((looking, pause), return_when=asyncio.FIRST_COMPLETED)
        pause.cancel()
        if looking.done():
            looking.result()
            return


class Lines:
    """A line for each change, written at once."""

    every = _TICK

    def __init__(self, line: Callable[[Change], str]) -> None:
        self._line = line

    def tell(self, change: Change) -> None:
        click.echo(self._line(change))
        sys.stdout.flush()

    def tick(self) -> None:
        pass

    def shown(self, watcher: Watcher) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Screen:
    """The live view. What it showed of changes is left on the terminal at the end."""

    every = 1 / _FRAMES_PER_SECOND

    def __init__(self, place: str, interval: float, clock: Clock) -> None:
        self._place = place
        self._interval = interval
        self._clock = clock
        self._changes: deque[Change] = deque(maxlen=MAX_CHANGES_KEPT)
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._watcher: Watcher | None = None

    def tell(self, change: Change) -> None:
        self._changes.append(change)

    @contextlib.contextmanager
    def shown(self, watcher: Watcher) -> Iterator[None]:
        self._watcher = watcher
        try:
            with Live(console=self._console, screen=True, auto_refresh=False) as self._live:
                yield
        finally:
            for change in self._changes:
                click.echo(_line(change))

    def tick(self) -> None:
        assert self._live is not None
        assert self._watcher is not None
        now = self._clock.read()
        usage = self._watcher.meter.usage()
        elapsed = now.follower_elapsed(self._watcher.started)
        footing = Footing(
            requests=usage.total,
            usd_per_hour=usage.usd / elapsed * 3600 if elapsed >= _SECONDS_BEFORE_COST else None,
            interval=self._interval,
        )
        size = self._console.size
        frame = draw(
            self._watcher.view, self._place, tuple(self._changes), footing, now, width=size.width, height=size.height
        )
        self._live.update(frame, refresh=True)


def _line(change: Change) -> str:
    return f"{change.at}  {change.kind.value:<17} {printable(change.detail)}"


def _reader_is_gone() -> bool:
    """A view may say nothing for hours; whoever read it may have left meanwhile (`| head -1`)."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def _discard_output() -> None:
    """What is still buffered would fail again at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

"""`tenure demo`: see it work on this machine."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, nullcontext

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tenure.cli.dashboard import address_of, listening, serve
from tenure.cli.running import run_until_stopped
from tenure.cli.settings import Refusal
from tenure.cli.text import show_json
from tenure.demo.encore import THREE_MORE, play_on
from tenure.demo.panel import can_show, showing
from tenure.demo.place import NAMESPACE, Place, demo_place
from tenure.demo.stage import Stage
from tenure.demo.story import Result, WentWrong, tell
from tenure.entropy import new_id
from tenure.observe.printable import printable

_LOOPBACK = "127.0.0.1"
_PORT = 8321

_EXAMPLE = """\
import asyncio
import tenure

async def main():
    async with tenure.lead("file:///tmp/my-first-election") as lead:
        print("this process leads, epoch", lead.epoch)
        await asyncio.sleep(60)

asyncio.run(main())
"""


class Page(msgspec.Struct, frozen=True):
    """The dashboard of the demo."""

    address: str
    token: str
    ended: asyncio.Future[None]


@click.command(short_help="Watch an election among real processes.")
@click.option("--store", metavar="URL", help="Where to play it instead: below this URL, in a place of its own.")
@click.option("--dashboard", is_flag=True, help="Show it in a browser as well, and go on until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print what happened as one JSON object.")
def demo(store: str | None, dashboard: bool, as_json: bool) -> int:
    """Watch an election among real processes: one leads and works, is killed, frozen, or leaves; another takes over.
    Meanwhile all of them share a queue, a schedule and a counter, and nothing of these is lost or done twice.

    Takes about half a minute, in a temporary directory, or below the URL given with --store; what it writes is removed
    at the end. With --dashboard it can be seen in a browser, and three more processes go on after the story until
    Ctrl-C. Exit code 0 only if all is right; 1 if not, with a sentence that says what was seen.
    """
    if dashboard:
        import tenure.dashboard  # noqa: F401 - says what to install, before anything is begun
    show = _Show(store, as_json, dashboard)
    try:
        run_until_stopped(show.play())
    except WentWrong as wrong:
        show.went_wrong(str(wrong))
    except click.Abort:
        if not show.goes_on:
            raise
        # How the encore ends.
    return 0 if show.is_right else 1


class _Show:
    def __init__(self, store: str | None, as_json: bool, dashboard: bool) -> None:
        self._store = store
        self._as_json = as_json
        self._dashboard = dashboard
        self._console = Console(highlight=False)
        self._live = not as_json and can_show(self._console)
        self._result: Result | None = None
        self.is_right = False
        self.goes_on = False
        """The story is over, and whoever looks at the dashboard decides when to end."""

    async def play(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        # A terminal that is closed is another way to be stopped.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, task.cancel)
        place: Place | None = None
        try:
            async with AsyncExitStack() as stack:
                place = await stack.enter_async_context(demo_place(self._store))
                page = await stack.enter_async_context(_page(place)) if self._dashboard else None
                if page is not None:
                    self._say(f"The dashboard is on {page.address}\nActions there need its token, {page.token}\n")
                await self._tell(place)
                if page is not None:
                    await self._play_on(place, page)
        finally:
            if place is not None and place.left_behind:
                click.echo(f"tenure: {place.left_behind}", err=True)

    async def _tell(self, place: Place) -> None:
        stage = Stage(lambda line: None if self._live else self._say(line))
        async with showing(stage, self._console) if self._live else nullcontext():
            self._result = result = await tell(place, stage)
        self.is_right = result.right
        if self._as_json:
            show_json(result)
            return
        if self._live:
            _show_verdicts(result, self._console)
        _say_what_came_of_it(result)
        if result.right and not self._dashboard:
            _say_what_next()

    async def _play_on(self, place: Place, page: Page) -> None:
        self.goes_on = True
        self._say(
            f"\nThree more processes, {', '.join(THREE_MORE)}, go on with the shop. Look at them on\n"
            f"    {page.address}\nTo have the leader step down, or pause the queue, sign in there with the token\n"
            f"    {page.token}\nCtrl-C ends it, and removes everything."
        )
        playing = asyncio.ensure_future(play_on(place))
        try:
            await asyncio.wait({playing, page.ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
        if not playing.cancelled():
            playing.result()  # says why they ended

    def went_wrong(self, why: str) -> None:
        self.is_right = False
        if self._as_json and self._result is None:
            show_json({"right": False, "problem": why})
        click.echo(printable(f"tenure: the demo went wrong: {why}"), err=True)

    def _say(self, line: str) -> None:
        click.echo(line, err=self._as_json)


@asynccontextmanager
async def _page(place: Place) -> AsyncIterator[Page]:
    """The dashboard, on this machine alone, for as long as the body lasts."""
    from tenure.dashboard.app import build

    token = new_id()
    app, parts = build(place.url.text(), NAMESPACE, token=token)
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(listening(_LOOPBACK, _PORT))
        except Refusal:  # somebody else has it
            listener = stack.enter_context(listening(_LOOPBACK, 0))
        serving = asyncio.ensure_future(serve(app, parts, listener))
        try:
            yield Page(address_of(_LOOPBACK, listener), token, serving)
        finally:
            serving.cancel()
            (ended,) = await asyncio.gather(serving, return_exceptions=True)
            if isinstance(ended, Exception):
                click.echo(printable(f"tenure: the dashboard ended: {ended}"), err=True)


def _show_verdicts(result: Result, console: Console) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for verdict in result.verdicts:
        mark = Text("✓", style="green") if verdict.ok else Text("✗", style="bold red")
        table.add_row(mark, Text(verdict.says, style="" if verdict.ok else "bold red"))
    console.print(table)


def _say_what_came_of_it(result: Result) -> None:
    if result.right:
        click.echo(f"All is right, in {result.seconds:.0f} s: never two leaders, never long without one, nothing lost.")
    else:
        click.echo("Something is wrong; the lines above say what. Please report it with this machine's file system.")


def _say_what_next() -> None:
    command = "tenure" if shutil.which("tenure") else f"{sys.executable} -m tenure"
    click.echo("To see it in a browser, with processes that go on until you end them:")
    click.echo(f"    {command} demo --dashboard\n")
    click.echo("Next, lead with a program of your own. Start this in two terminals, and stop one of them:\n")
    click.echo(_EXAMPLE)
    click.echo("Or have a program run in one place only, whatever it is written in:")
    click.echo(f"    {command} run file:///tmp/my-first-election -- your-program\n")
    click.echo("In production it is a bucket that they share; this proves that yours will do:")
    click.echo(f"    {command} doctor s3://your-bucket/some-prefix")
